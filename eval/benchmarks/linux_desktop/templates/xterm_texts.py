"""The terminal: texts are compared, checked and written anew; programs that ask questions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, Infeasible
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, Part, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import lines_of, text_of
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL, command
from eval.benchmarks.linux_desktop.templates.xterm_files import TerminalTask


@dataclass(frozen=True)
class DifferentLines(TerminalTask):
    """Two long files differ in a few lines."""

    about: ClassVar = About("xterm-difference", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "{self.one} and {self.two} in the home folder have the same lines, but for three. Write these three lines "
        "as they stand in {self.two} into {self.answer} of the home folder, in their order."
    )
    one: str
    two: str
    answer: str
    lines: tuple[str, ...]
    places: tuple[int, ...]
    new: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        one, two, answer = (f"{word}.txt" for word in pool.words("topic", 3))
        names = pool.words("name", 8)
        lines = tuple(f"{pool.choose(names)} {pool.number(1000, 9999)}" for _ in range(200))
        places = sorted(pool.sample(range(5, 195), 3))
        new = tuple(f"{pool.word('city')} {number}" for number in pool.numbers(1000, 9999, 3))
        return cls(one, two, answer, lines, tuple(places), new)

    @property
    def before(self) -> Files:
        changed = list(self.lines)
        for place, line in zip(self.places, self.new, strict=True):
            changed[place] = line
        return {self.one: text_of(self.lines), self.two: text_of(changed)}

    @property
    def after(self) -> Files:
        return self.before | {self.answer: text_of(self.new)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"diff {self.one} {self.two} | sed -n 's/^> //p' > {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        program = "NR == FNR {a[FNR] = $0; next} a[FNR] != $0"
        yield from command(hand, f"awk '{program}' {self.one} {self.two} > {self.answer}")

    def wrong(self, hand: OracleActions) -> Work:
        """As they stand in the other file."""
        yield from command(hand, f"diff {self.one} {self.two} | sed -n 's/^< //p' > {self.answer}")


@dataclass(frozen=True)
class BrokenCopies(TerminalTask):
    """Of files with checksums, those that do not match go away."""

    about: ClassVar = About("xterm-checksums", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "The folder {self.folder} of the home folder has files, and their checksums in SHA256SUMS. Delete every "
        "file of the folder whose content does not match its checksum, and change nothing else."
    )
    folder: str
    names: tuple[str, ...]
    lines: tuple[str, ...]
    broken: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.folder(), tuple(pool.words("topic", 7)), lines_of(pool, 7), tuple(pool.sample(range(7), 2)))

    @property
    def files(self) -> list[str]:
        return [f"{name}.dat" for name in self.names]

    @property
    def before(self) -> Files:
        sums = [
            f"{hashlib.sha256(line.encode()).hexdigest()}  {name}"
            for line, name in zip(self.lines, self.files, strict=True)
        ]
        files = {f"{self.folder}/SHA256SUMS": text_of(sums)}
        for n, (name, line) in enumerate(zip(self.files, self.lines, strict=True)):
            files[f"{self.folder}/{name}"] = line.swapcase().encode() if n in self.broken else line.encode()
        return files

    @property
    def after(self) -> Files:
        gone = {f"{self.folder}/{self.files[n]}" for n in self.broken}
        return {path: content for path, content in self.before.items() if path not in gone}

    @property
    def parts(self) -> list[Part]:
        return shared_out({f"{path} is gone": [path] for path in self.removed()})

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"cd {self.folder}")
        yield from command(hand, "sha256sum -c SHA256SUMS 2>/dev/null | sed -n 's/: FAILED$//p' | xargs rm")

    def second(self, hand: OracleActions) -> Work:
        """Compares one by one."""
        yield from command(hand, f"cd {self.folder}")
        test = 'if [ "$(sha256sum < $name | cut -c1-64)" != $sum ]; then rm $name; fi'
        yield from command(hand, f"while read sum name; do {test}; done < SHA256SUMS")

    def wrong(self, hand: OracleActions) -> Work:
        """One that matches, too."""
        good = next(name for n, name in enumerate(self.files) if n not in self.broken)
        yield from command(hand, f"cd {self.folder}; rm {good} {self.files[self.broken[0]]}")


@dataclass(frozen=True)
class OldCharacters(TerminalTask):
    """A text in an old character set is written anew in UTF-8, with the line ends of Unix."""

    about: ClassVar = About("xterm-encoding", (TERMINAL,), "hard", 2)
    asks: ClassVar = (
        "{self.file} in the home folder is a text in ISO-8859-1 with the line ends of Windows. Write it as UTF-8 "
        "with the line ends of Unix into {self.new} of the home folder. Leave {self.file} as it is."
    )
    file: str
    new: str
    words: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, new = pool.words("topic", 2)
        return cls(f"{file}.txt", f"{new}.txt", tuple(pool.words("city", 4)), tuple(pool.numbers(10, 99, 4)))

    @property
    def text(self) -> list[str]:
        signs = ("é", "ü", "ñ", "ø")
        return [f"{word}{sign} {n}" for word, sign, n in zip(self.words, signs, self.numbers, strict=True)]

    @property
    def before(self) -> Files:
        return {self.file: "".join(f"{line}\r\n" for line in self.text).encode("latin-1")}

    @property
    def after(self) -> Files:
        return self.before | {self.new: text_of(self.text)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"iconv -f ISO-8859-1 -t UTF-8 {self.file} | tr -d '\\r' > {self.new}")

    def second(self, hand: OracleActions) -> Work:
        program = (
            f"t = open('{self.file}', encoding='latin-1').read(); open('{self.new}', 'w', encoding='utf-8').write(t)"
        )
        yield from command(hand, f'python3 -c "{program}"')

    def wrong(self, hand: OracleActions) -> Work:
        """With the line ends of Windows."""
        yield from command(hand, f"iconv -f ISO-8859-1 -t UTF-8 {self.file} > {self.new}")


SETUP: Final = """\
#!/bin/sh
printf 'Name of the site? '; read site
printf 'Port? '; read port
printf 'Keep a log? (yes or no) '; read log
printf 'Write these settings? (write or stop) '; read sure
[ "$sure" = write ] || exit 1
printf 'site=%s\\nport=%s\\nlog=%s\\nmade by setup.sh {number}\\n' "$site" "$port" "$log" > site.conf
"""


@dataclass(frozen=True)
class AnswerQuestions(TerminalTask):
    """A program asks questions, and writes a file of the answers."""

    about: ClassVar = About("xterm-questions", (TERMINAL,), "medium", 6)
    site: str
    port: int
    log: str
    number: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.word("city"), pool.number(1024, 9999), pool.choose(("yes", "no")), pool.number(100, 999))

    @property
    def before(self) -> Files:
        return {"setup.sh": SETUP.replace("{number}", str(self.number)).encode(), "site.conf": b"site=none\n"}

    @property
    def after(self) -> Files:
        lines = [f"site={self.site}", f"port={self.port}", f"log={self.log}", f"made by setup.sh {self.number}"]
        return self.before | {"site.conf": text_of(lines)}

    @property
    def request(self) -> str:
        return (
            f"Run setup.sh of the home folder with sh. It asks questions and writes site.conf. The site is called "
            f"{self.site}, its port is {self.port}, and it keeps {'a' if self.log == 'yes' else 'no'} log."
        )

    def oracle(self, hand: OracleActions) -> Work:
        for text in ("sh setup.sh", self.site, str(self.port), self.log, "write"):
            yield from command(hand, text)

    def second(self, hand: OracleActions) -> Work:
        """All answers at once."""
        yield from command(hand, f"printf '{self.site}\\n{self.port}\\n{self.log}\\nwrite\\n' | sh ~/setup.sh")

    def wrong(self, hand: OracleActions) -> Work:
        """Stops at the last question."""
        for text in ("sh setup.sh", self.site, str(self.port), self.log, "stop"):
            yield from command(hand, text)


@dataclass(frozen=True)
class ShellAlias(TerminalTask):
    """A lasting setting of the shell, in a hidden file that has others."""

    about: ClassVar = About("xterm-alias", (TERMINAL,), "medium", 2)
    asks: ClassVar = (
        "Add one line at the end of the hidden file .bash_aliases of the home folder, exactly "
        "\"alias {self.name}='ls -a ~/{self.folder}'\"."
    )
    name: str
    folder: str
    number: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.word("topic"), pool.word("city"), pool.number(100, 900))

    @property
    def before(self) -> Files:
        return {".bash_aliases": f"alias ll='ls -l'\nexport HISTSIZE={self.number}\n".encode()}

    @property
    def after(self) -> Files:
        new = f"alias {self.name}='ls -a ~/{self.folder}'\n".encode()
        return {".bash_aliases": self.before[".bash_aliases"] + new}

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"echo \"alias {self.name}='ls -a ~/{self.folder}'\" >> .bash_aliases")

    def second(self, hand: OracleActions) -> Work:
        yield from hand.type("cat >> ~/.bash_aliases\n")
        yield from hand.type(f"alias {self.name}='ls -a ~/{self.folder}'\n")
        yield from hand.press("ctrl", "d")

    def wrong(self, hand: OracleActions) -> Work:
        """The shell takes the quotes away."""
        yield from command(hand, f"echo alias {self.name}='ls -a ~/{self.folder}' >> .bash_aliases")


@dataclass(frozen=True)
class FindBySize(TerminalTask):
    """All files that are larger than a limit, anywhere below a folder, move to another."""

    about: ClassVar = About("xterm-find-large", (TERMINAL,), "medium", 2)
    source: str
    goal: str
    limit: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        source, goal = pool.words("city", 2)
        limit = pool.number(20, 60)
        around = [limit * 1024 + more for more in (700, 5000, 40_000, -700, -3000, -9000)]
        return cls(source, goal, limit, tuple(pool.words("topic", 6)), tuple(around))

    @property
    def paths(self) -> list[str]:
        below = ("one/", "", "two/three/", "", "one/", "two/")
        return [f"{self.source}/{folder}{name}.dat" for folder, name in zip(below, self.names, strict=True)]

    @property
    def before(self) -> Files:
        files = {
            path: name.encode() + b"." * (size - len(name))
            for path, name, size in zip(self.paths, self.names, self.sizes, strict=True)
        }
        return files | {f"{self.goal}/read me.txt": b"old files\n"}

    @property
    def after(self) -> Files:
        files = self.before
        for path, name in zip(self.paths[:3], self.names, strict=False):
            files[f"{self.goal}/{name}.dat"] = files.pop(path)
        return files

    @property
    def parts(self) -> list[Part]:
        pairs = zip(self.paths[:3], self.names, strict=False)
        return shared_out({f"{path} is moved": [path, f"{self.goal}/{name}.dat"] for path, name in pairs})

    @property
    def request(self) -> str:
        return (
            f"Move every file below the folder {self.source}, in folders of any depth, that has more than {self.limit} "
            f"KiB ({self.limit * 1024} bytes) into the folder {self.goal} itself. Both folders are in the home folder."
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(
            hand, f"find {self.source} -type f -size +{self.limit * 1024}c -exec mv -t {self.goal} {{}} +"
        )

    def second(self, hand: OracleActions) -> Work:
        """Looks first, then by their names."""
        yield from command(hand, f"ls -lRS {self.source}")
        yield from command(hand, f"mv {' '.join(self.paths[:3])} {self.goal}/")

    def wrong(self, hand: OracleActions) -> Work:
        """The small ones."""
        yield from command(hand, f"find {self.source} -type f -size -{self.limit}k -exec mv -t {self.goal} {{}} +")


@dataclass(frozen=True)
class SomeOfTheLines(TerminalTask):
    """A part of a long file, by the numbers of its lines."""

    about: ClassVar = About("xterm-some-lines", (TERMINAL,), "medium", 2)
    asks: ClassVar = (
        "Write the lines {self.first} to {self.last} of {self.file} in the home folder, both among them, into "
        "{self.answer} of the home folder. The first line of the file is line 1. Leave {self.file} as it is."
    )
    file: str
    answer: str
    lines: tuple[str, ...]
    first: int
    last: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, answer = pool.words("topic", 2)
        names = pool.words("name", 6)
        lines = tuple(f"{pool.number(1000, 9999)} {pool.choose(names)}" for _ in range(120))
        first = pool.number(20, 60)
        return cls(f"{file}.log", f"{answer}.txt", lines, first, first + pool.whole(4, 30))

    @property
    def before(self) -> Files:
        return {self.file: text_of(self.lines)}

    @property
    def after(self) -> Files:
        return self.before | {self.answer: text_of(self.lines[self.first - 1 : self.last])}

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"sed -n '{self.first},{self.last}p' {self.file} > {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"head -n {self.last} {self.file} | tail -n +{self.first} > {self.answer}")

    def wrong(self, hand: OracleActions) -> Work:
        """Leaves the last one out."""
        yield from command(hand, f"sed -n '{self.first},{self.last - 1}p' {self.file} > {self.answer}")


@dataclass(frozen=True)
class TooFewLines(Infeasible, SomeOfTheLines):
    """The file ends before the first of the lines."""

    about: ClassVar = About("xterm-too-few-lines", (TERMINAL,), "medium", 1, infeasible=True, twin="xterm-some-lines")

    @property
    def before(self) -> Files:
        return {self.file: text_of(self.lines[: self.first - 3])}


TEMPLATES: Final = (
    DifferentLines,
    BrokenCopies,
    OldCharacters,
    AnswerQuestions,
    ShellAlias,
    FindBySize,
    SomeOfTheLines,
    TooFewLines,
)
