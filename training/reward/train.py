"""A reward model from preference pairs: `python -m training.reward --config $SLIPWAY_CONFIG`.

A scalar head on a vision-language model's last token, trained with the Bradley-Terry loss; all weights, or a LoRA and
the head. Writes under $SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (for `RewardModel.load`; a LoRA is
merged in), results/ (summary.json, margins.jsonl, plots/reliability.png), and .done when the training is finished.
$SLIPWAY_RESUME names the checkpoint to resume from, with bit-identical results. After SIGTERM it saves at the end of
the step and exits 0 without .done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import metric, progress
from training.common.entry import check_resume, entry, run_training
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded
from training.common.measuring.measured_weights import KeptWeights, write_measured
from training.common.model import sharding
from training.common.model.loading import load_model, lora
from training.data.faults import Faults, Policy, write_faults
from training.data.pairs.store import Pairs, held_out
from training.options import NotNegative, TrainerConfig, training_arguments
from training.reward.model import RewardModel, save
from training.trl_arguments import UNREAD_BY_REWARD, check_arguments, with_trl

__all__ = ["RewardConfig", "RewardModel", "train"]


class RewardConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    pairs          a folder of preference pairs; its split `train` is trained on
    held_out       another folder, all of whose pairs are held out; None: the split `test` of `pairs`
    evaluation     by the loss on held-out pairs, while training, with early stop: {metric: loss}
    centring       weight of the term that keeps rewards near 0 (see training.reward.network.bradley_terry)
    group_by_length  batches of pairs of like length in tokens, images included, by the longer answer: less is padding
    on_bad_sample  what happens to pairs that cannot be used: fail, or skip (counted in results/bad_samples.json)
    """

    unread: ClassVar[dict[str, str]] = UNREAD_BY_REWARD

    pairs: str
    held_out: str | None = None
    evaluation: EvaluationConfig | None = None
    centring: NotNegative = 0.01
    group_by_length: bool = False
    on_bad_sample: Policy = "fail"

    def check(self) -> None:
        """Raises ConfigError for invalid or contradictory values."""
        TrainerConfig.check(self)
        if self.evaluation is not None:
            if self.evaluation.decides != LOSS:
                raise ConfigError("evaluation.metric: a reward model answers nothing; allowed: loss")
            self.evaluation.check(pairs=True)
        if self.quantization:
            raise ConfigError("quantization: a quantised body cannot be saved whole; train a lora with precision: bf16")
        if self.lora is not None and not isinstance(self.lora.targets, str) and "score" in self.lora.targets:
            raise ConfigError("lora.targets: score is the head, which is always trained whole; leave it out")
        if self.lora is not None and (self.fsdp or self.deepspeed):
            raise ConfigError("lora: a reward model's is not gathered from processes; leave out fsdp and deepspeed")


def make_network(config: RewardConfig) -> tuple[Any, Any]:
    """(a RewardNetwork, peft's around it with a LoRA; the processor). Raises ConfigError."""
    from transformers import set_seed

    from training.reward.network import RewardNetwork

    model, processor = load_model(config)
    if config.adapter is not None:  # the policy's adapter belongs to the body
        from training.common.model.saving import merged

        model = merged(model, processor, "Nothing was written")
    set_seed(config.seed)  # the head and a new LoRA start with random weights
    network = RewardNetwork(model.config, model.model)
    if (peft := lora(config, network)) is not None:
        from peft import get_peft_model

        peft.task_type = None
        peft.modules_to_save = ["score"]
        network = get_peft_model(network, peft)
    return network, processor


def make_trainer(config: RewardConfig, pairs: Pairs, out: Path) -> Any:
    """A trainer over the pairs, ready to train. Raises ConfigError."""
    if config.workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the tokenizer's threads do not survive a fork
    with large_imports():
        from datasets import Dataset
        from transformers import TrainingArguments

        from training.common.chats import Chats
        from training.common.lengths import group_by_length, pair_lengths
        from training.reward.trainer import RewardCollator, RewardTrainer

    check_arguments(config.trl, TrainingArguments)  # before the model, which takes minutes
    network, processor = make_network(config)
    trainer = RewardTrainer(
        model=network,
        args=sharding.with_policy(with_trl(training_arguments(config, out), config.trl, TrainingArguments), config),
        train_dataset=Dataset.from_dict({"index": range(len(pairs))}),
        data_collator=RewardCollator(processor, pairs),
        processing_class=processor,
        centring=config.centring,
    )
    if config.group_by_length:
        group_by_length(trainer, pair_lengths(Chats(processor, CONTROL_TOKENS), pairs), config.seed)
    return trainer


def evaluate(model: RewardModel, pairs: Pairs, out: Path, *, split: str, seed: int, kept: KeptWeights) -> None:
    """Writes results/ for held-out pairs; the summary has the evaluation's rows as well.

    Raises ConfigError for a reward that is not finite.
    """
    from eval.scores.summary import table
    from training.reward import evaluation as reward_eval

    try:
        margins = reward_eval.margins(model, pairs)
    except ValueError as error:  # a reward that is not finite
        raise ConfigError(f"held_out: {error}: lower learning_rate, or look at the data") from None
    rows = reward_eval.rows(pairs, margins, split=split, seed=seed, step=kept.step)
    results = out / "results"
    reward_eval.reliability(margins, results / "plots" / "reliability.png")
    lines = ({"task_id": p.task_id, "step": p.step, "margin": m} for p, m in zip(pairs, margins, strict=True))
    (results / "margins.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_measured(results / "summary.json", [*kept.rows, *rows], kept.step)
    for row in rows:
        if row.value is not None:
            metric(kept.step, f"eval/{row.metric}", row.value)
    print(table([*kept.rows, *rows]), flush=True)


def train(config: RewardConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it; then the last step's checkpoint exists."""
    config.check()
    check_resume(config, resume)
    faults = Faults(config.on_bad_sample)
    pairs, test, split = held_out(config.pairs, config.held_out, faults)
    if os.environ.get("RANK", "0") == "0":
        progress(0, config.steps, "load", f"{len(pairs)} pairs, {len(test)} held out, {faults.total} skipped")
    trainer = make_trainer(config, pairs, out)

    from training.common.measuring.callbacks import Watch, take_weights

    if config.evaluation is not None:
        check_sharded(config.evaluation, None, deepspeed=trainer.is_deepspeed_enabled)
        loss = trainer.held_out_loss(test, config.evaluation.count)
        trainer.add_callback(Watch(config.evaluation, loss=loss))
        trainer.args.save_total_limit = max(2, config.keep_checkpoints)  # keep the best checkpoint and the newest
    if not run_training(trainer, config, out, resume):
        return False
    kept = take_weights(trainer, config.evaluation, config.seed, out)
    save(trainer, out / "model", {"max_pixels": config.max_pixels, "base": config.model, "pairs": len(pairs)})
    if trainer.is_world_process_zero():
        dtype = "bfloat16" if config.precision == "bf16" else "float32"
        model = RewardModel.load(out / "model", dtype=dtype, batch_size=config.batch_size)
        evaluate(model, test, out, split=split, seed=config.seed, kept=kept)
        write_faults(faults, out / "results")
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    text = "Train a reward model on preference pairs."
    return entry(argv, prog="training.reward", description=text, kind=RewardConfig, train=train)


if __name__ == "__main__":
    sys.exit(main())
