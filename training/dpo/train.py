"""Direct preference optimisation on pairs: `python -m training.dpo --config $SLIPWAY_CONFIG`.

TRL's DPOTrainer with the images in, of all weights (against a frozen copy of them) or of a LoRA (against the model with
the LoRA off). Writes under $SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (weights and processor, a LoRA
merged in), results/summary.json (answers to held-out prompts), and .done when the training is finished. $SLIPWAY_RESUME
names the checkpoint to resume from, with bit-identical results. After SIGTERM it saves at the end of the step and exits
0 without .done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import metric, progress
from eval.prompts import PromptConfig
from training.common.entry import check_resume, entry, run_training
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded
from training.common.measuring.measured_weights import KeptWeights, write_measured
from training.common.model import sharding
from training.common.model.adapter import lora
from training.common.model.loading import load_model
from training.common.model.saving import save_model
from training.data.faults import Faults, Policy, write_faults
from training.data.pairs.store import Pairs, held_out
from training.memory import plan
from training.options import NotNegative, Positive, TrainerConfig, training_arguments
from training.trl_arguments import UNREAD_BY_DPO, check_arguments, with_trl

# TRL's names, without losses that need more than pairs of answers, or settings that we do not have.
Loss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "nca_pair",
    "robust",
    "bco_pair",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
    "sft",
]
ANCHORED: Final = frozenset({"sft", "apo_zero"})  # losses that keep the chosen answers likely


class DpoConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    pairs           a folder of preference pairs; its split `train` is trained on
    held_out        another folder, all of whose pairs are held out; None: the split `test` of `pairs`
    evaluation      while training, with early stop: by tasks, or by the loss on held-out pairs (metric: loss)
    prompt          the section that the pairs were made with: answers are read in its dialect
    losses          TRL's names of the losses that are added up. Without `sft` nothing keeps the chosen answers likely,
                    and the model may forget the form of an answer: that is warned of
    weights         a factor for each of the losses; None: 1 each
    beta            how strongly the model is held to the reference model: higher stays nearer to it
    label_smoothing of the loss `robust`: the share of pairs that are the wrong way round
    group_by_length  batches of pairs of like length in tokens, images included, by the longer answer: less is padding
    answer_every    steps between two times at which held-out prompts are answered; None: at the end only
    answers         how many of them
    max_new_tokens  of such an answer, and of an evaluation's
    on_bad_sample   what happens to pairs that cannot be used: fail, or skip (counted in results/bad_samples.json)
    """

    unread: ClassVar[dict[str, str]] = UNREAD_BY_DPO

    pairs: str
    held_out: str | None = None
    evaluation: EvaluationConfig | None = None
    prompt: PromptConfig = PromptConfig()
    losses: list[Loss] = msgspec.field(default_factory=lambda: list[Loss](("sigmoid", "sft")))
    weights: list[NotNegative] | None = None
    beta: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.0
    group_by_length: bool = False
    answer_every: Positive | None = None
    answers: Positive = 64
    max_new_tokens: Positive = 64
    on_bad_sample: Policy = "fail"

    def check(self) -> None:
        """Raises ConfigError for invalid or contradictory values."""
        TrainerConfig.check(self)
        if not self.losses or len(set(self.losses)) < len(self.losses):
            raise ConfigError("losses: name at least one, and none twice")
        if self.weights is not None and len(self.weights) != len(self.losses):
            raise ConfigError(f"weights: {len(self.weights)} of them for {len(self.losses)} losses")
        if self.losses == ["sft"]:
            raise ConfigError("losses: sft alone takes no notice of rejected answers; use training.sft")
        if self.lora is not None and "lm_head" in self.lora.targets:
            raise ConfigError("lora.targets: lm_head cannot be trained here: TRL's loss reads its weights directly")
        if self.evaluation is not None:
            self.evaluation.check(pairs=True)

    def warning(self) -> str | None:
        """A warning about a valid but risky configuration."""
        if ANCHORED & set(self.losses):
            return None
        return (
            f"losses: {', '.join(self.losses)} without sft lets the chosen answers become less likely as long as the "
            "rejected ones do so faster; watch malformed answers (answer_every)"
        )


