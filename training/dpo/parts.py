"""Additions to TRL's DPOTrainer: pairs from a folder, a frozen reference model, evaluation of answers during training.
Imports torch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import DPOTrainer

from eval.actions import Action
from eval.agents.transformers import TransformersAgent
from eval.config import ConfigError
from eval.config.progress import metric
from eval.desktop import Expected
from eval.prompts import PromptBuilder
from eval.scores.stats import Estimate, by_cluster
from eval.scores.summary import MetricRow, row
from training.common.accumulation import Counts, StepShares
from training.common.measuring.in_training import Scores, undisturbed
from training.common.measuring.validation import HeldOutLoss, spread_places
from training.common.reporting import leave_sigterm_to_the_trainer
from training.data.faults import BadSample
from training.data.pairs.store import Pair, Pairs
from training.data.samples import open_image

# TRL's names of its metrics besides the loss -> ours
LOGGED: Final = {
    "rewards/accuracies": "train/pair_accuracy",
    "rewards/margins": "train/margin",
    "rewards/chosen": "train/reward_chosen",
    "rewards/rejected": "train/reward_rejected",
    "logps/chosen": "train/logp_chosen",
    "logps/rejected": "train/logp_rejected",
}


class DpoCollator:
    """Called with rows that hold the `index` of their pair; opens the images and calls TRL's collator."""

    def __init__(self, processor: Any, pairs: Pairs) -> None:
        from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

        self.inner = DataCollatorForVisionPreference(processor, max_length=None)  # truncation would cut image tokens
        self.pairs = pairs

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Raises ConfigError for an image that was damaged after the pairs were checked."""
        leave_sigterm_to_the_trainer()
        examples = []
        for line in rows:
            pair = self.pairs[int(line["index"])]
            try:
                images = [open_image(path) for path in self.pairs.images(pair)]
            except BadSample as fault:
                raise ConfigError(f"pairs: {fault}") from None
            turns = {"chosen": pair.chosen, "rejected": pair.rejected}
            answers = {
                name: [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
                for name, text in turns.items()
            }
            examples.append({"prompt": pair.prompt, "images": images, **answers})
        return dict(self.inner(examples))


def frozen_copy(model: Any) -> Any:
    """A frozen copy of the current model, as DPO's reference. TRL would load it from the path in the model's
    configuration, which may be another model."""
    reference = copy.deepcopy(model)
    reference.requires_grad_(False)
    return reference.eval()


class WholeBatchDpoTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's DPOTrainer, whose step has the gradient of its whole batch, in however many passes and processes.

    TRL's losses are means over a pass's pairs, `sft` over its chosen answers' tokens; a weight for each pass corrects
    them, because TRL adds the means up by weight.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.loss_weights: list[float]
        self.configured_weights = list(self.loss_weights)
        self.shares = StepShares(self, _terms)
        self.held_out_shares: dict[str, float] | None = None  # of a batch whose part of a held-out loss is asked for

    def held_out_loss(self, pairs: Pairs, count: int) -> HeldOutLoss:
        """The configured loss on at most `count` held-out pairs, evenly spread."""
        return HeldOutLoss(
            self,
            spread_places(len(pairs), count),
            DpoCollator(self.processing_class, pairs),
            self.args.per_device_train_batch_size,
            _terms,
            self._part,
        )

    def _part(self, model: Any, batch: dict[str, Any], shares: dict[str, float]) -> Any:
        self.held_out_shares = shares
        try:
            return self.compute_loss(model, batch)
        finally:
            self.held_out_shares = None

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        factors = self.shares.factors(inputs) if self.model.training else self.held_out_shares
        if factors is not None:
            self.loss_weights = [
                weight * factors["tokens" if loss == "sft" else "pairs"]
                for loss, weight in zip(self.loss_types, self.configured_weights, strict=True)
            ]
        else:
            self.loss_weights = list(self.configured_weights)
        return super()._compute_loss(model, inputs, return_outputs)


def _terms(batch: Mapping[str, Any]) -> Counts:
    """The pairs of a batch, and the tokens of their chosen answers, which are its first half."""
    pairs = len(batch["input_ids"]) // 2
    return {"pairs": pairs, "tokens": int(batch["completion_mask"][:pairs, 1:].sum())}


class Logged(TrainerCallback):  # type: ignore[misc]
    """Reports TRL's values of rewards and likelihoods as metrics."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for name, ours in LOGGED.items():
            if state.is_world_process_zero and isinstance(value := (logs or {}).get(name), int | float):
                metric(state.global_step, ours, value)


