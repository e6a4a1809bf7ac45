"""The axes of a matrix: the fields that vary, their values, and the places of the values in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.spec.check.schema import JOB
from launcher.spec.hashing import canonical
from launcher.spec.read import override
from launcher.spec.values.problems import near
from launcher.spec.values.source import Places, Route, YamlDocument
from launcher.spec.values.types import Context

MAX_VARIANTS: Final = 10_000
_NOT_VARIED: Final = ("name", "matrix", "backend", "fresh", "resume")
Axes = Mapping[str, tuple[Route, list[Any]]]  # path as written -> (the field that varies, its values)


def axes(at: Context) -> Axes | None:
    """The axes of a document's matrix; None, after adding problems, for a malformed matrix."""
    document = at.document.value
    before = len(at.problems.found)
    if "resume" in document:
        at.problem(("resume",), "one run cannot be resumed by a whole matrix", "no `matrix`")
    checked = JOB.fields["matrix"].type.check(document["matrix"], ("matrix",), at)
    varied: dict[str, tuple[Route, list[Any]]] = {}
    for path, items in checked.items() if type(checked) is dict else ():
        route = override.parse_route(path.removeprefix("+"))
        place: Route = ("matrix", path)
        if route is None:
            at.problem(place, "is not a path", "config.lr, resources.gpus, ...", key=True)
        elif route[0] not in JOB.fields or route[0] in _NOT_VARIED:
            known = [name for name in JOB.fields if name not in _NOT_VARIED]
            at.problem(place, f"`{route[0]}` cannot vary{near(str(route[0]), known)}", ", ".join(known), key=True)
        elif not path.startswith("+") and _misspelt(document, route):
            hint, listed = override.siblings([document], route)
            at.problem(place, f"unknown path{hint}; `+{path}` adds it", listed, key=True)
        else:
            varied[path] = (route, items)
    routes = [route for route, _ in varied.values()]
    for path, (route, _) in varied.items():
        if routes.count(route) > 1 or any(other != route and route[: len(other)] == other for other in routes):
            at.problem(("matrix", path), "another path of the matrix holds this one", key=True)
    count = 1
    for _, items in varied.values():
        count *= len(items)
    if count > MAX_VARIANTS:
        at.problem(("matrix",), f"{count:,} combinations are too many", f"at most {MAX_VARIANTS:,}")
        return None
    for path, (_, items) in varied.items():
        for index in _repeated(items):
            at.problem(("matrix", path, index), "is the same value again: it would be the same run twice")
    return varied if len(at.problems.found) == before and varied else None


def _misspelt(document: Any, route: Route) -> bool:
    """Whether a path names no existing field, by the rule of `--set`. A field of a block that the job does not have at
    all (`config`) is not taken for misspelt."""
    if override.known(document, route) or document.get(route[0]) is None:
        return False
    try:
        override.replaced(document, route, None)
    except KeyError:
        return False  # the path leads nowhere, which another message reports
    return True


def _repeated(items: Sequence[Any]) -> list[int]:
    """The indexes of values that repeat an earlier one; `1`, `1.0` and `true` are three values."""
    seen: set[bytes] = set()
    again = []
    for index, item in enumerate(items):
        form = canonical(item)
        if form in seen:
            again.append(index)
        seen.add(form)
    return again


def moved_positions(document: YamlDocument, axes: Axes) -> dict[tuple[str, int], Places]:
    """(path, index of a value) -> the places of the value's parts, under the route of the field that varies. So a
    number from a matrix keeps the text it was written with."""
    moved: dict[tuple[str, int], Places] = {}
    for route, nodes in document.places.items():
        if route[:1] == ("matrix",) and len(route) > 2 and route[1] in axes:
            path, index = str(route[1]), int(route[2])
            moved.setdefault((path, index), {})[axes[path][0] + route[3:]] = nodes
    return moved
