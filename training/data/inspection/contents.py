"""The contents of the card and its page, from two passes over a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eval.config import ConfigError
from training.data.inspection.dataset_reader import DatasetScan, ScannedEpisode
from training.data.inspection.duplicates import clusters
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
from training.data.inspection.stats import Stats
from training.data.similar_images import DISTANCE

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
