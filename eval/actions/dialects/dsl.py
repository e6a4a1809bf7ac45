"""The action DSL: `CLICK(x=0.42, y=0.73)`, `TYPE(text="alice")`, `DONE()`; with marks `CLICK([1])`, `TYPE([2], "bob")`.

A response is `Action: <one action>`, with a `Thought: ...` before it when there is one. Coordinates are written with a
fixed number of decimals, 4 of which keep every pixel of a screen up to 10,000 wide; all else survives a round trip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from eval.actions import (
    FIELDS,
    Action,
    ActionError,
    ActionType,
    ImpossibleAction,
    OutOfRange,
    ParseError,
    Unrepresentable,
)
from eval.actions.dialects.base import Dialect, Response
from eval.actions.dialects.turns import nothing
from eval.actions.geometry import Cells, OutOfFrame

# The order in which arguments are written; any order is read.
ORDER: Final = (
    *("x", "y", "x2", "y2", "text", "key", "keys", "direction", "amount", "distance", "button"),
    *("modifiers", "duration", "path"),
    *("url", "app_name", "monitor_id", "window_title", "width", "height"),
)
COORDINATES: Final = frozenset({"x", "y", "x2", "y2", "width", "height", "path"})
STRINGS: Final = frozenset({"text", "key", "direction", "button", "url", "app_name", "window_title"})
LISTS: Final = frozenset({"keys", "modifiers"})
# An Action may happen where the pointer is; in the DSL these always say where.
PLACED: Final = frozenset(
    (
        *(ActionType.CLICK, ActionType.DOUBLE_CLICK, ActionType.RIGHT_CLICK, ActionType.MIDDLE_CLICK),
        *(ActionType.TRIPLE_CLICK, ActionType.DRAG),
    )
)
ONE_KEY: Final = frozenset({ActionType.KEY, ActionType.KEY_DOWN, ActionType.KEY_UP})

ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
UNESCAPES: Final = {written[1]: char for char, written in ESCAPES.items()}

TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)"
    r"|(?P<number>-?[0-9]{1,400}(?:\.[0-9]{1,400})?)"
    r'|"(?P<string>(?:[^"\\]|\\.)*)"'
    r"|(?P<mark>[()\[\],=]))",
    re.DOTALL,
)
MAX_TEXT: Final = 20_000  # characters of an action
END: Final = ("end", "")


def quote(text: str) -> str:
    """A string literal on one line."""
    return '"' + "".join(ESCAPES.get(char, char) for char in text) + '"'


def unquote(body: str) -> str:
    """The text of a literal's body. Raises ParseError for an escape that `quote` never writes."""

    def character(match: re.Match[str]) -> str:
        char = match.group(1)
        if char not in UNESCAPES:
            raise ParseError(f"unknown escape \\{char}")
        return UNESCAPES[char]

    return re.sub(r"\\(.)", character, body, flags=re.DOTALL)


def _plain(value: float) -> str:
    """The shortest decimal that reads back as the same float, without an exponent."""
    text = format(Decimal(repr(value)), "f")
    return text[:-2] if text.endswith(".0") else text


