"""Code that all sources of pairs share: turns steps of episodes into observations, and answers into pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import Expected, Task
from eval.episodes import Episode, EpisodeError, Step, is_complete, read_episode
from eval.prompts import PastStep, PromptBuilder
from training.data.faults import BadSample, Faults
from training.data.pairs.check import Gate
from training.data.pairs.store import Pair, PictureStore, Source, digest, seen
from training.data.samples import check_shown, open_image


@dataclass(frozen=True)
class ObservedStep:
    """A step of an episode as an observation: the goal, the earlier actions, and the screen."""

    folder: Path
    episode: Episode
    index: int

    @property
    def step(self) -> Step:
        return self.episode.steps[self.index]

    @property
    def goal(self) -> str:
        return self.episode.goal or self.episode.instruction

    @property
    def image(self) -> Path:
        return self.folder / self.step.screenshot

    @property
    def first_image(self) -> Path:
        """The episode's first screen."""
        return self.folder / self.episode.steps[0].screenshot

    @property
    def past(self) -> list[PastStep]:
        return [
            PastStep(
                step.action,
                self.folder / step.screenshot,
                step.thought,
                step.response,
                step.marks,
                step.further_actions,
                step.calls,
                step.parse_error or step.refused,
            )
            for step in self.episode.steps[: self.index]
        ]

    @property
    def task(self) -> Task:
        return Task(self.episode.task_id, self.goal, self.episode.seed, tags=self.episode.tags)

    def key(self) -> str:
        """A key that is equal for observations with the same goal, earlier actions and pixels.

        Raises BadSample for an image that cannot be opened.
        """
        done: list[dict[str, Any] | None] = []
        for past in self.past:
            done.append(None if past.action is None else past.action.to_json())
            done += [action.to_json() for action in past.further_actions]
        return digest([self.goal, done, seen(open_image(self.image))])

    def __str__(self) -> str:
        return f"{self.folder}: step {self.index}"


def episodes(root: Path, faults: Faults) -> Iterator[tuple[Path, Episode]]:
    """Every complete episode directly in `root`, or in its `episodes` folder; broken ones go to `faults`.

    Raises ConfigError for a folder that is not there or holds none.
    """
    if not root.is_dir():
        raise ConfigError(f"sources: there is no folder {root}")
    if (root / "episodes").is_dir():
        root /= "episodes"
    folders = [folder for folder in sorted(root.iterdir()) if is_complete(folder)]
    if not folders:
        raise ConfigError(f"sources: {root} holds no episode")
    for folder in folders:
        try:
            yield folder, read_episode(folder)
        except EpisodeError as error:
            faults.bad(str(folder), BadSample("broken_episode", str(error)))


def observations(root: Path, faults: Faults) -> Iterator[ObservedStep]:
    """Every step of every episode in `root`. Raises ConfigError as `episodes` does."""
    for folder, episode in episodes(root, faults):
        for index in range(len(episode.steps)):
            yield ObservedStep(folder, episode, index)


class Maker:
    """Turns observations with two answers into pairs, with one prompt builder, and passes them to the gate."""

    def __init__(self, builder: PromptBuilder, pictures: PictureStore, gate: Gate, faults: Faults) -> None:
        check_shown(builder, None)
        self.builder = builder
        self.pictures = pictures
        self.gate = gate
        self.faults = faults

    def answer(self, step: Step) -> str:
        """A step's answer in the builder's dialect: the original text if it parses as the step's action, else the
        action in the dialect's form (recordings, other dialects). A text without an action is not changed.

        Raises BadSample for a step without an answer, or one that the dialect cannot write.
        """
        if step.response is not None:
            try:
                if step.action is None or step.actions == self.builder.read_turn(step.response, step.marks).actions:
                    return step.response
            except ParseError:
                if step.action is None:
                    return step.response
        if step.action is None:
            raise BadSample("no_answer", "a step with neither a response nor an action")
        try:
            return self.builder.target(step)
        except Unrepresentable as error:
            raise BadSample("unrepresentable", str(error)) from None

    def say(self, action: Action, marks: Mapping[int, Box]) -> str:
        """An action as an answer without a thought. Raises Unrepresentable."""
        return self.builder.target(Step(index=0, screenshot="", action=action, marks=dict(marks)))

    def read(self, text: str, marks: Mapping[int, Box]) -> Action:
        """The action of an answer. Raises ParseError."""
        return self.builder.read(text, marks).action

    def pair(
        self,
        at: ObservedStep,
        chosen: str,
        rejected: str,
        source: Source,
        *,
        expected: Expected | None = None,
        note: str = "",
    ) -> None:
        """A candidate pair at an observation. Raises ConfigError under the policy `fail`."""
        shown = self.builder.choose(at.task, at.first_image)
        past = [self.builder.as_taught(step) for step in at.past]
        messages, images_shown = self.builder.layout(at.goal, past, at.image, at.step.marks, shown)
        known = expected or at.step.expected
        try:
            images = [self.pictures.add(image) for image in images_shown]
        except BadSample as fault:
            self.faults.bad(str(at), fault)
            return
        pair = Pair(
            prompt=messages,
            chosen=chosen,
            rejected=rejected,
            images=images,
            task_id=at.episode.task_id,
            source=source,
            screen=at.episode.screen,
            step=at.index,
            expected=None if known is None else {"action": known.action.to_json(), "box": known.box},
            marks=at.step.marks if self.builder.marks else {},
            note=note,
        )
        self.gate.add(pair, str(at))
