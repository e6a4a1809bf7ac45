"""Names of ours that users type or write into jobs: each `python -m` name starts, each documented import path resolves.

A module may move to another room; these names stay. PROMISED is the list; what documents, examples, images, manifests
and installed units use is collected besides, so that a new name is checked without an entry here.
"""

from __future__ import annotations

import re
from typing import Final

from tests.support.documented import ROOT, tracked
from tests.unit.test_entry_points import defined, text

OBJECT: Final = re.compile(r"(?<![\w./-])((?:launcher|training|eval|tests|examples)(?:\.\w+)*):([A-Za-z_]\w*)\b")


def test_a_documented_object_resolves() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked("*.md", "examples/*")
        for match in OBJECT.finditer(text(path))
        if match[2] not in (defined(match[1]) or ())
    ]
    assert not wrong
