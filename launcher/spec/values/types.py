"""The types that fields of a job and of a profile may have: texts, numbers, amounts with units.

One declaration serves validation (with places), "did you mean", JSON Schema and the reference page. `check` returns the
value in its final form (seconds, bytes, texts) or INVALID after adding a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from launcher.spec.secrets.tokens import has_token
from launcher.spec.values.problems import Problems, near, show
from launcher.spec.values.source import Route, YamlDocument, dotted

INVALID: Final = object()


class Context(msgspec.Struct):
    """Collects the problems of one document. `sources` maps a route to the `--set` or matrix value that set it."""

    document: YamlDocument
    problems: Problems
    sources: dict[Route, tuple[str, int, int]] = {}

    def problem(self, route: Route, what: str, allowed: str = "", *, key: bool = False) -> None:
        file, line, column = self.place(route, key=key)
        self.problems.add(file, line, column, dotted(route), what, allowed)

    def place(self, route: Route, *, key: bool = False) -> tuple[str, int, int]:
        if self.sources:
            for end in range(len(route), 0, -1):
                if route[:end] in self.sources:
                    return self.sources[route[:end]]
        return self.document.place(route, key=key)


class Type(Protocol):
    """A type; `name` is its name in messages and docs."""

    @property
    def name(self) -> str: ...

    def check(self, value: Any, route: Route, at: Context) -> Any: ...

    def schema(self) -> dict[str, Any]: ...


def wrong(value: Any, route: Route, at: Context, kind: Type, allowed: str = "") -> Any:
    """Adds the problem that a value has another type; returns INVALID."""
    message = "has no value" if value is None else f"{show(value)} is not {kind.name}"
    at.problem(route, message, allowed)
    return INVALID


class Text(msgspec.Struct, frozen=True):
    """A text. `numbers`: also accepts a number, as the text it was written with."""

    name: str = "a text"
    pattern: str = ""
    allowed: str = ""
    longest: int = 0
    numbers: bool = False

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is bool and self.numbers:
            at.problem(route, f"{show(value)} is a truth value, not a text; quote it", f'"{str(value).lower()}"')
            return INVALID
        if type(value) in (int, float) and self.numbers:
            value = at.document.text(route, value)
        if type(value) is not str:
            return wrong(value, route, at, self, self.allowed)
        if self.longest and len(value) > self.longest:
            at.problem(route, f"{len(value)} characters are too many", f"at most {self.longest}")
            return INVALID
        if self.pattern and not re.fullmatch(self.pattern, value):
            return wrong(value, route, at, self, self.allowed)
        return value

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": ["string", "number"] if self.numbers else "string"}
        if self.pattern:
            out["pattern"] = f"^(?:{self.pattern})$"
        if self.longest:
            out["maxLength"] = self.longest
        return out


class Integer(msgspec.Struct, frozen=True):
    least: int
    most: int | None = None

    @property
    def name(self) -> str:
        return "a whole number"

    @property
    def allowed(self) -> str:
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is not int:
            return wrong(value, route, at, self, self.allowed)
        if value < self.least or (self.most is not None and value > self.most):
            at.problem(route, f"{value} is out of range", self.allowed)
            return INVALID
        return value

    def schema(self) -> dict[str, Any]:
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": self.least, **most}


_LARGEST: Final = 1_000_000  # CPU cores


class Number(msgspec.Struct, frozen=True):
    """A positive number; the final form is a float."""

    name: str = "a number above 0"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) not in (int, float) or value <= 0:
            return wrong(value, route, at, self)
        if value > _LARGEST:
            at.problem(route, f"{value} is too much", f"at most {_LARGEST}")
            return INVALID
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum": 0}


class Flag(msgspec.Struct, frozen=True):
    name: str = "true or false"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        return value if type(value) is bool else wrong(value, route, at, self, "true, false")

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice(msgspec.Struct, frozen=True):
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return "one of " + ", ".join(f"`{value}`" for value in self.values)

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is str and value in self.values:
            return value
        hint = near(value, self.values) if type(value) is str else ""
        at.problem(route, f"{show(value)} is not known{hint}" if value is not None else "has no value", self.listed)
        return INVALID

    @property
    def listed(self) -> str:
        return ", ".join(self.values)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)}


class Quantity(msgspec.Struct, frozen=True):
    """A number with a unit. `read` converts a text that matches `pattern` to the final form."""

    name: str
    pattern: str
    allowed: str
    read: Callable[[str], Any]  # may raise OverflowError
    most: float
    most_said: str

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) in (int, float):
            at.problem(route, f"{show(value)} has no unit", self.allowed)
            return INVALID
        if type(value) is not str or not re.fullmatch(self.pattern, value):
            return wrong(value, route, at, self, self.allowed)
        try:
            final = self.read(value)
        except OverflowError:
            final = None
        if final is None or (final[0] if type(final) is tuple and final else final or 0) > self.most:
            at.problem(route, f"{show(value)} is too much", f"at most {self.most_said}")
            return INVALID
        if not final:
            at.problem(route, f"{show(value)} must be more than zero", self.allowed)
            return INVALID
        return final

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final[dict[str, int]] = {
    **{unit: 1000 ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T"))},
    **{unit: 1024 ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"))},
}


def seconds(text: str) -> float:
    """`1h30m` -> 5400.0"""
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9.]+)([smhd])", text))


def size(text: str) -> int:
    """`64Gi` -> bytes"""
    number, unit = re.findall(r"([0-9.]+)([A-Za-z]+)", text)[0]
    return round(float(number) * _BYTES[unit])


def money(text: str) -> tuple[float, str]:
    """`40 USD` -> (40.0, "USD"); () for an amount of zero, so that it is false."""
    amount, currency = text.split()
    return (float(amount), currency) if float(amount) else ()  # type: ignore[return-value]


# limits: system clocks wait for at most some hundred years, counters hold at most 63 bits
DURATION: Final = Quantity(
    "a duration",
    r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+",
    "a number and s, m, h or d: 90s, 15m, 6h, 1h30m, 2d",
    seconds,
    36500 * 86400.0,
    "36500d",
)
SIZE: Final = Quantity(
    "a size",
    r"[0-9]+(?:\.[0-9]+)?(?:[KMGT]i|[kMGT])",
    "a number and a unit: 500M, 64Gi",
    size,
    1 << 60,
    "1048576Ti",
)
MONEY: Final = Quantity(
    "an amount", r"[0-9]+(?:\.[0-9]+)? [A-Z]{3}", "an amount and a currency: 40 USD", money, 1e12, "a million million"
)


_DEEPEST: Final = 100  # levels of a value; one that holds itself has no end


def plain(at: Context, value: Any, route: Route = ()) -> Any:
    """A value of Python as a file would give it: a mapping as a dict, a tuple as a list, an Enum's member as its value.
    Adds a problem for what is none, without showing it: it may hold a secret."""
    if len(route) > _DEEPEST:
        at.problem(route, f"is nested deeper than {_DEEPEST} levels, or holds itself", "a shallower value")
        return None
    if isinstance(value, str):  # or an Enum's member that is one
        text = str.__str__(value)
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            at.problem(route, "holds half of a character (a lone surrogate), which no file can", "Unicode texts")
            return None
        return text
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Mapping):
        made = {}
        for key, item in value.items():
            if not isinstance(key, str):
                told = str(key) if key is None or type(key) in (bool, int, float) else f"of type {type(key).__name__}"
                at.problem(route, f"the key {told} is not a text", "texts")
                continue
            if (name := plain(at, key, route)) is not None:
                made[name] = plain(at, item, (*route, name))
        return made
    if isinstance(value, list | tuple):
        return [plain(at, item, (*route, index)) for index, item in enumerate(value)]
    for kind in (int, float):  # an Enum's member, a number of numpy's
        if isinstance(value, kind):
            return kind(value)
    allowed = "texts, numbers, true, false, null, and lists and mappings of them"
    at.problem(route, f"a value of type {type(value).__name__} stands in no file", allowed)
    return None


def refuse_tokens(at: Context, value: Any, route: Route = ()) -> None:
    """Adds a problem for every token in a value, keys included. The problem never shows the token."""
    if type(value) is str:
        if has_token(value):
            at.problem(route, "looks like a secret", "the name of a secret under `secrets`, set by `launcher secrets`")
    elif type(value) is dict:
        for key, item in value.items():
            if has_token(key):
                at.problem((*route, key), "the key looks like a secret", "a name", key=True)
            refuse_tokens(at, item, (*route, key))
    elif type(value) is list:
        for index, item in enumerate(value):
            refuse_tokens(at, item, (*route, index))


def refuse_nul(at: Context, value: Any, route: Route = ()) -> None:
    """Adds a problem for every NUL in a value, keys included. Arguments, environment variables and file names cannot
    hold a NUL, so the command could never start."""
    if type(value) is str:
        if "\0" in value:
            at.problem(route, "holds a NUL (\\0), which no program can be given", "texts without it")
    elif type(value) is dict:
        for key, item in value.items():
            if "\0" in key:
                at.problem((*route, key), "the key holds a NUL (\\0)", "texts without it", key=True)
            refuse_nul(at, item, (*route, key))
    elif type(value) is list:
        for index, item in enumerate(value):
            refuse_nul(at, item, (*route, index))
