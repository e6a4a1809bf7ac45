"""Reinforcement learning over whole episodes: `python -m training.rl --config $SLIPWAY_CONFIG`.

Rollouts of the model on desktops, by the loop of `eval`; the loss has a term for every sampled token. Writes under
$SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (a LoRA merged in), results/ (summary.json, gate.json,
records/ of all that was tried, rollouts/ with screens), and .done when the training is finished.

After SIGTERM it throws the unfinished rollouts of the present generation away, saves, and exits 0 without .done;
$SLIPWAY_RESUME names the checkpoint to resume from. What that generation had finished counts then, and the others are
played (`rollouts.finished_rollouts`). Exit code 1: too many rollouts were void, a retry may help. Exit code 78: no
retry helps, as when the gate stops the training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import progress
from eval.desktop import InfraError, Task
from eval.environments.registry import environment
from training.common.entry import check_resume, entry, run_training
from training.common.model.adapter import lora
from training.common.model.loading import load_model, load_processor
from training.common.model.saving import save_model
from training.memory import plan
from training.options import processes, training_arguments
from training.rl.config import RlConfig
from training.trl_arguments import check_arguments, with_trl


def arguments(config: RlConfig, out: Path) -> dict[str, Any]:
    """Keyword arguments for TRL's GRPOConfig."""
    return {
        **training_arguments(config, out),
        # what TRL would sample: one row of its own for each step, which nothing reads
        "per_device_train_batch_size": config.group_size,
        "num_generations": config.group_size,
        "steps_per_generation": 1,
        "num_iterations": 1,
        "max_completion_length": config.max_completion,
        "temperature": config.temperature,
        "loss_type": config.loss,
        "importance_sampling_level": config.importance,
        "beta": 0.0,
        "disable_dropout": True,  # an adapter brings its own, and the loss must see the policy that sampled
        "epsilon": config.epsilon,
        "epsilon_high": config.epsilon_high,
        "scale_rewards": "none",
    }


def make_trainer(config: RlConfig, out: Path) -> Any:
    """The RolloutTrainer, ready to train. Raises ConfigError."""
    with large_imports():
        from datasets import Dataset
        from trl import GRPOConfig

        from training.rl.learning.critic import ValueNetwork
        from training.rl.rollouts.filters import SamplingFilters
        from training.rl.rollouts.policy import Policy
        from training.rl.rollouts.starts import desktop_maker
        from training.rl.trainer import RolloutTrainer

    check_arguments(config.trl, GRPOConfig)  # before the model, which takes minutes
    world = environment(config.environment)
    tasks: list[Task] = world.tasks(config.tasks.count, config.tasks.seed, config.options)
    builder = config.prompt.builder()
    model, processor = load_model(config)
    # a processor of its own: an agent pads on the other side than a trainer
    own = load_processor(config.model, config.max_pixels, config.min_pixels)
    assert config.steps is not None

    def policy(trained: Any, autocast: Any) -> Policy:
        return Policy(
            (trained, own),
            builder,
            temperature=config.temperature,
            max_new_tokens=config.max_completion,
            batch_size=config.batch_size,
            autocast=autocast,
            filters=SamplingFilters.of(config),
        )

    def critic() -> ValueNetwork:
        from training.common.model.loading import start_model

        return ValueNetwork(start_model(config).model.float())

    def reference() -> Any:
        from trl.trainer.utils import add_fused_lm_head

        from training.common.model.loading import start_model

        start = start_model(config)
        # the forward that TRL gives the trained model, and asks of every one
        add_fused_lm_head(start, temperature=config.temperature, outputs=("log_probs", "entropy"))
        return start

    trainer = RolloutTrainer(
        chosen=config,
        tasks=tasks,
        make_desktop=desktop_maker(config),
        policy=policy,
        out=out,
        critic=None if config.critic is None else critic,
        reference=reference if config.lora is None else None,
        model=model,
        args=one_device(with_trl(arguments(config, out), config.trl, GRPOConfig)),
        train_dataset=Dataset.from_dict({"number": range(config.steps * config.group_size * processes())}),
        processing_class=processor,
        peft_config=lora(config, model),
    )
    if config.evaluation is not None:
        from training.common.measuring.answering import agents_in_memory
        from training.common.measuring.callbacks import Watch

        trainer.add_callback(
            Watch(
                config.evaluation,
                agents_in_memory(config),
                builder,
                heard=trainer.recorder and trainer.recorder.evaluation,
            )
        )
        trainer.args.save_total_limit = max(2, config.keep_checkpoints)  # both the best and the newest
    return trainer


def one_device(args: Any) -> Any:
    """Arguments for one GPU, whatever others the worker uses: transformers would spread each pass over all it sees."""
    args._n_gpu = min(1, args.n_gpu)
    return args


def train(config: RlConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it."""
    config.check()
    check_resume(config, resume)
    if os.environ.get("RANK", "0") == "0":
        progress(0, config.steps, "load", f"{config.tasks.count} tasks")
    plan.check(config, "rl")
    trainer = make_trainer(config, out)

    from training.common.measuring.callbacks import take_weights
    from training.rl.records.step_metrics import write_summary
    from training.rl.trainer import Stopped

    first = trainer.is_world_process_zero()
    try:
        if not run_training(trainer, config, out, resume, config.period):
            trainer.status("stopped")
            return False
    except Stopped:
        if first:
            print(f"stopped after step {trainer.state.global_step}, before its next generation", flush=True)
        trainer.status("stopped")
        return False
    except (ConfigError, InfraError) as error:
        trainer.status("failed", str(error))
        raise
    finally:
        trainer.close()
    trainer.status("done")
    kept = take_weights(trainer, config.evaluation, config.seed, out)
    if first:
        trainer.finished.end()
        write_summary(config, trainer.last, kept, out / "results")
    save_model(trainer, out / "model")
    if first:
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return entry(argv, prog="training.rl", description="Train on whole episodes.", kind=RlConfig, train=train)
    except InfraError as error:
        print(f"rl: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
