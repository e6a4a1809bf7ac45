"""Where each value of a resolved job came from, for `launcher render --explain`; and in which fields two jobs
differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from launcher.errors import Problem
from launcher.spec.hashing import plain
from launcher.spec.model import Image, ResolvedJob
from launcher.spec.profile import Profile
from launcher.spec.values.source import Route, dotted
from launcher.spec.values.types import Context

DEFAULT = "default"


def origins(job: ResolvedJob, at: Context, profile: Profile) -> dict[str, str]:
    """field -> its origin: `file:line`, `--set ...`, a variable, a place in a profile, or `default`."""
    values = plain(job)
    out = {dotted(route): _origin(route, job, at, profile) for route in _leaves(values, ())}
    for route in _defaults(job):
        out.setdefault(dotted(route), DEFAULT)
    return out


def problem(route: Route, what: str, allowed: str, job: ResolvedJob, at: Context, profile: Profile) -> Problem:
    """What is wrong with a field of a resolved job, at the place where the user wrote it: in the job's file, by `--set`
    or in a profile; else where the job names its backend, or begins."""
    routes = list(_candidates(route, job)) if route else []
    for candidate in routes:
        if _written(candidate, at):
            return Problem(*at.place(candidate), dotted(candidate), what, allowed)
    field = dotted(routes[-1] if route[:1] != ("options",) else routes[0]) if routes else ""
    of_profile = f"{job.backend}.{route[1]}" if route[:1] == ("options",) else dotted(route[:1])
    if origin := profile.origins.get(of_profile):
        return Problem(origin, 0, 0, field, what, allowed)
    nearest = [*(route[:end] for route in routes for end in range(len(route), 0, -1)), ("backend",), ("name",)]
    there = next((each for each in nearest if _written(each, at)), ())
    return Problem(*at.place(there, key=True), field, what, allowed)


def _written(route: Route, at: Context) -> bool:
    return route in at.document.places or any(route[:end] in at.sources for end in range(1, len(route) + 1))


def _leaves(value: Any, route: Route) -> Iterator[Route]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*route, key))
    else:
        yield route


def _defaults(job: ResolvedJob) -> Iterator[Route]:
    """Simple fields that have a default and are part of every job."""
    structures: dict[Route, msgspec.Struct] = {("limits",): job.limits, ("timing",): job.timing}
    for name, role in job.roles.items():
        structures["roles", name] = role
        structures["roles", name, "resources"] = role.resources
    for route, structure in structures.items():
        for name in structure.__struct_fields__:
            if isinstance(getattr(structure, name), int | float):
                yield (*route, name)


def _origin(route: Route, job: ResolvedJob, at: Context, profile: Profile) -> str:
    for candidate in _candidates(route, job):
        if _written(candidate, at):
            place = _place(at, candidate)
            if route[0] == "secrets":
                return f"{place}, kept in: {_profile_origin(f'secrets.{route[1]}', job, profile) or DEFAULT}"
            if route[0] == "roles" and (listed := _listed(job.roles[str(route[1])].image, profile)):
                return f"{place}, listed in: {listed}" if route[2] == "image" else place
            return place
    if route[0] == "roles" and route[-1] == "environment":
        return "the lock and the source installed here"
    if route[0] == "backend":
        origin = profile.origins.get("backend", DEFAULT)
        return origin if job.backend == profile.backend else "--backend"
    if route[0] == "inputs":
        return _place(at, ("inputs", route[1]))
    return _profile_origin(dotted(route), job, profile) or DEFAULT


def _listed(image: Image, profile: Profile) -> str | None:
    """Where the digest of an image came from that the job names as in the catalogue; None for any other image."""
    pinned = f"{image.reference}@{image.digest}"
    return next(
        (profile.origins[f"images.{name}"] for name, reference in profile.images.items() if reference == pinned), None
    )


def _place(at: Context, route: Route) -> str:
    file, line, _ = at.place(route)
    return f"{file}:{line}" if line else file


def _profile_origin(field: str, job: ResolvedJob, profile: Profile) -> str | None:
    names = [field]
    if field.startswith("options."):
        names = [f"{job.backend}.{field.removeprefix('options.')}"]
    elif field.startswith("secrets."):
        names = [f"{job.backend}.secrets", field]
    return next((profile.origins[name] for name in names if name in profile.origins), None)


def _candidates(route: Route, job: ResolvedJob) -> Iterator[Route]:
    """The routes at which the user may have written a resolved field, the most specific first."""
    head, rest = route[0], route[1:]
    if head == "roles":
        inner = rest[1:]
        yield from _role(inner, route[:2])
        if inner[:1] == ("replicas",):
            yield ("resources", "nodes")
        elif inner[0] in ("command", "env", "image", "resources"):
            yield from _role(inner, ())
    elif head == "options":
        yield (job.backend, *rest)
    elif head == "code":
        yield ("code",)
    elif head == "secrets":
        yield ("secrets",)
    elif head == "outputs":
        yield route
        if len(route) == 2:
            yield ("outputs",)
    elif route[:2] == ("limits", "budget"):
        yield ("limits", "budget")
    else:
        yield route


def _role(inner: Route, prefix: Route) -> Iterator[Route]:
    if inner[0] == "image" and inner[-1] != "environment":
        yield (*prefix, "image")
    elif inner[0] != "image":
        yield prefix + inner


def values_of(job: ResolvedJob) -> Iterator[tuple[Route, Any]]:
    """Every field with a value, and every simple field at its default; each once."""
    for route in dict.fromkeys((*_leaves(plain(job), ()), *_defaults(job))):
        value: Any = job
        for key in route:
            value = value[key] if isinstance(value, dict) else getattr(value, str(key))
        yield route, value


def flat(job: ResolvedJob, names: Mapping[str, str]) -> dict[str, Any]:
    """The values of the fields in `names`."""
    return {name: plain(value) for route, value in values_of(job) if (name := dotted(route)) in names}


MISSING: Any = msgspec.UNSET  # this side has no such field


class Difference(NamedTuple):
    """A field and its plain value on each side; MISSING if that side has no such field."""

    field: str
    a: Any
    b: Any


def differences(a: ResolvedJob, b: ResolvedJob) -> list[Difference]:
    """The fields that differ, in the order of the job. Lists are compared element by element. Fields outside the hashes
    (the matrix values, the names of upstream jobs) are skipped."""
    left, right = dict(_all_leaves(a)), dict(_all_leaves(b))
    fields = dict.fromkeys((*left, *right))
    order = {name: place for place, name in enumerate(ResolvedJob.__struct_fields__)}
    changes = [
        Difference(_shown(field, a, b), left.get(field, MISSING), right.get(field, MISSING))
        for field in fields
        if left.get(field, MISSING) != right.get(field, MISSING)
    ]
    heads = {_shown(field, a, b): order[str(field[0])] for field in fields}
    return sorted(changes, key=lambda difference: heads[difference.field])


def _all_leaves(job: ResolvedJob) -> Iterator[tuple[Route, Any]]:
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