@dataclass(frozen=True)
class HeldOut:
    """At most `count` distinct prompts of held-out pairs, answered greedily and judged.

    Metrics: malformed; matches, answers with the expected action, or with the chosen answer's action where the pair
    has no expected one (a point without a box by its distance: `eval.desktop.Expected.credit`); click_in_box, of
    answers that should point into a known box. Intervals are by task.
    """

    pairs: Pairs
    builder: PromptBuilder
    count: int

    @cached_property
    def prompts(self) -> list[Pair]:
        """The prompts, evenly spread over the pairs."""
        distinct: dict[str, Pair] = {}
        for pair in self.pairs:
            distinct.setdefault(pair.asked(), pair)
        every = list(distinct.values())
        return every if len(every) <= self.count else [every[i * len(every) // self.count] for i in range(self.count)]

    def measure(self, agent: TransformersAgent) -> Scores:
        asked = self.prompts
        malformed: list[tuple[str, float]] = []
        right: list[tuple[str, float]] = []
        hits: list[tuple[str, float]] = []
        for start in range(0, len(asked), agent.batch_size):
            part = asked[start : start + agent.batch_size]
            prompts = [(pair.prompt, [open_image(path) for path in self.pairs.images(pair)]) for pair in part]
            marks = [pair.marks for pair in part]
            decisions = agent._generate(prompts, marks, [agent.builder] * len(part))
            for pair, decision in zip(part, decisions, strict=True):
                cluster = pair.split_key or pair.task_id
                malformed.append((cluster, float(decision.action is None)))
                expected = self._expected(pair)
                right.append((cluster, expected.credit(decision.action)))
                if expected.box is not None:
                    hits.append((cluster, float(expected.hit(decision.action))))
        metrics: dict[str, Estimate | None] = {
            "malformed": by_cluster(malformed),
            "matches": by_cluster(right),
            "click_in_box": by_cluster(hits),
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def _expected(self, pair: Pair) -> Expected:
        if pair.expected is None:
            return Expected(self.builder.read(pair.chosen, pair.marks).action)
        box = pair.expected["box"]
        action = self.builder.as_written(Action.from_json(pair.expected["action"]), pair.marks)
        return Expected(action, None if box is None else tuple(box))


def summary(scores: Scores, *, split: str, seed: int, step: int) -> list[MetricRow]:
    """Rows for summary.json, of the weights after `step`."""
    told: dict[str, Any] = {"benchmark": "prompts of preference pairs", "version": "2", "split": split, "infra": 0}
    return [row(name, value, **told, seed=seed, agent="trained", steps=[step]) for name, value in scores.items()]


class Measure(TrainerCallback):  # type: ignore[misc]
    """Every `every` steps, reports the metrics of answers to held-out prompts. Only the first process answers."""

    def __init__(self, held_out: HeldOut, agent: Any, every: int) -> None:
        self.held_out = held_out
        self.agent = agent  # makes an agent of a model in memory
        self.every = every

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        with undisturbed(model):
            scores = self.held_out.measure(self.agent(model))
        for name, value in scores.items():
            metric(state.global_step, f"eval/{name}", value.value)
        told = ", ".join(f"{name} {value.value:.3f}" for name, value in scores.items())
        print(f"step {state.global_step}: {told} (n {scores['malformed'].n})", flush=True)
