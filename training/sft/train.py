"""Supervised fine-tuning: `python -m training.sft --config $SLIPWAY_CONFIG`.

TRL's SFTTrainer with our collator (the loss is on the assistant's tokens only), of all weights, of a LoRA, or of a LoRA
on quantised weights. Writes under $SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N; model/ (weights and processor,
a LoRA merged in) and adapter/ (a LoRA alone); results/ (predictions drawn on screenshots during training and at the
end, summary.json, bad_samples.json); and .done when the training is finished. $SLIPWAY_RESUME names the checkpoint to
resume from, with bit-identical results. After SIGTERM it saves at the end of the step and exits 0 without .done. Works
under torchrun and `accelerate launch`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import metric, progress
from eval.prompts import PromptBuilder, PromptConfig
from eval.prompts.wording import control_tokens
from training.common.entry import check_resume, entry, run_training
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded, spread
from training.common.measuring.measured_weights import KeptWeights, write_measured
from training.common.model import sharding, unsloth
from training.common.model.adapter import lora
from training.common.model.loading import load_model
from training.common.model.saving import save_model
from training.data.faults import Faults, Policy
from training.data.held_out import open_held_out
from training.data.mixture import Mixture
from training.data.samples import Sample, load
from training.data.source import Spec, open_source
from training.memory import plan
from training.options import Positive, TrainerConfig, training_arguments
from training.trl_arguments import UNREAD_BY_SFT, with_trl

MIB = 2**20


class SftConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    episodes       a folder of episode folders
    data           or any source of training.data.source: a packed dataset, a folder of chats, a mixture with weights
    prompt         the same section as the evaluation's
    on_bad_sample  fail ends the training at the first; skip counts and reports it (results/bad_samples.json) and takes
                   the next one in its place
    max_length     of a sample in tokens, images included; a longer one is a bad sample, none is ever cut off
    group_by_length  batches of samples of like length in tokens, images included: less of a batch is padding, and under
                   data parallelism no process waits for another's longer batch
    early_stop_loss  ends the training when the mean loss of the last `log_every` steps is this or less; None: never.
                   What was learned by heart is no better elsewhere: `evaluation` with `patience` stops by what counts
    evaluation     while training, with early stop: by tasks, by held-out steps, or by the loss on them
    sample_every   steps between two times at which `predictions` samples are predicted and drawn; None: at the end only
    predictions    how many steps are predicted and drawn beside their targets
    max_new_tokens of such a prediction, and of an evaluation's
    cache_mb       of decoded pictures that are kept in memory, in MiB
    """

    takes_unsloth: ClassVar[bool] = True
    unread: ClassVar[dict[str, str]] = UNREAD_BY_SFT

    episodes: str | None = None
    data: Spec | None = None
    prompt: PromptConfig = PromptConfig()
    on_bad_sample: Policy = "fail"
    max_length: Positive | None = None
    group_by_length: bool = False
    early_stop_loss: Annotated[float, msgspec.Meta(gt=0)] | None = None
    evaluation: EvaluationConfig | None = None
    sample_every: Positive | None = None
    predictions: Annotated[int, msgspec.Meta(ge=0)] = 12
    max_new_tokens: Positive = 64
    cache_mb: Annotated[int, msgspec.Meta(ge=0)] = 256

    def check(self) -> None:
        super().check()
        if (self.episodes is None) == (self.data is None):
            raise ConfigError("give either episodes or data")
        if self.episodes is not None and not Path(self.episodes).is_dir():
            raise ConfigError(f"episodes: there is no folder {self.episodes}")
        if self.evaluation is not None:
            self.evaluation.check()


def open_data(config: SftConfig, builder: PromptBuilder, faults: Faults) -> Sequence[Sample]:
    """The samples, not yet decoded. Raises ConfigError."""
    if config.data is not None:
        return open_source(config.data, builder, faults, seed=config.seed)
    return load(Path(config.episodes or ""), builder, faults)


def make_trainer(config: SftConfig, samples: Sequence[Sample], out: Path) -> Any:
    """TRL's SFTTrainer over the samples, ready to train. Raises ConfigError."""
    if config.workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the tokenizer's threads do not survive a fork
    if config.loader == "unsloth":
        unsloth.ready()  # before TRL, because Unsloth replaces parts of TRL
    with large_imports():
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        from training.common.lengths import group_by_length, sample_lengths, take_epochs
        from training.common.measuring.callbacks import EarlyStopLoss
        from training.sft.collate import Collator

    ours = {
        **training_arguments(config, out),
        "max_length": None,  # truncation would cut image tokens
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    arguments = with_trl(ours, config.trl, SFTConfig)  # before the model: DeepSpeed shards it while loading
    sharding.with_policy(arguments, config)
    model, processor = load_model(config)
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"index": range(len(samples))}),
        processing_class=processor,
        peft_config=lora(config, model),
        data_collator=Collator(
            processor,
            samples,
            max_length=config.max_length,
            faults=Faults(config.on_bad_sample),
            report=out / "results" / "bad_samples.jsonl",
            pictures=config.cache_mb * MIB,
            control=control_tokens(config.prompt.builder().dialect),
        ),
    )
    # transformers' Qwen-VL classes say that they take no count of tokens; TRL's loss divides by it all the same, so
    # that several passes have the gradient of one
    trainer.model_accepts_loss_kwargs = True
    fresh = isinstance(samples, Mixture)
    if fresh:
        take_epochs(trainer, len(samples), config.seed)
    if config.group_by_length:
        group_by_length(trainer, sample_lengths(trainer.data_collator.chats, samples), config.seed, fresh=fresh)
    if config.early_stop_loss is not None:
        trainer.add_callback(EarlyStopLoss(config.early_stop_loss))
    add_callbacks(trainer, config, samples, out)
    return trainer


