"""Demonstrations: episodes that a prompt shows before the task, and the rules that choose them.

Training and evaluation read them from episode folders through the same code. An episode belongs to a family (`family`);
a demonstration for a task is another episode of the same family that succeeded, or that a person recorded and nobody
judged, never one of the same task and seed, whose actions would be the answer.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from eval.actions import Action
from eval.config import Config, ConfigError
from eval.desktop import Task
from eval.episodes import Episode, EpisodeError, frame_name, is_complete, read_episode
from eval.episodes.images import AnyImage, ImageRef, image_size, open_image, same_bytes
from eval.prompts.marks import Marks

if TYPE_CHECKING:
    from PIL import Image

Rule = Literal["right", "wrong", "none", "control"]
By = Literal["family", "words", "screen"]
FrameOf = Callable[[str], ImageRef]
FAMILY: Final = "family:"
FILLER: Final = "the quick grey page holds some plain words that say nothing about this app and so on "
KEPT: Final = 64  # demonstrations that are kept in memory
THUMBNAIL: Final = 16, 16  # pixels of a screen that is compared with another one


class DemonstrationConfig(Config, frozen=True):
    """
    images    of the demonstration that are shown at most: the first step's, and others spread evenly
    steps     of it that are told at most, from the first on
    thought   whether its steps' thoughts are told
    rule      right: a successful episode, or a person's recording, of the task's family, not of the same task and seed
              wrong: one of another family, with the same instruction if there is one
              control: as long as the right one in steps, characters and pixels, but saying nothing
              none: no demonstration
    by        family, or words: right is then the episode, of whatever task, whose goal shares the most words with the
              task's (of all words of both, rare ones counting more), and wrong the one that shares the fewest: for
              recordings without families.
              screen: as words, and half of it by how alike the first screens are (their grey values at 16 x 16)
    folder    episodes to choose from; None: at training, the episodes that are trained on. An evaluation needs one
    share     at training: the part of the episodes that get a demonstration; the others teach the prompt without one
    required  at evaluation: a task without a demonstration is an error, else it is asked without one
    seed      of the choice among several
    """

    images: Annotated[int, msgspec.Meta(ge=0, le=5)] = 5
    steps: Annotated[int, msgspec.Meta(ge=1)] = 15
    thought: bool = False
    rule: Rule = "right"
    by: By = "family"
    folder: str | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    required: bool = True
    seed: int = 0


@dataclass(frozen=True)
class ShownStep:
    """One step of a demonstration: the screen, the thought and the action on it, and the result."""

    action: Action
    image: ImageRef
    screen: tuple[int, int]
    result: str = ""
    thought: str = ""
    marks: Marks = field(default_factory=dict)


@dataclass(frozen=True)
class Demonstration:
    """An episode as a prompt shows it.

    blank   replaces every text by filler of its length
    failed  of an attempt that failed: what is known of its failure, and `end` its last screen. None: it succeeded
    """

    task: str = ""
    steps: tuple[ShownStep, ...] = ()
    blank: bool = False
    failed: str | None = None
    end: ImageRef | None = None


NO_DEMONSTRATION: Final = Demonstration()


def family(task_id: str, tags: Sequence[str]) -> str:
    """The family of a task: its `family:` tag, or its id without `-NUMBER` at the end."""
    named = [tag for tag in tags if tag.startswith(FAMILY)]
    return named[0] if named else FAMILY + re.sub(r"[-_][0-9]+\Z", "", task_id)


def words(text: str) -> frozenset[str]:
    """The words of a text, in small letters."""
    return frozenset(re.findall(r"\w+", text.casefold()))


def overlap(first: str, second: str, weight: Callable[[str], float] = lambda word: 1.0) -> float:
    """The share of the words of two texts that both have, by their weights, from 0 to 1."""
    one, other = words(first), words(second)
    either = math.fsum(weight(word) for word in one | other)
    return math.fsum(weight(word) for word in one & other) / either if either else 0.0


def thumbnail(screen: AnyImage) -> bytes:
    """The screen's grey values, 16 by 16. Raises BadFrame."""
    return open_image(screen).convert("L").resize(THUMBNAIL).tobytes()


