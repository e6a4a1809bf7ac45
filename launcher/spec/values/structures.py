"""Types composed of other types: lists, mappings, mappings with declared fields, one of several forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec

from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route
from launcher.spec.values.types import INVALID, Context, Text, Type, wrong


class ListOf(msgspec.Struct, frozen=True):
    item: Type
    least: int = 0
    hint: str = ""  # the allowed form, in the message for a text in place of a list

    @property
    def name(self) -> str:
        return f"a list of {_many(self.item)}"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is not list:
            return wrong(value, route, at, self, self.hint if type(value) is str else "")
        if len(value) < self.least:
            at.problem(route, "the list is empty", f"at least {self.least}")
            return INVALID
        items = [self.item.check(item, (*route, index), at) for index, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in items) else items

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.schema(), **least}


class MapOf(msgspec.Struct, frozen=True):
    """A mapping with keys of one form. `empty`: the value of a key without one, where that is allowed."""

    key: Text
    item: Type
    least: int = 0
    empty: bool = False

    @property
    def name(self) -> str:
        return f"a mapping of {_many(self.key)} to {_many(self.item)}"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is not dict:
            return wrong(value, route, at, self)
        if len(value) < self.least:
            at.problem(route, "the mapping is empty", f"at least {self.least}")
        out = {}
        for key, item in value.items():
            here = (*route, key)
            if self.key.longest and len(key) > self.key.longest:
                at.problem(here, f"{len(key)} characters are too many", f"at most {self.key.longest}", key=True)
            elif self.key.pattern and not re.fullmatch(self.key.pattern, key):
                at.problem(here, f"{show(key)} is not {self.key.name}", self.key.allowed, key=True)
            checked = self.item.check({} if item is None and self.empty else item, here, at)
            if checked is not INVALID:
                out[key] = checked
        return out

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        if self.empty:
            item = {"anyOf": [item, {"type": "null"}]}
        out: dict[str, Any] = {"type": "object", "additionalProperties": item}
        names = {key: rule for key, rule in self.key.schema().items() if key != "type"}
        if names:
            out["propertyNames"] = names
        if self.least:
            out["minProperties"] = self.least
        return out


class AnyMapping(msgspec.Struct, frozen=True):
    """Any mapping of plain data, such as the config of a program. `one_reading`: a number must be the same in YAML 1.1,
    which Kubernetes' programs read, and in 1.2."""

    name: str = "a mapping"
    one_reading: bool = False

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is not dict:
            return wrong(value, route, at, self)
        return value if not self.one_reading or _read_in_one_way(value, route, at) else INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def _read_in_one_way(value: Any, route: Route, at: Context) -> bool:
    if type(value) in (dict, list):
        items = value.items() if type(value) is dict else enumerate(value)
        faults = [key for key, item in items if not _read_in_one_way(item, (*route, key), at)]  # all are told
        return not faults
    written = at.document.text(route, value)
    if type(value) is not int or not re.fullmatch(r"[-+]?0[0-9]+", written):
        return True
    digits = written.lstrip("-+").lstrip("0") or "0"
    octal = "" if set(digits) & {"8", "9"} else f"{int(digits, 8)} or 0o{digits} for octal, "
    at.problem(
        route, f"`{written}` is octal for some readers of YAML and decimal for others", f"{octal}{value} for decimal"
    )
    return False


class ValueFault(NamedTuple):
    """Something wrong within a value. `route`: from the value's root."""

    route: Route
    message: str
    allowed: str = ""


class Reviewed(msgspec.Struct, frozen=True):
    """A type with rules that it cannot express itself.

    rules  `module:function`, which takes a value of the type and gives an iterable of ValueFaults; imported when such a
           value is first read
    """

    type: Type
    rules: str

    @property
    def name(self) -> str:
        return self.type.name

    def check(self, value: Any, route: Route, at: Context) -> Any:
        checked = self.type.check(value, route, at)
        if checked is INVALID:
            return INVALID
        module, _, function = self.rules.partition(":")
        review: Callable[[Any], Iterable[ValueFault]] = getattr(import_module(module), function)
        faults = list(review(checked))
        for fault in faults:
            at.problem((*route, *fault.route), fault.message, fault.allowed)
        return INVALID if faults else checked

    def schema(self) -> dict[str, Any]:
        return self.type.schema()


