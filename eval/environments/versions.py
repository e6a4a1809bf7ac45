"""The environment `versions`: an app whose words mean something else in every version. See `VersionsOptions`.

The instruction is one word ("Press zib."). Which button it means depends on the version of the app, and neither the
instruction nor the screen shows the version. So an agent without a demonstration can only guess, and one that always
does the same fails as well, because the right action differs from task to task. A demonstration of the same word in
the same version shows the answer. Tasks with the same version and word are one family (their tag); demonstrations of
other versions are wrong ones.

An episode is one click; it is solved when that hits the button that the word means. The screen then shows that button
pressed. Every family occurs in both splits: screens are held out, words and versions are not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from PIL import Image, ImageDraw

from eval.actions import Action, ActionType
from eval.actions.geometry import Box, inside
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Observation, Score, Task
from eval.environments import drawn
from eval.environments.click import COLOURS, GAP
from eval.environments.splits import seeds
from eval.prompts.demonstrations import FAMILY

WORDS: Final = ("zib", "mop", "lun", "kef", "dax", "wug", "tiv", "pon", "gar", "hep", "sut", "nok")
Place = tuple[int, int]  # column, row


class VersionsOptions(Config, frozen=True):
    """
    split    which seeds may be drawn
    size     the side of the square screen in pixels
    grid     cells per side
    meaning  cell: a word means a place, and every cell has a button of any colour, so that the demonstrated click can
             be repeated as it is; colour: it means a colour of four, whose buttons lie elsewhere on every screen
    words    how many of WORDS are in play
    """

    split: Literal["train", "test"] = "test"
    size: int = 48
    grid: int = 3
    meaning: Literal["cell", "colour"] = "cell"
    words: int = len(WORDS)

    def check(self) -> None:
        """Raises ConfigError for options that contradict each other."""
        if not 1 <= self.words <= len(WORDS):
            raise ConfigError(f"options.words must be from 1 to {len(WORDS)}, not {self.words}")
        if self.grid < 2 or self.size < 8 * self.grid:
            raise ConfigError("options.grid must be 2 or more, options.size at least 8 pixels per cell of it")

    @property
    def meanings(self) -> int:
        """How many things a word can mean; there are as many versions."""
        return self.grid**2 if self.meaning == "cell" else len(COLOURS)


@dataclass(frozen=True)
class VersionsScreen:
    """Buttons by place: their colour. `wanted` is the one to click."""

    buttons: Mapping[Place, str]
    wanted: Place
    word: str
    version: int
    background: int


def screen(seed: int, options: VersionsOptions) -> VersionsScreen:
    """The screen of a task, the same on every machine. In version v, word w means thing number w + v."""
    rng = random.Random(f"versions {options.split} {seed}")
    word, version = rng.randrange(options.words), rng.randrange(options.meanings)
    meant = (word + version) % options.meanings
    cells = [(column, row) for row in range(options.grid) for column in range(options.grid)]
    names = list(COLOURS)
    if options.meaning == "cell":
        buttons, wanted = {cell: rng.choice(names) for cell in cells}, cells[meant]
    else:
        buttons = dict(zip(rng.sample(cells, len(names)), names, strict=True))
        wanted = next(cell for cell, name in buttons.items() if name == names[meant])
    return VersionsScreen(buttons, wanted, WORDS[word], version, rng.randint(215, 250))


def rectangle(cell: Place, options: VersionsOptions) -> tuple[int, int, int, int]:
    """The button in a cell in pixels: left, top, right, bottom; right and bottom are outside."""
    side = options.size / options.grid
    left, top = (round((i + GAP) * side) for i in cell)
    right, bottom = (round((i + 1 - GAP) * side) for i in cell)
    return left, top, right, bottom


def box(cell: Place, options: VersionsOptions) -> Box:
    """The same, normalised (left, top, width, height); right and bottom edge lie just outside."""
    left, top, right, bottom = (value / options.size for value in rectangle(cell, options))
    return left, top, right - left - 1e-9, bottom - top - 1e-9


def draw(shown: VersionsScreen, options: VersionsOptions, pressed: Place | None = None) -> Image.Image:
    """The screen, size x size, RGB; a pressed button has a dark frame."""
    image = Image.new("RGB", (options.size, options.size), (shown.background,) * 3)
    canvas = ImageDraw.Draw(image)
    for cell, name in shown.buttons.items():
        left, top, right, bottom = rectangle(cell, options)
        outline = (20, 20, 20) if cell == pressed else COLOURS[name]
        canvas.rectangle((left, top, right - 1, bottom - 1), fill=COLOURS[name], outline=outline, width=2)
    return image


class VersionsDesktop:
    """eval.desktop.Desktop over one VersionsScreen."""

    def __init__(self, options: VersionsOptions) -> None:
        self.options = options
        self.pressed: Place | None = None
        self.over = False

    async def reset(self, task: Task, seed: int) -> Observation:
        self.shown = screen(seed, self.options)
        self.pressed, self.over = None, False
        return self._observe()

    async def step(self, action: Action) -> Observation:
        drawn.check(action)
        self.over = True
        if action.type is ActionType.CLICK and (point := action.point) is not None:
            self.pressed = next((c for c in self.shown.buttons if inside(point, box(c, self.options))), None)
        return self._observe()

    def _observe(self) -> Observation:
        where = box(self.shown.wanted, self.options)
        click = Action(ActionType.CLICK, x=where[0] + where[2] / 2, y=where[1] + where[3] / 2)
        return Observation(
            image=draw(self.shown, self.options, self.pressed),
            screen=(self.options.size, self.options.size),
            marks={number: box(cell, self.options) for number, cell in enumerate(sorted(self.shown.buttons), 1)},
            expected=Expected(click, where),
            done=self.over,
        )

    async def score(self) -> Score:
        solved = self.pressed == self.shown.wanted
        return Score(float(solved), solved)

    async def close(self) -> None:
        pass


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    chosen = _options(options)
    drawn = []
    for number in seeds(chosen.split, seed, count):
        shown = screen(number, chosen)
        tags = (f"{FAMILY}{shown.word}-{shown.version}",)
        drawn.append(Task(f"versions-{number}", f"Press {shown.word}.", number, max_steps=1, tags=tags))
    return drawn


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A desktop for one episode at a time. Raises ConfigError."""
    return VersionsDesktop(_options(options))


def _options(options: Mapping[str, Any]) -> VersionsOptions:
    chosen = convert(dict(options), VersionsOptions, "options")
    chosen.check()
    return chosen
