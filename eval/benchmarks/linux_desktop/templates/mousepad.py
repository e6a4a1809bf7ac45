"""The text editor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.desktops.stage import DesktopStage

EDITOR: Final = "mousepad"


def lines_of(pool: WordPool, count: int) -> tuple[str, ...]:
    """Lines such as `12 apples`."""
    words = pool.words("thing", count)
    return tuple(f"{number} {word}" for number, word in zip(pool.numbers(2, 98, count), words, strict=True))


def text_of(lines: tuple[str, ...] | list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def same_text(found: bytes | None, wanted: bytes) -> bool:
    """Equal, but for a line break at the end."""
    return found is not None and found.removesuffix(b"\n") == wanted.removesuffix(b"\n")


@dataclass(frozen=True)
class AppendLine(Instance):
    """One more line at the end of a file, saved; a second file beside it stays as it was."""

    about: ClassVar = About("mousepad-append", (EDITOR,), "easy", 4)
    asks: ClassVar = 'The editor shows {self.file}. Add one line at its end, exactly "{self.line}", and save it.'
    file: str
    other: str
    before: tuple[str, ...]
    line: str
    place: tuple[int, int]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, other = (f"{word}.txt" for word in pool.words("topic", 2))
        *before, line = lines_of(pool, pool.whole(4, 6))
        return cls(file, other, tuple(before), line, (pool.whole(20, 300), pool.whole(20, 120)))

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.other, text_of(self.before))
        await stage.write_file(self.file, text_of(self.before))
        await open_window(stage, [EDITOR, self.file], 1, self.file, self.place)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.file)
        return judged(("line is there", 1.0, same_text(found, self.targets()[self.file])))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_of([*self.before, self.line])}

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"{self.line}\n")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """By the mouse and the menu, without a line break at the end."""
        yield from hand.click("text")
        yield from hand.press("ctrl", "end")
        yield from hand.type(self.line)
        yield from hand.menu("File", "Save")

    def wrong(self, hand: OracleActions) -> Work:
        """At the beginning."""
        yield from hand.press("ctrl", "home")
        yield from hand.type(f"{self.line}\n")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class ReplaceEverywhere(Instance):
    """A name is replaced wherever it stands as a word, and nowhere else."""

    about: ClassVar = About("mousepad-replace", (EDITOR,), "medium", 9)
    asks: ClassVar = (
        "The editor shows {self.file}. Replace the name {self.old} by {self.new} in every line, and save the file."
    )
    file: str
    old: str
    new: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        old, new, *others = pool.words("name", 5)
        things = pool.words("thing", 6)
        who = pool.shuffled([old, old, old, *others])
        numbers = pool.numbers(2, 98, 6)
        rows = tuple(f"{thing}: {name} has {n}" for thing, name, n in zip(things, who, numbers, strict=True))
        return cls(pool.file("txt"), old, new, rows)

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, text_of(self.lines))
        await open_window(stage, [EDITOR, self.file], 1, self.file)

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_of([line.replace(self.old, self.new) for line in self.lines])}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.file)
        lines = (found or b"").decode("utf-8", "replace").removesuffix("\n").split("\n")
        rest = [line.replace(self.old, self.new) for line in self.lines]
        some = any(line in lines for line in rest if line not in self.lines)
        kept = all(line in (was, now) for line, was, now in zip(lines, self.lines, rest, strict=False))
        right = same_text(found, self.targets()[self.file])
        return judged(
            ("some lines have the new name", 0.3, some and kept and len(lines) == len(rest)),
            ("all is right", 0.7, right),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "r")
        yield from hand.wait("dialog", "Find and Replace")
        yield from hand.focused("text")
        yield from hand.type(self.old)
        yield from hand.press("tab")
        yield from hand.type(self.new)
        if hand.seen("push button", "Replace All") is None:
            yield from hand.click("check box", "Replace all")
        yield from hand.click("push button", "Replace All")
        yield from hand.press("escape")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """Writes the whole file anew."""
        yield from hand.press("ctrl", "a")
        yield from hand.type(self.targets()[self.file].decode())
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """Writes the new name at the end."""
        yield from hand.press("ctrl", "end")
        yield from hand.type(self.new)
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class SaveCopy(Instance):
    """The text is saved under another name in a folder; the file stays as it was."""

    about: ClassVar = About("mousepad-save-as", (EDITOR,), "medium", 5)
    asks: ClassVar = (
        "The editor shows {self.file}. Save the text as {self.copy} in the folder {self.folder} of the home "
        "folder, too. Leave {self.file} as it is."
    )
    file: str
    folder: str
    copy: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, copy = (f"{word}.txt" for word in pool.words("topic", 2))
        return cls(file, pool.word("city"), copy, lines_of(pool, 4))

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, text_of(self.lines))
        await stage.write_file(f"{self.folder}/read me.txt", b"old files\n")
        await open_window(stage, [EDITOR, self.file], 1, self.file)

    def targets(self) -> dict[str, bytes]:
        return {f"{self.folder}/{self.copy}": text_of(self.lines)}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, f"{self.folder}/{self.copy}")
        return judged(("the copy is right", 1.0, same_text(found, text_of(self.lines))))

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "shift", "s")
        yield from hand.choose_file(f"{self.folder}/{self.copy}")

    def second(self, hand: OracleActions) -> Work:
        """A new document with the same text."""
        yield from hand.press("ctrl", "a")
        yield from hand.press("ctrl", "c")
        yield from hand.press("ctrl", "n")
        yield from hand.in_front("Untitled")
        yield from hand.press("ctrl", "v")
        yield from hand.press("ctrl", "s")
        yield from hand.choose_file(f"{self.folder}/{self.copy}")

    def wrong(self, hand: OracleActions) -> Work:
        """Beside the file, not in the folder."""
        yield from hand.press("ctrl", "shift", "s")
        yield from hand.choose_file(self.copy)


TEMPLATES: Final = (AppendLine, ReplaceEverywhere, SaveCopy)
