"""A reward model from preference pairs: `python -m training.reward --config $SLIPWAY_CONFIG`.

A scalar head on a vision-language model's last token, trained with the Bradley-Terry loss; all weights, or a LoRA and
the head. Writes under $SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (for `RewardModel.load`; a LoRA is
merged in), results/ (summary.json, margins.jsonl, plots/reliability.png), and .done when the training is finished.
$SLIPWAY_RESUME names the checkpoint to resume from, with bit-identical results. After SIGTERM it saves at the end of
the step and exits 0 without .done.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import metric, progress
from eval.scores.stats import Estimate, by_cluster, ratio, wilson
from eval.scores.summary import MetricRow, row
from training.common.entry import check_resume, entry, run_training
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded
from training.common.measuring.measured_weights import KeptWeights, write_measured
from training.common.model import sharding
from training.common.model.loading import load_model, lora
from training.data.faults import Faults, Policy, write_faults
from training.data.pairs.store import Pair, Pairs, held_out
from training.options import NotNegative, TrainerConfig, training_arguments
from training.reward.model import RewardModel, save, with_response
from training.trl_arguments import UNREAD_BY_REWARD, check_arguments, with_trl

BINS: Final = 10


@dataclass(frozen=True)
class Bin:
    """Pairs whose confidence lies in [low, high): the mean confidence, and the rate at which the model was right."""

    low: float
    high: float
    confidence: float
    right: Estimate


def margins(model: RewardModel, pairs: Pairs, batch: int = 64) -> list[float]:
    """reward(chosen) - reward(rejected) of every pair, in order."""
    differences: list[float] = []
    for start in range(0, len(pairs), batch):
        part = list(pairs[start : start + batch])
        images = [pairs.images(pair) for pair in part]
        chosen = model.score([with_response(pair.prompt, pair.chosen) for pair in part], images)
        rejected = model.score([with_response(pair.prompt, pair.rejected) for pair in part], images)
        differences += [a - b for a, b in zip(chosen, rejected, strict=True)]
    return differences


def calibration(margins: Sequence[float], bins: int = BINS) -> tuple[list[Bin], float]:
    """(non-empty bins, expected calibration error) of margins.

    The model's answer is the side with the higher reward; its confidence in it is sigmoid(|margin|), from 0.5 to 1. The
    error is the mean over pairs of |rate right - mean confidence| of their bin (M. Naeini and others, 2015).
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for margin in margins:
        confidence = 1 / (1 + math.exp(-min(abs(margin), 700.0)))
        members[min(bins - 1, int((confidence - 0.5) * 2 * bins))].append((confidence, margin > 0))
    out, error = [], 0.0
    for index, member in enumerate(members):
        right = wilson(sum(ok for _, ok in member), len(member))
        if right is None:
            continue
        confidence = math.fsum(value for value, _ in member) / len(member)
        out.append(Bin(0.5 + index / (2 * bins), 0.5 + (index + 1) / (2 * bins), confidence, right))
        error += abs(right.value - confidence) * len(member) / len(margins)
    return out, error


def rows(pairs: Sequence[Pair], found: Sequence[float], *, split: str, seed: int, step: int) -> list[MetricRow]:
    """Rows for summary.json: pair_accuracy (a tie is wrong), the same per source and per note, mean_margin, and
    calibration_error (without an interval). Intervals are by task: pairs of one task are not independent.

    step  of the weights that gave the margins
    """
    right = [(pair.split_key or pair.task_id, float(margin > 0)) for pair, margin in zip(pairs, found, strict=True)]
    estimates: list[tuple[str, Estimate | None]] = [("pair_accuracy", by_cluster(right))]
    for name, values in (("source", [pair.source for pair in pairs]), ("note", [pair.note for pair in pairs])):
        for value in sorted(set(values) - {""}):
            among = [ok for ok, other in zip(right, values, strict=True) if other == value]
            estimates.append((f"pair_accuracy/{name}/{value}", by_cluster(among)))
    margins_by_task: dict[str, list[float]] = {}
    for (task, _), margin in zip(right, found, strict=True):
        margins_by_task.setdefault(task, []).append(margin)
    tasks = margins_by_task.values()
    estimates.append(("mean_margin", ratio([math.fsum(task) for task in tasks], [float(len(task)) for task in tasks])))
    error = calibration(found)[1]
    estimates.append(("calibration_error", Estimate(error, error, error, len(found))))
    told: dict[str, Any] = {"benchmark": "preference pairs", "version": "1", "split": split, "infra": 0}
    return [row(name, estimate, **told, seed=seed, agent="reward", steps=[step]) for name, estimate in estimates]


def reliability(margins: Sequence[float], path: Path) -> None:
    """Draws confidence against the rate of being right, with Wilson intervals, and how many pairs each bin holds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bins, error = calibration(margins)
    figure = Figure(figsize=(5, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    top.plot([0.5, 1], [0.5, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated")
    x = [bucket.confidence for bucket in bins]
    y = [bucket.right.value for bucket in bins]
    whiskers = [
        [bucket.right.value - bucket.right.low for bucket in bins],
        [bucket.right.high - bucket.right.value for bucket in bins],
    ]
    top.errorbar(x, y, yerr=whiskers, fmt="o", color="tab:blue", capsize=3, label="observed, 95 % interval")
    top.set(ylabel="share of pairs ranked right", ylim=(-0.03, 1.03), xlim=(0.48, 1.02))
    top.set_title(f"{len(margins)} held-out pairs, expected calibration error {error:.3f}", fontsize=10)
    top.legend(loc="lower right", fontsize=8)
    bottom.bar(
        [bucket.low for bucket in bins],
        [bucket.right.n for bucket in bins],
        width=0.5 / BINS,
        align="edge",
        edgecolor="w",
    )
    bottom.set(xlabel="confidence: sigmoid(|reward margin|)", ylabel="pairs")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, format="png")
    temporary.replace(path)


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

    try:
        differences = margins(model, pairs)
    except ValueError as error:  # a reward that is not finite
        raise ConfigError(f"held_out: {error}: lower learning_rate, or look at the data") from None
    measured = rows(pairs, differences, split=split, seed=seed, step=kept.step)
    results = out / "results"
    reliability(differences, results / "plots" / "reliability.png")
    lines = ({"task_id": p.task_id, "step": p.step, "margin": m} for p, m in zip(pairs, differences, strict=True))
    (results / "margins.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_measured(results / "summary.json", [*kept.rows, *measured], kept.step)
    for each in measured:
        if each.value is not None:
            metric(kept.step, f"eval/{each.metric}", each.value)
    print(table([*kept.rows, *measured]), flush=True)


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
