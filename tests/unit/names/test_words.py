"""Every word of the name of a module, a public class or a public function stands in one alphabetical list, words.txt:
a new word is a decision. A line is `word: meaning`. Lines without a meaning are the words that a package had when
the list was made: terms of the field, and plain English. Their number may only become smaller.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
LIST: Final = Path(__file__).with_name("words.txt")
GLOSSARY: Final = ROOT / "docs/explanation/glossary.md"
PACKAGES: Final = ("launcher", "training", "eval")
WITHOUT_MEANING: Final = 1947
# words that said nothing of what they named
PICTURES: Final = (
    "beside", "bystander", "foreign", "hand", "orders", "pace", "patience", "purse", "stranger", "telling", "tied",
)  # fmt: skip


def split(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)]


def names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node.body)


def used() -> dict[str, str]:
    """Word -> where it is used first."""
    found: dict[str, str] = defaultdict(str)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations/versions" in path.as_posix():
                continue
            stem = path.parent.name if path.stem in ("__init__", "__main__") else path.stem
            for name in (stem, *names(ast.parse(path.read_text(encoding="utf-8")).body)):
                for word in split(name):
                    found[word] = found[word] or f"{path.relative_to(ROOT)}: {name}"
    return found


def listed() -> list[tuple[str, str]]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [(word, meaning.strip()) for word, _, meaning in (line.partition(":") for line in lines)]


def test_every_word_is_in_the_list() -> None:
    known = {word for word, _ in listed()}
    new = {word: place for word, place in used().items() if word not in known}
    assert len(used()) > 1000
    assert not new, f"use a word that the code has, or add a line `word: meaning` to {LIST.name}"


def test_the_list_has_no_word_twice_or_in_vain() -> None:
    words = [word for word, _ in listed()]
    assert words == sorted(set(words))
    assert not set(words) - set(used()), "nothing has this word in its name any more: take it out of the list"


def test_a_new_word_has_its_meaning() -> None:
    bare = [word for word, meaning in listed() if not meaning]
    assert len(bare) == WITHOUT_MEANING, "a new word needs its meaning; where one went, lower WITHOUT_MEANING"


def test_no_picture_comes_back() -> None:
    assert not set(PICTURES) & set(used())


def test_the_glossary_is_short_and_alphabetical() -> None:
    rows = re.findall(r"^\| ([a-z][\w, -]*) \| (.+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert 20 < len(rows) <= 40
    assert [word for word, _ in rows] == sorted(word for word, _ in rows)
