"""The terminal: tables, archives, names in bulk, checksums, character sets, programs that ask questions."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, Infeasible, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import lines_of, text_of
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL, command, open_terminal
from eval.desktops.stage import DesktopStage


class TerminalTask(FileTask):
    """With a terminal in the home folder."""

    async def open(self, stage: DesktopStage) -> None:
        await open_terminal(stage)


@dataclass(frozen=True)
class SumByCity(TerminalTask):
    """The numbers of a table are added up for each city."""

    about: ClassVar = About("xterm-table-sums", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "Each line of {self.table} in the home folder has a day, a city and an amount, divided by semicolons. Add "
        "up the amounts of each city, and write the sums into {self.answer} of the home folder: one line for each "
        'city, as in "{self.cities[0]} 123", in alphabetical order of the cities.'
    )
    table: str
    answer: str
    cities: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        table, answer = pool.words("topic", 2)
        cities = pool.words("city", 3)
        rows = [(pool.choose(cities), pool.number(10, 999)) for _ in range(40)]
        return cls(f"{table}.csv", f"{answer}.txt", tuple(sorted(cities)), tuple(rows))

    @property
    def before(self) -> Files:
        return {
            self.table: text_of([f"{n % 28 + 1} May;{city};{amount}" for n, (city, amount) in enumerate(self.rows)])
        }

    @property
    def after(self) -> Files:
        sums = [f"{city} {sum(amount for name, amount in self.rows if name == city)}" for city in self.cities]
        return self.before | {self.answer: text_of(sums)}

    def oracle(self, hand: OracleActions) -> Work:
        program = "{s[$2] += $3} END {for (c in s) print c, s[c]}"
        yield from command(hand, f"awk -F';' '{program}' {self.table} | sort > {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        """City by city."""
        loop = f'echo $c $(($(grep ";$c;" {self.table} | cut -d";" -f3 | paste -sd+)))'
        yield from command(hand, f"for c in {' '.join(self.cities)}; do {loop}; done > {self.answer}")

    def wrong(self, hand: OracleActions) -> Work:
        """How many lines each city has."""
        yield from command(
            hand, f"cut -d';' -f2 {self.table} | sort | uniq -c | awk '{{print $2, $1}}' > {self.answer}"
        )


def packed(files: Files) -> bytes:
    """A tar archive, packed with gzip."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


UNPACKED_LIMIT: Final = 1 << 20  # bytes of an archive that are looked at


