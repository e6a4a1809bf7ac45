"""Writes into rules.yaml what is said of each case today: python -m tests.unit.kubernetes_validate.update

Read the difference before you commit it: every line is a message that users see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.unit.kubernetes_validate.support import cases, said, spoiled

FILE = Path(__file__).parent / "rules.yaml"
HEAD = """\
# A sound object, one change, every finding, and what a real API server says to the same object (tests/cluster).
# Update: python -m tests.unit.kubernetes_validate.update
"""


def main() -> None:
    write(cases())


def write(known: Sequence[Mapping[str, Any]]) -> None:
    text = HEAD
    for case in known:
        text += yaml.dump([{**case, "says": said(spoiled(case))}], Dumper=Plain, sort_keys=False, width=10_000)
    FILE.write_text(text, encoding="utf-8")


class Plain(yaml.SafeDumper):
    """Writes equal parts twice, rather than anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    main()
