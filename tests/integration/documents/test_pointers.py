"""Comments and docstrings point to pages of docs that are there, never to a document that is not in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.documented import ROOT, place, tracked

PATTERNS = ("launcher", "training", "eval", "tests", "tools", "images", "k8s", "examples", "Makefile", ".ci")
TEXTS = (".py", ".sh", ".yaml", ".toml", ".md", "")
PAGE = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md\b")
DESIGN = re.compile(r"\bdesign [0-9]", re.IGNORECASE)


def sources() -> Iterator[tuple[str, str, str]]:
    """(file, place, match) of every pointer to a page, and of every mention of a numbered design."""
    for path in tracked(*PATTERNS):
        if path.suffix not in TEXTS or path.name == "test_pointers.py":
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for pattern in (PAGE, DESIGN):
            for match in pattern.finditer(text):
                yield str(path.relative_to(ROOT)), place(path, text, match.start()), match[0]


def test_every_page_that_a_source_points_to_is_there() -> None:
    pointers = [(where, page) for _, where, page in sources() if page.startswith("docs/")]
    assert len(pointers) > 40
    assert [pointer for pointer in pointers if not (ROOT / pointer[1]).is_file()] == []


def test_no_source_points_to_a_numbered_design() -> None:
    assert [where for _, where, match in sources() if DESIGN.match(match)] == []
