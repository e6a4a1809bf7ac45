"""Episode folders -> training samples, through the prompt builder that evaluation uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from eval.agents.base import History
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.episodes import Episode, EpisodeError, Step, iter_episodes
from eval.prompts import Message, PastStep, PromptBuilder


@dataclass(frozen=True)
class Sample:
    """One step to learn: chat messages that end with the assistant's answer, and the images in the order of places.

    `folder`, `episode` and `step` say where it comes from; `images` are files, opened when they are needed.
    """

    messages: list[Message]
    images: list[Path]
    folder: Path
    episode: Episode
    step: Step

    def asked(self) -> tuple[Observation, History]:
        """The step as an agent of `eval.agents` is asked for it, images decoded."""
        past = [PastStep(step.action, _open(self.folder / step.screenshot)) for step in self.episode.steps]
        goal = self.episode.goal or self.episode.instruction
        image = _open(self.folder / self.step.screenshot)
        task = Task(self.episode.task_id, goal, self.episode.seed)
        return Observation(image=image, screen=self.episode.screen), History(task, past[: self.step.index])

    @property
    def target(self) -> str:
        return str(self.messages[-1]["content"][0]["text"])


class _Frame:
    """Stands for an image in the prompt builder, which only hands images on: nothing is decoded to make samples."""

    def __init__(self, path: Path) -> None:
        self.path = path


def episode_samples(folder: Path, episode: Episode, builder: PromptBuilder) -> Iterator[Sample]:
    """A sample for every step that has an action; the others stay in the history, as they would in an evaluation."""
    past: list[PastStep] = []
    for step in episode.steps:
        frame: Any = _Frame(folder / step.screenshot)
        if step.action is not None:
            messages, frames = builder.messages(episode.goal or episode.instruction, past, _observed(frame, episode))
            answer = {"role": "assistant", "content": [{"type": "text", "text": builder.target(step)}]}
            images: Sequence[Any] = frames
            yield Sample([*messages, answer], [image.path for image in images], folder, episode, step)
        past.append(PastStep(step.action, frame))


def _observed(frame: Any, episode: Episode) -> Observation:
    return Observation(image=frame, screen=episode.screen)


def load(root: Path, builder: PromptBuilder) -> list[Sample]:
    """All samples of a folder of episodes, in order. Raises ConfigError for a broken episode, or none at all."""
    if not root.is_dir():
        raise ConfigError(f"episodes: there is no folder {root}")
    try:
        samples = [s for folder, episode in iter_episodes(root) for s in episode_samples(folder, episode, builder)]
    except EpisodeError as error:
        raise ConfigError(f"episodes: {error}") from None
    if not samples:
        raise ConfigError(f"episodes: {root} holds no episode with an action")
    return samples


def _open(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def open_images(sample: Sample) -> list[Image.Image]:
    """The sample's images, decoded, RGB."""
    return [_open(path) for path in sample.images]
