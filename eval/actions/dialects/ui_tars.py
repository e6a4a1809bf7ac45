"""UI-TARS: `Thought: ...` and then `Action: click(point='<point>200 300</point>')`; a blank line between two actions.

UI-TARS (1) says cells of a grid of 1000 by 1000 in `start_box`, UI-TARS-1.5 pixels of the resized image in `point`.
Both read both spellings of points, and boxes of four numbers, which stand for their centre. Sources: the package
`ui-tars` 0.5.1 (its reader and its prompts) and OSWorld's agents of UI-TARS, which have `error_env`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from eval.actions import DIRECTIONS, Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import shown
from eval.actions.dialects.turns import (
    Repairs,
    TurnDialect,
    cannot,
    no_more,
    pressed,
    read_keys,
    write_keys,
)
from eval.actions.geometry import Cells, Point

GRID: Final = Cells(1000, 1000)
MAX_TEXT: Final = 50_000  # characters of the actions
START, END = "start_box", "end_box"
SAME: Final = {"point": START, "start_point": START, "end_point": END}
POINTED: Final = {
    "click": ActionType.CLICK,
    "left_single": ActionType.CLICK,
    "left_double": ActionType.DOUBLE_CLICK,
    "right_single": ActionType.RIGHT_CLICK,
    "hover": ActionType.HOVER,
    "move_to": ActionType.HOVER,
    "mouse_down": ActionType.MOUSE_DOWN,
    "mouse_up": ActionType.MOUSE_UP,
}
WRITTEN: Final = {
    ActionType.CLICK: "click",
    ActionType.DOUBLE_CLICK: "left_double",
    ActionType.RIGHT_CLICK: "right_single",
    ActionType.HOVER: "move_to",
    ActionType.MOUSE_DOWN: "mouse_down",
    ActionType.MOUSE_UP: "mouse_up",
}
PLAIN: Final = {"wait": ActionType.WAIT, "error_env": ActionType.FAIL, "call_user": ActionType.CALL_USER}
TEXTS: Final = {"type": ActionType.TYPE, "finished": ActionType.DONE}
KEYS: Final = {"press": ActionType.KEY_DOWN, "release": ActionType.KEY_UP}
ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(POINTED, (START,)),
    "drag": (START, END),
    "select": (START, END),
    "scroll": (START, "direction"),
    "hotkey": ("key",),
    **dict.fromkeys(KEYS, ("key",)),
    **dict.fromkeys(TEXTS, ("content",)),
    **dict.fromkeys(PLAIN, ()),
}
TOKEN: Final = re.compile(
    r"(?P<blank>\s+)|(?P<name>[A-Za-z_]\w*)|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[(),=])",
    re.DOTALL,
)
ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")
TAGS: Final = (("<point>", "</point>"), ("<|box_start|>", "<|box_end|>"), ("<bbox>", "</bbox>"))
HEADS: Final = ("Thought:", "Reflection:", "Action_Summary:")


class _Token(NamedTuple):
    kind: str
    text: str


@dataclass(frozen=True)
class UiTars15(TurnDialect):
    """The dialect of UI-TARS-1.5."""

    @property
    def control_tokens(self) -> frozenset[str]:
        return frozenset(TAGS[1])

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        text = text.strip()
        head, code = "", text
        if (at := f"\n{text}".rfind("\nAction:")) >= 0:
            head, code = text[:at].strip(), text[at:].removeprefix("Action:")
        elif (at := text.rfind("Action:")) >= 0:
            repairs.make("Action: within a line")
            head, code = text[:at].strip(), text[at:].removeprefix("Action:")
        if head and not head.startswith(HEADS):
            repairs.make("a thought without Thought:")
        thought = head.removeprefix("Thought:").strip() or None
        if len(code) > MAX_TEXT:
            raise ParseError(f"more than {MAX_TEXT} characters of actions")
        return thought, [self._action(name, given, repairs) for name, given in _calls(code.strip(), repairs)]

    def _action(self, name: str, given: dict[str, str], repairs: Repairs) -> Action:
        if name in PLAIN:
            return Action(PLAIN[name])
        if name == "type":
            return Action(ActionType.TYPE, text=_given(given, "content", name))
        if name == "finished":
            return Action(ActionType.DONE, text=given.get("content") or None)
        if name == "hotkey":
            return pressed(read_keys(_given(given, "key", name).split(), name))
        if name in KEYS:
            return Action(KEYS[name], keys=read_keys([_given(given, "key", name)], name))
        point: dict[str, Any] = {}
        if START in given:
            point = dict(zip(("x", "y"), self._place(given[START], repairs), strict=True))
        if name == "scroll":
            if (direction := _given(given, "direction", name)) not in DIRECTIONS:
                raise ParseError(f"scroll: direction must be one of {', '.join(DIRECTIONS)}, not {shown(direction)}")
            return Action(ActionType.SCROLL, direction=direction, **point)
        if name in ("drag", "select"):
            _given(given, START, name)
            x2, y2 = self._place(_given(given, END, name), repairs)
            return Action(ActionType.DRAG, **point, x2=x2, y2=y2)
        return Action(POINTED[name], **point)

    def _place(self, text: str, repairs: Repairs) -> Point:
        """A point, or the centre of a box. Raises ParseError."""
        body = text.strip()
        for opening, closing in TAGS:
            if body.startswith(opening) and body.endswith(closing):
                body = body.removeprefix(opening).removesuffix(closing).strip()
        if body[:1] + body[-1:] in ("()", "[]"):
            body = body[1:-1]
        parts = body[:200].replace(",", " ").split()
        if len(parts) not in (2, 4) or not all(map(NUMBER.fullmatch, parts)):
            raise ParseError(f"not a point: {shown(text)}")
        numbers = [float(part) if "." in part else int(part) for part in parts]
        x, y = self._point(numbers[0], numbers[1], repairs)
        if len(numbers) == 2:
            return x, y
        x2, y2 = self._point(numbers[2], numbers[3], repairs)
        return (x + x2) / 2, (y + y2) / 2

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        code = "Action: " + "\n\n".join(map(self._call, actions))
        return code if thought is None else f"Thought: {thought}\n{code}"

    def format(self, action: Action) -> str:
        return self.format_turn([action]).removeprefix("Action: ")

    def _call(self, action: Action) -> str:
        kind = action.type
        if kind in WRITTEN:
            no_more(action, "x", "y", "button" if kind in (ActionType.MOUSE_DOWN, ActionType.MOUSE_UP) else "x")
            if action.button not in (None, "left"):
                raise Unrepresentable(f"this dialect has no {kind} of the {action.button} button")
            return f"{WRITTEN[kind]}({self._at(action.point, 'point')})"
        if kind is ActionType.DRAG and action.point is not None:
            no_more(action, "x", "y", "x2", "y2")
            return f"drag({self._at(action.point, 'start_point')}, {self._at(action.end, 'end_point')})"
        if kind is ActionType.SCROLL:
            no_more(action, "x", "y", "direction")
            at = f"{self._at(action.point, 'point')}, " if action.point else ""
            return f"scroll({at}direction='{action.direction}')"
        for table in (TEXTS, PLAIN, KEYS):
            for name, type_ in table.items():
                if kind is type_:
                    return f"{name}({_argument(action, table is TEXTS)})"
        if kind in (ActionType.KEY, ActionType.HOTKEY) and action.keys:
            no_more(action, "keys")
            return f"hotkey(key={_quote(' '.join(write_keys(action.keys, {})))})"
        raise cannot(action)

    def _at(self, point: Point | None, name: str) -> str:
        if point is None:
            return ""
        x, y = self._cell(point)
        return f"{name}='<point>{x} {y}</point>'"

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        where = "fractions of the screen's width and height"
        if self.frame is not None:
            where = f"cells of a frame that is {self.frame.width} wide and {self.frame.height} high"
        place, drag = self._at((0.42, 0.73), "point"), Action(ActionType.DRAG, x=0.42, y=0.73, x2=0.5, y2=0.73)
        return (
            "Answer with a line 'Thought: ...' and then a line 'Action: ...' with one of "
            f"click({place}), left_double({place}), right_single({place}), {self._call(drag)}, hotkey(key='ctrl c'), "
            f"type(content='text'), scroll({place}, direction='down'), wait(), finished(content='') when the task is "
            f"done, error_env() when it cannot be done. Coordinates are {where}, from the top left corner."
        )


@dataclass(frozen=True)
class UiTars(UiTars15):
    """The dialect of UI-TARS (1): the grid of 1000 by 1000, in boxes."""

    frame: Cells | None = GRID

    def in_frame(self, frame: Cells) -> Self:
        if frame != GRID:
            raise Unrepresentable("UI-TARS' coordinates are cells of a grid of 1000 by 1000")
        return self

    def _at(self, point: Point | None, name: str) -> str:
        if point is None:
            return ""
        x, y = self._cell(point)
        return f"{SAME[name]}='<|box_start|>({x},{y})<|box_end|>'"


def _given(given: dict[str, str], name: str, where: str) -> str:
    if name not in given:
        raise ParseError(f"{where} needs {name}")
    return given[name]


def _argument(action: Action, text: bool) -> str:
    if text:
        no_more(action, "text")
        return "" if action.text is None else f"content={_quote(action.text)}"
    if action.keys:
        no_more(action, "keys")
        return f"key={_quote(write_keys(action.keys, {})[0])}"
    no_more(action)
    return ""


def _quote(text: str) -> str:
    for char, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(char, escaped)
    return f"'{text}'"


def _unquote(literal: str, repairs: Repairs) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] not in ESCAPES:
            repairs.make(f"an unknown escape: {shown(match[0])}")
            return match[0]
        return ESCAPES[match[1]]

    body = literal[1:-1]
    if "\n" in body:
        repairs.make("a line break within a text")
    return ESCAPE.sub(character, body)


def _tokens(code: str) -> Iterator[_Token]:
    at = 0
    while at < len(code):
        match = TOKEN.match(code, at)
        if match is None:
            raise ParseError(f"unexpected {code[at : at + 20]!r}")
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match.group())
        elif match.group().count("\n") > 1:
            yield _Token("gap", match.group())
        at = match.end()
    yield _Token("end", "")


def _calls(code: str, repairs: Repairs) -> list[tuple[str, dict[str, str]]]:
    """(function, arguments) of each action. Raises ParseError."""
    tokens = [*_tokens(code)]
    calls: list[tuple[str, dict[str, str]]] = []
    at = 0

    def take(kind: str, text: str | None = None) -> str:
        nonlocal at
        token = tokens[at]
        if token.kind != kind or (text is not None and token.text != text):
            raise ParseError(f"expected {text or kind}, found {token.text[:60] or 'the end'!r}")
        at += 1
        return token.text

    while tokens[at].kind != "end":
        if calls and tokens[at].kind != "gap":
            repairs.make("two actions without a blank line between them")
        elif calls:
            take("gap")
        name = take("name")
        if name not in ARGUMENTS:
            raise ParseError(f"unknown action {name[:60]}")
        given: dict[str, str] = {}
        take("mark", "(")
        while tokens[at] != _Token("mark", ")"):
            if given:
                take("mark", ",")
            argument = take("name")
            argument = SAME.get(argument, argument)
            take("mark", "=")
            value = _unquote(take("string"), repairs)
            if argument not in ARGUMENTS[name]:
                repairs.make(f"{name} has no argument {argument[:60]}")
            elif argument in given:
                raise ParseError(f"{argument} is given twice")
            else:
                given[argument] = value
        take("mark", ")")
        calls.append((name, given))
    return calls
