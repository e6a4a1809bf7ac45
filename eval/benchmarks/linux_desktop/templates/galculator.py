"""The calculator. Its display is read over its accessibility tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Self

from eval.accessibility.tree import Tree
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, node_of, open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import same_text, text_of
from eval.desktops.stage import DesktopStage

CALCULATOR: Final = "galculator"
EDITOR: Final = "mousepad"
NUMBER: Final = re.compile(r"[-+]?[0-9.]{1,40}(e[-+]?[0-9]{1,3})?", re.IGNORECASE)


def display(tree: Tree) -> Fraction | None:
    """The number that the calculator shows; None where it does not run, or shows none."""
    node = node_of(tree, "text", program=CALCULATOR)
    text = (node.text or "").strip().replace(",", "") if node is not None else ""
    if not NUMBER.fullmatch(text):  # also where the window is another program's: 1e99999999 takes seconds to read
        return None
    try:
        return Fraction(text)
    except ValueError:
        return None


def buttons(hand: OracleActions, keys: str) -> Work:
    """Clicks the calculator's buttons; each is one character."""
    for key in keys:
        yield from hand.click("toggle button|push button", f"={key}")


@dataclass(frozen=True)
class Compute(Instance):
    """A sum of products; the display must show the result."""

    about: ClassVar = About("galculator-compute", (CALCULATOR,), "easy", 3, screen=True)
    asks: ClassVar = (
        "Work out {self.first} times {self.other}, plus {self.third}, in the calculator. Its display has to show "
        "the result."
    )
    first: int
    other: int
    third: int
    place: tuple[int, int]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        first, second, third = pool.numbers(12, 98, 3)
        return cls(first, second, third, (pool.whole(10, 500), pool.whole(10, 250)))

    async def prepare(self, stage: DesktopStage) -> None:
        await open_window(stage, [CALCULATOR], 1, CALCULATOR, self.place)

    @property
    def result(self) -> int:
        return self.first * self.other + self.third

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        shown = display(await stage.tree())
        return judged(
            ("the product was worked out", 0.3, shown in (self.result, self.first * self.other)),
            ("the display shows the result", 0.7, shown == self.result),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.type(f"{self.first}*{self.other}+{self.third}")
        yield from hand.press("enter")

    def second(self, hand: OracleActions) -> Work:
        """By the mouse, the sum the other way round."""
        yield from buttons(hand, f"{self.third}+{self.other}*{self.first}=")

    def wrong(self, hand: OracleActions) -> Work:
        yield from hand.type(f"{self.first}+{self.other}*{self.third}")
        yield from hand.press("enter")


@dataclass(frozen=True)
class WriteResult(Instance):
    """Numbers stand in a file; their sum goes to its end. Two programs."""

    about: ClassVar = About("galculator-to-editor", (CALCULATOR, EDITOR), "hard", 21, max_steps=40)
    asks: ClassVar = (
        "{self.file} in the editor has a price in each line. Add up the prices in the calculator. Write the "
        'line "total SUM" at the end of the file, with the sum in the place of SUM, and save it.'
    )
    file: str
    rows: tuple[tuple[str, int], ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        words, numbers = pool.words("thing", 4), pool.numbers(103, 989, 4)
        return cls(pool.file("txt"), tuple(zip(words, numbers, strict=True)))

    @property
    def before(self) -> list[str]:
        return [f"{word} {number}" for word, number in self.rows]

    @property
    def total(self) -> int:
        return sum(number for _, number in self.rows)

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, text_of(self.before))
        await open_window(stage, [CALCULATOR], 1, CALCULATOR, (820, 60))
        await open_window(stage, [EDITOR, self.file], 2, self.file, (40, 60))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_of([*self.before, f"total {self.total}"])}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.file)
        return judged(("the total is there", 1.0, same_text(found, self.targets()[self.file])))

    def oracle(self, hand: OracleActions) -> Work:
        yield from buttons(hand, "+".join(str(number) for _, number in self.rows) + "=")
        shown = display(hand.tree)
        yield from hand.click("text", program=EDITOR)
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"total {shown}")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """In the head."""
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"total {self.total}\n")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """Without the first price."""
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"total {self.total - self.rows[0][1]}\n")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class NoPrices(Infeasible, WriteResult):
    """The lines of the file have no prices."""

    about: ClassVar = About(
        "galculator-no-prices", (CALCULATOR, EDITOR), "easy", 1, infeasible=True, twin="galculator-to-editor"
    )

    @property
    def before(self) -> list[str]:
        return [word for word, _ in self.rows]


TEMPLATES: Final = (Compute, WriteResult, NoPrices)
