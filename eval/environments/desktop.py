"""The environment `desktop`: programs of Debian on a real Linux desktop. See `DesktopTaskOptions`.

One kind of task so far, `note`: a text editor shows a file with a few lines, and one more line is to be written at its
end and saved. The desktop's home is judged, never a picture: in the file all old lines as they were, then the new one,
and the rest as at the start (`judging.home`). Each task is drawn from its seed; the lines of the two splits are
drawn from different words.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, DesktopTimeout, Expected, Score, SetupFailed, Task
from eval.desktops.display.running_desktop import NotOffered, ProgramNotStarted
from eval.desktops.isolation import check_shown
from eval.desktops.judging import home
from eval.desktops.keeping.screen import PACKAGES as DESKTOP_PROGRAMS
from eval.desktops.keeping.screen import missing_programs
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import DesktopStage
from eval.environments.splits import seeds
from eval.identity import TaskParts

if TYPE_CHECKING:
    from eval.desktops.remote import Servers


HERE: Final = "eval.environments.desktop"
VERSION: Final = 2  # of the notes: a new one for each change of what is asked or how it is judged
FILE: Final = "note.txt"
WORDS: Final = {
    "train": ("apples", "bread", "candles", "flour", "honey", "lamps", "needles", "paper", "rice", "soap", "tea"),
    "test": ("brushes", "cheese", "coffee", "cups", "eggs", "ink", "milk", "nails", "onions", "salt", "sugar"),
}
MAX_STEPS: Final = 15
PROGRAMS: Final = {"mousepad": "mousepad"}  # beside those of every desktop; with Debian's package
PACKAGES: Final = ("fpng", "jeepney", "xcffib")


class DesktopTaskOptions(Config, frozen=True):
    """
    split   which half of the words tasks are drawn from
    screen  width and height in pixels, of desktops of this machine
    shown   files and folders of this machine that the desktop's programs see, read-only, beside /usr and /etc
    tree    reads the accessibility tree at each step: for prompts that show it or marks, and for the episode
    video   a folder that gets a video of each episode, in a job such as $SLIPWAY_OUTPUTS/results/videos; none: no video
    role    desktops of this role of the run, which has `needs` for it, in place of this machine's: each is a server
            (`python -m eval.desktops.server`), for as many episodes at once as the role has replicas
    """

    split: Literal["train", "test"] = "test"
    screen: tuple[int, int] = (1280, 720)
    shown: Sequence[str] = ()
    tree: bool = True
    video: str | None = None
    role: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a screen on which no window fits, and for what cannot be shown."""
        check_screen(self.screen, "options.screen")
        check_shown(self.shown, "options.shown", self.role)


