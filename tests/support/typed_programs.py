"""Programs of a desktop that are typed into, and how what they got is read back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import string
from abc import ABC, abstractmethod
from typing import ClassVar, Final
from urllib.parse import unquote

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.benchmarks.linux_desktop.office.documents import PROFILE, parsed, profile, sheet_file, sheets
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.templates import calc, web
from eval.benchmarks.linux_desktop.templates.galculator import display
from eval.desktop import BrokenByAgent
from eval.desktops.computer import LocalComputer
from eval.desktops.reading import read_archive
from eval.desktops.stage import LocalStage

READ_S: Final = 20.0  # so long a program may take to show or save what it got: a busy machine
# Characters with a key of their own, with shift, and without a key of the layout
PLAIN: Final = string.ascii_letters + string.digits + string.punctuation + " "
UNBOUND: Final = "éßñ×÷€ΩЖ漢あ—✓"


def key(*names: str) -> Action:
    return Action(ActionType.KEY if len(names) == 1 else ActionType.HOTKEY, keys=names)


def type_(text: str) -> Action:
    return Action(ActionType.TYPE, text=text)


def any_text(rng: random.Random) -> str:
    """Up to 60 characters: a few that come again and again, as in 4404 or aa, and any others."""
    few = rng.sample(PLAIN, 3) + rng.sample(UNBOUND, 1)
    pool = rng.choice((PLAIN, PLAIN + UNBOUND * 4, "".join(few)))
    text = "".join(rng.choice(pool) for _ in range(rng.randrange(1, 60)))
    return text.strip() or "44"


def sum_text(rng: random.Random) -> str:
    """A sum that a calculator works out, whose digits come again: 44*27+75."""
    numbers = [str(rng.randrange(10, 100)) for _ in range(rng.randrange(2, 5))]
    return "".join(number + rng.choice("*+-") for number in numbers)[:-1]


class Program(ABC):
    """A program on a desktop. `type` types a text into an empty place, and gives what the program got."""

    needs: ClassVar[str]

    def __init__(self, stage: LocalStage, computer: LocalComputer) -> None:
        self.stage, self.computer = stage, computer

    @abstractmethod
    async def open(self) -> None: ...

    def draw(self, rng: random.Random) -> str:
        return any_text(rng)

    @abstractmethod
    async def type(self, text: str) -> str: ...

    async def until(self, wanted: str, read: object) -> str:
        """What `read` gives, once it is what is wanted; after READ_S whatever it is."""
        assert callable(read)
        found = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while (found := await read()) != wanted:
                    await asyncio.sleep(0.02)
        return str(found)


class Galculator(Program):
    """Its display tells what it worked out."""

    needs = "galculator"

    async def open(self) -> None:
        await open_window(self.stage, ["galculator"], 1, "galculator")

    def draw(self, rng: random.Random) -> str:
        return sum_text(rng)

    async def shown(self) -> str:
        return str(display(await self.stage.tree()))

    async def press(self, text: str) -> None:
        await self.stage.act([type_(f"{text}\n")])

    async def type(self, text: str) -> str:
        """The text itself where the result is right: a wrong one tells which."""
        await self.stage.act([key("escape")])
        await self.until("0", self.shown)
        await self.press(text)
        result = str(worked_out(text))
        found = await self.until(result, self.shown)
        return text if found == result else f"{found}, not {result}"


class ByKeys(Galculator):
    """One key after the other, in one batch."""

    async def press(self, text: str) -> None:
        await self.stage.act([*(key(character) for character in text), key("enter")])


class StepByStep(Galculator):
    """One key after the other, each with the picture after it."""

    async def press(self, text: str) -> None:
        for character in text:
            await self.stage.act([key(character)])
        await self.stage.act([key("enter")])


class ByClicks(Galculator):
    """Its buttons are clicked, in one batch."""

    async def press(self, text: str) -> None:
        tree = await self.stage.tree()
        screen, clicks = Screen(*tree.screen), []
        for character in f"{text}=":
            nodes = [n for n in tree.nodes() if n.name == character and n.bounds and "button" in n.role]
            assert nodes, character
            left, top, width, height = nodes[0].bounds or (0, 0, 0, 0)
            x, y = screen.to_norm(left + width // 2, top + height // 2)
            clicks.append(Action(ActionType.CLICK, x=x, y=y))
        await self.stage.act(clicks)


class Mousepad(Program):
    needs = "mousepad"

    async def open(self) -> None:
        await self.stage.write_file("note.txt", b"")
        await open_window(self.stage, ["mousepad", "--disable-server", "note.txt"], 1, "note.txt")

    async def read(self) -> str:
        return (await self.stage.read_file("note.txt")).decode().removesuffix("\n")

    async def type(self, text: str) -> str:
        await self.stage.act([key("ctrl", "a"), key("delete"), type_(text), key("ctrl", "s")])
        return await self.until(text, self.read)


class Xterm(Program):
    """What the program in the terminal reads."""

    needs = "xterm"
    before = ""

    async def open(self) -> None:
        shell = "stty raw -echo; : > typed; exec cat -u >> typed"
        await open_window(self.stage, ["xterm", "-u8", "-e", "sh", "-c", shell], 1, "")
        await self.until("", self.read)

    async def read(self) -> str:
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            return (await self.stage.read_file("typed")).decode()[len(self.before) :]
        return "?"

    async def type(self, text: str) -> str:
        await self.stage.act([type_(text)])
        found = await self.until(text, self.read)
        self.before += found
        return found


class Calc(Program):
    """A formula in a cell, as it is saved."""

    needs = "localc"
    row = 0

    async def open(self) -> None:
        await self.stage.write_file(PROFILE, profile())
        await calc.open_sheet(self.stage, "sheet.ods", sheet_file([[1.0]]))
        await self.stage.act([key("ctrl", "home")])

    def draw(self, rng: random.Random) -> str:
        return sum_text(rng)

    async def read(self) -> str:
        try:
            data = await self.stage.read_file("sheet.ods")
            rows = next(iter(sheets(parsed(read_archive(data))).values()))
        except (BrokenByAgent, FileNotFoundError):
            return "?"
        return rows[self.row][0].formula.removeprefix("of:=") if len(rows) > self.row and rows[self.row] else ""

    async def type(self, text: str) -> str:
        self.row += 1
        await self.stage.act([key("down"), type_(f"={text}\n"), key("up"), key("ctrl", "s")])
        return await self.until(text, self.read)


class Chromium(Program):
    """A field of a page, which tells its content in the title."""

    needs = "chromium"
    PAGE = (
        "<!doctype html><meta charset=utf-8><title>.</title><textarea id=t autofocus></textarea>"
        "<script>t.oninput = () => document.title = '.' + encodeURIComponent(t.value)</script>"
    )

    async def open(self) -> None:
        await self.stage.write_file("page.html", self.PAGE.encode())
        page = f"file://{self.stage.session.place.home_inside}/page.html"
        await open_window(self.stage, [web.BROWSER, *web.OPTIONS, page], 1, ".", shows=web.DOCUMENT)

    async def read(self) -> str:
        windows = await self.computer.call(lambda executor: executor.windows.listed())
        return unquote(windows[0].title.removeprefix(".").removesuffix(" - Chromium"))

    async def type(self, text: str) -> str:
        await self.stage.act([key("ctrl", "a"), key("delete")])
        await self.until("", self.read)
        await self.stage.act([type_(text)])
        return await self.until(text, self.read)


PROGRAMS: Final[dict[str, type[Program]]] = {
    "galculator": Galculator,
    "galculator by keys": ByKeys,
    "galculator step by step": StepByStep,
    "galculator by clicks": ByClicks,
    "mousepad": Mousepad,
    "xterm": Xterm,
    "calc": Calc,
    "chromium": Chromium,
}


def worked_out(text: str) -> int:
    """A sum of products of whole numbers."""
    total, text = 0, text.replace("-", "+-")
    for term in text.split("+"):
        product = -1 if term.startswith("-") else 1
        for factor in term.removeprefix("-").split("*"):
            product *= int(factor)
        total += product
    return total
