"""Every command that the product shows to a user: in Markdown, in comments of files to copy, in help, hints, errors.

A fenced block (`sh`, `console`, `bash`) or an indented line that begins with one of PROGRAMS is a command, and so is
what stands between backticks and begins so. Words in capitals are the reader's to fill in (RUN, FILE, URL).
`<!-- needs: ... -->` above a block says what is not here; `<!-- ci: ... -->` that CI runs it by itself.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch, fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BLOCK: Final = re.compile(
    r"(?:<!-- (?P<mark>ci|needs): (?P<why>[^>]*) -->\n *)?```(?:sh|console|bash)\n(?P<body>.*?)```", re.DOTALL
)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PROGRAMS: Final = ("launcher", "make", "python", ".venv/bin/python", ".venv/bin/pytest", ".venv/bin/launcher")
_INLINE: Final = re.compile(r"`((?:launcher|make|python -m) [^`]+)`")
_COMMENT: Final = re.compile(r"^\s*(?:#|//) ?(.*)$")
# what stands for something in a literal of the source: f"launcher logs {run}"
FILLED: Final = "filled-0123456789ab"


@dataclass(frozen=True)
class Shown:
    """A command line and where a reader finds it."""

    place: str  # file:line
    line: str
    mark: str = ""  # ci, or needs: why

    @property
    def words(self) -> list[str]:
        """The words of its first simple command: up to a pipe, `&&`, `;`, a redirection or a comment."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        lexer.commenters = ""
        found: list[str] = []
        for word in lexer:
            if re.fullmatch(r"[|&;<>()]+", word) or word.startswith("#"):
                break
            found.append(word)
        return found


def _kept(folder: Path, ignored: tuple[str, ...] = (".git",)) -> Iterator[Path]:
    """The files below `folder` but what a .gitignore names: names and patterns of names, no paths."""
    if (listed := folder / ".gitignore").exists():
        ignored = (*ignored, *(line.rstrip("/") for line in listed.read_text().split()))
    for path in folder.iterdir():
        if not any(fnmatch(path.name, pattern) for pattern in ignored):
            if path.is_dir() and not path.is_symlink():
                yield from _kept(path, ignored)
            elif path.is_file():
                yield path


@cache
def _files() -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in _kept(ROOT)))


@cache
def tracked(*patterns: str) -> tuple[Path, ...]:
    """Files of the repository, new ones included. A pattern is a folder, or as for `git ls-files`: `*` takes `/`, too.
    Does not ask git: the clone may have been made elsewhere."""
    wanted = [pattern for one in patterns for pattern in ([one, f"{one}/*"] if one != "." else ["*"])]
    return tuple(ROOT / name for name in _files() if any(fnmatchcase(name, pattern) for pattern in wanted))


def place(path: Path, text: str, at: int) -> str:
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}"


def commands(body: str) -> list[str]:
    """The lines that a reader types: comments and blank lines left out, continued lines joined."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in body.replace("\\\n", " ").splitlines())
    return [re.sub(r"\s{2,}", "  ", line) for line in lines if line]


def blocks(path: Path) -> list[list[Shown]]:
    """The command blocks of a Markdown file, in order: fenced ones, and runs of indented lines that are commands."""
    text = path.read_text(encoding="utf-8")
    found: list[tuple[int, list[Shown]]] = []
    for match in BLOCK.finditer(text):
        mark = f"{match['mark']}: {match['why']}" if match["mark"] else ""
        where = place(path, text, match.start("body"))
        found.append((match.start(), [Shown(where, line, mark) for line in commands(match["body"])]))
    blank = _FENCE.sub(lambda fenced: re.sub(r"[^\n]", " ", fenced[0]), text)
    indented = re.compile(r"(?:<!-- (ci|needs): ([^>]*) -->\n+)?((?:^    \S.*\n)+)", re.MULTILINE)
    for match in indented.finditer(blank):
        programs = (*PROGRAMS, "kubectl", "docker", "git", "uv", "cd")
        lines = [line for line in commands(match[3]) if line.split()[0] in programs]
        # a second column says what the command does
        lines = [line.split("  ")[0] for line in lines]
        mark = f"{match[1]}: {match[2]}" if match[1] else ""
        where = place(path, text, match.start(3))
        if lines:
            found.append((match.start(), [Shown(where, line, mark) for line in lines]))
    return [block for _, block in sorted(found, key=lambda one: one[0])]


def inline(path: Path) -> Iterator[Shown]:
    """Between backticks, in Markdown and in comments; a line's end within them is a space."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = _FENCE.sub(lambda fenced: re.sub(r"[^\n]", " ", fenced[0]), text)
    else:
        lines = (_COMMENT.match(line) for line in text.split("\n"))
        text = "\n".join(line[1] if line is not None else "" for line in lines)
    for match in _INLINE.finditer(text):
        yield Shown(place(path, text, match.start()), " ".join(match[1].split()))


def in_comments(path: Path) -> Iterator[Shown]:
    """Commented lines of their own in files that a user copies: `#   launcher submit ...`, continued by a backslash."""
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(r"^\s*# {2,}(launcher (?:[^\n]*\\\n\s*#)*[^\n]*)$", text, re.MULTILINE):
        line = re.sub(r"\\\n\s*#", " ", match[1])
        yield Shown(place(path, text, match.start()), " ".join(re.sub(r"\s#.*", "", line).split()))


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string of a Python file that is no docstring; what is put into it is FILLED."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = set()
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            documentation.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        if id(node) in documentation or id(node) in parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, _filled(node)


def _filled(node: ast.JoinedStr) -> str:
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else FILLED for part in node.values
    )


_HINT: Final = re.compile(
    r"`((?:launcher|pip install|docker|kubectl|make) [^`]+)`|(?<![\w`./-])(launcher [a-z]+(?: [^`;,\n]*)?)"
)


def hints(path: Path) -> Iterator[Shown]:
    """What the strings of a Python file tell a user to type."""
    for number, text in literals(path):
        for match in _HINT.finditer(text):
            line = match[1] or match[2]
            yield Shown(f"{path.relative_to(ROOT)}:{number}", line.strip())