class NoteScene:
    """A note in an editor, and the line that is missing."""

    def __init__(self, seed: int, split: str) -> None:
        rng = random.Random(f"note {split} {seed}")
        items = rng.sample(WORDS[split], rng.randint(3, 5))
        lines = [f"{rng.randint(2, 98)} {item}" for item in items]
        self.before, self.line = lines[:-1], lines[-1]
        self._start: home.Home | None = None

    @property
    def instruction(self) -> str:
        return (
            f'The editor shows {FILE}. Write one more line at its end, exactly "{self.line}", and save the file under '
            f"the same name. {home.REST}"
        )

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(FILE, self.content)
        await stage.start(["mousepad", FILE])
        await stage.windows(1)
        self._start = await home.read_home(stage)

    @property
    def content(self) -> bytes:
        """The file at the beginning."""
        return "".join(f"{line}\n" for line in self.before).encode()

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected:
        """The expert goes to the end of the file, writes the line and saves."""
        actions = (
            Action(ActionType.HOTKEY, keys=("ctrl", "end")),
            Action(ActionType.TYPE, text=f"{self.line}\n"),
            Action(ActionType.HOTKEY, keys=("ctrl", "s")),
            Action(ActionType.DONE),
        )
        return Expected(actions[min(len(done), len(actions) - 1)])

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Solved when the file has the old lines and then the new one, and the rest of the home is as it was; a line
        break at the file's end may be missing. Who says FAIL has not solved it."""
        if done and done[-1].type is ActionType.FAIL:
            return Score(0.0, False, {"gave_up": done[-1].text or True})
        try:
            score = self._judged(await stage.read_file(FILE))
        except FileNotFoundError:
            return Score(0.0, False, {"file": "missing"})
        assert self._start is not None, "prepared before it is judged"
        return await home.judged(stage, self._start, home.Allowed({FILE}), score)

    def _judged(self, content: bytes) -> Score:
        text = content.decode("utf-8", "replace")
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
    chosen = _options(options)
    if chosen.role is not None:
        from eval.desktops.remote import RemoteDesktop

        servers = servers_of(chosen.role)
        video = None if chosen.video is None else Path(chosen.video)
        return RemoteDesktop(lambda task, seed: NoteScene(seed, chosen.split), servers, tree=chosen.tree, video=video)
    check_here()
    from eval.desktops.live import LiveDesktop

    session = DesktopOptions(screen=chosen.screen, shown=tuple(chosen.shown))
    video = video_folder(chosen.video)
    return LiveDesktop(lambda task, seed: NoteScene(seed, chosen.split), session, tree=chosen.tree, video=video)


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: a note, and all of the desktop."""
    return on_desktop(HERE, ("NoteScene",), tuple(PROGRAMS.values()), _options(options).role)


def on_desktop(
    module: str, code: Sequence[str], packages: Sequence[str], role: str | None, apart: Sequence[str] = ()
) -> TaskParts:
    """The parts of a task of an environment with real desktops.

    module    the environment's, whose `tasks` and `desktop` count
    code      what draws, prepares and judges the task: names of that module, or `package.module:name`
    packages  Debian's, beside those of every desktop
    apart     as in TaskParts
    """
    return TaskParts(
        tuple(name if ":" in name else f"{module}:{name}" for name in code),
        (f"{module}:desktop", f"{module}:tasks"),
        apart=frozenset(apart),
        packages=(*DESKTOP_PROGRAMS.values(), *packages),
        screen=True,
        role=role,
    )


def video_folder(folder: str | None) -> Path | None:
    """The folder for videos, if any. Raises ConfigError where none can be recorded."""
    from eval.desktops.video import missing_recorder

    if folder is None:
        return None
    if missing := missing_recorder():
        raise ConfigError(f"options.video: {missing}")
    return Path(folder)


@cache
def servers_of(role: str) -> Servers:
    """One for all desktops of an evaluation."""
    from eval.desktops.remote import Servers

    return Servers.of_role(role)


def missing() -> list[str]:
    """A line for each program and Python package that is not installed, with what installs it."""
    lines = missing_programs(programs={**DESKTOP_PROGRAMS, **PROGRAMS})
    packages = [name for name in PACKAGES if not find_spec(name)]
    if packages:
        what = f"no Python package {', '.join(packages)}"
        lines.append(f"{what}: `make dev` in a clone, or the extra slipway-cua[desktop], installs what is missing")
    return lines


def check_screen(screen: tuple[int, int], where: str) -> None:
    """Raises ConfigError for a screen on which no window fits, or that is too large; `where` names the field."""
    if not all(320 <= side <= 7680 for side in screen):
        raise ConfigError(f"{where}: {screen[0]} x {screen[1]}; allowed: 320 to 7680 each")


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the version of the notes, and what this machine cannot hide."""
    return {"revision": f"notes {VERSION}", **of_this_machine(options)}


def of_this_machine(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores of any desktops here: a machine that cannot hide its files from the agent's programs,
    which may then read what the judge knows."""
    from eval.desktops.isolation import isolation

    if options.get("role") is not None or options.get("machines") or "mount" in isolation().namespaces:
        return {}
    return {"isolation": "none: the agent's programs can read this machine's files"}


@cache
def check_here() -> None:
    """Raises ConfigError for what is not installed: no task could be run."""
    if lines := missing():
        raise ConfigError(f"environment: desktop: {'; '.join(lines)}")


def _options(options: Mapping[str, Any]) -> DesktopTaskOptions:
    chosen = convert(dict(options), DesktopTaskOptions, "options")
    chosen.check()
    return chosen


class OpenScene:
    """A desktop with some programs open. then: what is done after they are."""

    def __init__(
        self, programs: Sequence[str], then: Callable[[DesktopSession], Awaitable[None]] | None = None
    ) -> None:
        """Raises ConfigError for a command that is none."""
        self.commands = [_command(text, number) for number, text in enumerate(programs)]
        self.then = then

    async def open(self, session: DesktopSession) -> None:
        for number, command in enumerate(self.commands, 1):
            try:
                await session.run(command)
            except (NotOffered, ProgramNotStarted) as error:
                raise SetupFailed(f"open: {error}") from None
            try:
                await session.windows(number)
            except DesktopTimeout as error:
                raise SetupFailed(f"open: {command[0]}: {error}") from None
        if self.then is not None:
            await self.then(session)


def _command(text: str, number: int) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"open[{number}]: {text!r}: {error}") from None
    if not command:
        raise ConfigError(f"open[{number}]: names no program")
    return command
