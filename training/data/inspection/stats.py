"""The counts for the card, from one pass over a dataset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from training.data.inspection.dataset_reader import ScannedEpisode, digest

ACROSS, DOWN = 32, 24  # cells of the heat map
EXAMPLES: Final = 2  # steps shown per type of action


@dataclass
class Stats:
    """Counters. Lengths are Counters of values, so that quantiles are exact.

    clicks    cell (x, y) of the heat map -> points
    examples  type of action -> (random number, episode, step) of the steps to show: those with the smallest hash, which
              is a random but reproducible choice
    """

    episodes: Counter[str] = field(default_factory=Counter)  # per side; steps and actions likewise
    steps: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    types: dict[str, Counter[str]] = field(default_factory=dict)  # side -> type -> count
    screens: Counter[tuple[int, int]] = field(default_factory=Counter)  # episodes
    lengths: Counter[int] = field(default_factory=Counter)  # steps per episode
    texts: dict[str, Counter[int]] = field(default_factory=dict)  # what -> characters -> count
    outcomes: Counter[str] = field(default_factory=Counter)  # solved, not solved, not judged, infra, not run
    agents: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    thoughts: int = 0  # steps with an action that have one
    tasks: set[bytes] = field(default_factory=set)
    instructions: set[bytes] = field(default_factory=set)
    clicks: Counter[tuple[int, int]] = field(default_factory=Counter)
    examples: dict[str, list[tuple[bytes, int, int]]] = field(default_factory=dict)

    def add(self, seen: ScannedEpisode) -> None:
        episode = seen.episode
        self.episodes[seen.side] += 1
        self.steps[seen.side] += len(episode.steps)
        self.screens[episode.screen] += 1
        self.lengths[len(episode.steps)] += 1
        self.agents[episode.agent or "(none)"] += 1
        self.environments[episode.environment or "(none)"] += 1
        judged = "not judged" if episode.success is None else "solved" if episode.success else "not solved"
        self.outcomes[judged if episode.outcome == "scored" else episode.outcome] += 1
        self.tasks.add(digest(episode.task_id)[:8])
        self.instructions.add(digest(episode.instruction)[:8])
        self._text("instruction", episode.instruction)
        for step in episode.steps:
            if step.action is None:
                continue
            self.actions[seen.side] += 1
            kind = step.action.type.value
            self.types.setdefault(seen.side, Counter())[kind] += 1
            if step.thought:
                self.thoughts += 1
                self._text("thought", step.thought)
            if step.action.text is not None:
                self._text("typed text", step.action.text)
            if step.action.point is not None:
                x, y = step.action.point
                self.clicks[min(int(x * ACROSS), ACROSS - 1), min(int(y * DOWN), DOWN - 1)] += 1
            drawn = (digest(episode.episode_id, step.index)[:8], seen.number, step.index)
            kept = self.examples.setdefault(kind, [])
            if len(kept) < EXAMPLES or drawn < kept[-1]:
                self.examples[kind] = sorted([*kept, drawn])[:EXAMPLES]

    def _text(self, name: str, text: str) -> None:
        self.texts.setdefault(name, Counter())[len(text)] += 1


def quantiles(values: Mapping[int, int]) -> dict[str, float]:
    """{"min", "median", "p95", "max", "mean"} of a Counter; nearest rank."""
    total, passed, ordered = sum(values.values()), 0, sorted(values)
    wanted = {"median": math.ceil(total / 2), "p95": math.ceil(total * 0.95)}
    result: dict[str, float] = {"min": ordered[0], "max": ordered[-1]}
    for value in ordered:
        passed += values[value]
        for name, rank in wanted.items():
            if name not in result and passed >= rank:
                result[name] = value
    result["mean"] = sum(value * count for value, count in values.items()) / total
    return {name: result[name] for name in ("min", "median", "p95", "max", "mean")}


def bins(values: Mapping[int, int], most: int = 24) -> list[tuple[int, int, int]]:
    """(from, to, count) of at most `most` bins of equal width over a Counter's values, both ends included."""
    low, high = min(values), max(values)
    width = max(1, math.ceil((high - low + 1) / most))
    counts: list[Any] = [[low + i * width, low + (i + 1) * width - 1, 0] for i in range((high - low) // width + 1)]
    for value, count in values.items():
        counts[(value - low) // width][2] += count
    return [(a, b, count) for a, b, count in counts]
