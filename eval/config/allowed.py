"""What a configuration may have where it has something else: msgspec only says what is wrong and where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import msgspec.inspect as kinds

UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
VALUE = re.compile(r"Invalid (?:enum )?value '(.*?)' - at ")
PLACE = re.compile(r" - at `\$(.*)`$")
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def allowed(data: Any, kind: Any, fault: str) -> str:
    """What msgspec's message about `data` leaves out: the names or values that are allowed there, and the nearest one.
    "" where the type names none, such as for a number."""
    unknown, value = UNKNOWN.match(fault), VALUE.match(fault)
    found = unknown or value
    if found is None:
        return ""
    place = PLACE.search(fault)
    steps = [name or int(index) for name, index in STEP.findall(place[1] if place else "")]
    last = steps.pop() if value and steps else None
    here: list[kinds.Type] = _each([kinds.type_info(kind)], data)
    for step in steps:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return ""
        here = _each(_inside(here, step), data)
    structs = [each for each in here if isinstance(each, kinds.StructType)]
    if unknown:
        names = {field.encode_name for each in structs for field in each.fields}
    elif tags := {str(each.tag) for each in structs if each.tag_field == last}:
        names = tags
    else:
        inside = _each(_inside(here, last), None)
        names = {str(one) for each in inside if isinstance(each, kinds.LiteralType) for one in each.values}
    if not names:
        return ""
    near = difflib.get_close_matches(found[1], sorted(names), 1)
    return (f" (did you mean `{near[0]}`?)" if near else "") + f"; allowed: {', '.join(sorted(names))}"


def _each(types: Iterable[kinds.Type], data: Any) -> list[kinds.Type]:
    """The types without unions and remarks; of several tagged ones that which `data` names, all where it names none."""
    flat: list[kinds.Type] = []
    for each in types:
        if isinstance(each, kinds.Metadata):
            flat += _each([each.type], data)
        elif isinstance(each, kinds.UnionType):
            flat += _each(each.types, data)
        else:
            flat.append(each)
    if isinstance(data, dict):
        tagged: list[kinds.Type] = [
            each
            for each in flat
            if isinstance(each, kinds.StructType) and each.tag_field and each.tag == data.get(each.tag_field)
        ]
        return tagged or flat
    return flat


def _inside(types: Iterable[kinds.Type], step: str | int | None) -> list[kinds.Type]:
    """The types of an item or a field of these."""
    found: list[kinds.Type] = []
    for each in types:
        if isinstance(each, kinds.StructType):
            found += [field.type for field in each.fields if field.encode_name == step]
        elif isinstance(each, (kinds.ListType, kinds.VarTupleType)):
            found.append(each.item_type)
        elif isinstance(each, kinds.DictType):
            found.append(each.value_type)
    return found