def add_callbacks(trainer: Any, config: SftConfig, samples: Sequence[Sample], out: Path) -> None:
    """Adds the callbacks that check the model during training. Raises ConfigError."""
    if config.evaluation is None and config.sample_every is None:
        return
    if sharding.asked_for(config) or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        predictions = None if config.sample_every is None else "sample_every"
        check_sharded(config.evaluation, predictions, deepspeed=trainer.is_deepspeed_enabled)
    from training.common.measuring.answering import agents_in_memory
    from training.common.measuring.callbacks import PredictionPictures, Watch

    agent = agents_in_memory(config)
    if config.sample_every is not None:
        folder = out / "results" / "samples"
        trainer.add_callback(
            PredictionPictures(agent, samples, folder, every=config.sample_every, count=config.predictions)
        )
    if config.evaluation is not None:
        by_loss = config.evaluation.decides == LOSS
        loss = held_out_loss(trainer, config, config.evaluation) if by_loss else None
        trainer.add_callback(Watch(config.evaluation, agent, config.prompt.builder(), loss))
        # keep both the best checkpoint and the newest
        trainer.args.save_total_limit = max(2, config.keep_checkpoints)


def held_out_loss(trainer: Any, config: SftConfig, evaluation: EvaluationConfig) -> Any:
    """The loss on held-out steps (a HeldOutLoss), by the tokens of their answers. Raises ConfigError."""
    from training.common.measuring.validation import HeldOutLoss
    from training.sft.collate import Collator, answer_tokens

    assert evaluation.episodes is not None
    builder = config.prompt.builder()
    samples = spread(open_held_out(evaluation.episodes, evaluation.split, builder), evaluation.count)
    control = control_tokens(builder.dialect)
    collator = Collator(trainer.processing_class, samples, pictures=config.cache_mb * MIB, control=control)

    def loss(model: Any, batch: dict[str, Any], shares: dict[str, float]) -> Any:
        return trainer.compute_loss(model, batch).double() * shares["tokens"]

    return HeldOutLoss(trainer, range(len(samples)), collator, config.batch_size, answer_tokens, loss)


def finish(
    trainer: Any, config: SftConfig, samples: Sequence[Sample], out: Path, kept: KeptWeights, faults: Faults
) -> None:
    """Writes predictions of the saved model, the summary, and the report of bad samples."""
    from eval.scores.summary import row
    from training.common.measuring.answering import final_agent
    from training.common.measuring.predictions import predict
    from training.sft.collate import reported

    results, rows = out / "results", list(kept.rows)
    if config.predictions:
        agent = final_agent(trainer, config, out)
        scores = predict(agent, samples, config.predictions, results / "samples")
        if (exact := scores.get("exact")) is not None:
            told: dict[str, Any] = {"benchmark": "memorisation", "version": "1", "split": "training data"}
            told |= {"infra": 0, "seed": config.seed, "agent": "trained", "steps": [kept.step]}
            rows.append(row("exact_answers", exact, **told))
            print(f"{round(exact.value * exact.n)} of {exact.n} predicted training steps are exact", flush=True)
    if rows:
        write_measured(results / "summary.json", rows, kept.step)
    if config.on_bad_sample == "skip":
        bad = {"while_opening": faults.report(), "while_training": reported(results / "bad_samples.jsonl").report()}
        results.mkdir(parents=True, exist_ok=True)
        (results / "bad_samples.json").write_text(json.dumps(bad, indent=1) + "\n", encoding="utf-8")
        for when, report in bad.items():
            metric(0, f"data/bad_samples_{when}", report["total"])
            print(f"bad samples {when.replace('_', ' ')}: {report['by_reason'] or 'none'}", flush=True)


def train(config: SftConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it; then the last step's checkpoint exists."""
    config.check()
    check_resume(config, resume)
    faults = Faults(config.on_bad_sample)
    samples = open_data(config, config.prompt.builder(), faults)
    if os.environ.get("RANK", "0") == "0":
        progress(0, config.steps, "load", f"{len(samples)} samples, {faults.total} skipped")
    plan.check(config, "sft")
    trainer = make_trainer(config, samples, out)

    from training.common.measuring.callbacks import take_weights

    if not run_training(trainer, config, out, resume):
        return False
    kept = take_weights(trainer, config.evaluation, config.seed, out)
    save_model(trainer, out / "model")
    if trainer.is_world_process_zero():
        finish(trainer, config, samples, out, kept, faults)
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    return entry(argv, prog="training.sft", description="Fine-tune a model on episodes.", kind=SftConfig, train=train)


if __name__ == "__main__":
    sys.exit(main())
