"""The file manager: files are put in order by size, kind and name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, Part, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import text_of
from eval.benchmarks.linux_desktop.templates.thunar import MANAGER, files_of, pick, pick_by_keys
from eval.benchmarks.linux_desktop.templates.thunar_files import (
    RENAME,
    ManagerTask,
    details_of,
    drag_to,
    name_it,
    select,
    throw_away,
)


@dataclass(frozen=True)
class MoveLargest(ManagerTask):
    """The two largest files of a long list go into a folder: the list can be sorted by size."""

    about: ClassVar = About("thunar-largest", (MANAGER,), "hard", 12, max_steps=35)
    asks: ClassVar = (
        "Move the two largest files of the folder {self.folder} into the folder {self.goal}. Both folders are in "
        "the home folder."
    )
    folder: str
    goal: str
    sizes: tuple[int, ...]
    names: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        folder, goal = pool.words("city", 2)
        return cls(folder, goal, tuple(pool.numbers(1001, 9999, 30)), tuple(pool.numbers(10000, 99999, 30)))

    @property
    def before(self) -> Files:
        files = {f"{self.folder}/scan {n}.txt": b"x" * size for n, size in zip(self.names, self.sizes, strict=True)}
        return {**files, f"{self.goal}/old.txt": b"old\n"}

    @property
    def largest(self) -> list[str]:
        """The names of the three largest ones, the largest first."""
        order = sorted(zip(self.sizes, self.names, strict=True), reverse=True)
        return [f"scan {name}.txt" for _, name in order[:3]]

    @property
    def after(self) -> Files:
        files = self.before
        for name in self.largest[:2]:
            files[f"{self.goal}/{name}"] = files.pop(f"{self.folder}/{name}")
        return files

    @property
    def parts(self) -> list[Part]:
        pairs = [[f"{self.folder}/{name}", f"{self.goal}/{name}"] for name in self.largest[:2]]
        return shared_out({"the largest one is moved": pairs[0], "the second one is moved": pairs[1]})

    def oracle(self, hand: OracleActions) -> Work:
        yield from details_of(hand, self.folder)
        yield from hand.press("ctrl", "2")
        for _ in range(4):  # the first click may sort the other way round
            yield from hand.click("table column header", "=Size")
            yield from hand.press("ctrl", "r")
            if (yield from hand.soon(lambda: self._on_top(hand) == self.largest[0] or None)):
                break  # a list that is read again shows the old order for a while
        yield from select(hand, self.largest[:2])
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        yield from hand.wait("table cell", f"={self.largest[0]}")
        yield from hand.wait("table cell", f"={self.largest[1]}")

    def second(self, hand: OracleActions) -> Work:
        """One by one, by their names."""
        for name in self.largest[:2]:
            yield from self._move(hand, name)

    def wrong(self, hand: OracleActions) -> Work:
        """The third one."""
        yield from self._move(hand, self.largest[2])

    def _move(self, hand: OracleActions, name: str) -> Work:
        yield from details_of(hand, self.folder)
        yield from pick_by_keys(hand, name)
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        yield from hand.press("ctrl", "2")
        yield from hand.wait("table cell", f"={name}")

    def _on_top(self, hand: OracleActions) -> str:
        cells = [node for node in hand.tree.nodes() if node.role == "table cell" and node.name.startswith("scan ")]
        shown = [node for node in cells if node.bounds is not None]
        return min(shown, key=lambda node: node.bounds[1] if node.bounds else 0).name if shown else ""


Rule = Literal["replace", "skip"]


@dataclass(frozen=True)
class MergeFolders(ManagerTask):
    """Files are moved into a folder that has some of the names already: the program asks."""

    about: ClassVar = About("thunar-merge", (MANAGER,), "hard", 10)
    source: str
    goal: str
    rule: Rule
    names: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        source, goal = pool.words("city", 2)
        rule: Rule = pool.choose(("replace", "skip"))
        return cls(source, goal, rule, tuple(pool.words("topic", 6)), tuple(pool.numbers(10, 99, 8)))

    @property
    def both(self) -> list[str]:
        return [f"{name}.txt" for name in self.names[:2]]

    @property
    def alone(self) -> list[str]:
        return [f"{name}.txt" for name in self.names[2:5]]

    @property
    def before(self) -> Files:
        texts = iter([f"{number}\n".encode() for number in self.numbers])
        files = {f"{self.source}/{name}": next(texts) for name in (*self.both, *self.alone)}
        return files | {f"{self.goal}/{name}": next(texts) for name in (*self.both, f"{self.names[5]}.txt")}

    @property
    def after(self) -> Files:
        files = self.before
        for name in self.alone + (self.both if self.rule == "replace" else []):
            files[f"{self.goal}/{name}"] = files.pop(f"{self.source}/{name}")
        return files

    @property
    def request(self) -> str:
        rest = (
            f"replace it by the one of {self.source}."
            if self.rule == "replace"
            else f"leave both as they are: the one of {self.source} stays in {self.source}."
        )
        return (
            f"Move the files of the folder {self.source} into the folder {self.goal}. Where {self.goal} has a file of "
            f"the same name already, {rest} Both folders are in the home folder."
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._answer(hand, "=Replace All" if self.rule == "replace" else "=Skip All")

    def second(self, hand: OracleActions) -> Work:
        """Nothing is asked: what would be in the way is deleted before, or is not selected."""
        if self.rule == "replace":
            yield from details_of(hand, self.goal)
            yield from select(hand, self.both)
            yield from throw_away(hand)
        yield from details_of(hand, self.source)
        yield from select(hand, self.alone + (self.both if self.rule == "replace" else []))
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        for name in self.alone:
            yield from hand.wait("table cell", f"={name}")

    def wrong(self, hand: OracleActions) -> Work:
        """The other answer."""
        yield from self._answer(hand, "=Skip All" if self.rule == "replace" else "=Replace All")

    def _answer(self, hand: OracleActions, button: str) -> Work:
        yield from details_of(hand, self.source)
        yield from hand.press("ctrl", "2")
        yield from hand.wait("table cell", f"={self.both[0]}")
        yield from hand.press("ctrl", "a")
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        yield from hand.click("push button", button)
        yield from hand.wait_gone("push button", button)
        for name in self.alone:
            yield from hand.wait("table cell", f"={name}")


@dataclass(frozen=True)
class SwapNames(ManagerTask):
    """Two files exchange their names: it takes a third name."""

    about: ClassVar = About("thunar-swap-names", (MANAGER,), "hard", 16, max_steps=40)
    asks: ClassVar = (
        "{self.files[0][0]} and {self.files[1][0]} in the home folder have each other's name. Exchange their "
        "names, and leave no other file behind."
    )
    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(files_of(pool, 4).items()))

    @property
    def before(self) -> Files:
        return dict(self.files)

    @property
    def after(self) -> Files:
        (one, first), (two, second) = self.files[:2]
        return self.before | {one: second, two: first}

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._swap(hand, "third.txt")

    def second(self, hand: OracleActions) -> Work:
        """With another third name, and by the menu."""
        (one, _), (two, _) = self.files[:2]
        yield from pick(hand, one)
        yield from name_it(hand, f"zz {one}")
        yield from pick(hand, two)
        yield from hand.menu("Edit", "Rename")
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(one)
        yield from hand.click("push button", "Rename")
        yield from hand.wait_gone("dialog", RENAME)
        yield from hand.press("ctrl", "r")
        yield from pick_by_keys(hand, f"zz {one}")
        yield from name_it(hand, two)

    def wrong(self, hand: OracleActions) -> Work:
        """The third name stays."""
        (one, _), (two, _) = self.files[:2]
        yield from pick(hand, one)
        yield from name_it(hand, "third.txt")
        yield from pick(hand, two)
        yield from name_it(hand, one)

    def _swap(self, hand: OracleActions, third: str) -> Work:
        (one, _), (two, _) = self.files[:2]
        for old, new in ((one, third), (two, one), (third, two)):
            yield from pick(hand, old)
            yield from name_it(hand, new)


@dataclass(frozen=True)
class SortKinds(ManagerTask):
    """Files of three kinds go into three folders."""

    about: ClassVar = About("thunar-sort-kinds", (MANAGER,), "hard", 30, max_steps=60)
    folders: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(pool.words("city", 3)), tuple(pool.words("topic", 7)))

    KINDS: ClassVar = ("log", "txt", "csv")

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of each kind."""
        parts = (self.names[:2], self.names[2:4], self.names[4:6])
        return {kind: [f"{name}.{kind}" for name in part] for kind, part in zip(self.KINDS, parts, strict=True)}

    @property
    def before(self) -> Files:
        loose = {name: text_of([name]) for names in self.files.values() for name in names}
        return {f"{folder}/old.dat": b"old\n" for folder in self.folders} | loose | {f"{self.names[6]}.dat": b"1\n"}

    @property
    def after(self) -> Files:
        files = self.before
        for folder, names in zip(self.folders, self.files.values(), strict=True):
            for name in names:
                files[f"{folder}/{name}"] = files.pop(name)
        return files

    @property
    def parts(self) -> list[Part]:
        groups = {}
        for folder, (kind, names) in zip(self.folders, self.files.items(), strict=True):
            groups[f"the .{kind} files are moved"] = [*names, *(f"{folder}/{name}" for name in names)]
        return shared_out(groups)

    @property
    def request(self) -> str:
        where = [f".{kind} into {folder}" for kind, folder in zip(self.KINDS, self.folders, strict=True)]
        return (
            f"Sort the files of the home folder: move those that end in {where[0]}, in {where[1]} and in {where[2]}. "
            "These folders are in the home folder. Leave other files where they are."
        )

    def oracle(self, hand: OracleActions) -> Work:
        for folder, (kind, names) in zip(self.folders, self.files.items(), strict=True):
            yield from hand.press("ctrl", "2")
            yield from hand.press("ctrl", "s")
            yield from hand.wait("dialog", "Select by Pattern")
            yield from hand.focused("text")
            yield from hand.type(f"*.{kind}\n")
            yield from hand.wait_gone("dialog", "Select by Pattern")
            yield from hand.press("ctrl", "x")
            yield from details_of(hand, folder)
            yield from hand.press("ctrl", "v")
            for name in names:
                yield from hand.wait("table cell", f"={name}")
            yield from details_of(hand, "")

    def second(self, hand: OracleActions) -> Work:
        """Drags each file onto its folder."""
        yield from hand.press("ctrl", "2")
        for folder, names in zip(self.folders, self.files.values(), strict=True):
            for name in names:
                yield from drag_to(hand, name, folder)

    def wrong(self, hand: OracleActions) -> Work:
        """Only one file of each kind."""
        yield from hand.press("ctrl", "2")
        for folder, names in zip(self.folders, self.files.values(), strict=True):
            yield from drag_to(hand, names[0], folder)


TEMPLATES: Final = (
    MoveLargest,
    MergeFolders,
    SwapNames,
    SortKinds,
)
