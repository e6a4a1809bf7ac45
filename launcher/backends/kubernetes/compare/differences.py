"""Where two values differ: mappings by key, lists of named things (containers, variables, volumes) by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

ABSENT: Final = object()  # in place of a value that one side does not have
Allows = Callable[[Route, Any, Any], bool]  # (route, the value there, the value that its job gives) -> no difference


class FieldDifference(NamedTuple):
    route: Route
    message: str


def differences(there: Any, wanted: Any, route: Route = (), allows: Allows | None = None) -> list[FieldDifference]:
    """Where two values differ, and how, in the order of the first. `allows`: is asked of every part that differs,
    from the outermost to the innermost; True ends the comparison of that part.

    >>> differences({"a": 1, "b": [1]}, {"a": 2, "b": [1]})
    [FieldDifference(route=('a',), message='`1`, where its job gives `2`')]
    """
    if type(there) is type(wanted) and there == wanted and type(there) not in (dict, list):
        return []
    if allows is not None and allows(route, there, wanted):
        return []
    if there is ABSENT:
        return [FieldDifference(route, f"is missing; its job gives {show(wanted)}")]
    if wanted is ABSENT:
        return [FieldDifference(route, "its job gives no such field")]
    if type(there) is dict and type(wanted) is dict:
        keys = [*there, *(key for key in wanted if key not in there)]
        return [
            each
            for key in keys
            for each in differences(there.get(key, ABSENT), wanted.get(key, ABSENT), (*route, key), allows)
        ]
    if type(there) is list and type(wanted) is list:
        return _of_lists(there, wanted, route, allows)
    return [FieldDifference(route, f"{show(there)}, where its job gives {show(wanted)}")]


def _of_lists(there: list[Any], wanted: list[Any], route: Route, allows: Allows | None) -> list[FieldDifference]:
    ours, theirs = _names(wanted), _names(there)
    if ours is not None and theirs is not None and len(ours) != len(theirs):
        unknown = [
            FieldDifference((*route, index), f"its job gives no {show(name)}")
            for index, name in enumerate(theirs)
            if name not in ours
        ]
        return unknown + [FieldDifference(route, f"{show(name)} is missing") for name in ours if name not in theirs]
    if ours is not None and theirs is not None and ours != theirs and set(ours) == set(theirs):
        # the order of variables and of init containers matters
        return [FieldDifference(route, "its items are in another order")]
    if len(there) != len(wanted):
        return [FieldDifference(route, f"{len(there)} items, where its job gives {len(wanted)}")]
    return [
        each
        for index, (one, other) in enumerate(zip(there, wanted, strict=True))
        for each in differences(one, other, (*route, index), allows)
    ]


def _names(values: Sequence[Any]) -> list[str] | None:
    """The names of a list's items; None where an item has none, or two have the same."""
    names = [value.get("name") if type(value) is dict else None for value in values]
    if any(type(name) is not str for name in names) or len(set(names)) != len(names):
        return None
    return [str(name) for name in names]
