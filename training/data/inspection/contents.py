"""The contents of the card and its page, from two passes over a dataset: counts, near-duplicate images, leaks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eval.config import ConfigError
from training.data.inspection.dataset_reader import DatasetScan, ScannedEpisode, digest
from training.data.inspection.overlap import (
    MEANING,
    ContentKeys,
    Repeated,
    Shared,
    StepPosition,
    contradictions,
    leaks,
    repeated,
)
from training.data.inspection.similar import similar
from training.data.similar_images import BANDS, DISTANCE

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


NEIGHBOURS: Final = 32  # comparisons per hash within a bucket


def clusters(hashes: bytes | bytearray) -> list[list[int]]:
    """Groups of at least two images, each within DISTANCE bits of another in its group; the largest first.

    hashes   32 bytes per image, concatenated

    Images whose hashes agree in one of 8 bands of 32 bits share a bucket. In each bucket, sorted by hash, an image is
    compared with the next NEIGHBOURS. So the work is n log n, and in a very large bucket a pair may be missed.
    """
    import numpy as np

    if not hashes:
        return []
    packed = np.frombuffer(bytes(hashes), np.uint8).reshape(-1, 32)
    unique, inverse = np.unique(packed, axis=0, return_inverse=True)
    words = unique.view(">u4").astype(np.uint32)  # (n, BANDS)
    long = unique.view(np.uint64)  # (n, 4)
    roots = np.arange(len(unique))
    for band in range(BANDS):
        order = np.lexsort([words[:, i] for i in range(BANDS - 1, -1, -1) if i != band] + [words[:, band]])
        for shift in range(1, min(NEIGHBOURS, len(order) - 1) + 1):
            one, other = order[:-shift], order[shift:]
            same = words[one, band] == words[other, band]
            if not same.any():
                break
            one, other = one[same], other[same]
            bits = np.bitwise_count(long[one] ^ long[other]).sum(axis=1)
            near = (bits <= DISTANCE) & (roots[one] != roots[other])
            roots = _joined(roots, one[near], other[near])
    labels = roots[inverse.reshape(-1)]
    order = np.argsort(labels, kind="stable")
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    parts = [part.tolist() for part in np.split(order, edges) if len(part) > 1]
    return sorted(parts, key=lambda part: (-len(part), part[0]))


def _joined(roots: Any, ones: Any, others: Any) -> Any:
    """The root of each image after joining these pairs."""

    def root(at: int) -> int:
        while roots[at] != at:
            roots[at] = roots[roots[at]]  # halves the path for the next time
            at = roots[at]
        return at

    for left, right in zip(ones.tolist(), others.tolist(), strict=True):
        a, b = root(left), root(right)
        if a != b:
            roots[max(a, b)] = min(a, b)
    while (roots[roots] != roots).any():
        roots = roots[roots]
    return roots


CLUSTERS: Final = 4  # clusters of near-duplicates that are shown


@dataclass
class Card:
    """All figures of the card, and the episodes of its examples, by number."""

    look: DatasetScan
    stats: Stats
    images: int
    near: list[list[int]]  # clusters of distinct images
    shared: list[Shared]
    same_episodes: Repeated
    same_steps: Repeated
    contradicted: Repeated
    episodes: dict[int, ScannedEpisode]

    @property
    def leaking(self) -> list[Shared]:
        """The leaks for which `python -m training.data check` fails."""
        return [shared for shared in self.shared if shared.level in ("episode", "step", "similar episode")]


def read_card(path: Path) -> Card:
    """Reads a dataset twice: to count, and to load the episodes to show. Raises ConfigError."""
    scan = DatasetScan([path])
    stats, keys = Stats(), ContentKeys(scan)
    for seen in scan:
        stats.add(seen)
        keys.add(seen)
    if not stats.episodes:
        raise ConfigError(f"{path} holds no whole episode")
    shared = [*leaks(keys, examples=3), *similar(keys, scan, steps=False, examples=3)]
    same_episodes, same_steps = repeated(keys, "episode"), repeated(keys, "step")
    contradicted = contradictions(keys)
    wanted = {number for kept in stats.examples.values() for _, number, _ in kept}
    for places in (*same_episodes.examples, *same_steps.examples, *contradicted.examples):
        wanted |= {place.episode for place in places}
    wanted |= {place.episode for leak in shared for pair in leak.examples for place in pair}
    return Card(
        look=scan,
        stats=stats,
        images=len(scan.shas) // 32,
        near=clusters(scan.hashes),
        shared=shared,
        same_episodes=same_episodes,
        same_steps=same_steps,
        contradicted=contradicted,
        episodes=scan.at(wanted),
    )


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def name_of(card: Card, place: StepPosition) -> str:
    seen = card.episodes[place.episode]
    step = "" if place.step < 0 else f" step {place.step}"
    return f"{seen.side}/{seen.name}{step}" if len(card.look.sides) > 1 else f"{seen.name}{step}"


def findings(card: Card) -> list[tuple[bool, str]]:
    """The most important findings: (whether it is a problem, a sentence)."""
    lines = []
    for leak in card.leaking:
        things = _many(leak.things, leak.level)
        lines.append((True, f"{leak.first} and {leak.second} share {things}: {MEANING[leak.level]}"))
    if card.contradicted.things:
        text = f"{card.contradicted.surplus:,} steps contradict each other: same goal, frame and history, other action"
        lines.append((True, text))
    if card.same_episodes.things:
        lines.append((True, f"{_many(card.same_episodes.surplus, 'episode')} too many: exact copies of others"))
    for reason, count in card.look.faults.report()["by_reason"].items():
        lines.append((True, f"{count:,} could not be read: {reason}"))
    for reason, count in sorted(card.look.left_out.items()):
        lines.append((True, f"{count:,} left out when it was packed: {reason}"))
    if len(card.look.sides) > 1 and not card.leaking:
        lines.append((False, "no episode and no step is in two splits"))
    return lines


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def duplicate_lines(card: Card) -> list[str]:
    near = sum(len(cluster) for cluster in card.near)
    return [
        f"{card.same_episodes.surplus:,} episodes are copies of others; {card.same_steps.surplus:,} steps "
        "(goal, frame, action) were there before",
        f"{near:,} of {card.images:,} images ({share(near, card.images)}) look like another one: {len(card.near):,} "
        f"clusters{f', the largest of {len(card.near[0]):,}' if card.near else ''}",
        f"(like: at most {DISTANCE} of 256 bits of the perceptual hash differ)",
    ]
