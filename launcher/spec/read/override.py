"""Dotted paths into a document, and `--set`.

`--set limits.deadline=2h` applies to every job of the submit, `--set sft:limits.deadline=2h` to the job `sft`. Values
are YAML. Where users choose the names (config, inputs, outputs, roles, matrix), a path must exist already in at least
one of the jobs; `--set +config.new=1` adds a path. `null` removes a field; within config it is a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from launcher.spec.check.schema import JOB
from launcher.spec.secrets.tokens import mask
from launcher.spec.values.problems import Problems, near, show
from launcher.spec.values.source import Route, YamlDocument, read_text
from launcher.spec.values.types import Context

_OVERRIDE: Final = r"(?s)(?P<add>\+?)(?:(?P<job>[A-Za-z0-9_-]+):)?(?P<path>[^=:]+)=(?P<value>.*)"
_SEGMENT: Final = r'"([^"]*)"|([^."\[\]]+)|\[([0-9]+)\]'
_FREE: Final = ("config", "inputs", "outputs", "roles", "matrix")
_DIGITS: Final = 18  # of an index, at most; bounds the cost of parsing a number
_SHOWN: Final = 120  # characters of an override in a message
_MISSING: Final = object()


def parse_route(text: str) -> Route | None:
    """Parses `a.b`, `a."b.c"`, `a[0]` or `a.0`; everything after `matrix.` is one key. None for a malformed path."""
    if text.startswith("matrix."):
        return ("matrix", text.removeprefix("matrix."))
    route: list[str | int] = []
    position = 0
    segment = re.compile(_SEGMENT)
    while position < len(text):
        match = segment.match(text, position)
        if match is None:
            return None
        if match[3] is not None and len(match[3]) > _DIGITS:
            return None
        route.append(int(match[3]) if match[3] is not None else match[1] if match[1] is not None else match[2])
        position = match.end()
        if text[position : position + 1] == ".":
            position += 1
            if position == len(text):
                return None
        elif position < len(text) and text[position] != "[":
            return None
    return tuple(route) or None


def get(value: Any, route: Route) -> Any:
    """The value at a route, or _MISSING."""
    for key in route:
        if type(value) is dict and key in value:
            value = value[key]
        elif type(value) is list and (index := _index(value, key)) is not None:
            value = value[index]
        else:
            return _MISSING
    return value


def has(value: Any, route: Route) -> bool:
    return get(value, route) is not _MISSING


def replaced(value: Any, route: Route, new: Any, *, remove: bool = False) -> Any:
    """A copy with one value replaced, added or removed; unchanged parts are shared. Raises KeyError(segment) if the
    route leads into something that is neither a mapping nor a list with that index."""
    key, rest = route[0], route[1:]
    if type(value) is list:
        index = _index(value, key)
        if index is None:
            raise KeyError(key)
        return [*value[:index], replaced(value[index], rest, new) if rest else new, *value[index + 1 :]]
    if type(value) is not dict or type(key) is not str:
        raise KeyError(key)
    if remove and not rest:
        return {name: item for name, item in value.items() if name != key}
    inner = value.get(key)
    if rest:
        new = replaced({} if inner is None else inner, rest, new, remove=remove)
    return {**value, key: new}


def leads_nowhere(error: KeyError) -> str:
    """The message for a KeyError of `replaced`."""
    return f"{show(str(error.args[0]))} does not exist: its parent is not a mapping"


def _index(value: list[Any], key: str | int) -> int | None:
    if type(key) is str and key.isdecimal() and len(key) <= _DIGITS:
        key = int(key)
    return key if type(key) is int and key < len(value) else None


def _exact(value: Any, route: Route) -> Route:
    """The route with integers as the indexes of lists."""
    out: list[str | int] = []
    for key in route:
        if type(value) is list and (index := _index(value, key)) is not None:
            key = index
        out.append(key)
        value = get(value, (key,))
    return tuple(out)


class _Override(msgspec.Struct, frozen=True):
    text: str
    add: bool
    job: str | None
    route: Route
    value: YamlDocument


def apply(overrides: Sequence[str], jobs: Sequence[Context], problems: Problems) -> None:
    """Applies the overrides to the documents and records their origin in `Context.sources`."""
    names = [job.document.value.get("name") for job in jobs if type(job.document.value) is dict]
    for override in _parsed(overrides, [name for name in names if type(name) is str], problems):
        _apply(override, jobs, problems)


def _parsed(overrides: Sequence[str], names: Sequence[str], problems: Problems) -> Iterator[_Override]:
    for text in overrides:
        match = re.fullmatch(_OVERRIDE, text)
        route = parse_route(match["path"].strip()) if match is not None else None
        if match is None or route is None:
            problems.add(
                f"--set {mask(text[:_SHOWN])}", 0, 0, "", "not of the form path=value", "a.b=value, job:a.b=value"
            )
            continue
        shown = f"--set {text.partition('=')[0][:_SHOWN]}"
        if match["job"] is not None and match["job"] not in names:
            message = f"no job {show(match['job'])}{near(match['job'], names)}"
            problems.add(shown, 0, 0, "", message, ", ".join(sorted(names)))
            continue
        if route[0] not in JOB.fields:
            message = f"unknown field{near(str(route[0]), JOB.fields)}"
            if route[0] in names and len(route) > 1:  # the job's name with a dot, as in a path
                spelt = mask(text.replace(".", ":", 1)[:_SHOWN])
                message = f"is a job; write `--set {spelt}`"
            elif route[0] == "job" and len(route) > 1 and route[1] in JOB.fields:  # as a table or a query names it
                message = (
                    f"a path begins with a field of the job: write `--set {mask(text.partition('job.')[2][:_SHOWN])}`"
                )
            problems.add(shown, 0, 0, str(route[0]), message, ", ".join(JOB.fields))
            continue
        documents = read_text(match["value"], shown, problems)
        if len(documents) > 1:
            problems.add(shown, 0, 0, "", "the value holds several documents", "one value")
            continue
        value = documents[0] if documents else YamlDocument(shown, None)
        yield _Override(shown, bool(match["add"]), match["job"], route, value)


def _apply(override: _Override, jobs: Sequence[Context], problems: Problems) -> None:
    route = override.route
    applied = False
    addressed = [
        job
        for job in jobs
        if type(job.document.value) is dict and override.job in (None, job.document.value.get("name"))
    ]
    for job in addressed:
        root = job.document.value
        if not override.add and not known(root, route):
            continue
        applied = True
        exact = _exact(root, route)
        new = override.value.value
        try:
            job.document.value = replaced(root, exact, new, remove=new is None and route[0] != "config")
        except KeyError as error:
            problems.add(override.text, 0, 0, "", leads_nowhere(error))
            continue
        for below in [known for known in job.document.places if known[: len(exact)] == exact]:
            del job.document.places[below]
        for below, nodes in override.value.places.items():
            job.document.places[exact + below] = nodes
        job.sources[exact] = (override.text, 0, 0)
    if addressed and not applied:
        hint, listed = siblings([job.document.value for job in addressed], route)
        message = f"unknown path{hint}; `--set +{override.text.removeprefix('--set ')}=...` adds it"
        problems.add(override.text, 0, 0, "", message, listed)


def known(root: Any, route: Route) -> bool:
    """Whether a path may be set in a document without `+`: where users choose the names, it must exist."""
    if route[0] not in _FREE or len(route) < 2:
        return True
    return has(root, route if route[0] == "config" else route[:2])


def siblings(roots: Sequence[Any], route: Route) -> tuple[str, str]:
    """For a missing path: a "did you mean", and the keys beside the deepest part of the path that exists."""
    keys: set[str] = set()
    for end in range(len(route) - 1, 0, -1):
        parents = [get(root, route[:end]) for root in roots]
        keys = {key for parent in parents if type(parent) is dict for key in parent}
        if keys:
            break
    wanted = next((str(key) for key in reversed(route) if type(key) is str), "")
    return near(wanted, keys), ", ".join(sorted(keys))