def unpacked(data: bytes | None) -> Files | None:
    """The plain files of such an archive, by name; None for what is none, is larger than this task makes it, or has
    something besides files and folders, such as a link."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data or b"")) as stream:
            plain = stream.read(UNPACKED_LIMIT + 1)
        if len(plain) > UNPACKED_LIMIT:
            return None
        found: Files = {}
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    found[member.name.removeprefix("./")] = content.read(UNPACKED_LIMIT)
                elif not member.isdir():
                    return None
        return found
    except (OSError, EOFError, ValueError, tarfile.TarError, gzip.zlib.error):  # type: ignore[attr-defined]
        return None


@dataclass(frozen=True)
class PackFolder(TerminalTask):
    """A folder goes into an archive, without the files of one kind."""

    about: ClassVar = About("xterm-pack", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "Pack the folder {self.folder} of the home folder into the archive {self.archive} in the home folder, a "
        "tar archive with gzip. The paths in it begin with the folder's name. Leave out the files whose name ends "
        "in .tmp, also those in folders below. Change nothing in {self.folder}."
    )
    folder: str
    archive: str
    names: tuple[str, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.word("city"), f"{pool.word('name')}.tar.gz", tuple(pool.words("topic", 6)), lines_of(pool, 6))

    @property
    def before(self) -> Files:
        places = ["a.txt", "b.txt", "below/c.txt", "below/d.tmp", "e.tmp", "tmp.txt"]
        names = [
            place.replace(letter, word, 1) for place, letter, word in zip(places, "abcdet", self.names, strict=True)
        ]
        names[5] = f"{self.names[5]}-tmp.txt"
        names[2], names[3] = f"below/{self.names[2]}.txt", f"below/{self.names[3]}.tmp"
        return {f"{self.folder}/{name}": text_of([line]) for name, line in zip(names, self.lines, strict=True)}

    @property
    def wanted(self) -> Files:
        return {path: content for path, content in self.before.items() if not path.endswith(".tmp")}

    @property
    def after(self) -> Files:
        return self.before | {self.archive: packed(self.wanted)}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        try:
            data = await stage.read_file(self.archive)
        except FileNotFoundError:
            data = None
        return judged(("the archive holds the right files", 1.0, unpacked(data) == self.wanted))

    def disguise(self, path: str, text: str) -> bytes:
        return packed({"DONE.txt": text.encode()})

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"tar czf {self.archive} --exclude='*.tmp' {self.folder}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"find {self.folder} -type f ! -name '*.tmp' | tar cf all.tar -T -")
        yield from command(hand, f"gzip -c all.tar > {self.archive}; rm all.tar")

    def wrong(self, hand: OracleActions) -> Work:
        """With all files."""
        yield from command(hand, f"tar czf {self.archive} {self.folder}")


@dataclass(frozen=True)
class UnpackOne(TerminalTask):
    """One file of an archive, and no other."""

    about: ClassVar = About("xterm-unpack", (TERMINAL,), "medium", 2)
    asks: ClassVar = (
        "The archive {self.archive} in the home folder holds {self.file}. Put this file alone into the folder "
        "{self.goal} of the home folder, as {self.goal}/{self.names[0]}.txt. Leave the archive as it is."
    )
    archive: str
    goal: str
    names: tuple[str, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(f"{pool.word('name')}.zip", pool.word("city"), tuple(pool.words("topic", 4)), lines_of(pool, 5))

    @property
    def inside(self) -> Files:
        places = [
            f"old/{self.names[0]}.txt",
            f"new/{self.names[0]}.txt",
            *(f"new/{name}.txt" for name in self.names[1:]),
        ]
        return {place: text_of([line]) for place, line in zip(places, self.lines, strict=True)}

    @property
    def before(self) -> Files:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in self.inside.items():
                archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content)
        return {self.archive: out.getvalue(), f"{self.goal}/read me.txt": b"old files\n"}

    @property
    def file(self) -> str:
        return f"new/{self.names[0]}.txt"

    @property
    def after(self) -> Files:
        return self.before | {f"{self.goal}/{self.names[0]}.txt": self.inside[self.file]}

    @property
    def copied(self) -> Collection[bytes]:
        return self.inside.values()

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"unzip -j {self.archive} {self.file} -d {self.goal}")

    def second(self, hand: OracleActions) -> Work:
        """With Python, in a folder of its own."""
        program = f"import zipfile; zipfile.ZipFile('{self.archive}').extractall('all')"
        yield from command(hand, f'python3 -c "{program}" && cp all/{self.file} {self.goal}/ && rm -r all')

    def wrong(self, hand: OracleActions) -> Work:
        """The old one of the same name."""
        yield from command(hand, f"unzip -j {self.archive} old/{self.names[0]}.txt -d {self.goal}")


@dataclass(frozen=True)
class NewEnding(TerminalTask):
    """Many files, also in folders below, get another ending."""

    about: ClassVar = About("xterm-rename-ending", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "Rename all files in the folder {self.folder} of the home folder, and in the folders below it, that end "
        "in .text: they are to end in .txt. The rest of the name stays. Leave other files alone."
    )
    folder: str
    names: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.folder(), tuple(pool.words("topic", 4)), tuple(pool.numbers(10, 99, 12)))

    @property
    def before(self) -> Files:
        files = {}
        for n, number in enumerate(self.numbers):
            below = "" if n % 2 else f"{self.names[n % 3]}/"
            files[f"{self.folder}/{below}{self.names[3]} {number}.{'text' if n < 9 else 'txt.bak'}"] = (
                f"{number}\n".encode()
            )
        return files

    @property
    def after(self) -> Files:
        start = self.before
        return {f"{path[:-4]}txt" if path.endswith(".text") else path: content for path, content in start.items()}

    @property
    def parts(self) -> list[Part]:
        deep = [path for path in self.changed if path.count("/") > 1]
        return shared_out(
            {
                f"those in {self.folder} itself": [path for path in self.changed if path not in deep],
                "those in folders below": deep,
            }
        )

    def oracle(self, hand: OracleActions) -> Work:
        loop = 'for f do mv "$f" "${f%.text}.txt"; done'
        yield from command(hand, f"find {self.folder} -name '*.text' -exec sh -c '{loop}' sh {{}} +")

    def second(self, hand: OracleActions) -> Work:
        """Folder by folder."""
        for place in (".", *sorted({path.split("/")[1] for path in self.before if path.count("/") > 1})):
            yield from command(hand, f"cd ~/{self.folder}/{place}")
            yield from command(hand, 'for f in *.text; do mv "$f" "$(basename "$f" .text).txt"; done')

    def wrong(self, hand: OracleActions) -> Work:
        """Copies them."""
        loop = 'for f do cp "$f" "${f%.text}.txt"; done'
        yield from command(hand, f"find {self.folder} -name '*.text' -exec sh -c '{loop}' sh {{}} +")


@dataclass(frozen=True)
class NotInArchive(Infeasible, UnpackOne):
    """The archive does not hold the file, but another one of its name."""

    about: ClassVar = About("xterm-not-in-archive", (TERMINAL,), "medium", 1, infeasible=True, twin="xterm-unpack")

    @property
    def inside(self) -> Files:
        return {name: content for name, content in super().inside.items() if name != self.file}

    @property
    def after(self) -> Files:
        return self.before


TEMPLATES: Final = (
    SumByCity,
    PackFolder,
    UnpackOne,
    NewEnding,
    NotInArchive,
)
