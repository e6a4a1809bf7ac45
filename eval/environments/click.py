"""The environment `click`: one screen of coloured buttons on a grid, one instruction, one click. See `ClickOptions`.

The smallest task in which a model must look and point. SFT, reward models, DPO and GRPO are tried on it. An episode
ends with the first action; it is solved when that clicks inside the named button. Test screens are drawn from seeds
that training never uses; with few cells and colours the pictures themselves repeat, and no split is claimed for them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from PIL import Image, ImageDraw

from eval.actions import Action, ActionType
from eval.actions.geometry import Box
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Observation, Score, Task
from eval.environments import drawn
from eval.environments.splits import seeds

COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 40, 40),
    "blue": (50, 80, 220),
    "green": (40, 180, 60),
    "orange": (240, 150, 30),
}
GAP: Final = 0.15  # of a cell's side, on each side of a button


class ClickOptions(Config, frozen=True):
    """
    split        which seeds may be drawn
    size         the side of the square screen in pixels
    grid         cells per side
    distractors  further buttons, each of another colour, that must not be clicked
    colours      how many of COLOURS are in play
    """

    split: Literal["train", "test"] = "test"
    size: int = 64
    grid: int = 4
    distractors: int = 0
    colours: int = 4

    def check(self) -> None:
        """Raises ConfigError for options that contradict each other."""
        if not 1 <= self.colours <= len(COLOURS):
            raise ConfigError(f"options.colours must be from 1 to {len(COLOURS)}, not {self.colours}")
        if self.grid < 1 or self.size < 8 * self.grid:
            raise ConfigError("options.size must be at least 8 pixels per cell of options.grid")
        if not 0 <= self.distractors < min(self.colours, self.grid**2):
            raise ConfigError("options.distractors must be from 0 to below the number of colours and of cells")


@dataclass(frozen=True)
class ClickScreen:
    """Buttons by colour: their cell (column, row). `wanted` is the one to click."""

    buttons: Mapping[str, tuple[int, int]]
    wanted: str
    background: int


def screen(seed: int, options: ClickOptions) -> ClickScreen:
    """The screen of a task, the same on every machine."""
    rng = random.Random(f"click {options.split} {seed}")
    cells = [(column, row) for row in range(options.grid) for column in range(options.grid)]
    names = rng.sample(list(COLOURS)[: options.colours], 1 + options.distractors)
    places = rng.sample(cells, len(names))
    return ClickScreen(dict(zip(names, places, strict=True)), names[0], rng.randint(215, 250))


def rectangle(cell: tuple[int, int], options: ClickOptions) -> tuple[int, int, int, int]:
    """The button in a cell in pixels: left, top, right, bottom; right and bottom are outside."""
    side = options.size / options.grid
    left, top = (round((i + GAP) * side) for i in cell)
    right, bottom = (round((i + 1 - GAP) * side) for i in cell)
    return left, top, right, bottom


def box(cell: tuple[int, int], options: ClickOptions) -> Box:
    """The same, normalised (left, top, width, height); right and bottom edge lie just outside."""
    left, top, right, bottom = (value / options.size for value in rectangle(cell, options))
    return left, top, right - left - 1e-9, bottom - top - 1e-9


def draw(shown: ClickScreen, options: ClickOptions) -> Image.Image:
    """The screen, size x size, RGB."""
    image = Image.new("RGB", (options.size, options.size), (shown.background,) * 3)
    canvas = ImageDraw.Draw(image)
    for name, cell in shown.buttons.items():
        left, top, right, bottom = rectangle(cell, options)
        canvas.rectangle((left, top, right - 1, bottom - 1), fill=COLOURS[name])
    return image


class ClickDesktop:
    """eval.desktop.Desktop over one ClickScreen."""

    def __init__(self, options: ClickOptions) -> None:
        self.options = options
        self.solved = False
        self.over = False

    async def reset(self, task: Task, seed: int) -> Observation:
        self.shown = screen(seed, self.options)
        self.solved = self.over = False
        return self._observe()

    async def step(self, action: Action) -> Observation:
        drawn.check(action)
        self.solved = self._expected().matches(action)
        self.over = True
        return self._observe()

    def _expected(self) -> Expected:
        where = box(self.shown.buttons[self.shown.wanted], self.options)
        x, y = where[0] + where[2] / 2, where[1] + where[3] / 2
        return Expected(Action(ActionType.CLICK, x=x, y=y), where)

    def _observe(self) -> Observation:
        return Observation(
            image=draw(self.shown, self.options),
            screen=(self.options.size, self.options.size),
            marks={n: box(cell, self.options) for n, cell in enumerate(sorted(self.shown.buttons.values()), 1)},
            expected=self._expected(),
            done=self.over,
        )

    async def score(self) -> Score:
        return Score(float(self.solved), self.solved)

    async def close(self) -> None:
        pass


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    chosen = _options(options)
    return [
        Task(f"click-{number}", f"Click the {screen(number, chosen).wanted} button.", number, max_steps=1)
        for number in seeds(chosen.split, seed, count)
    ]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A desktop for one episode at a time. Raises ConfigError."""
    return ClickDesktop(_options(options))


def _options(options: Mapping[str, Any]) -> ClickOptions:
    chosen = convert(dict(options), ClickOptions, "options")
    chosen.check()
    return chosen
