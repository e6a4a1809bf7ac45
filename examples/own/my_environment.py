"""An environment of one's own: a grey desktop with one yellow button, which has to be pressed.

A configuration names it as `environment: my_environment:Press`. A real one would drive a browser or a virtual machine.
"""

import random
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageDraw

from eval.actions import Action, ActionType
from eval.desktop import Desktop, Expected, Observation, Score, Task

WIDTH, HEIGHT = 320, 200  # of the screen, in pixels
BUTTON = 0.2, 0.2  # width and height, as shares of the screen


class PressDesktop:
    """One screen. A real desktop may raise eval.desktop.InfraError when it breaks: the episode is then run again."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Puts the task's start state up and gives what can be seen."""
        place = random.Random(seed)
        self.left, self.top = place.uniform(0, 0.8), place.uniform(0, 0.8)
        self.pressed = False
        return self.observe()

    async def step(self, action: Action) -> Observation:
        """Does one action and gives what can be seen then."""
        if action.type is ActionType.CLICK and action.x is not None and action.y is not None:
            inside = 0 <= action.x - self.left <= BUTTON[0] and 0 <= action.y - self.top <= BUTTON[1]
            self.pressed = self.pressed or inside
        if action.type is ActionType.FAIL:
            self.pressed = False  # who says that it cannot be done has not done it
        return self.observe()

    async def score(self) -> Score:
        """Judges the state that the agent left: a value from 0 to 1, and whether the task is solved."""
        return Score(float(self.pressed), self.pressed)

    async def close(self) -> None:
        """Ends what `reset` started: a browser, a machine."""

    def observe(self) -> Observation:
        """The screenshot; and what an expert would do, so that steps can be measured and episodes be made."""
        screen = Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90))
        corners = (self.left, self.top, self.left + BUTTON[0], self.top + BUTTON[1])
        box = tuple(round(corner * side) for corner, side in zip(corners, (WIDTH, HEIGHT) * 2, strict=True))
        ImageDraw.Draw(screen).rectangle(box, fill=(0, 160, 0) if self.pressed else (250, 220, 0))
        if self.pressed:
            return Observation(screen, (WIDTH, HEIGHT), expected=Expected(Action(ActionType.DONE)))
        click = Action(ActionType.CLICK, x=self.left + BUTTON[0] / 2, y=self.top + BUTTON[1] / 2)
        return Observation(screen, (WIDTH, HEIGHT), expected=Expected(click, (self.left, self.top, *BUTTON)))


class Press:
    """What the configuration names: it gives the tasks, and a desktop for each episode that runs at the same time."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        """`count` tasks; the same arguments always give the same tasks."""
        return [Task(f"press-{number}", "Press the button", number) for number in range(seed, seed + count)]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return PressDesktop()
