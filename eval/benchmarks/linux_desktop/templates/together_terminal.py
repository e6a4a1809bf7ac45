"""Two programs: the terminal beside another one, and notes that are collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, open_editor
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, text_of
from eval.benchmarks.linux_desktop.templates.thunar import MANAGER, pick
from eval.benchmarks.linux_desktop.templates.thunar_files import name_it
from eval.benchmarks.linux_desktop.templates.together import (
    BESIDE,
    LEFT,
    RIGHT,
    renamed_parts,
    to_manager,
    to_terminal,
    write_all,
)
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL, command
from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class FixScript(FileTask):
    """A script reads the wrong file: it is mended in the editor, and run in the terminal."""

    about: ClassVar = About("editor-xterm-script", (EDITOR, TERMINAL), "hard", 9)
    asks: ClassVar = (
        "The script {self.script} in the editor reads {self.bad}, which is not there. It must read {self.right}. "
        "Change only this name in the script, save it, and run it in the terminal with sh, in the home folder: it "
        "writes {self.out}."
    )
    script: str
    right: str
    bad: str
    out: str
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        script, right, bad, out = pool.words("topic", 4)
        return cls(f"{script}.sh", f"{right}.csv", f"{bad}.csv", f"{out}.txt", tuple(pool.numbers(100, 999, 5)))

    def text(self, name: str) -> list[str]:
        return [
            "#!/bin/sh",
            "# adds up the second column",
            "sum=0",
            f"for n in $(cut -d';' -f2 {name}); do sum=$((sum + n)); done",
            f"echo total $sum > {self.out}",
        ]

    @property
    def before(self) -> Files:
        rows = [f"{n} May;{number}" for n, number in enumerate(self.numbers, 1)]
        return {self.script: text_of(self.text(self.bad)), self.right: text_of(rows)}

    @property
    def after(self) -> Files:
        total = text_of([f"total {sum(self.numbers)}"])
        return self.before | {self.script: text_of(self.text(self.right)), self.out: total}

    @property
    def parts(self) -> list[Part]:
        return [("the script is mended", 0.4, [self.script]), ("the total is there", 0.6, [self.out])]

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, BESIDE, 1, TERMINAL)
        await open_editor(stage, self.script, count=2, place=LEFT)

    def oracle(self, hand: OracleActions) -> Work:
        yield from write_all(hand, "\n".join(self.text(self.right)) + "\n")
        yield from to_terminal(hand)
        yield from command(hand, f"sh {self.script}")

    def second(self, hand: OracleActions) -> Work:
        """In the terminal alone."""
        yield from to_terminal(hand)
        yield from command(hand, f"sed -i 's/{self.bad}/{self.right}/' {self.script} && sh {self.script}")

    def wrong(self, hand: OracleActions) -> Work:
        """Runs it as it is."""
        yield from to_terminal(hand)
        yield from command(hand, f"sh {self.script}")


@dataclass(frozen=True)
class OutputIntoText(FileTask):
    """What a program prints goes into the middle of a document."""

    about: ClassVar = About("xterm-editor-output", (TERMINAL, EDITOR), "hard", 6)
    asks: ClassVar = (
        "Run {self.script} of the home folder with sh in the terminal. It prints three lines. Put these lines "
        "into {self.file}, which the editor shows, in the place of the line OUTPUT HERE, and save it."
    )
    file: str
    script: str
    factor: int
    numbers: tuple[int, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, script = pool.words("topic", 2)
        return cls(
            f"{file}.txt", f"{script}.sh", pool.number(11, 99), tuple(pool.numbers(10, 99, 3)), lines_of(pool, 4)
        )

    @property
    def before(self) -> Files:
        values = " ".join(str(number) for number in self.numbers)
        script = ["#!/bin/sh", f"for n in {values}; do echo result $n is $((n * {self.factor} + 7)); done"]
        text = [*self.lines[:2], "OUTPUT HERE", *self.lines[2:]]
        return {self.script: text_of(script), self.file: text_of(text)}

    @property
    def after(self) -> Files:
        printed = [f"result {number} is {number * self.factor + 7}" for number in self.numbers]
        return self.before | {self.file: text_of([*self.lines[:2], *printed, *self.lines[2:]])}

    async def open(self, stage: DesktopStage) -> None:
        await open_editor(stage, self.file, place=LEFT)
        await open_window(stage, BESIDE, 2, TERMINAL)

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"sh {self.script}")
        yield from write_all(hand, self.after[self.file].decode())

    def second(self, hand: OracleActions) -> Work:
        """In the terminal alone."""
        yield from command(hand, f"sh {self.script} > lines")
        yield from command(hand, f"sed -i -e '/OUTPUT HERE/{{r lines' -e 'd}}' {self.file}; rm lines")

    def wrong(self, hand: OracleActions) -> Work:
        """At the end."""
        yield from command(hand, f"sh {self.script} >> {self.file}")


@dataclass(frozen=True)
class CountIntoName(FileTask):
    """The terminal counts lines, and the file manager gives the names: the number of lines goes into the name."""

    about: ClassVar = About("xterm-thunar-count", (TERMINAL, MANAGER), "hard", 12, max_steps=40)
    folder: str
    names: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.word("city"), tuple(pool.words("topic", 3)), tuple(pool.numbers(60, 400, 3)))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [
            (f"{name}.log", f"{name} {count}.log") for name, count in zip(self.names[:2], self.counts, strict=False)
        ]

    @property
    def before(self) -> Files:
        told = zip(self.names, self.counts, strict=True)
        return {f"{self.folder}/{name}.log": text_of([f"{name} {n}" for n in range(count)]) for name, count in told}

    @property
    def after(self) -> Files:
        files = self.before
        for old, new in self.pairs:
            files[f"{self.folder}/{new}"] = files.pop(f"{self.folder}/{old}")
        return files

    @property
    def parts(self) -> list[Part]:
        return renamed_parts(self.folder, self.pairs)

    @property
    def request(self) -> str:
        one, two = (old for old, _ in self.pairs)
        return (
            f"Count the lines of {one} and of {two} in the folder {self.folder} of the home folder. Rename both: a "
            f'space and the number of lines go in front of the ending of each name, as in "{self.names[0]} 17.log".'
        )

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER, self.folder], 1, "Thunar", LEFT)
        await open_window(stage, BESIDE, 2, TERMINAL)

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"wc -l {self.folder}/*")
        yield from to_manager(hand)
        for old, new in self.pairs:
            yield from pick(hand, old)
            yield from name_it(hand, new)

    def second(self, hand: OracleActions) -> Work:
        """In the terminal alone."""
        yield from command(hand, f"cd {self.folder}")
        for name in self.names[:2]:
            yield from command(hand, f'mv {name}.log "{name} $(wc -l < {name}.log).log"')

    def wrong(self, hand: OracleActions) -> Work:
        """Counts the characters."""
        yield from command(hand, f"cd {self.folder}")
        for name in self.names[:2]:
            yield from command(hand, f'mv {name}.log "{name} $(wc -c < {name}.log).log"')


@dataclass(frozen=True)
class CollectNotes(FileTask):
    """Notes of several days go into one document, in the order of the days and not of the names."""

    about: ClassVar = About("thunar-editor-collect", (MANAGER, EDITOR), "hard", 8, max_steps=50)
    asks: ClassVar = (
        "The folder {self.folder} of the home folder has notes; the name of each is its day. Write the lines of "
        "the notes of May into {self.file}, which the editor shows, in the order of the days, and save it. Leave "
        "out all other notes."
    )
    folder: str
    file: str
    days: tuple[int, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        days = [pool.choose((2, 3)), pool.choose((10, 11)), pool.choose((20, 21))]
        return cls(pool.word("city"), pool.file("txt"), tuple(days), lines_of(pool, 4))

    @property
    def before(self) -> Files:
        told = zip(self.days, self.lines, strict=False)
        files = {f"{self.folder}/{day} May.txt": text_of([line]) for day, line in told}
        return files | {f"{self.folder}/4 June.txt": text_of([self.lines[3]]), self.file: b""}

    @property
    def after(self) -> Files:
        return self.before | {self.file: text_of(self.lines[:3])}

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER, self.folder], 1, "Thunar", RIGHT)
        await open_editor(stage, self.file, count=2, place=LEFT)

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.type("".join(f"{line}\n" for line in self.lines[:3]))
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """Opens each note, and copies it."""
        for day in self.days:
            yield from hand.press("ctrl", "o")
            yield from hand.choose_file(f"/home/user/{self.folder}/{day} May.txt")
            yield from hand.in_front(f"{day} May.txt")
            yield from hand.press("ctrl", "a")
            yield from hand.press("ctrl", "c")
            yield from hand.press("ctrl", "w")
            yield from hand.in_front(self.file)
            yield from hand.press("ctrl", "end")
            yield from hand.press("ctrl", "v")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """In the order of the names."""
        one, two, three = self.lines[:3]
        yield from hand.type(f"{two}\n{three}\n{one}\n")
        yield from hand.press("ctrl", "s")


TEMPLATES: Final = (FixScript, OutputIntoText, CountIntoName, CollectNotes)
