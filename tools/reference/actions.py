"""Fills in docs/reference/actions.md from the dialects. `make golden` writes it.

The page's own are its prose and the answers in its tables. From the code come the types of actions, what each dialect
writes, and what becomes of each answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.action import FIELDS
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.dialects.registry import make_dialect
from eval.actions.geometry import Cells

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/reference/actions.md"
POINT: Final[dict[str, Any]] = {"x": 0.25, "y": 0.5}
KIND: Final = ActionType

# One example of each type of action; the page shows each in every dialect.
ACTIONS: Final = (
    Action(KIND.CLICK, **POINT),
    Action(KIND.CLICK, **POINT, modifiers=("ctrl",)),
    Action(KIND.CLICK),
    Action(KIND.CLICK, **POINT, button="back"),
    Action(KIND.CLICK, element=7),
    Action(KIND.DOUBLE_CLICK, **POINT),
    Action(KIND.DOUBLE_CLICK, **POINT, button="right"),
    Action(KIND.DOUBLE_CLICK, element=7),
    Action(KIND.RIGHT_CLICK, **POINT),
    Action(KIND.RIGHT_CLICK, element=7),
    Action(KIND.MIDDLE_CLICK, **POINT),
    Action(KIND.TRIPLE_CLICK, **POINT),
    Action(KIND.DRAG, **POINT, x2=0.75, y2=0.5),
    Action(KIND.DRAG, **POINT, x2=0.75, y2=0.5, button="right", duration=0.5),
    Action(KIND.DRAG, **POINT, path=((0.5, 0.75),), x2=0.75, y2=0.5),
    Action(KIND.DRAG, x2=0.75, y2=0.5),
    Action(KIND.SCROLL, direction="down"),
    Action(KIND.SCROLL, direction="down", amount=3),
    Action(KIND.SCROLL, **POINT, direction="right", amount=2),
    Action(KIND.SCROLL, **POINT, direction="down", distance=0.5),
    Action(KIND.SCROLL, element=7, direction="down", amount=3),
    Action(KIND.HOVER, **POINT),
    Action(KIND.TYPE, text='He said "no".\n'),
    Action(KIND.TYPE, element=7, text="alice"),
    Action(KIND.KEY, keys=("enter",)),
    Action(KIND.HOTKEY, keys=("ctrl", "c")),
    Action(KIND.KEY, keys=("space",), duration=1.5),
    Action(KIND.CLICK_AND_TYPE, **POINT, text="alice"),
    Action(KIND.WAIT),
    Action(KIND.WAIT, duration=2.0),
    Action(KIND.SCREENSHOT),
    Action(KIND.GOTO, url="https://example.com"),
    Action(KIND.BACK),
    Action(KIND.FORWARD),
    Action(KIND.REFRESH),
    Action(KIND.OPEN_APP, app_name="Notes"),
    Action(KIND.CLOSE_APP, app_name="Notes"),
    Action(KIND.SELECT_MONITOR, monitor_id=1),
    Action(KIND.WINDOW_FOCUS, window_title="Notes"),
    Action(KIND.WINDOW_RESIZE, width=0.5, height=0.5),
    Action(KIND.WINDOW_MOVE, **POINT),
    Action(KIND.MOUSE_DOWN, **POINT, button="left"),
    Action(KIND.MOUSE_UP),
    Action(KIND.KEY_DOWN, keys=("shift",)),
    Action(KIND.KEY_UP, keys=("shift",)),
    Action(KIND.ZOOM, **POINT, x2=0.75, y2=0.75),
    Action(KIND.CURSOR_POSITION),
    Action(KIND.CALL_USER),
    Action(KIND.DONE),
    Action(KIND.DONE, text="42"),
    Action(KIND.FAIL),
)


class Grammar(NamedTuple):
    """A dialect as its section shows it. `published`: a form of others, whose table leaves out what it cannot say."""

    dialect: Dialect
    published: bool = False


def _published(name: str, frame: Cells | None) -> Grammar:
    dialect = make_dialect(name, 4, False)
    return Grammar(dialect if frame is None else dialect.in_frame(frame), published=True)


_SCREEN: Final = Cells(1280, 800)  # of the examples in pixels
_RESIZED: Final = Cells(1932, 1092)
_FRAMES: Final[dict[str, Cells | None]] = {
    "computer_13": _SCREEN,
    **{f"anthropic-{version}": _SCREEN for version in ("20241022", "20250124", "20251124", "20260801")},
    **{"openai-preview": _SCREEN, "openai": _SCREEN, "ui-tars": None, "ui-tars-1.5": _RESIZED},
    **{"qwen2.5-vl": _RESIZED, "qwen3-vl": None, "waa": None, "place": None, "place-1000": None},
}
# section of the page -> its dialect
GRAMMARS: Final = {
    "dsl": Grammar(Dsl(4)),
    "dsl with marks": Grammar(Dsl(4, marks=True)),
    "pyautogui": Grammar(PyAutoGui(4)),
    **{name: _published(name, frame) for name, frame in _FRAMES.items()},
}


def page(text: str | None = None) -> str:
    """The text of docs/reference/actions.md with its tables filled in. Raises KeyError for a dialect without a section,
    ParseError for an example that its dialect cannot read back, ValueError for a refused answer that is read."""
    intro, *parts = (PAGE.read_text(encoding="utf-8") if text is None else text).split("\n## ")
    sections = dict(part.split("\n", 1) for part in parts)
    filled = [re.sub(r"(?:^- \[.*\n?)+", "".join(_contents()), intro, flags=re.MULTILINE)]
    types = _filled(sections["The types of actions"], r"type \| must have \| may have", lambda _: _types())
    filled.append(f"The types of actions\n{types}")
    columns = " | ".join(GRAMMARS)
    table = f"| action | {columns} |\n|---|{'---|' * len(GRAMMARS)}\n" + "\n".join(_matrix())
    filled.append(
        f"What each dialect can say\n{sections['What each dialect can say'].partition('| action')[0]}{table}\n"
    )
    for name, grammar in GRAMMARS.items():
        filled.append(f"{name}\n{_section(sections[name], grammar)}")
    return "\n## ".join(filled).rstrip("\n") + "\n"


def answers(name: str) -> list[str]:
    """The answers that the section of a dialect shows: those that are read, refused and repaired."""
    section = f"{PAGE.read_text(encoding='utf-8')}\n## ".partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    tables = section.partition("\n| answer |")[2]
    return [_copied(cell) for cell in re.findall(r"^\| (`.*) \| .* \|$", tables, re.MULTILINE)]


def _section(text: str, grammar: Grammar) -> str:
    dialect = grammar.dialect
    text = _filled(text, r"action \| as text", lambda _: _written(grammar))
    text = _filled(text, r"answer \| action", lambda answers: (_read(dialect, answer) for answer in answers))
    text = _filled(
        text, r"answer \| why", lambda answers: (_row(each, _cell(reason(dialect, each))) for each in answers)
    )
    if "| answer | repaired |" in text:
        text = _filled(text, r"answer \| repaired", lambda answers: (_repaired(dialect, answer) for answer in answers))
    return text


def _filled(text: str, heading: str, rows: Callable[[Sequence[str]], Iterator[str]]) -> str:
    """The text with other rows in the table under a heading. `rows` gets the first cells of those that are there."""
    table = re.search(rf"^\| {heading} \|\n\|[-|]+\|\n((?:\|.*(?:\n|\Z))*)", text, re.MULTILINE)
    if table is None:
        raise KeyError(f"{PAGE.name}: there is no table `| {heading} |`")
    first = [_copied(cell) for cell in re.findall(r"^\| (.*) \| .* \|$", table[1], re.MULTILINE)]
    return text[: table.start(1)] + "".join(f"{row}\n" for row in rows(first)) + text[table.end(1) :]


def reason(dialect: Dialect, answer: str) -> str:
    """The parser's reason to refuse an answer. Raises ValueError for an answer that it accepts."""
    try:
        action = dialect.parse_response(answer).action
    except ParseError as error:
        return str(error)
    raise ValueError(f"{answer!r} is read as {action}")


