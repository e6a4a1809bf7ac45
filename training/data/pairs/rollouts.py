"""Preference pairs from several tries at a task, ranked by score or divided into solved and failed.

Two tries are compared at the first step where they differ, and only if the observation was the same: the same goal, the
same earlier actions, and the same pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from eval.config import Config
from eval.episodes import Episode, read_episode
from training.data.faults import BadSample
from training.data.pairs.maker import Maker, ObservedStep, episodes

Count = Annotated[int, msgspec.Meta(ge=1)]


class RankedSource(Config, frozen=True, tag_field="kind", tag="ranked"):
    """
    episodes  folders of episodes; those of one task are ranked by their score
    min_gap   two tries are compared only when their scores differ by more than this
    per_task  how many pairs of tries are compared per task; None: all
    """

    episodes: list[str]
    min_gap: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    per_task: Count | None = 64


class RolloutsSource(Config, frozen=True, tag_field="kind", tag="rollouts"):
    """Solved tries of a task are better than those that failed.

    episodes  folders of episodes, several tries per task
    per_task  how many pairs of tries are compared per task; None: all
    """

    episodes: list[str]
    per_task: Count | None = 64


Try = tuple[float, Path]  # its score, and its folder


def make(source: RankedSource | RolloutsSource, maker: Maker) -> None:
    """Raises ConfigError."""
    gap = source.min_gap if isinstance(source, RankedSource) else 0.0
    kind: Literal["ranked", "rollouts"] = "ranked" if isinstance(source, RankedSource) else "rollouts"
    for tries in _by_task(source, maker):
        compared = ((a, b) for a, b in itertools.combinations(tries, 2) if a[0] - b[0] > gap)
        any_pair = False
        for (_, better), (_, worse) in itertools.islice(compared, source.per_task):
            any_pair = True
            try:
                _compare((better, read_episode(better)), (worse, read_episode(worse)), kind, maker)
            except BadSample as fault:
                maker.faults.bad(f"{better} and {worse}", fault)
        if not any_pair:
            maker.gate.drop("task_without_contrast")


def _by_task(source: RankedSource | RolloutsSource, maker: Maker) -> Iterator[list[Try]]:
    """The judged tries of each task, best first. Tries without a score are skipped. A task whose judge, programs or
    desktop changed is another one."""
    tasks: dict[tuple[str, str, str], list[Try]] = {}
    for root in source.episodes:
        for folder, episode in episodes(Path(root), maker.faults):
            if episode.outcome != "scored":
                maker.gate.drop(episode.outcome)
                continue
            score = episode.score if isinstance(source, RankedSource) else _solved(episode)
            if score is None:
                maker.gate.drop("unjudged")
                continue
            task = (episode.task_id, episode.goal or episode.instruction, str(episode.metadata.get("identity", "")))
            tasks.setdefault(task, []).append((score, folder))
    for tries in tasks.values():
        yield sorted(tries, key=lambda one: (-one[0], str(one[1])))


def _solved(episode: Episode) -> float | None:
    return None if episode.success is None else float(episode.success)


def _compare(
    better: tuple[Path, Episode], worse: tuple[Path, Episode], kind: Literal["ranked", "rollouts"], maker: Maker
) -> None:
    """A pair at the first step where the two tries differ. Raises BadSample."""
    for index in range(min(len(better[1].steps), len(worse[1].steps))):
        a, b = ObservedStep(*better, index), ObservedStep(*worse, index)
        if a.step.action is not None and a.step.action == b.step.action:
            continue
        if a.key() != b.key():
            maker.gate.drop("no_shared_observation")
        elif a.step.action is None:
            maker.gate.drop("better_try_is_no_action")
        elif (expert := a.step.expected) is not None and expert.matches(b.step.action):
            # the worse try was right here: a later step or chance decided
            maker.gate.drop("worse_try_as_expected")
        else:
            maker.pair(a, maker.answer(a.step), maker.answer(b.step), kind)
        return
    maker.gate.drop("no_divergence")
