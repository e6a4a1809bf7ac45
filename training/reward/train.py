"""A reward model of answers or of whole episodes: `python -m training.reward --config $SLIPWAY_CONFIG`.

A scalar head on a vision-language model's last token, trained with the Bradley-Terry loss on preference pairs, or with
the cross-entropy on episodes that were solved or not; all weights, or a LoRA and the head. Writes under
$SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (for `RewardModel.load`, `EpisodeJudge.load`; a LoRA is
merged in), results/ (summary.json, margins.jsonl or judged.jsonl, plots/reliability.png), and .done when the training
is finished.
$SLIPWAY_RESUME names the checkpoint to resume from, with bit-identical results. After SIGTERM it saves at the end of
the step and exits 0 without .done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.progress import metric, progress
from training.common.entry import check_resume, entry, run_training
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded
from training.common.measuring.measured_weights import KeptWeights, write_measured
from training.common.model import sharding
from training.common.model.adapter import lora
from training.common.model.loading import load_model
from training.data.faults import Faults, Policy, write_faults
from training.data.pairs.store import Pairs, held_out
from training.memory import plan
from training.options import NotNegative, TrainerConfig, training_arguments
from training.reward.episodes import JudgedEpisode, JudgedEpisodesConfig, outcomes, scores, sigmoid
from training.reward.model import RewardModel, save
from training.trl_arguments import UNREAD_BY_REWARD, check_arguments, with_trl

__all__ = ["RewardConfig", "RewardModel", "train"]

CENTRING: Final = 0.01


class RewardConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    pairs          a folder of preference pairs, whose split `train` is trained on: the model scores an answer to a
                   step. Give either pairs or episodes
    episodes       episodes that were solved or not: the model scores a whole episode, by the probability that it
                   solved its task
    held_out       another folder, all of whose pairs or episodes are held out; None: the split `test` of `pairs`, or
                   what `episodes.split` says
    evaluation     by the loss on what is held out, while training, with early stop: {metric: loss}
    centring       of pairs: weight of the term that keeps rewards near 0 (see training.reward.network.bradley_terry)
    group_by_length  batches of like length in tokens, images included, of pairs by the longer answer: less is padding
    on_bad_sample  what happens to pairs or episodes that cannot be used: fail, or skip (counted in
                   results/bad_samples.json)
    """

    unread: ClassVar[dict[str, str]] = UNREAD_BY_REWARD

    pairs: str | None = None
    episodes: JudgedEpisodesConfig | None = None
    held_out: str | None = None
    evaluation: EvaluationConfig | None = None
    centring: NotNegative = CENTRING
    group_by_length: bool = False
    on_bad_sample: Policy = "fail"

    def check(self) -> None:
        """Raises ConfigError for invalid or contradictory values."""
        TrainerConfig.check(self)
        if (self.pairs is None) == (self.episodes is None):
            raise ConfigError("give either pairs, of answers, or episodes")
        if self.episodes is not None:
            self.episodes.check()
            if self.centring != CENTRING:
                raise ConfigError("centring: of pairs; the probability of an episode has no free constant")
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


def make_trainer(config: RewardConfig, samples: Pairs | Sequence[JudgedEpisode], out: Path) -> Any:
    """A trainer over the pairs or episodes, ready to train. Raises ConfigError."""
    if config.workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the tokenizer's threads do not survive a fork
    with large_imports():
        from datasets import Dataset
        from transformers import TrainingArguments

        from training.common.chats import Chats
        from training.common.lengths import group_by_length, pair_lengths, sample_lengths
        from training.reward.trainer import OutcomeCollator, OutcomeTrainer, RewardCollator, RewardTrainer

    check_arguments(config.trl, TrainingArguments)  # before the model, which takes minutes
    network, processor = make_network(config)
    given: dict[str, Any] = {
        "model": network,
        "args": sharding.with_policy(with_trl(training_arguments(config, out), config.trl, TrainingArguments), config),
        "train_dataset": Dataset.from_dict({"index": range(len(samples))}),
        "processing_class": processor,
    }
    chats = Chats(processor, CONTROL_TOKENS) if config.group_by_length else None
    if isinstance(samples, Pairs):
        trainer = RewardTrainer(**given, data_collator=RewardCollator(processor, samples), centring=config.centring)
        lengths = None if chats is None else pair_lengths(chats, samples)
    else:
        trainer = OutcomeTrainer(**given, data_collator=OutcomeCollator(processor, samples))
        lengths = None if chats is None else sample_lengths(chats, [each.asked for each in samples])
    if lengths is not None:
        group_by_length(trainer, lengths, config.seed)
    return trainer


