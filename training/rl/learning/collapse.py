"""Ends a training whose policy has collapsed: it solved a lot, and solves next to nothing now.

A policy that has found a way to fail does not come back by itself, because groups that fail as a whole teach it
nothing. It would go on for the rest of the night.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.config import ConfigError
from training.common.collapse import write_collapse
from training.rl.rollouts.generation import RolloutGeneration

WINDOW: Final = 5  # generations in a row that are compared
ENOUGH: Final = 20  # successes in the best of them; with fewer, chance may end a training
WAYS_OUT: Final = "lower learning_rate; with sdpo, look at train/divergence; or go on with `collapse: null`"


class SuccessWatch(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Counts the successes of each generation; each checkpoint holds the counts.

    share   `RlConfig.collapse`
    period  optimiser steps of a generation
    out     the training's folder
    """

    def __init__(self, share: float, period: int, out: Path) -> None:
        self.share, self.period, self.out = share, period, out
        self.counts: list[tuple[int, int]] = []  # of each generation: rollouts that succeeded, all that were judged

    def note(self, made: RolloutGeneration) -> None:
        """Raises ConfigError where the policy has collapsed, and writes results/collapse.json."""
        outcomes = [bool(each.episode.success) for group in made.judged for each in group.rollouts]
        self.counts.append((sum(outcomes), len(outcomes)))
        if (reason := collapsed(self.counts, self.share)) is None:
            return
        last = len(self.counts) - 1  # nothing has learned from it
        good = (last - WINDOW) * self.period
        kept = write_collapse({"step": last * self.period, **reason}, self.out, good=good)
        before = "no checkpoint is left from before" if kept is None else f"the checkpoint before is {kept}"
        raise ConfigError(f"collapse: {reason['text']}; {before}. To go on: {WAYS_OUT}")

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"counts": self.counts}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step:
            saved = (state.stateful_callbacks or {}).get(type(self).__name__, {})
            self.counts = [(solved, of) for solved, of in saved.get("attributes", {}).get("counts", ())]


def collapsed(counts: Sequence[tuple[int, int]], share: float) -> dict[str, Any] | None:
    """Why it is a collapse, for collapse.json; None where it is none.

    counts  (successes, rollouts) of each generation
    share   of the best success rate of WINDOW generations in a row, below which that of the last ones is a collapse
    """
    if len(counts) <= WINDOW:
        return None
    windows = [counts[end - WINDOW : end] for end in range(WINDOW, len(counts) + 1)]
    sums = [(sum(solved for solved, _ in each), sum(of for _, of in each)) for each in windows]
    best = max(range(len(sums)), key=lambda at: sums[at][0] / max(1, sums[at][1]))
    (most, of), (now, now_of) = sums[best], sums[-1]
    bound, value = share * most / max(1, of), now / max(1, now_of)
    if most < ENOUGH or value >= bound:
        return None
    first = len(counts) - WINDOW
    text = (
        f"{now} of {now_of} rollouts succeeded in the generations {first} to {len(counts) - 1}, "
        f"and {most} of {of} in {best} to {best + WINDOW - 1}"
    )
    about = {"measure": "success", "value": value, "bound": f"below {bound:.3g}", "generations": WINDOW}
    return {**about, "text": text}
