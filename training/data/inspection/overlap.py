"""Finds leaks between a dataset's sides, repetitions and contradictions: by content, not by name.

Compares 64-bit hashes in sorted arrays; a step takes 40 bytes of memory. A collision of two hashes happens once in 10^7
datasets of a million steps.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from training.data.inspection.dataset_reader import DatasetScan, ScannedEpisode, digest

LEVELS: Final = ("episode", "step", "goal and frame", "frame")
MEANING: Final = {
    "episode": "the same goal, frames and actions throughout",
    "step": "the same goal, frame and action",
    "goal and frame": "the same goal and frame, whatever the action",
    "frame": "the same frame, byte for byte",
    "similar episode": "the same goal and actions, and frames that look alike throughout",
    "similar step": "the same goal and action, and a frame that looks alike",
}


@dataclass(frozen=True)
class StepPosition:
    """The numbers of an episode and its step; step -1 is the whole episode."""

    episode: int
    step: int


@dataclass(frozen=True)
class Shared:
    """What two sides share at a level: the different things, and how many episodes or steps of each side have one."""

    level: str
    first: str
    second: str
    things: int
    in_first: int
    in_second: int
    of_first: int
    of_second: int
    examples: list[tuple[StepPosition, StepPosition]]


class ContentKeys:
    """Hashes of all episodes and steps of a scan."""

    def __init__(self, look: DatasetScan) -> None:
        self.sides = look.sides
        self.side = array("B")  # of each episode
        self.content = array("Q")  # of each episode
        self.acted = array("Q")  # of each episode: goal and actions
        self.episode = array("L")  # of each step; the others likewise
        self.step = array("L")
        self.frame = array("Q")
        self.asked = array("Q")  # goal and frame
        self.learned = array("Q")  # goal, frame and action
        self.context = array("Q")  # goal, frame and all actions before
        self.label = array("Q")  # the action
        self.did = array("Q")  # goal and action

    def add(self, seen: ScannedEpisode) -> None:
        goal = seen.episode.goal or seen.episode.instruction
        history = digest("history")
        whole = [goal]
        for step, image in zip(seen.episode.steps, seen.images, strict=False):
            done = "" if step.action is None else json.dumps(step.action.to_json(), sort_keys=True)
            whole += [image, done]
            if step.action is not None:
                self.episode.append(seen.number)
                self.step.append(step.index)
                self.frame.append(int(image[:16], 16))
                self.asked.append(_short(digest(goal, image)))
                self.learned.append(_short(digest(goal, image, done)))
                self.context.append(_short(digest(goal, image, history)))
                self.label.append(_short(digest(done)))
                self.did.append(_short(digest(goal, done)))
            history = digest(history, done)
        self.side.append(self.sides.index(seen.side))
        self.content.append(_short(digest(*whole)))
        self.acted.append(_short(digest(goal, history)))

    def arrays(self) -> dict[str, Any]:
        import numpy as np

        sizes = {"B": np.uint8, "Q": np.uint64, "L": np.uint64}
        return {
            name: np.frombuffer(value, sizes[value.typecode]) if len(value) else np.empty(0, sizes[value.typecode])
            for name, value in vars(self).items()
            if isinstance(value, array)
        }


def _short(value: bytes) -> int:
    return int.from_bytes(value[:8], "little")


def groups(keys: Any) -> tuple[Any, Any]:
    """(order, starts): `keys[order]` is sorted, stably, and equal ones begin at each of `starts`."""
    import numpy as np

    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else np.empty(0, int)
    return order, starts


def common_frames(keys: ContentKeys, episodes: int) -> Any:
    """(steps,) bool: whose frame is in that many episodes of one side or more, like an empty desktop."""
    import numpy as np

    a = keys.arrays()
    common = np.zeros(len(a["frame"]), bool)
    for side in range(len(keys.sides)):
        mine = a["side"][a["episode"].astype(np.int64)] == side
        if mine.any():
            pairs = np.unique(np.stack([a["frame"][mine], a["episode"][mine]]), axis=1)
            frames, counts = np.unique(pairs[0], return_counts=True)
            common |= np.isin(a["frame"], frames[counts >= episodes])
    return common


def leaks(keys: ContentKeys, ignored: Any = None, examples: int = 5) -> Iterator[Shared]:
    """What each pair of sides shares, level by level; nothing is yielded for what they do not.

    ignored   (steps,) bool: steps that do not count as steps; whole episodes always count
    """
    import numpy as np

    a = keys.arrays()
    episodes = np.arange(len(a["side"]))
    keep = np.ones(len(a["frame"]), bool) if ignored is None else ~ignored
    owner = a["episode"][keep].astype(np.int64)
    for level, name in zip(LEVELS, ("content", "learned", "asked", "frame"), strict=True):
        if level == "episode":
            content, places = a["content"], (episodes, np.full(len(episodes), -1))
        else:
            content, places = a[name][keep], (owner, a["step"][keep].astype(np.int64))
        yield from _leaks(level, content, a["side"][places[0]], places, keys.sides, examples)


def _leaks(level: str, content: Any, side: Any, places: Any, names: list[str], examples: int) -> Iterator[Shared]:
    import numpy as np

    if not len(content):
        return
    order, starts = groups(content)
    sizes = np.diff(np.append(starts, len(order)))
    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            in_first = np.add.reduceat((side == first)[order].astype(np.int64), starts)
            in_second = np.add.reduceat((side == second)[order].astype(np.int64), starts)
            both = np.flatnonzero((in_first > 0) & (in_second > 0))
            if not len(both):
                continue
            shown = []
            for group in both[np.argsort(order[starts[both]])][:examples]:
                members = order[starts[group] : starts[group] + sizes[group]]
                pair = [next(m for m in members if side[m] == which) for which in (first, second)]
                shown.append(tuple(StepPosition(int(places[0][m]), int(places[1][m])) for m in pair))
            yield Shared(
                level,
                names[first],
                names[second],
                len(both),
                int(in_first[both].sum()),
                int(in_second[both].sum()),
                int((side == first).sum()),
                int((side == second).sum()),
                [(left, right) for left, right in shown],
            )


@dataclass(frozen=True)
class Repeated:
    """Repeated items: the number of distinct ones, the number of surplus copies, and the most frequent."""

    things: int
    surplus: int
    examples: list[list[StepPosition]]


def repeated(keys: ContentKeys, level: str, examples: int = 3) -> Repeated:
    """Episodes or steps with the same content, across all sides; the most frequent first."""
    import numpy as np

    a = keys.arrays()
    values = a["content"] if level == "episode" else a["learned"]
    if not len(values):
        return Repeated(0, 0, [])
    order, starts = groups(values)
    sizes = np.diff(np.append(starts, len(order)))
    many = np.flatnonzero(sizes > 1)
    many = many[np.argsort(-sizes[many], kind="stable")]
    shown = [
        [_place(a, level, int(m)) for m in order[starts[g] : starts[g] + min(int(sizes[g]), 4)]]
        for g in many[:examples]
    ]
    return Repeated(len(many), int((sizes[many] - 1).sum()), shown)


def contradictions(keys: ContentKeys, examples: int = 3) -> Repeated:
    """Steps with the same goal, frame and history but different actions; `surplus` counts these steps.

    Each example has one place per action.
    """
    import numpy as np

    a = keys.arrays()
    if not len(a["context"]):
        return Repeated(0, 0, [])
    order, starts = groups(a["context"])
    labels = a["label"][order]
    differs = np.logical_or(
        np.maximum.reduceat(labels, starts) != labels[starts], np.minimum.reduceat(labels, starts) != labels[starts]
    )
    sizes = np.diff(np.append(starts, len(order)))
    positions = np.flatnonzero(differs)
    positions = positions[np.argsort(-sizes[positions], kind="stable")]
    shown = []
    for group in positions[:examples]:
        members = order[starts[group] : starts[group] + sizes[group]]
        firsts = {int(a["label"][m]): int(m) for m in members[::-1]}
        shown.append([_place(a, "step", m) for m in sorted(firsts.values())[:3]])
    return Repeated(len(positions), int(sizes[positions].sum()), shown)


def _place(arrays: dict[str, Any], level: str, at: int) -> StepPosition:
    return (
        StepPosition(at, -1)
        if level == "episode"
        else StepPosition(int(arrays["episode"][at]), int(arrays["step"][at]))
    )
