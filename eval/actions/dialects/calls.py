"""PyAutoGUI code read into plain calls: only the functions below, only literals.

No code is ever run, and no part of it reaches Python's own parser but single strings and numbers: that parser and the
functions that walk its trees fail, or end the process, on deeply nested text, and an answer of a model is any text.
The grammar here has no nesting beyond a list of strings, so no text can exhaust the stack. `dialects.pyautogui` makes
Actions of calls; benchmarks whose data are such code compare calls.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from eval.actions import ActionType, ImpossibleAction, ParseError

# function -> the names of its parameters, in PyAutoGUI's order
POSITION: Final = ("x", "y")
CLICK: Final = ("x", "y", "clicks", "interval", "button", "duration")
ONE_BUTTON: Final = ("x", "y", "interval", "duration")
SIGNATURES: Final[dict[str, tuple[str, ...]]] = {
    "pyautogui.click": CLICK,
    "pyautogui.leftClick": ONE_BUTTON,
    "pyautogui.doubleClick": ("x", "y", "interval", "button", "duration"),
    "pyautogui.rightClick": ONE_BUTTON,
    "pyautogui.middleClick": ONE_BUTTON,
    "pyautogui.tripleClick": ("x", "y", "interval", "button", "duration"),
    "pyautogui.moveTo": ("x", "y", "duration"),
    "pyautogui.dragTo": ("x", "y", "duration", "button"),
    "pyautogui.scroll": ("clicks", "x", "y"),
    "pyautogui.vscroll": ("clicks", "x", "y"),
    "pyautogui.hscroll": ("clicks", "x", "y"),
    "pyautogui.write": ("message", "interval"),
    "pyautogui.typewrite": ("message", "interval"),
    "pyautogui.press": ("keys", "presses", "interval"),
    "pyautogui.hotkey": ("keys", "interval"),  # by position: any number of keys
    "pyautogui.keyDown": ("key",),
    "pyautogui.keyUp": ("key",),
    "pyautogui.mouseDown": ("x", "y", "button"),
    "pyautogui.mouseUp": ("x", "y", "button"),
    "pyautogui.sleep": ("seconds",),
    "pyperclip.copy": ("text",),
    "time.sleep": ("seconds",),
    "computer.terminate": ("status", "answer"),
    "computer.triple_click": POSITION,
    "computer.tripleClick": POSITION,
    "computer.wait": ("seconds",),
}
SAME: Final = {
    "leftClick": "click",
    "vscroll": "scroll",
    "typewrite": "write",
    "triple_click": "tripleClick",
    "sleep": "wait",
}
RENAMED: Final = {("computer.wait", "duration"): "seconds"}  # as AgentNet's description of the function calls it
CLICKS: Final = {
    "click": ActionType.CLICK,
    "doubleClick": ActionType.DOUBLE_CLICK,
    "rightClick": ActionType.RIGHT_CLICK,
    "middleClick": ActionType.MIDDLE_CLICK,
    "tripleClick": ActionType.TRIPLE_CLICK,
}
MODULES: Final = frozenset({"pyautogui", "pyperclip", "time", "computer"})
PASTE: Final = ({"ctrl", "v"}, {"command", "v"})
MAX_CODE: Final = 20_000  # characters
MAX_DIGITS: Final = 400  # characters of one number; more than any float needs
MAX_PRESSES: Final = 1000  # keys that one call presses
WORDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "WAIT": ("wait", {}),
    "DONE": ("terminate", {"status": "success"}),
    "FAIL": ("terminate", {"status": "failure"}),
}
LEXEME: Final = re.compile(
    r"""(?P<blank>[ \t\f]+|\\\r?\n|\#[^\r\n]*)
    |(?P<newline>\r\n?|\n)
    |(?P<string>[rRuU]?(?:'''(?:[^\\]|\\.)*?'''|\"""(?:[^\\]|\\.)*?\"""
        |'(?!'')(?:[^'\\\r\n]|\\.)*'|"(?!"")(?:[^"\\\r\n]|\\.)*"))
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<mark>.)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class CodeCall:
    """One call: the function's canonical name (`click`, `write`, `terminate`, ...) and its arguments by name."""

    name: str
    arguments: dict[str, Any]

    @property
    def point(self) -> tuple[float, float] | None:
        """(x, y) as written, or None. Raises ParseError when one is missing or no number."""
        x, y = self.arguments.get("x"), self.arguments.get("y")
        if x is None and y is None:
            return None
        if not is_number(x) or not is_number(y):
            raise ParseError(f"{self.name} needs numbers for x and y, not {shown(x)} and {shown(y)}")
        return float(x), float(y)


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value for a message, cut off after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def key_names(values: Sequence[Any]) -> list[str]:
    """The names in lower case. Raises ParseError for what is no text, ImpossibleAction for a name that is empty."""
    if not all(isinstance(value, str) for value in values):
        raise ParseError(f"not a list of key names: {shown(values)}")
    if "" in values:
        raise ImpossibleAction("unknown key ''")
    return [value.lower() if len(value) > 1 else value for value in values]


def calls(code: str) -> list[CodeCall]:
    """The calls that the code makes, one by one. Raises ParseError for anything but known calls with plain values.

    Left out: imports of the modules of these calls, comments, and strings that stand alone (UI-TARS puts its thought
    there). A text that is copied and then pasted is written.
    """
    if len(code) > MAX_CODE:
        raise ParseError(f"more than {MAX_CODE} characters")
    read = list(_Reader(code.strip(), SIGNATURES, WORDS, _call).calls())
    if not read:
        raise ParseError("the code holds no call")
    return _pasted(read)


def plain_calls(code: str, signatures: Mapping[str, tuple[str, ...]]) -> list[CodeCall]:
    """The calls of code that knows these functions only, each under its whole name. Raises ParseError."""
    if len(code) > MAX_CODE:
        raise ParseError(f"more than {MAX_CODE} characters")

    def named_call(function: str, values: list[Any], named: dict[str, Any]) -> CodeCall:
        return CodeCall(function, _arguments(function, signatures[function], values, named))

    return list(_Reader(code.strip(), signatures, {}, named_call).calls())


def _pasted(read: Sequence[CodeCall]) -> list[CodeCall]:
    """`pyperclip.copy(text)` and then ctrl+v, as UI-TARS's code types what its model says, is `write(text)`."""
    written: list[CodeCall] = []
    for call in read:
        if written and written[-1].name == "copy":
            if call.name != "hotkey" or len(call.arguments["keys"]) != 2 or set(call.arguments["keys"]) not in PASTE:
                raise ParseError("pyperclip.copy without the ctrl+v that pastes it")
            written[-1] = CodeCall("write", {"message": written[-1].arguments.get("text")})
        else:
            written.append(call)
    if written[-1].name == "copy":
        raise ParseError("pyperclip.copy without the ctrl+v that pastes it")
    return written


class _Lexeme(NamedTuple):
    """A piece of code; `indented`: blanks stand before it at the start of its line."""

    kind: str
    text: str
    start: int
    indented: bool


def _lexemes(code: str) -> Iterator[_Lexeme]:
    """The lexemes without blanks and comments, and an end."""
    line_start, indented = True, False
    for match in LEXEME.finditer(code):
        kind = str(match.lastgroup)
        if kind == "blank":
            indented = indented or (line_start and match.group()[0] in " \t\f")
            continue
        yield _Lexeme(kind, match.group(), match.start(), indented)
        line_start, indented = kind == "newline", False
    yield _Lexeme("end", "", len(code), False)


class _Reader:
    """Reads lexemes by a grammar without nesting; every mismatch is a ParseError."""

    def __init__(
        self,
        code: str,
        signatures: Mapping[str, tuple[str, ...]],
        words: Mapping[str, tuple[str, dict[str, str]]],
        make: Callable[[str, list[Any], dict[str, Any]], CodeCall],
    ) -> None:
        self.code, self.signatures, self.words, self.make = code, signatures, words, make
        self.lexemes = list(_lexemes(code))
        self.at = 0
        self.inside = False  # of a call's parentheses: line breaks mean nothing there

    def _index(self, ahead: int = 0) -> int:
        at, last = self.at, len(self.lexemes) - 1
        while at < last:
            if not (self.inside and self.lexemes[at].kind == "newline"):
                if not ahead:
                    break
                ahead -= 1
            at += 1
        return at

    def peek(self, ahead: int = 0) -> _Lexeme:
        """The next lexeme, or one further on."""
        return self.lexemes[self._index(ahead)]

    def take(self) -> _Lexeme:
        at = self._index()
        self.at = min(at + 1, len(self.lexemes) - 1)
        return self.lexemes[at]

    def skip(self, mark: str) -> bool:
        if self.peek().kind == "mark" and self.peek().text == mark:
            self.take()
            return True
        return False

    def line(self, start: int) -> str:
        """The code from `start` to the end of its line, for a message."""
        return re.split(r"[\r\n]", self.code[start : start + 60])[0]

    def calls(self) -> Iterator[CodeCall]:
        while (first := self.peek()).kind != "end":
            if first.kind == "newline":
                self.take()
                continue
            call = self.statement()
            if not self.skip(";") and self.peek().kind not in ("newline", "end"):
                raise ParseError(f"not a call: {self.line(first.start)}")
            if call is not None:
                yield call

    def statement(self) -> CodeCall | None:
        """A call, or None for an import and for a string that stands alone."""
        first = self.take()
        if first.indented:
            raise ParseError(f"an indented line: {self.line(first.start)}")
        if first.kind == "string":
            while self.peek().kind == "string":
                self.take()
            return None
        if first.kind != "name":
            raise ParseError(f"not a call: {self.line(first.start)}")
        if first.text == "import":
            self.imports(first)
            return None
        names = [first.text]
        while self.skip("."):
            name = self.take()
            if name.kind != "name":
                raise ParseError(f"not a call: {self.line(first.start)}")
            names.append(name.text)
        if self.peek().text != "(":
            if len(names) == 1 and first.text in self.words:
                word, fixed = self.words[first.text]
                return CodeCall(word, dict(fixed))
            raise ParseError(f"not a call: {self.line(first.start)}")
        function = ".".join(names)
        if function not in self.signatures:
            raise ParseError(f"unknown function {function[:60]}")
        return self.call(function)

    def imports(self, first: _Lexeme) -> None:
        while True:
            module = self.take()
            if module.kind != "name" or module.text not in MODULES:
                raise ParseError(f"not a call: {self.line(first.start)}")
            if not self.skip(","):
                return

    def call(self, function: str) -> CodeCall:
        self.inside = True
        self.take()
        values: list[Any] = []
        named: dict[str, Any] = {}
        while not self.skip(")"):
            start = self.peek().start
            if self.peek().kind == "name" and self.peek(1).text == "=":
                name = self.take().text
                self.take()
                name = RENAMED.get((function, name), name)
                if name not in self.signatures[function]:
                    raise ParseError(f"{function} has no argument {name[:60]}")
                if name in named:
                    raise ParseError(f"{name} is given twice")
                start = self.peek().start
                named[name] = self.value()
            else:
                if named:
                    raise ParseError(f"an argument without a name after one with a name: {self.line(start)}")
                values.append(self.value())
            if not self.skip(",") and self.peek().text != ")":
                raise self.not_plain(start)
        self.inside = False
        return self.make(function, values, named)

    def not_plain(self, start: int) -> ParseError:
        text = re.split(r"[,)\r\n]", self.code[start : start + 61])[0]
        return ParseError(f"not a plain value: {text[:60]}")

    def value(self) -> Any:
        """A number, a string, None, or a list of strings. Raises ParseError."""
        first = self.take()
        if first.kind == "string":
            return self.strings(first)
        if first.text in ("+", "-") and self.peek().kind == "number":
            number = _number(self.take().text)
            return -number if first.text == "-" else number
        if first.kind == "number":
            return _number(first.text)
        if first.text == "None":
            return None
        if first.text not in ("[", "("):
            raise self.not_plain(first.start)
        closing = "]" if first.text == "[" else ")"
        items: list[str] = []
        comma = False
        while not self.skip(closing):
            item = self.take()
            if item.kind != "string":
                raise self.not_plain(first.start)
            items.append(self.strings(item))
            comma = self.skip(",")
            if not comma and self.peek().text != closing:
                raise self.not_plain(first.start)
        return items[0] if closing == ")" and len(items) == 1 and not comma else items

    def strings(self, first: _Lexeme) -> str:
        """Strings side by side are one, as in Python."""
        parts = [_string(first.text)]
        while self.peek().kind == "string":
            parts.append(_string(self.take().text))
        return "".join(parts)


def _string(text: str) -> str:
    """The value of a string literal. Raises ParseError."""
    if text[0] in "'\"" and "\\" not in text and "\0" not in text:  # quickly: an answer can hold thousands of strings
        quotes = 3 if text[:3] in ("'''", '"""') else 1
        return text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape such as "\d" in a model's string
            return str(ast.literal_eval(text))
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ParseError(f"not a plain value: {text[:60]}: {error}") from None


def _number(text: str) -> float:
    """The value of a number without a sign. Raises ParseError, also for one that no float holds."""
    if len(text) > MAX_DIGITS:
        raise ParseError(f"a number of more than {MAX_DIGITS} characters")
    if not text.isdecimal():
        return float(text)
    value = int(text)
    if value and text[0] == "0":  # Python has no such number: it was the way to write octal ones
        raise ParseError(f"not a plain value: {text[:60]}")
    if value > sys.float_info.max:
        raise ParseError(f"not a plain value: {text[:60]}: no float holds it")
    return value


def _call(function: str, values: list[Any], named: dict[str, Any]) -> CodeCall:
    names = SIGNATURES[function]
    short = function.split(".")[1]
    short = SAME.get(short, short)
    if short == "hotkey" and values:
        values = [values[0] if isinstance(values[0], list) and len(values) == 1 else values]
    arguments = _arguments(function, names, values, named)
    if short in ("press", "hotkey"):
        pressed = arguments.get("keys", [] if short == "hotkey" else None)
        arguments["keys"] = key_names(pressed if isinstance(pressed, list) else [pressed])
        times = arguments.get("presses", 1)
        if isinstance(times, int) and times * len(arguments["keys"]) > MAX_PRESSES:
            raise ImpossibleAction(f"{function} presses more than {MAX_PRESSES} keys")
    return CodeCall(short, {name: value for name, value in arguments.items() if value is not None})


def _arguments(function: str, names: Sequence[str], values: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name. Raises ParseError."""
    if len(values) > len(names):
        raise ParseError(f"{function} takes at most {len(names)} arguments")
    arguments: dict[str, Any] = dict(zip(names, values, strict=False))
    if twice := next((name for name in named if name in arguments), None):
        raise ParseError(f"{twice} is given twice")
    return arguments | named