def evaluate(
    model: RewardModel,
    held_out: Pairs | Sequence[JudgedEpisode],
    out: Path,
    *,
    split: str,
    seed: int,
    kept: KeptWeights,
) -> None:
    """Writes results/ for held-out pairs or episodes; the summary has the evaluation's rows as well.

    Raises ConfigError for a reward that is not finite.
    """
    from eval.scores.summary import table
    from training.reward import evaluation as reward_eval

    results, plot = out / "results", out / "results" / "plots" / "reliability.png"
    lines: list[dict[str, Any]]
    try:
        if isinstance(held_out, Pairs):
            margins = reward_eval.margins(model, held_out)
            rows = reward_eval.rows(held_out, margins, split=split, seed=seed, step=kept.step)
            reward_eval.reliability(margins, plot)
            name, both = "margins.jsonl", zip(held_out, margins, strict=True)
            lines = [{"task_id": pair.task_id, "step": pair.step, "margin": margin} for pair, margin in both]
        else:
            found = scores(model, held_out)
            rows = reward_eval.episode_rows(held_out, found, split=split, seed=seed, step=kept.step)
            reward_eval.reliability(reward_eval.outcome_margins(held_out, found), plot, "episodes")
            name, lines = "judged.jsonl", [_line(*each) for each in zip(held_out, found, strict=True)]
    except ValueError as error:  # a reward that is not finite
        raise ConfigError(f"held_out: {error}: lower learning_rate, or look at the data") from None
    (results / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_measured(results / "summary.json", [*kept.rows, *rows], kept.step)
    for row in rows:
        if row.value is not None:
            metric(kept.step, f"eval/{row.metric}", row.value)
    print(table([*kept.rows, *rows]), flush=True)


def _line(episode: JudgedEpisode, score: float) -> dict[str, Any]:
    """Of judged.jsonl."""
    told = {"episode": episode.name, "task_id": episode.task_id, "solved": episode.solved}
    return {**told, "ratings": episode.ratings, "probability": sigmoid(score)}


def train(config: RewardConfig, out: Path, resume: str | None) -> bool:
    """Runs the training. Returns False when SIGTERM stopped it; then the last step's checkpoint exists."""
    config.check()
    check_resume(config, resume)
    faults = Faults(config.on_bad_sample)
    samples: Pairs | list[JudgedEpisode]
    test: Pairs | list[JudgedEpisode]
    about: dict[str, Any] = {"max_pixels": config.max_pixels, "base": config.model}
    if config.episodes is not None:
        what = "episodes"
        samples, test, split = outcomes(config.episodes, config.held_out, faults)
        about["prompt"] = msgspec.to_builtins(config.episodes.prompt)  # marks a judge of whole episodes
    else:
        assert config.pairs is not None
        what = "pairs"
        samples, test, split = held_out(config.pairs, config.held_out, faults)
    if os.environ.get("RANK", "0") == "0":
        progress(0, config.steps, "load", f"{len(samples)} {what}, {len(test)} held out, {faults.total} skipped")
    plan.check(config, "reward")
    trainer = make_trainer(config, samples, out)

    from training.common.measuring.callbacks import Watch, take_weights

    if config.evaluation is not None:
        check_sharded(config.evaluation, None, deepspeed=trainer.is_deepspeed_enabled)
        loss = trainer.held_out_loss(test, config.evaluation.count)
        trainer.add_callback(Watch(config.evaluation, loss=loss))
        trainer.args.save_total_limit = max(2, config.keep_checkpoints)  # keep the best checkpoint and the newest
    if not run_training(trainer, config, out, resume):
        return False
    kept = take_weights(trainer, config.evaluation, config.seed, out)
    save(trainer, out / "model", {**about, what: len(samples)})
    if trainer.is_world_process_zero():
        dtype = "bfloat16" if config.precision == "bf16" else "float32"
        model = RewardModel.load(out / "model", dtype=dtype, batch_size=config.batch_size)
        evaluate(model, test, out, split=split, seed=config.seed, kept=kept)
        write_faults(faults, out / "results")
        (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    text = "Train a reward model on preference pairs, or on episodes that were solved or not."
    return entry(argv, prog="training.reward", description=text, kind=RewardConfig, train=train)


if __name__ == "__main__":
    sys.exit(main())