def make_trainer(config: DpoConfig, pairs: Pairs, out: Path) -> Any:
    """A trainer over the pairs, ready to train. Raises ConfigError."""
    if config.workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the tokenizer's threads do not survive a fork
    with large_imports():
        from datasets import Dataset
        from trl import DPOConfig

        from training.common.chats import Chats
        from training.common.lengths import group_by_length, pair_lengths
        from training.dpo.parts import DpoCollator, Logged, WholeBatchDpoTrainer, frozen_copy

    check_arguments(config.trl, DPOConfig)  # before the model, which takes minutes
    model, processor = load_model(config)

    peft = lora(config, model)
    ours = {
        **training_arguments(config, out),
        "loss_type": list(config.losses),
        "loss_weights": config.weights,
        "beta": config.beta,
        "label_smoothing": config.label_smoothing,
        "max_length": None,  # truncation would cut image tokens
    }
    arguments = with_trl(ours, config.trl, DPOConfig)
    sharding.with_policy(arguments, config)
    trainer = WholeBatchDpoTrainer(
        model=model,
        ref_model=None if peft is not None or hasattr(model, "peft_config") else frozen_copy(model),
        args=arguments,
        # the collator finds a pair by its index; the other column only shows TRL that there are images
        train_dataset=Dataset.from_dict({"index": list(range(len(pairs))), "images": [[]] * len(pairs)}),
        data_collator=DpoCollator(processor, pairs),
        processing_class=processor,
        peft_config=peft,
    )
    if config.group_by_length:
        group_by_length(trainer, pair_lengths(Chats(processor, CONTROL_TOKENS), pairs), config.seed)
    trainer.add_callback(Logged())
    return trainer


def add_callbacks(trainer: Any, config: DpoConfig, held_out: Any) -> None:
    """Adds the callbacks that check the model during training. Raises ConfigError."""
    if config.evaluation is None and config.answer_every is None:
        return
    if sharding.asked_for(config) or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        predictions = None if config.answer_every is None else "answer_every"
        check_sharded(config.evaluation, predictions, deepspeed=trainer.is_deepspeed_enabled)
    from training.common.measuring.answering import agents_in_memory
    from training.common.measuring.callbacks import Watch
    from training.dpo.parts import Measure

    agent = agents_in_memory(config)
    if config.answer_every is not None:
        trainer.add_callback(Measure(held_out, agent, config.answer_every))
    if config.evaluation is not None:
        evaluation = config.evaluation
        by_loss = evaluation.decides == LOSS
        loss = trainer.held_out_loss(held_out.pairs, evaluation.count) if by_loss else None
        trainer.add_callback(Watch(evaluation, agent, config.prompt.builder(), loss))
        trainer.args.save_total_limit = max(2, config.keep_checkpoints)  # keep the best checkpoint and the newest


def finish(trainer: Any, config: DpoConfig, held_out: Any, out: Path, split: str, kept: KeptWeights) -> None:
    """Writes the saved model's answers to held-out prompts, and the summary."""
    from eval.scores.summary import table
    from training.common.measuring.answering import final_agent
    from training.dpo.parts import summary

    agent = final_agent(trainer, config, out)
    answered = summary(held_out.measure(agent), split=split, seed=config.seed, step=kept.step)
    rows = [*kept.rows, *answered]
    write_measured(out / "results" / "summary.json", rows, kept.step)
    for row in answered:  # the evaluation's were told when they were measured
        if row.value is not None:
            metric(kept.step, f"eval/{row.metric}", row.value)
    print(table(rows), flush=True)


def train(config: DpoConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it; then the last step's checkpoint exists."""
    config.check()
    check_resume(config, resume)
    if (warning := config.warning()) is not None:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    faults = Faults(config.on_bad_sample)
    pairs, test, split = held_out(config.pairs, config.held_out, faults)
    if os.environ.get("RANK", "0") == "0":
        progress(0, config.steps, "load", f"{len(pairs)} pairs, {len(test)} held out, {faults.total} skipped")
    plan.check(config, "dpo")
    trainer = make_trainer(config, pairs, out)

    from training.common.measuring.callbacks import take_weights
    from training.dpo.parts import HeldOut

    prompts = HeldOut(test, config.prompt.builder(), config.answers)
    add_callbacks(trainer, config, prompts)
    if not run_training(trainer, config, out, resume):
        return False
    kept = take_weights(trainer, config.evaluation, config.seed, out)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if "ref" in getattr(model, "peft_config", {}):
        model.delete_adapter("ref")  # TRL's copy of the initial adapter
    save_model(trainer, out / "model")
    if trainer.is_world_process_zero():
        finish(trainer, config, prompts, out, split, kept)
        write_faults(faults, out / "results")
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    text = "Train a model on preference pairs."
    return entry(argv, prog="training.dpo", description=text, kind=DpoConfig, train=train)


if __name__ == "__main__":
    sys.exit(main())