class _Tokens:
    """The tokens of one action; every mismatch is a ParseError."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise ParseError(f"more than {MAX_TEXT} characters")
        self.items: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = TOKEN.match(text, at)
            if match is None:
                raise ParseError(f"unexpected {text[at : at + 1000].lstrip()[:20]!r}")
            kind = str(match.lastgroup)
            self.items.append((kind, match.group(kind)))
            at = match.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.items[self.at] if self.at < len(self.items) else END

    def take(self, kind: str, value: str | None = None) -> str:
        token_kind, token = self.peek()
        if token_kind != kind or (value is not None and token != value):
            raise ParseError(f"expected {value or kind}, found {token[:60] or 'the end'!r}")
        self.at += 1
        return token

    def skip(self, value: str) -> bool:
        if self.peek() == ("mark", value):
            self.at += 1
            return True
        return False


@dataclass(frozen=True)
class Dsl(Dialect):
    """The DSL with `decimals` places per coordinate; `marks` selects the Set-of-Marks form, without coordinates."""

    decimals: int = 4
    marks: bool = False
    frame: Cells | None = None  # coordinates are cells of it, such as pixels; None: fractions of the screen

    def format(self, action: Action) -> str:
        """One line. Raises Unrepresentable for a mark in the coordinate form, or a coordinate in the marks form."""
        given = {k: v for k, v in action.to_json().items() if k != "type"}
        if self.marks and COORDINATES & set(given):
            raise Unrepresentable(f"{action.type} at a coordinate has no form with marks")
        if not self.marks and "element" in given:
            raise Unrepresentable(f"{action.type} on a mark has no coordinate form")
        if action.type in PLACED and not {"x", "element"} & set(given):
            raise Unrepresentable(f"{action.type} where the pointer is has no form in the DSL")
        if action.type in ONE_KEY:
            given["key"] = given.pop("keys")[0]
        arguments = []
        if "element" in given:
            arguments.append(f"[{given['element']}]")
        for name in ORDER:
            if name not in given:
                continue
            written = self._value(name, given[name])
            positional = self.marks and name == "text" and action.type in (ActionType.TYPE, ActionType.CLICK_AND_TYPE)
            arguments.append(written if positional else f"{name}={written}")
        return f"{action.type.name}({', '.join(arguments)})"

    def _value(self, name: str, value: Any) -> str:
        if name == "path":
            points = (f"[{self._value('x', x)}, {self._value('y', y)}]" for x, y in value)
            return "[" + ", ".join(points) + "]"
        if name in COORDINATES:
            return f"{value:.{self.decimals}f}" if self.frame is None else str(self._cell(self.frame, name, value))
        if name in STRINGS:
            return quote(value)
        if name in LISTS:
            return "[" + ", ".join(quote(item) for item in value) + "]"
        return _plain(value)

    def parse(self, text: str) -> Action:
        """Exactly one action, nothing before or after it. Raises ParseError."""
        tokens = _Tokens(text)
        name = tokens.take("name")
        if name not in ActionType.__members__:
            raise ParseError(f"unknown action {name[:60]}")
        kind = ActionType[name]
        tokens.take("mark", "(")
        values: dict[str, Any] = {}
        first = True
        while not tokens.skip(")"):
            if not first:
                tokens.take("mark", ",")
            first = False
            self._argument(tokens, kind, values)
        if tokens.peek() != END:
            raise ParseError(f"more than one action: {tokens.peek()[1][:60]!r} after the first")
        if "key" in values:
            values["keys"] = (values.pop("key"),)
        if kind in PLACED and not {"x", "y", "element"} & set(values):
            raise ParseError(f"{kind} needs {'element' if self.marks else 'x and y'}")
        try:
            if kind is ActionType.SCROLL and 0 in (values.get("amount"), values.get("distance")):
                return nothing(**{name: values[name] for name in ("x", "y") if name in values})
            return Action(kind, **values)
        except OutOfRange as error:
            raise ImpossibleAction(str(error)) from None
        except ActionError as error:
            raise ParseError(str(error)) from None

    def _argument(self, tokens: _Tokens, kind: ActionType, values: dict[str, Any]) -> None:
        """One argument into `values`: `[3]` and `"text"` by position (marks only), all else by name."""
        value: Any
        if self.marks and tokens.peek() == ("mark", "["):
            if values:
                raise ParseError("the mark comes first")
            tokens.take("mark", "[")
            name, value = "element", self._integer(tokens)
            tokens.take("mark", "]")
        elif self.marks and tokens.peek()[0] == "string" and kind in (ActionType.TYPE, ActionType.CLICK_AND_TYPE):
            if set(values) - {"element"}:
                raise ParseError("the text comes before arguments with a name")
            name, value = "text", unquote(tokens.take("string"))
        else:
            name = tokens.take("name")
            if not self._known(kind, name):
                raise ParseError(f"{kind.name} has no argument {name[:60]}")
            tokens.take("mark", "=")
            value = self._read(tokens, name)
        if name in values:
            raise ParseError(f"{name} is given twice")
        values[name] = value

    def _known(self, kind: ActionType, name: str) -> bool:
        if name not in ORDER or (self.marks and name in COORDINATES):
            return False
        must, may = FIELDS[kind]
        if kind in ONE_KEY and name in ("key", "keys"):
            return name == "key"
        return name in must | may or (name in ("x", "y") and "point" in must | may)

    def _read(self, tokens: _Tokens, name: str) -> Any:
        if name in STRINGS:
            return unquote(tokens.take("string"))
        if name in LISTS:
            tokens.take("mark", "[")
            items = [unquote(tokens.take("string"))]
            while tokens.skip(","):
                items.append(unquote(tokens.take("string")))
            tokens.take("mark", "]")
            return tuple(items)
        if name == "monitor_id":
            return self._integer(tokens)
        if name == "path":
            return self._points(tokens)
        number = tokens.take("number")
        return (
            float(number) if name not in COORDINATES or self.frame is None else self._fraction(self.frame, name, number)
        )

    def _points(self, tokens: _Tokens) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        tokens.take("mark", "[")
        while not points or tokens.skip(","):
            tokens.take("mark", "[")
            x = self._read(tokens, "x")
            tokens.take("mark", ",")
            points.append((x, self._read(tokens, "y")))
            tokens.take("mark", "]")
        tokens.take("mark", "]")
        return points

    def in_frame(self, frame: Cells) -> Dsl:
        if self.marks:
            raise Unrepresentable("actions on marks have no form with pixels")
        return replace(self, frame=frame)

    def _cell(self, frame: Cells, name: str, value: float) -> int:
        """A fraction of the screen as a cell; a window's size as a number of cells."""
        if name in ("width", "height"):
            return round(value * (frame.width if name == "width" else frame.height))
        return frame.from_norm(value, 0)[0] if name in ("x", "x2") else frame.from_norm(0, value)[1]

    def _fraction(self, frame: Cells, name: str, number: str) -> float:
        """The inverse. Raises ParseError for a number off the frame."""
        value = float(number) if "." in number else int(number)
        if name in ("width", "height"):
            return value / (frame.width if name == "width" else frame.height)
        try:
            return frame.to_norm(value, 0)[0] if name in ("x", "x2") else frame.to_norm(0, value)[1]
        except OutOfFrame:
            raise ImpossibleAction(f"{name} is off the frame of {frame.width}x{frame.height}: {number[:60]}") from None

    def _integer(self, tokens: _Tokens) -> int:
        text = tokens.take("number")
        if not text.isdecimal():
            raise ParseError(f"{text[:60]} is not a whole number from 0")
        return int(text)

    def format_response(self, action: Action, thought: str | None = None) -> str:
        """What the agent should answer. Raises Unrepresentable for a thought that would not read back as it was."""
        answer = f"Action: {self.format(action)}"
        if thought is None:
            return answer
        if not thought or thought != thought.strip():
            raise Unrepresentable("a thought must not be empty, nor begin or end with blanks")
        if any(line.startswith("Action:") for line in thought.split("\n")):
            raise Unrepresentable("a thought must not hold a line that begins with Action:")
        return f"Thought: {thought}\n{answer}"

    def parse_response(self, text: str) -> Response:
        """`Action: ...`, or `Thought: ...` and then `Action: ...`, with exactly one action. Raises ParseError."""
        *before, last = text.strip().split("\n")
        if not last.startswith("Action:"):
            raise ParseError("the last line must be Action: and one action")
        action = self.parse(last.removeprefix("Action:"))
        if not before:
            return Response(None, action)
        if not before[0].startswith("Thought:"):
            raise ParseError("only Thought: may come before Action:")
        if any(line.startswith("Action:") for line in before):
            raise ParseError("more than one action")
        return Response("\n".join(before).removeprefix("Thought:").strip(), action)

    def without_marks(self) -> Dsl:
        return Dsl(self.decimals, frame=self.frame)

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        if self.marks:
            # n, not a number: a number could be the very answer to the task at hand
            examples = ["CLICK([n])", "DOUBLE_CLICK([n])", "RIGHT_CLICK([n])", 'TYPE("text")', 'TYPE([n], "text")']
            where = "n is one of the numbers drawn on the screenshot."
        else:
            x, y, x2 = (self._value(name, value) for name, value in (("x", 0.42), ("y", 0.73), ("x", 0.5)))
            examples = [f"{name}(x={x}, y={y})" for name in ("CLICK", "DOUBLE_CLICK", "RIGHT_CLICK")]
            examples += [f"DRAG(x={x}, y={y}, x2={x2}, y2={y})", f'SCROLL(x={x}, y={y}, direction="down", amount=3)']
            examples += ['TYPE(text="text")']
            where = "x and y are fractions of the screen's width and height, from the top left corner."
            if self.frame is not None:
                size = f"{self.frame.width} wide and {self.frame.height} high"
                where = f"x and y are pixels of the screenshot, which is {size}, from the top left corner."
        examples += ['KEY(key="enter")', 'HOTKEY(keys=["ctrl", "c"])', "WAIT()"]
        return (
            f"Answer with exactly one action: {', '.join(examples)}, "
            f"DONE() when the task is done, FAIL() when it can not be done. {where}"
        )
