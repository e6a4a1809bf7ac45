"""A drag reaches a program of GTK 3 with every corner of its path, in whichever window, and a text reaches a busy one.

GTK gives a program one move of the pointer for each frame that it draws: of moves that are sent at once it gets the
last one only.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from tests.support.needs import TOOLS

pytest.importorskip("xcffib", reason=TOOLS["desktop"].reason, exc_type=OSError)  # libxcb comes with them

from eval.desktops.computer import LocalComputer
from eval.desktops.display.executor import Executor
from eval.desktops.session import DesktopOptions, DesktopSession
from tests.support import gtk_sheets
from tests.support.desktops import run
from tests.support.waiting import HANGS

SCREEN, WIDTH, HEIGHT = (800, 600), 400, 500
Point = tuple[int, int]
Told = tuple[int, str, int, int]
# 300 characters that no key of the layout stands for: more than there are keycodes to give away
FOREIGN = "".join(chr(0x4E00 + number) for number in range(300))
LAST = "\u3042"


class Sheets:
    """The program on a desktop, and what it has written down."""

    def __init__(self, computer: LocalComputer, file: Path) -> None:
        self.computer, self.file, self.seen = computer, file, 0

    async def act(self, actions: Sequence[Action]) -> None:
        def both(executor: Executor) -> None:
            executor.perform(actions)
            executor.look()

        await self.computer.call(both)

    def lines(self) -> list[str]:
        """What it has written since the last call."""
        text = self.file.read_text()
        new, self.seen = text[self.seen :], len(text)
        return new.splitlines()

    def told(self) -> list[Told]:
        words = [line.split() for line in self.lines()]
        return [(int(sheet), what, int(x), int(y)) for sheet, what, x, y in words]

    async def until(self, line: str) -> list[str]:
        """The lines up to one that must come."""
        lines = self.lines()
        async with asyncio.timeout(HANGS):
            while line not in lines:
                await asyncio.sleep(0.02)
                lines += self.lines()
        return lines


@asynccontextmanager
async def sheets() -> AsyncIterator[Sheets]:
    async with await DesktopSession.start(DesktopOptions(screen=SCREEN)) as session:
        home, inside = session.place.home, session.place.home_inside
        (home / "sheets.py").write_text(Path(gtk_sheets.__file__).read_text())
        await session.run(["/usr/bin/python3", f"{inside}/sheets.py", f"{inside}/told", str(WIDTH), str(HEIGHT)])
        await session.windows(2)
        computer = await LocalComputer.open(session)
        try:
            program = Sheets(computer, home / "told")
            await program.until("ready")
            await program.act([])
            yield program
        finally:
            await computer.close()


def at(kind: ActionType, point: Point) -> Action:
    x, y = norm(point)
    return Action(kind, x=x, y=y)


def norm(point: Point) -> tuple[float, float]:
    return (point[0] + 0.5) / SCREEN[0], (point[1] + 0.5) / SCREEN[1]


def drag(path: Sequence[Point]) -> list[Action]:
    (x, y), *middle, (x2, y2) = [norm(point) for point in path]
    return [Action(ActionType.DRAG, x=x, y=y, path=tuple(middle), x2=x2, y2=y2)]


def by_hand(path: Sequence[Point]) -> list[Action]:
    """The same by a button that is held while the pointer moves."""
    moves = [at(ActionType.HOVER, point) for point in path[1:]]
    return [at(ActionType.MOUSE_DOWN, path[0]), *moves, at(ActionType.MOUSE_UP, path[-1])]


def clicked_first(path: Sequence[Point]) -> list[Action]:
    return [at(ActionType.CLICK, path[-1]), *drag(path)]


def wanted(sheet: int, path: Sequence[Point], clicked: bool) -> list[Told]:
    """Presses and releases, and the corners between them."""
    points = [(x - sheet * WIDTH, y) for x, y in path]
    before = [(sheet, "press", *points[-1]), (sheet, "release", *points[-1])] if clicked else []
    moves = [(sheet, "move", *point) for point in points[1:]]
    return [*before, (sheet, "press", *points[0]), *moves, (sheet, "release", *points[-1])]


def test_every_corner_of_a_path_reaches_a_gtk_program(folder: Path) -> None:
    """In one batch, in two windows in turn, of which the other one has the keyboard."""
    rng = random.Random(17)

    async def lost() -> list[tuple[str, list[Told], list[Told]]]:
        out = []
        async with sheets() as program:
            for make in (drag, by_hand, clicked_first):
                actions, expected = [], []
                for sheet in (1, 0, 1, 0):
                    path = [
                        (sheet * WIDTH + rng.randrange(20, WIDTH - 20), rng.randrange(20, HEIGHT - 60))
                        for _ in range(4)
                    ]
                    actions += make(path)
                    expected += wanted(sheet, path, make is clicked_first)
                await program.act(actions)
                told = program.told()
                corners = {each[2:] for each in expected}
                found = [each for each in told if each[1] != "move" or each[2:] in corners]
                found = [each for each, _ in itertools.groupby(found)]  # a button that goes up moves there first
                if found != expected:
                    out.append((make.__name__, expected, found))
        return out

    assert run(lost()) == []


def test_a_text_of_more_characters_than_keycodes_reaches_a_program_that_is_busy(folder: Path) -> None:
    """It has read none of the keys when their keycodes are wanted for other characters."""

    async def typed() -> str:
        async with sheets() as program:
            field = at(ActionType.CLICK, (WIDTH // 2, HEIGHT - 10))
            busy = Action(ActionType.KEY, keys=("f2",))
            await program.act([field, busy, Action(ActionType.TYPE, text=FOREIGN + LAST)])
            lines: list[str] = []
            async with asyncio.timeout(HANGS):
                while not any(line.endswith(LAST) for line in lines):
                    await asyncio.sleep(0.02)
                    lines += program.lines()
            return lines[-1].removeprefix("text ")

    assert run(typed()) == FOREIGN + LAST
