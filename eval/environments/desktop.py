"""The environment `desktop`: programs of Debian on a real Linux desktop. See `DesktopTaskOptions`.

One kind of task so far, `note`: a text editor shows a file with a few lines, and one more line is to be written at its
end and saved. The file in the desktop's home is judged, never a picture: all old lines as they were, then the new one.
Each task is drawn from its seed; the lines of the two splits are drawn from different words.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from eval.actions import Action, ActionType
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Score, SetupFailed, Task
from eval.desktops.reading import read_file
from eval.desktops.session import DesktopOptions, DesktopSession, ProgramNotStarted
from eval.environments.splits import seeds

FILE: Final = "note.txt"
WORDS: Final = {
    "train": ("apples", "bread", "candles", "flour", "honey", "lamps", "needles", "paper", "rice", "soap", "tea"),
    "test": ("brushes", "cheese", "coffee", "cups", "eggs", "ink", "milk", "nails", "onions", "salt", "sugar"),
}
MAX_STEPS: Final = 15
PROGRAMS: Final = ("Xvfb", "openbox", "dbus-daemon", "mousepad")
PACKAGES: Final = ("fpng", "xcffib")


class DesktopTaskOptions(Config, frozen=True):
    """
    split   which half of the words tasks are drawn from
    screen  width and height in pixels
    """

    split: Literal["train", "test"] = "test"
    screen: tuple[int, int] = (1280, 720)

    def check(self) -> None:
        """Raises ConfigError for a screen on which no window fits."""
        if not all(320 <= side <= 7680 for side in self.screen):
            raise ConfigError(f"options.screen: {self.screen[0]} x {self.screen[1]}; allowed: 320 to 7680 each")


class NoteScene:
    """A note in an editor, and the line that is missing."""

    def __init__(self, seed: int, split: str) -> None:
        rng = random.Random(f"note {split} {seed}")
        items = rng.sample(WORDS[split], rng.randint(3, 5))
        lines = [f"{rng.randint(2, 98)} {item}" for item in items]
        self.before, self.line = lines[:-1], lines[-1]

    @property
    def instruction(self) -> str:
        return (
            f"The editor shows {FILE}. Write one more line at its end, exactly: {self.line} - then save the file under "
            "the same name."
        )

    async def prepare(self, session: DesktopSession) -> None:
        home: Path = session.place.home
        file, owner = home / FILE, home.stat()
        file.write_text("".join(f"{line}\n" for line in self.before), encoding="utf-8")
        if os.geteuid() == 0:
            os.chown(file, owner.st_uid, owner.st_gid)
        try:
            await session.run(["mousepad", FILE])
        except ProgramNotStarted as error:
            raise SetupFailed(str(error)) from None
        await session.windows(1)

    def expected(self, done: Sequence[Action]) -> Expected:
        """The expert goes to the end of the file, writes the line and saves."""
        actions = (
            Action(ActionType.HOTKEY, keys=("ctrl", "end")),
            Action(ActionType.TYPE, text=f"{self.line}\n"),
            Action(ActionType.HOTKEY, keys=("ctrl", "s")),
            Action(ActionType.DONE),
        )
        return Expected(actions[min(len(done), len(actions) - 1)])

    def judge(self, home: Path) -> Score:
        """Solved when the file has the old lines and then the new one; a line break at its end may be missing."""
        try:
            text = read_file(home, FILE).decode("utf-8", "replace")
        except FileNotFoundError:
            return Score(0.0, False, {"file": "missing"})
        solved = text.removesuffix("\n") == "\n".join([*self.before, self.line])
        return Score(float(solved), solved, {"lines": text.count("\n")})


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    split = _options(options).split
    return [
        Task(f"note-{number}", NoteScene(number, split).instruction, number, max_steps=MAX_STEPS)
        for number in seeds(split, seed, count)
    ]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError, also for what is not installed."""
    _here()
    from eval.desktops.live import LiveDesktop

    chosen = _options(options)
    return LiveDesktop(lambda task, seed: NoteScene(seed, chosen.split), DesktopOptions(screen=chosen.screen))


@cache
def _here() -> None:
    """Raises ConfigError for what is not installed: no task could be run."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise ConfigError(f"environment: desktop: no {', '.join(missing)} here; `make desktop-tools` installs them")
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ConfigError(f"environment: desktop: no Python package {', '.join(missing)}; they are slipway[desktop]")


def _options(options: Mapping[str, Any]) -> DesktopTaskOptions:
    chosen = convert(dict(options), DesktopTaskOptions, "options")
    chosen.check()
    return chosen
