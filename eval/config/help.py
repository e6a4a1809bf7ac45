"""The fields of a configuration, explained: for `--help` of every entry point, and for the reference page.

The explanations come from the docstrings of the classes, from lines `name   what it means`. Types and defaults come
from the code itself, so they are always true.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect as types

from eval.config import Config

_LINE: Final = re.compile(r"([a-z_0-9]+(?:, [a-z_0-9]+)*) +(\S.*)")

_CASE: Final = re.compile(r"^[a-z0-9_]+: ")


class FieldRow(NamedTuple):
    name: str
    kind: str
    default: str
    text: str


def rows(kind: type[Config]) -> list[FieldRow]:
    """The fields of one class in their order, required ones first."""
    texts = _texts(kind)
    field_rows = [_row(field, texts.get(field.encode_name, "") or texts.get(field.name, "")) for field in _fields(kind)]
    settings = kind.__struct_config__
    if settings.tag_field is not None:  # the field that selects this class in a union
        explained = f"always `{settings.tag}`: chooses this section"
        field_rows.insert(0, FieldRow(settings.tag_field, str(settings.tag), "required", explained))
    return sorted(field_rows, key=lambda row: row.default != "required")


def sections(kind: type[Config]) -> list[type[Config]]:
    """A class and the classes that its fields hold, each once, in the order of the fields."""
    visited: list[type[Config]] = []

    def visit(section: type[Config]) -> None:
        if section not in visited:
            visited.append(section)
            for field in _fields(section):
                for inner in _structs(field.type):
                    visit(inner)

    visit(kind)
    return visited


def text(kind: type[Config]) -> str:
    """All sections for a terminal of 100 columns or more."""
    parts = []
    for section in sections(kind):
        lines = [f"{section.__name__}:"]
        for row in rows(section):
            given = row.default if row.default == "required" else f"default {row.default}"
            lines.append(f"  {row.name}: {row.kind}, {given}")
            lines += textwrap.wrap(row.text, 108, initial_indent="      ", subsequent_indent="      ")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def parser(prog: str, description: str, *kinds: type[Config]) -> argparse.ArgumentParser:
    """`python -m PROG --config FILE`; --help also explains the configuration, which is one of `kinds`."""
    names = " or ".join(kind.__name__ for kind in kinds)
    arguments = argparse.ArgumentParser(
        prog=f"python -m {prog}",
        description=description,
        epilog="\n\n".join(["the configuration:", *map(text, kinds)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--config", required=True, help=f"a JSON or YAML file: {names}, below")
    return arguments


def markdown(kind: type[Config], seen: set[type[Config]]) -> Iterator[str]:
    """The sections as tables, without those in `seen`, which grows."""
    for section in sections(kind):
        if section in seen:
            continue
        seen.add(section)
        yield f"### {section.__name__}\n"
        yield "| field | type | default | |\n|---|---|---|---|"
        for row in rows(section):
            cells = (f"`{row.name}`", row.kind, row.default, row.text)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""


def _fields(kind: type[Config]) -> tuple[types.Field, ...]:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return info.fields


def _row(field: types.Field, explained: str) -> FieldRow:
    if field.required:
        default = "required"
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
        default = "none" if not value else repr(value)
    else:
        default = _value(field.default)
    return FieldRow(field.encode_name, _type(field.type), default, explained)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, msgspec.Struct):
        return "its own defaults"
    return str(value) if value != "" else '""'


def _texts(kind: type) -> dict[str, str]:
    """name -> explanation, from the docstrings of the class and its bases, the class's own first."""
    explanations: dict[str, str] = {}
    for base in kind.__mro__:
        if base in (Config, msgspec.Struct, object) or not base.__doc__:
            continue
        for names, explained in _explained(inspect.cleandoc(base.__doc__)):
            for name in names:
                explanations.setdefault(name, explained)
    return explanations


def _explained(doc: str) -> Iterator[tuple[list[str], str]]:
    names: list[str] = []
    words: list[str] = []
    for line in doc.split("\n"):
        match = _LINE.match(line)
        if match:  # prose can match too; that does no harm, because no field has the name of its first word
            if names:
                yield names, " ".join(words)
            names, words = match[1].split(", "), [match[2].strip()]
        elif names and line.startswith("    "):
            if _CASE.match(line.strip()) and words[-1][-1] not in ";:":
                words[-1] += ";"  # `right: ...` below `wrong: ...`
            words.append(line.strip())
        elif names:
            yield names, " ".join(words)
            names, words = [], []
    if names:
        yield names, " ".join(words)


def _structs(kind: types.Type) -> Iterator[type[Config]]:
    match kind:
        case types.StructType(cls=cls) if issubclass(cls, Config):
            yield cls
        case types.UnionType(types=inner):
            for member in inner:
                yield from _structs(member)
        case types.ListType(item_type=item) | types.VarTupleType(item_type=item):
            yield from _structs(item)
        case types.DictType(value_type=value):
            yield from _structs(value)
        case _:
            pass


def _type(kind: types.Type) -> str:
    match kind:
        case types.Metadata(extra_json_schema={"description": described}):
            return str(described)
        case types.UnionType(types=inner):
            return " or ".join(_type(member) for member in inner if not isinstance(member, types.NoneType))
        case types.LiteralType(values=values):
            return ", ".join(str(value) for value in values)
        case types.StructType(cls=cls):
            return str(cls.__name__)
        case types.ListType(item_type=item) | types.VarTupleType(item_type=item):
            return f"list of {_type(item)}"
        case types.DictType(value_type=value):
            return f"mapping to {_type(value)}"
        case types.IntType() | types.FloatType():
            return ("int" if isinstance(kind, types.IntType) else "number") + _bounds(kind)
        case types.StrType():
            return "text"
        case types.BoolType():
            return "true or false"
        case _:
            return type(kind).__name__.removesuffix("Type").lower()


def _bounds(kind: types.IntType | types.FloatType) -> str:
    parts = [
        f"{sign} {value:g}"
        for sign, value in ((">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt))
        if value is not None
    ]
    return f" {' and '.join(parts)}" if parts else ""