class Anything(msgspec.Struct, frozen=True):
    name: str = "a value"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        return value

    def schema(self) -> dict[str, Any]:
        return {}


class Field(msgspec.Struct, frozen=True):
    """A field. `doc` describes it in one line; `default` is the docs' text on what happens without it."""

    name: str
    type: Type
    doc: str
    default: str = ""
    required: bool = False


class Struct:
    """A mapping with declared fields; an unknown field is an error."""

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields: Final = {item.name: item for item in fields}
        self.required: Final = [item.name for item in fields if item.required]

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) is not dict:
            return wrong(value, route, at, self, f"a mapping of {', '.join(self.fields)}" if self.fields else "")
        out = {}
        for key, item in value.items():
            field = self.fields.get(key)
            if field is None:
                allowed = ", ".join(self.fields) or "no fields"
                at.problem((*route, key), f"unknown field{near(key, self.fields)}", allowed, key=True)
                continue
            checked = field.type.check(item, (*route, key), at)
            if checked is not INVALID:
                out[key] = checked
        for name in self.required:
            if name not in value:
                at.problem((*route, name), f"is missing: {self.fields[name].doc}")
        return out

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": "object",
            "properties": {name: {**item.type.schema(), "description": item.doc} for name, item in self.fields.items()},
            "additionalProperties": False,
        }
        if self.required:
            out["required"] = list(self.required)
        return out


class Forms(msgspec.Struct, frozen=True):
    """One of several forms, chosen by the kind of value, and for mappings by the first key that distinguishes them.

    short  for a text or a list: its type, and the function that converts it to the long form
    long   distinguishing key -> structure
    """

    name: str
    short: Mapping[type, tuple[Type, Callable[[Any], Any]]]
    long: Mapping[str, Type]

    def check(self, value: Any, route: Route, at: Context) -> Any:
        if type(value) in self.short:
            kind, widen = self.short[type(value)]
            checked = kind.check(value, route, at)
            return INVALID if checked is INVALID else widen(checked)
        if type(value) is dict:
            for key, kind in self.long.items():
                if key == "" or key in value:
                    return kind.check(value, route, at)
        at.problem(route, f"{show(value)} is not {self.name}" if value is not None else "has no value", self.allowed)
        return INVALID

    @property
    def allowed(self) -> str:
        short = [kind.name for kind, _ in self.short.values()]
        return ", ".join(
            [*short, *(f"a mapping with `{key}`" if key else kind.name for key, kind in self.long.items())]
        )

    def schema(self) -> dict[str, Any]:
        return {
            "anyOf": [*(kind.schema() for kind, _ in self.short.values()), *(t.schema() for t in self.long.values())]
        }


_PLURAL: Final = {
    "a label's value": "labels' values",
    "a port's name": "ports' names",
    "a role's name": "roles' names",
    "a variable's name": "variables' names",
    "an image with a digest": "images with a digest",
}


def _many(kind: Type) -> str:
    if kind.name in _PLURAL:
        return _PLURAL[kind.name]
    article, _, noun = kind.name.partition(" ")
    return f"{noun}s" if article in ("a", "an") and " of " not in noun else kind.name


# Forms of text that the job's own fields and the blocks of backends share.

LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL_KEY: Final = Text("a label", LABEL, "letters, digits, -, _ and . within", 63)
LABEL_VALUE: Final = Text("a label's value", rf"(?:{LABEL})?", "letters, digits, -, _ and . within", 63, numbers=True)
VARIABLE: Final = Text(
    "a variable's name", r"(?!SLIPWAY_)[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _; not SLIPWAY_*", 100
)
ROLE: Final = Text("a role's name", r"[a-z](?:[a-z0-9-]*[a-z0-9])?", "a-z first, then a-z, 0-9 and -", 20)
GPU: Final = Text("a GPU's name", r"[A-Za-z0-9][A-Za-z0-9._-]*")
LOCAL_PLACE: Final = "local"  # the place of a secret that `launcher secrets set` keeps on this machine
PLACES: Final = MapOf(VARIABLE, Text("a place"))
