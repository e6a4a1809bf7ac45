"""How many words of README.md a newcomer reads before a first job and a first trained number: `python -m tools.words`.

Counted from the top: text, tables and commands, without links' targets, pictures and comments of HTML.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]


class Goal(NamedTuple):
    """`until`: the line that reaches it; `at_most`: words."""

    name: str
    until: str
    at_most: int


GOALS: Final = (
    Goal("the first job of one's own", "launcher submit job.yaml", 350),
    Goal("the first trained number of one's own", "launcher results own-before own-after", 900),
)


def read_until(text: str, line: str) -> int:
    """The words up to the end of the first line that begins with `line`. Raises ValueError without one."""
    found = re.search(rf"^{re.escape(line)}.*$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"there is no line {line!r}")
    shown = re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|```\w*", "", text[: found.end()], flags=re.DOTALL)
    return len(re.sub(r"\]\([^)]*\)", "]", shown).split())


def main() -> int:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    counted = {goal: read_until(text, goal.until) for goal in GOALS}
    for goal, words in counted.items():
        print(f"{words:5} words to {goal.name} (at most {goal.at_most})")
    return int(any(words > goal.at_most for goal, words in counted.items()))


if __name__ == "__main__":
    sys.exit(main())
