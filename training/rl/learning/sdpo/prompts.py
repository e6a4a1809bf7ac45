"""What SDPO's teacher knows and the student did not: how the task is done, or how this attempt at it failed.

The teacher's prompt is the student's own prompt of that turn, by the same PromptBuilder, with one more block before it:
a sibling's attempt that succeeded; without one, the attempt itself, with its actions, its last screen, its errors and
what it changed in the accessibility tree. It stands where a demonstration stands, and in place of one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eval.accessibility.tree import Tree
from eval.episodes import Episode, Step, frame_name
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import Demonstration, FrameOf, demonstrate

ERRORS: Final = 5  # errors that are told, the latest ones
CHANGES: Final = 20  # lines of the tree's difference that are told, of those gone and of those new each
LONGEST: Final = 200  # characters of an error


@dataclass(frozen=True)
class TriedEpisode:
    """One rollout of a group, for hindsight. `first`, `last`: the accessibility trees at its begin and end, or None."""

    episode: Episode
    frame: FrameOf
    first: Tree | None = None
    last: Tree | None = None


def teacher_demonstration(index: int, group: Sequence[TriedEpisode], builder: PromptBuilder) -> Demonstration | None:
    """What the teacher of the rollout `index` is shown. None: there is nothing to tell, and SDPO leaves it out.

    Shown is the next rollout after it in the group that succeeded, in a circle, so that several rollouts do not all
    learn from the same one. A rollout that alone succeeded has nothing to learn, nor has one that was not judged.
    """
    tried = group[index]
    if tried.episode.success is None:
        return None
    others = [*group[index + 1 :], *group[:index]]
    solved = next((other for other in others if other.episode.success), None)
    if solved is not None:
        return demonstrate(solved.episode, solved.frame)
    if tried.episode.success or not tried.episode.steps:
        return None
    return _failure(tried, builder)


def _failure(tried: TriedEpisode, builder: PromptBuilder) -> Demonstration:
    lines = ["The task was not done."]
    errors = [f"Step {step.index + 1}: {text[:LONGEST]}" for step in tried.episode.steps for text in _errors(step)]
    lines += errors[-ERRORS:]
    if tried.first is not None and tried.last is not None:
        lines += _changes(builder.tree_text(tried.first), builder.tree_text(tried.last))
    end = tried.frame(frame_name(len(tried.episode.steps)))
    if isinstance(end, Path) and not end.exists():  # the episode ended before another frame came
        end = tried.frame(tried.episode.steps[-1].screenshot)
    shown = demonstrate(tried.episode, tried.frame)
    return dataclasses.replace(shown, failed="\n".join(lines), end=end)


def _errors(step: Step) -> list[str]:
    found = [] if step.parse_error is None else [f"the answer was no action: {step.parse_error}"]
    found += [] if step.refused is None else [f"refused: {step.refused}"]
    return found + [f"{call.name} failed: {call.error}" for call in step.calls if call.error is not None]


def _changes(before: str, after: str) -> list[str]:
    """What of a tree is gone and what is new, line by line; an element that changed is both."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    gone, came = list((old - new).elements()), list((new - old).elements())
    if not gone and not came:
        return ["The screen is as it was at the start."]
    out = []
    for title, lines in (("Gone since the start:", gone), ("New since the start:", came)):
        if lines:
            rest = [f"({len(lines) - CHANGES} more)"] if len(lines) > CHANGES else []
            out += [title, *lines[:CHANGES], *rest]
    return out
