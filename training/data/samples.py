"""Turns episodes into training samples, with the prompt builder that evaluation uses."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from eval.accessibility.tree import Tree
from eval.actions import Unrepresentable
from eval.actions.geometry import MAX_ASPECT
from eval.agents.base import History
from eval.config import ConfigError
from eval.desktop import BadFrame, Expected, Observation, Task
from eval.episodes import Episode, EpisodeError, Step, episode_tree, images, is_complete, read_episode
from eval.episodes.images import ImageRef
from eval.prompts import Message, PastStep, PromptBuilder
from eval.prompts.demonstrations import NO_DEMONSTRATION, Demonstration, FrameOf, Pool, in_share
from training.data.faults import BadSample, Faults

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ImageRef", "Sample", "episode_samples", "load", "open_image", "open_images", "with_pool"]


@dataclass(frozen=True)
class Sample:
    """One training sample: chat messages that end with the assistant's answer, and their images in order.

    `images` are opened when they are needed (`open_images`). A sample from an episode also holds the episode, and
    `frame` opens its other frames; a sample from a chat has no episode. `demonstration` is the one in the prompt.
    `builder` made the messages. `answer_only`: of a chat, the last turn alone is learnt; of a step it always is.
    """

    messages: list[Message]
    images: Sequence[ImageRef]
    folder: Path | None = None
    episode: Episode | None = None
    step: Step | None = None
    frame: FrameOf | None = None
    demonstration: Demonstration = NO_DEMONSTRATION
    builder: PromptBuilder | None = None
    answer_only: bool = False

    @property
    def expected(self) -> Expected | None:
        """What the answer should do: the environment's expert's action and box, else the recorded action; None for a
        sample from a chat. The action is rounded as an answer is: a model cannot write more places."""
        if self.step is None:
            return None
        if (expected := self.step.expected) is None:
            if self.step.action is None:
                return None
            expected = Expected(self.step.action)
        if self.builder is None:
            return expected
        return dataclasses.replace(expected, action=self.builder.as_written(expected.action, self.step.marks))

    @property
    def target(self) -> str:
        """The assistant's answer."""
        return str(self.messages[-1]["content"][0]["text"])

    def asked(self) -> tuple[Observation, History]:
        """The step as an agent of `eval.agents` sees it; earlier frames are decoded when a prompt shows them.

        Raises ValueError for a sample without an episode, BadSample for a frame that cannot be decoded.
        """
        if self.episode is None or self.step is None or self.frame is None:
            raise ValueError("a sample that is of no episode cannot be asked of an agent")
        past = [
            _past(step, self.frame(step.screenshot), self.builder) for step in self.episode.steps[: self.step.index]
        ]
        image = open_image(self.frame(self.step.screenshot))
        tree = None if self.builder is None else _tree(self.builder, self.folder, self.step)
        seen = Observation(image=image, screen=self.episode.screen, marks=self.step.marks, tree=tree)
        return seen, History(_task(self.episode), past, self.demonstration)


class SampleSequence(Sequence[Sample]):
    """Samples that are made when they are asked for: `_at` makes one."""

    @abstractmethod
    def _at(self, at: int) -> Sample: ...

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        return [self._at(i) for i in range(*at.indices(len(self)))] if isinstance(at, slice) else self._at(at)


def open_image(image: ImageRef) -> Image.Image:
    """The image, decoded, RGB. Raises BadSample, also for a shape that the models' processors refuse."""
    try:
        opened = images.open_image(image)
    except BadFrame as error:
        raise BadSample("image_broken", str(error)) from None
    check_shape(opened.size, image)
    return opened


def check_shape(size: tuple[int, int], image: ImageRef) -> None:
    """Raises BadSample for a picture that is too long for its width: Qwen-VL's processors refuse it."""
    if max(size) > MAX_ASPECT * min(size):
        raise BadSample("image_shape", f"{image}: {size[0]}x{size[1]}; a side has at most {MAX_ASPECT} times the other")


def open_images(sample: Sample) -> list[Image.Image]:
    """The sample's images, decoded, RGB. Raises BadSample."""
    return [open_image(image) for image in sample.images]


def episode_samples(
    folder: Path | None,
    episode: Episode,
    builder: PromptBuilder,
    *,
    frame: FrameOf | None = None,
    faults: Faults | None = None,
    where: str = "",
) -> Iterator[Sample]:
    """A sample for every step with an action; steps without one only appear in the history, as in an evaluation.

    frame   gives a step's image by its file name; by default the file in `folder`
    faults  counts steps whose image is missing or broken, or whose action the builder's dialect cannot write; without
            it the first of them raises ConfigError. An episode without steps counts as well
    where   name of the episode in messages; by default the folder

    Raises ConfigError for a prompt that shows trees, where the episode has no folder, or no picture would be shown.
    """
    check_shown(builder, folder)
    faults = faults or Faults()
    where = where or (str(folder) if folder is not None else episode.episode_id)
    if frame is None:
        if folder is None:
            raise ValueError("an episode without a folder needs `frame`")
        frame = folder.__truediv__
    if not episode.steps:
        faults.bad(where, BadSample("no_steps", "an episode without a step"))
    try:
        shown = _demonstration(builder, episode, frame)
    except BadFrame as error:
        faults.bad(where, BadSample("demonstration_broken", str(error)))
        return
    past: list[PastStep] = []
    for step in episode.steps:
        image = frame(step.screenshot)
        if step.action is not None:
            try:
                tree = _tree(builder, folder, step)
                messages, places = _messages(episode, step, builder, past, image, shown, tree)
                yield Sample(messages, places, folder, episode, step, frame, shown, builder)
            except BadSample as fault:
                faults.bad(f"{where}: step {step.index}", fault)
        past.append(_past(step, image, builder))


