"""Compares each generation's measures with the configured bounds, to stop on a collapse; reports them as metrics."""

from __future__ import annotations

from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.config.progress import metric
from training.grpo.config import Limit, WatchConfig

# The watch's measures -> TRL's names.
MEASURES: Final = {
    "entropy": "entropy",
    "zero_variance": "frac_reward_zero_std",
    "length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "kl": "kl",
    "reward": "reward",
}
# TRL's names -> ours. The entropy is missing here because all trainers report it.
CURVES: Final = {
    **{theirs: f"train/{ours}" for ours, theirs in MEASURES.items() if ours != "entropy"},
    "reward_std": "train/reward_std",
    "dropped": "train/dropped",
    "clip_ratio/region_mean": "train/clip_ratio",
    "cispo_clip_ratio": "train/clip_ratio",
    "sampling/sampling_logp_difference/mean": "train/sampling_difference",
}


class CollapseWatch(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Stops the training when a measure was out of its bounds for `for` generations in a row; `reason` then says which.

    trainer  whose metrics are read: TRL logs averages, the watch needs the value of each generation
    period   optimiser steps per generation; the watch stops and saves between two generations

    Each checkpoint holds the streaks, the reason, and whether the training was stopped.
    """

    def __init__(self, watch: WatchConfig, trainer: Any, period: int = 1) -> None:
        self.limits = watch.limits()
        self.trainer = trainer
        self.period = period
        self.streaks = dict.fromkeys(self.limits, 0)
        self.seen: dict[str, int] = {}
        self.reason: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        stopped = self.reason is not None
        return {"args": {}, "attributes": {"streaks": self.streaks, "reason": self.reason, "stopped": stopped}}

    def found(self, state: TrainerState) -> dict[str, Any] | None:
        """Why the training stopped, also when an earlier attempt stopped it and did not finish the results."""
        reason: dict[str, Any] | None = self.reason or _saved(state).get("reason")
        return reason

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        streaks = _saved(state).get("streaks", {})
        self.streaks = {name: int(streaks.get(name, 0)) for name in self.limits}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        for name, limit in self.limits.items():
            value = self._latest(MEASURES[name])
            if value is None or self.reason is not None:
                continue
            self.streaks[name] = self.streaks[name] + 1 if _outside(limit, value) else 0
            if self.streaks[name] >= limit.steps:
                bound = f"below {limit.below:g}" if limit.below is not None else f"above {limit.above:g}"
                self.reason = {
                    "step": state.global_step,
                    "measure": name,
                    "value": value,
                    "bound": bound,
                    "generations": limit.steps,
                    "text": f"{name} was {bound} for {limit.steps} generations in a row, last {value:.4g}",
                }
        if self.reason is not None and state.global_step % self.period == 0:
            control.should_save = True
            control.should_training_stop = True
        return control

    def _latest(self, name: str) -> float | None:
        """The mean of the entries since the last call; None if there are none (the generation is reused)."""
        values = self.trainer._metrics["train"].get(name, [])
        new = values[self.seen.get(name, 0) :]
        self.seen[name] = len(values)
        return sum(new) / len(new) if new else None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.seen.clear()  # TRL clears its lists
        if not state.is_world_process_zero or not logs:
            return
        for name, value in logs.items():
            if not isinstance(value, int | float):
                continue
            if name in CURVES:
                metric(state.global_step, CURVES[name], value)
            elif name.startswith("rewards/") and name.endswith("/mean"):
                metric(state.global_step, f"train/reward/{name.split('/')[1]}", value)


def _outside(limit: Limit, value: float) -> bool:
    return (limit.below is not None and value < limit.below) or (limit.above is not None and value > limit.above)


def _saved(state: TrainerState) -> dict[str, Any]:
    """The watch's state in the checkpoint from which the training resumes; transformers does not restore callbacks that
    it cannot construct itself."""
    callbacks = state.stateful_callbacks or {}
    saved = callbacks.get("CollapseWatch", callbacks.get("Watch"))  # its earlier name in checkpoints
    return dict(saved.get("attributes", {})) if isinstance(saved, dict) else {}