def _contents() -> Iterator[str]:
    for name in GRAMMARS:
        yield f"- [{name}](#{name.replace(' ', '-').replace('.', '')})\n"


def _types() -> Iterator[str]:
    for kind, (must, may) in FIELDS.items():
        yield f"| `{kind}` | {_fields(must)} | {_fields(may)} |"


def _fields(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


def _matrix() -> Iterator[str]:
    """One row per action, one column per dialect: whether the dialect writes it."""
    for action in ACTIONS:
        cells = (" yes " if _says(grammar.dialect, action) else " " for grammar in GRAMMARS.values())
        yield f"| {_fields_of(action)} |{'|'.join(cells)}|"


def _says(dialect: Dialect, action: Action) -> bool:
    try:
        dialect.format(action)
    except Unrepresentable:
        return False
    return True


def _written(grammar: Grammar) -> Iterator[str]:
    """One row per type of action: how the dialect writes it, or why it cannot."""
    dialect = grammar.dialect
    for action in ACTIONS:
        try:
            text = dialect.format(action)
        except Unrepresentable as error:
            if action.element is None and not grammar.published:
                yield f"| {_fields_of(action)} | cannot be written: {_cell(str(error))} |"
            continue
        read = dialect.parse(text)
        if dialect.format(read) != text or (read != action and not grammar.published):
            raise ParseError(f"{text!r} is read as {read}, not as {action}")
        yield f"| {_fields_of(action)} | {_code(text)} |"


def _fields_of(action: Action) -> str:
    fields = {name: value for name, value in action.to_json().items() if name != "type"}
    return f"`{action.type}`" + (f" {', '.join(fields)}" if fields else "")


def _read(dialect: Dialect, answer: str) -> str:
    return _row(answer, _code(repr(dialect.parse_response(answer).action).removeprefix("Action")))


def _refused(dialect: Dialect, answer: str) -> str:
    return _row(answer, _cell(reason(dialect, answer)))


def _repaired(dialect: Dialect, answer: str) -> str:
    reason(dialect, answer)
    return _row(answer, _cell("; ".join(dialect.parse_turn(answer, lenient=True).repairs)))


def _row(answer: str, cell: str) -> str:
    return f"| {_code(answer)} | {cell} |"


def _code(text: str) -> str:
    """Code in a cell of a table; each line of the text is a line of the cell."""
    return "<br>".join(
        f"`` {line} ``" if "`" in line else f"`{line}`" for line in text.replace("|", "\\|").split("\n") if line
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _copied(cell: str) -> str:
    """The text of a cell, as `_code` wrote it."""
    lines = [line[3:-3] if line.startswith("`` ") else line[1:-1] for line in cell.split("<br>")]
    return "\n".join(lines).replace("\\|", "|")
