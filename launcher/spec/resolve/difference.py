"""Compares two resolved jobs field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from launcher.spec.hashing import plain
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve.explain import values_of
from launcher.spec.values.source import Route, dotted

MISSING: Any = msgspec.UNSET  # this side has no such field


class Difference(NamedTuple):
    """A field and its plain value on each side; MISSING if that side has no such field."""

    field: str
    a: Any
    b: Any


def differences(a: ResolvedJob, b: ResolvedJob) -> list[Difference]:
    """The fields that differ, in the order of the job. Lists are compared element by element. Fields outside the hashes
    (the matrix values, the names of upstream jobs) are skipped."""
    left, right = dict(_leaves(a)), dict(_leaves(b))
    fields = dict.fromkeys((*left, *right))
    order = {name: place for place, name in enumerate(ResolvedJob.__struct_fields__)}
    changes = [
        Difference(_shown(field, a, b), left.get(field, MISSING), right.get(field, MISSING))
        for field in fields
        if left.get(field, MISSING) != right.get(field, MISSING)
    ]
    heads = {_shown(field, a, b): order[str(field[0])] for field in fields}
    return sorted(changes, key=lambda difference: heads[difference.field])


def _leaves(job: ResolvedJob) -> Iterator[tuple[Route, Any]]:
    inputs = {name: msgspec.structs.replace(item, job=None) for name, item in job.inputs.items()}
    for route, value in values_of(msgspec.structs.replace(job, variant={}, inputs=inputs)):
        yield from _elements(route, plain(value))


def _elements(route: Route, value: Any) -> Iterator[tuple[Route, Any]]:
    if isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _elements((*route, index), item)
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _elements((*route, key), item)
    else:
        yield route, value


def _shown(route: Route, a: ResolvedJob, b: ResolvedJob) -> str:
    """The field as the user writes it: without `roles.main` if both jobs have only that role; the backend's block by
    the backend's name."""
    if route[0] == "roles" and len(a.roles) == len(b.roles) == 1 and a.leading == b.leading == "main":
        route = route[2:]
    elif route[0] == "options" and a.backend == b.backend:
        route = (a.backend, *route[1:])
    return dotted(route)