def likeness(first: bytes, second: bytes) -> float:
    """How alike two thumbnails are, from 0 to 1: 1 less the mean distance of their grey values."""
    return 1 - sum(abs(one - other) for one, other in zip(first, second, strict=True)) / (255 * len(first))


def filler(text: str) -> str:
    """A text of the same length that says nothing."""
    return (FILLER * (len(text) // len(FILLER) + 1))[: len(text)]


@dataclass(frozen=True)
class Blank:
    """A grey picture as large as another one."""

    image: ImageRef

    def open(self) -> Image.Image:
        from PIL import Image

        return Image.new("RGB", self.measure(), (128, 128, 128))

    def measure(self) -> tuple[int, int]:
        """Width and height. Raises BadFrame."""
        return image_size(self.image)


def control(shown: Demonstration) -> Demonstration:
    """The control of a demonstration: as long as it, with grey pictures and filler texts."""
    steps = tuple(dataclasses.replace(step, image=Blank(step.image)) for step in shown.steps)
    return Demonstration(shown.task, steps, blank=True)


def demonstrate(episode: Episode, frame: FrameOf) -> Demonstration:
    """The episode's steps that have an action, with what came of them: whether the next frame is another file.

    Raises BadFrame.
    """
    steps = []
    names = [step.screenshot for step in episode.steps] + [frame_name(len(episode.steps))]
    for index, step in enumerate(episode.steps):
        if step.action is None:
            continue
        image = frame(step.screenshot)
        last = index == len(episode.steps) - 1
        after = frame(names[index + 1])
        if last and episode.success:
            result = "the task is done"
        elif last and isinstance(after, Path) and not after.exists():
            result = ""
        else:
            result = "nothing changed" if same_bytes(image, after) else "the screen changed"
        steps.append(ShownStep(step.action, image, episode.screen, result, (step.thought or "").strip(), step.marks))
    return Demonstration(episode.goal or episode.instruction, tuple(steps))


def _can_be_shown(episode: Episode) -> bool:
    """Whether it succeeded; of a person's recording it is enough that nobody judged it, as at training."""
    unjudged = episode.success is None and episode.outcome == "scored" and episode.source == "human"
    return bool(episode.success or unjudged) and any(step.action is not None for step in episode.steps)


@dataclass(frozen=True)
class PoolEntry:
    """An episode that can be shown."""

    episode_id: str
    task: tuple[str, int]
    instruction: str
    family: str
    read: Callable[[], tuple[Episode, FrameOf]]


class Pool:
    """The episodes to choose from: those that succeeded, and recordings of people. A chosen one is read when it is
    used, not before."""

    def __init__(self, entries: Iterable[PoolEntry]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.episode_id)
        self.families: dict[str, list[PoolEntry]] = {}
        self.instructions: dict[str, list[PoolEntry]] = {}
        for entry in self.entries:
            self.families.setdefault(entry.family, []).append(entry)
            self.instructions.setdefault(entry.instruction, []).append(entry)
        self.kept: OrderedDict[str, Demonstration] = OrderedDict()
        self.thumbnails: dict[str, bytes] = {}
        self.goals = Counter(word for entry in self.entries for word in words(entry.instruction))  # that have a word

    @classmethod
    def of(cls, episodes: Iterable[tuple[Episode, Callable[[], tuple[Episode, FrameOf]]]]) -> Pool:
        """Of (episode, how to read it again with its frames)."""
        return cls(
            PoolEntry(
                episode.episode_id,
                (episode.task_id, episode.seed),
                episode.goal or episode.instruction,
                family(episode.task_id, episode.tags),
                read,
            )
            for episode, read in episodes
            if _can_be_shown(episode)
        )

    @classmethod
    def folder(cls, root: Path) -> Pool:
        """Of a folder of episode folders; broken episodes are skipped. Raises ConfigError without such a folder."""
        if not root.is_dir():
            raise ConfigError(f"prompt.demonstration: there is no folder {root}")
        return cls.of((episode, partial(_read, folder)) for folder, episode in _episodes(root))

    def choose(
        self, task: Task, rule: Rule, seed: int, by: By = "family", screen: AnyImage | None = None
    ) -> Demonstration | None:
        """The demonstration for a task, the same each time; None where there is none. `screen`: the task's first one,
        for `by: screen`; without it the words decide alone. Raises BadFrame."""
        if rule == "none":
            return NO_DEMONSTRATION
        dice = random.Random(f"demonstration {seed} {task.task_id} {task.seed}")
        candidates = self._fitting(task, rule, dice, by, screen)
        if not candidates:
            return None
        shown = self._shown(dice.choice(candidates))
        return control(shown) if rule == "control" else shown

    def has(self, task: Task, rule: Rule, by: By = "family") -> bool:
        """Whether `choose` would give a demonstration; no episode is read."""
        return rule == "none" or bool(self._fitting(task, rule, random.Random(0), by))

    def _fitting(
        self, task: Task, rule: Rule, dice: random.Random, by: By, screen: AnyImage | None = None
    ) -> list[PoolEntry]:
        if by != "family":
            return self._nearest(task, rule, screen if by == "screen" else None)
        mine = family(task.task_id, task.tags)
        if rule != "wrong":
            return [e for e in self.families.get(mine, []) if e.task != (task.task_id, task.seed)]
        same = [e for e in self.instructions.get(task.instruction, []) if e.family != mine]
        if same or not (names := [name for name in sorted(self.families) if name != mine]):
            return same
        return self.families[dice.choice(names)]

    def _nearest(self, task: Task, rule: Rule, screen: AnyImage | None) -> list[PoolEntry]:
        mine = None if screen is None else thumbnail(screen)
        found = [
            (
                overlap(task.instruction, e.instruction, self._rarity)
                + (0 if mine is None else likeness(mine, self._thumbnail(e))),
                e,
            )
            for e in self.entries
            if e.task != (task.task_id, task.seed)
        ]
        best = (min if rule == "wrong" else max)((score for score, _ in found), default=0.0)
        return [entry for score, entry in found if score == best]

    def _rarity(self, word: str) -> float:
        """log(1 + all goals / those that have the word): "the" says little about what is alike."""
        return math.log1p(len(self.entries) / max(1, self.goals[word]))

    def _thumbnail(self, entry: PoolEntry) -> bytes:
        """Of the entry's first screen."""
        if (known := self.thumbnails.get(entry.episode_id)) is None:
            episode, frame = entry.read()
            known = self.thumbnails[entry.episode_id] = thumbnail(frame(episode.steps[0].screenshot))
        return known

    def _shown(self, entry: PoolEntry) -> Demonstration:
        """Read from its folder, unless it was lately."""
        shown = self.kept.pop(entry.episode_id, None) or demonstrate(*entry.read())
        self.kept[entry.episode_id] = shown
        if len(self.kept) > KEPT:
            self.kept.popitem(last=False)
        return shown


def _episodes(root: Path) -> Iterator[tuple[Path, Episode]]:
    for folder in sorted(root.iterdir()):
        if is_complete(folder):
            try:
                yield folder, read_episode(folder)
            except EpisodeError:
                continue  # training and scoring report a broken episode; here it is only not a candidate


def _read(folder: Path) -> tuple[Episode, FrameOf]:
    return read_episode(folder), folder.__truediv__


def in_share(config: DemonstrationConfig, task: Task) -> bool:
    """Whether a training episode is one of those that get a demonstration."""
    return random.Random(f"share {config.seed} {task.task_id} {task.seed}").random() < config.share
