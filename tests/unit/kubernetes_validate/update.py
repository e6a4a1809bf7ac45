"""Writes into rules.yaml what is said of each case today: python -m tests.unit.kubernetes_validate.update

Read the difference before you commit it: every line is a message that users see.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.unit.kubernetes_validate.support import cases, said, spoiled

FILE = Path(__file__).parent / "rules.yaml"
HEAD = "# A sound object, one change, and every finding. Update: python -m tests.unit.kubernetes_validate.update\n"


def main() -> None:
    text = HEAD
    for case in cases():
        says = said(spoiled(case))
        lines = yaml.safe_dump([{**case, "says": says}], sort_keys=False, width=10_000, allow_unicode=True)
        text += lines
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
