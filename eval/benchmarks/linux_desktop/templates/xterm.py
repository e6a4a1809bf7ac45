"""The terminal. Only on a machine that keeps commands within limits; elsewhere the tasks are infrastructure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import same_text, text_of
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

TERMINAL: Final = "xterm"


async def open_terminal(stage: DesktopStage) -> None:
    await open_window(stage, [TERMINAL, "-geometry", "90x24"], 1, TERMINAL)


def command(hand: OracleActions, text: str) -> Work:
    yield from hand.type(f"{text}\n")


@dataclass(frozen=True)
class CountLines(Instance):
    """How many lines of a log name somebody."""

    about: ClassVar = About("xterm-count", (TERMINAL,), "medium", 2)
    asks: ClassVar = (
        "In the terminal, count the lines of {self.log} that name {self.who}, and write the number alone into "
        "the file {self.answer} of the home folder."
    )
    log: str
    answer: str
    who: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        log, answer = pool.words("topic", 2)
        who, *others = pool.words("name", 4)
        names = [who] * pool.whole(11, 40) + [pool.choose(others) for _ in range(pool.whole(30, 60))]
        lines = tuple(f"{pool.number(100, 999)} {name} came in" for name in pool.shuffled(names))
        return cls(f"{log}.log", f"{answer}.txt", who, lines)

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.log, text_of(self.lines))
        await open_terminal(stage)

    def targets(self) -> dict[str, bytes]:
        return {self.answer: f"{sum(self.who in line for line in self.lines)}\n".encode()}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.answer)
        return judged(("the number is right", 1.0, same_text(found, self.targets()[self.answer])))

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"grep -c {self.who} {self.log} > {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"awk '/{self.who}/ {{n++}} END {{print n}}' {self.log} | tee {self.answer}")

    def wrong(self, hand: OracleActions) -> Work:
        """All lines."""
        yield from command(hand, f"wc -l < {self.log} > {self.answer}")


@dataclass(frozen=True)
class ScriptPermissions(Instance):
    """A script that its owner alone may run."""

    about: ClassVar = About("xterm-permissions", (TERMINAL,), "medium", 2)
    asks: ClassVar = (
        "Set the permissions of {self.script} so that its owner may read, write and run it, and nobody else "
        "may do anything with it. Leave {self.other} alone."
    )
    script: str
    other: str
    number: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        script, other = pool.words("topic", 2)
        return cls(f"{script}.sh", f"{other}.sh", pool.number(10, 99))

    @property
    def text(self) -> bytes:
        return f"#!/bin/sh\necho {self.number}\n".encode()

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.script, self.text)
        await stage.write_file(self.other, self.text)
        await open_terminal(stage)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        script = (await stage.list_files("")).get(self.script)
        return judged(("the permissions are right", 1.0, script is not None and script.mode == 0o700))

    def allowed(self) -> Allowed:
        return Allowed((), modes=(self.script,))

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"chmod 700 {self.script}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"chmod u=rwx,g=,o= ~/{self.script} && ls -l")

    def wrong(self, hand: OracleActions) -> Work:
        """Everybody."""
        yield from command(hand, f"chmod 777 {self.script}")


@dataclass(frozen=True)
class SortUnique(Instance):
    """The names of two files, each once, in order, in a third."""

    about: ClassVar = About("xterm-sort-unique", (TERMINAL,), "hard", 2)
    one: tuple[str, ...]
    two: tuple[str, ...]
    files: tuple[str, str, str]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        names = pool.words("name", 12)
        one, two, three = pool.words("topic", 3)
        return cls(tuple(names[:8]), tuple(pool.shuffled(names[4:])), (f"{one}.txt", f"{two}.txt", f"{three}.txt"))

    @property
    def request(self) -> str:
        one, two, three = self.files
        return (
            f"{one} and {two} in the home folder have names, one in each line. Write the names of both into {three}: "
            "each name once, in alphabetical order, one in each line."
        )

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.files[0], text_of(self.one))
        await stage.write_file(self.files[1], text_of(self.two))
        await open_terminal(stage)

    def targets(self) -> dict[str, bytes]:
        return {self.files[2]: text_of(sorted({*self.one, *self.two}))}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.files[2])
        return judged(("the names are right", 1.0, same_text(found, self.targets()[self.files[2]])))

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"sort -u {self.files[0]} {self.files[1]} > {self.files[2]}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"cat {self.files[1]} {self.files[0]} | sort | uniq > names")
        yield from command(hand, f"mv names {self.files[2]}")

    def wrong(self, hand: OracleActions) -> Work:
        """Some names twice."""
        yield from command(hand, f"sort {self.files[0]} {self.files[1]} > {self.files[2]}")


TEMPLATES: Final = (CountLines, ScriptPermissions, SortUnique)