def step_sample(episode: Episode, index: int, builder: PromptBuilder, frame: FrameOf) -> Sample:
    """The sample of a single step, equal to that of `episode_samples`. Raises BadSample, ConfigError."""
    check_shown(builder, None)
    step = episode.steps[index]
    past = [_past(before, frame(before.screenshot), builder) for before in episode.steps[:index]]
    try:
        shown = _demonstration(builder, episode, frame)
    except BadFrame as error:
        raise BadSample("demonstration_broken", str(error)) from None
    messages, places = _messages(episode, step, builder, past, frame(step.screenshot), shown)
    return Sample(messages, places, None, episode, step, frame, shown, builder)


def check_shown(builder: PromptBuilder, folder: Path | None) -> None:
    """Raises ConfigError for a prompt that training cannot show."""
    if builder.observation == "tree":
        raise ConfigError("prompt.observation: tree: training shows pictures; allowed: screenshot, both, som")
    if builder.observation != "screenshot" and folder is None:
        raise ConfigError(
            f"prompt.observation: {builder.observation}: packed data and pairs have no trees; allowed: screenshot"
        )


def _tree(builder: PromptBuilder, folder: Path | None, step: Step) -> Tree | None:
    """The step's tree where the prompt shows it. Raises BadSample."""
    if builder.observation == "screenshot" or folder is None:
        return None
    try:
        return episode_tree(folder, step)
    except EpisodeError as error:
        raise BadSample("tree_broken", str(error)) from None


def _demonstration(builder: PromptBuilder, episode: Episode, frame: FrameOf) -> Demonstration:
    """The demonstration for a training episode; None for episodes outside the share, or when none fits."""
    config, task = builder.demonstration, _task(episode)
    if config is None or not in_share(config, task):
        return NO_DEMONSTRATION
    if builder.pool is None:
        raise ValueError("demonstrations need a pool: see with_pool")
    first = frame(episode.steps[0].screenshot) if episode.steps else None
    return builder.pool.choose(task, config.rule, config.seed, config.by, first) or NO_DEMONSTRATION


def with_pool(builder: PromptBuilder, pool: Callable[[], Pool]) -> PromptBuilder:
    """The builder with demonstrations from `pool` (called only if needed), unless its configuration names others."""
    if builder.demonstration is None or builder.pool is not None:
        return builder
    return dataclasses.replace(builder, pool=pool())


def _messages(
    episode: Episode,
    step: Step,
    builder: PromptBuilder,
    past: Sequence[PastStep],
    image: ImageRef,
    shown: Demonstration,
    tree: Tree | None = None,
) -> tuple[list[Message], list[ImageRef]]:
    """Raises BadSample."""

    from PIL import Image

    messages, placed = builder.layout(_task(episode).instruction, past, image, step.marks, shown, tree)
    places = [place for place in placed if not isinstance(place, Image.Image)]  # all of them: no image was decoded
    try:
        target = builder.target(step)
    except Unrepresentable as error:
        raise BadSample("unrepresentable", str(error)) from None
    for place in places:
        try:
            images.check_image(place)
        except BadFrame as error:
            missing = isinstance(place, Path) and not place.exists()
            raise BadSample("image_missing" if missing else "image_broken", str(error)) from None
    answer = {"role": "assistant", "content": [{"type": "text", "text": target}]}
    return [*messages, answer], places


def _past(step: Step, image: ImageRef, builder: PromptBuilder | None) -> PastStep:
    undone = step.parse_error or step.refused
    past = PastStep(
        step.action, image, step.thought, step.response, step.marks, step.further_actions, step.calls, undone
    )
    return past if builder is None else builder.as_taught(past)


def _task(episode: Episode) -> Task:
    return Task(episode.task_id, episode.goal or episode.instruction, episode.seed, tags=episode.tags)


def load(root: Path, builder: PromptBuilder, faults: Faults | None = None) -> list[Sample]:
    """All samples of a folder of episodes, in order; images are checked but not decoded.

    Raises ConfigError for a folder that is missing or yields no sample, and for the first unusable episode or step
    unless `faults` skips those. Folders without a marker (incomplete episodes) are ignored.
    """
    if not root.is_dir():
        raise ConfigError(f"episodes: there is no folder {root}")
    faults = faults or Faults()
    builder = with_pool(builder, lambda: Pool.folder(root))
    loaded: list[Sample] = []
    for folder in sorted(root.iterdir()):
        if not is_complete(folder):
            continue
        try:
            episode = read_episode(folder)
        except EpisodeError as error:
            faults.bad("episodes", BadSample("broken_episode", str(error)))
            continue
        loaded += episode_samples(folder, episode, builder, faults=faults)
    if not loaded:
        raise ConfigError(f"episodes: {root} holds no episode with an action")
    return loaded
