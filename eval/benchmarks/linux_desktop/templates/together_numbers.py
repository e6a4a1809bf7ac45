"""Two or three programs: numbers of pictures are worked with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, open_editor
from eval.benchmarks.linux_desktop.templates.galculator import CALCULATOR, buttons, display
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, text_of
from eval.benchmarks.linux_desktop.templates.together import LEFT, LOWER, RIGHT, write_all
from eval.benchmarks.linux_desktop.templates.together_pictures import table
from eval.benchmarks.linux_desktop.templates.viewer import VIEWER, picture
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL, command
from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class PriceOrder(FileTask):
    """Prices stand in a picture, numbers in the editor; the total is worked out. Three programs."""

    about: ClassVar = About("gpicview-galculator-editor", (VIEWER, CALCULATOR, EDITOR), "hard", 24, max_steps=50)
    asks: ClassVar = (
        "{self.file} in the editor is an order, and the picture has the price of one piece. Work out with the "
        "calculator what each line costs. Write a space and that number at the end of each line, and the line "
        '"total SUM" below, with the sum of both in the place of SUM. Save the file.'
    )
    file: str
    rows: tuple[tuple[str, int], ...]
    counts: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        things = pool.words("thing", 4)
        rows = tuple(zip(things, pool.numbers(13, 98, 4), strict=True))
        return cls(pool.file("txt"), rows, tuple(pool.numbers(12, 48, 2)))

    @property
    def order(self) -> list[str]:
        return [f"{count} {thing}" for count, (thing, _) in zip(self.counts, self.rows, strict=False)]

    @property
    def costs(self) -> list[int]:
        return [count * price for count, (_, price) in zip(self.counts, self.rows, strict=False)]

    @property
    def before(self) -> Files:
        return {"prices.png": table(tuple(sorted(self.rows))), self.file: text_of(self.order)}

    @property
    def after(self) -> Files:
        lines = [f"{line} {cost}" for line, cost in zip(self.order, self.costs, strict=True)]
        return self.before | {self.file: text_of([*lines, f"total {sum(self.costs)}"])}

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [CALCULATOR], 1, CALCULATOR, LOWER)
        await open_window(stage, [VIEWER, "prices.png"], 2, "prices", (880, 10))
        await open_editor(stage, self.file, count=3, place=LEFT)

    def oracle(self, hand: OracleActions) -> Work:
        lines = []
        for line, count, (_, price) in zip(self.order, self.counts, self.rows, strict=False):
            yield from buttons(hand, f"{count}*{price}=")
            lines.append(f"{line} {display(hand.tree)}")
        yield from buttons(hand, "+".join(str(cost) for cost in self.costs) + "=")
        yield from write_all(hand, "\n".join([*lines, f"total {display(hand.tree)}"]))

    def second(self, hand: OracleActions) -> Work:
        """In the head, line by line."""
        yield from hand.press("ctrl", "home")
        for cost in self.costs:
            yield from hand.press("end")
            yield from hand.type(f" {cost}")
            yield from hand.press("down")
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"total {sum(self.costs)}")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """The sum alone."""
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"total {sum(self.costs)}")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class AddPictures(Instance):
    """The numbers of three pictures are added up in the calculator, whose display shows the sum."""

    about: ClassVar = About("gpicview-galculator-sum", (VIEWER, CALCULATOR), "medium", 14, screen=True, max_steps=35)
    asks: ClassVar = (
        "The folder {self.folder} has three pictures, each with a number; the viewer shows the first. Add up the "
        "three numbers in the calculator. Its display has to show the sum."
    )
    folder: str
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.folder(), tuple(pool.numbers(100, 999, 3)))

    async def prepare(self, stage: DesktopStage) -> None:
        for n, number in enumerate(self.numbers, 1):
            await stage.write_file(f"{self.folder}/picture {n}.png", picture(str(number), "white"))
        await open_window(stage, [VIEWER, f"{self.folder}/picture 1.png"], 1, "picture", RIGHT)
        await open_window(stage, [CALCULATOR], 2, CALCULATOR, LEFT)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        return judged(("the display shows the sum", 1.0, display(await stage.tree()) == sum(self.numbers)))

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.click("push button", "=Forward")
        yield from hand.click("push button", "=Forward")
        yield from buttons(hand, "+".join(str(number) for number in self.numbers) + "=")

    def second(self, hand: OracleActions) -> Work:
        """From the last to the first, one after the other."""
        for key in ("right", "right"):
            yield from hand.to_window("picture")
            yield from hand.press(key)
        yield from buttons(hand, "+".join(str(number) for number in reversed(self.numbers)) + "=")

    def wrong(self, hand: OracleActions) -> Work:
        """Without the last."""
        yield from buttons(hand, "+".join(str(number) for number in self.numbers[:2]) + "=")


@dataclass(frozen=True)
class NumberForProgram(FileTask):
    """A program in the terminal wants the number that a picture shows."""

    about: ClassVar = About("gpicview-xterm-number", (VIEWER, TERMINAL), "medium", 2)
    asks: ClassVar = (
        "The viewer shows a number. In the terminal, run {self.script} of the home folder with sh, in the home "
        "folder, and give it this number as its argument. It writes {self.out}."
    )
    script: str
    out: str
    number: int
    factor: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        script, out = pool.words("topic", 2)
        return cls(f"{script}.sh", f"{out}.txt", pool.number(1000, 9999), pool.number(11, 99))

    @property
    def before(self) -> Files:
        script = ["#!/bin/sh", f"echo ticket $(($1 * {self.factor} + 5)) > {self.out}"]
        return {"number.png": picture(str(self.number), "khaki"), self.script: text_of(script)}

    @property
    def after(self) -> Files:
        return self.before | {self.out: text_of([f"ticket {self.number * self.factor + 5}"])}

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [VIEWER, "number.png"], 1, "number", (800, 60))
        await open_window(stage, [TERMINAL, "-geometry", "90x24+20+60"], 2, TERMINAL)

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"sh {self.script} {self.number}")

    def second(self, hand: OracleActions) -> Work:
        """Asks for it first."""
        yield from command(hand, "read number")
        yield from command(hand, str(self.number))
        yield from command(hand, f"sh {self.script} $number")

    def wrong(self, hand: OracleActions) -> Work:
        """The digits the other way round."""
        yield from command(hand, f"sh {self.script} {str(self.number)[::-1]}0")


TEMPLATES: Final = (
    PriceOrder,
    AddPictures,
    NumberForProgram,
)
