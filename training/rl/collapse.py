"""Ends a training whose policy has collapsed: it solved a lot, and solves next to nothing now.

A policy that has found a way to fail does not come back by itself, because groups that fail as a whole teach it
nothing. It would go on for the rest of the night.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.config import ConfigError
from training.rl.rollouts import RolloutGeneration

WINDOW: Final = 5  # generations in a row that are compared
ENOUGH: Final = 20  # successes in the best of them; with fewer, chance may end a training


class CollapseWatch(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Counts the successes of each generation; each checkpoint holds the counts. share: `RlConfig.collapse`."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.counts: list[tuple[int, int]] = []  # of each generation: rollouts that succeeded, all that were judged

    def note(self, made: RolloutGeneration) -> None:
        """Raises ConfigError where the policy has collapsed."""
        outcomes = [bool(each.episode.success) for group in made.judged for each in group.rollouts]
        self.counts.append((sum(outcomes), len(outcomes)))
        if told := collapsed(self.counts, self.share):
            raise ConfigError(told)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"counts": self.counts}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step:
            saved = (state.stateful_callbacks or {}).get(type(self).__name__, {})
            self.counts = [(solved, of) for solved, of in saved.get("attributes", {}).get("counts", ())]


def collapsed(counts: Sequence[tuple[int, int]], share: float) -> str:
    """What is wrong, or "". counts: (successes, rollouts) of each generation; share: of the best success rate of WINDOW
    generations in a row, below which that of the last ones is a collapse."""
    if len(counts) <= WINDOW:
        return ""
    windows = [counts[end - WINDOW : end] for end in range(WINDOW, len(counts) + 1)]
    sums = [(sum(solved for solved, _ in each), sum(of for _, of in each)) for each in windows]
    best = max(range(len(sums)), key=lambda at: sums[at][0] / max(1, sums[at][1]))
    (most, of), (now, now_of) = sums[best], sums[-1]
    if most < ENOUGH or now / max(1, now_of) >= share * most / of:
        return ""
    first = len(counts) - WINDOW
    return (
        f"collapse: the policy solves next to nothing any more: {now} of {now_of} rollouts succeeded in the "
        f"generations {first} to {len(counts) - 1}, and {most} of {of} in {best} to {best + WINDOW - 1}, whose weights "
        "a checkpoint from then has. Lower learning_rate; with sdpo, look at train/divergence; or go on with "
        "`collapse: null`"
    )
