"""Chains of thought as OpenCUA writes them: sections under `## Observation`, `## Thought`, `## Action`, `## Code`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eval.actions import ParseError
from eval.actions.dialects.pyautogui import PyAutoGui
from training.data.ingest.registry import Cot
from training.data.ingest.tally import Lost

SECTIONS: Final = ("observation", "thought", "action", "code")
# level -> the sections that the answer keeps, in their order; the code always comes last
LEVELS: Final[dict[Cot, tuple[str, ...]]] = {
    "L1": ("action",),
    "L2": ("thought", "action"),
    "L3": ("observation", "thought", "action"),
}
# level -> what a dialect with one place for reasoning has there: the action in words only where there is nothing else
REASONS: Final[dict[Cot, tuple[str, ...]]] = {
    "L1": ("action",),
    "L2": ("thought",),
    "L3": ("observation", "thought"),
}


class Parts(msgspec.Struct, frozen=True):
    """The sections of a step; None for a missing or empty section."""

    observation: str | None = None
    thought: str | None = None
    action: str | None = None
    code: str | None = None

    @classmethod
    def of(cls, value: dict[str, Any]) -> Parts:
        """The sections from the fields of a step's `value`; fields that are not text are ignored."""
        texts = {name: value.get(name) for name in SECTIONS}
        return cls(**{name: text.strip() for name, text in texts.items() if isinstance(text, str) and text.strip()})


def unfenced(code: str) -> str:
    """Code without the Markdown fence around it. Raises Lost for half a fence."""
    if not code.startswith("```"):
        return code
    first, _, rest = code.partition("\n")
    if first.removeprefix("```") not in ("", "python", "code") or not rest.rstrip().endswith("```"):
        raise Lost("not_understood", "a broken code fence")
    return rest.rstrip().removesuffix("```").strip()


def parse(text: str) -> Parts:
    """The sections of a text with headings. A line `# Step n:` before them is left out. Raises Lost."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.strip().split("\n"):
        name = line.removeprefix("## ").strip().rstrip(":").lower()
        if line.startswith("## ") and name in SECTIONS:
            if name in sections:
                raise Lost("not_understood", f"a second heading {name}")
            current = sections.setdefault(name, [])
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("# Step "):
            raise Lost("not_understood", "text before the first heading")
    if "code" not in sections:
        raise Lost("no_code", "no section ## Code")
    parts = Parts.of({name: "\n".join(body) for name, body in sections.items()})
    return parts if parts.code is None else msgspec.structs.replace(parts, code=unfenced(parts.code))


def response(parts: Parts, level: Cot) -> str | None:
    """The step's answer in OpenCUA's form; None when a section holds a heading of its own and would not read back."""
    named = [(name, getattr(parts, name)) for name in (*LEVELS[level], "code")]
    text = "\n\n".join(f"## {name.capitalize()}:\n{body}" for name, body in named if body)
    try:
        PyAutoGui().parse_response(text)
    except ParseError:
        return None
    return text


def thought(parts: Parts, level: Cot) -> str | None:
    """The level's reasoning without headings: the text that a target's thought holds; None where there is none."""
    kept = [body for name in REASONS[level] if (body := getattr(parts, name))]
    return "\n\n".join(kept) or None
