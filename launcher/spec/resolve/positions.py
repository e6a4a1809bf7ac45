"""Gives what a backend refuses the place where the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from launcher.errors import BadInput, Problem
from launcher.spec.resolve.group import Group
from launcher.spec.values.source import Route


@contextmanager
def with_positions(group: Group) -> Iterator[None]:
    """What a backend refuses names a job; here it gets the place where the user wrote the field."""
    try:
        yield
    except BadInput as error:
        if not error.problems:
            raise
        raise BadInput([_placed(group, each) for each in error.problems]) from None


def _placed(group: Group, told: Problem) -> Problem:
    job = next((job for job in group.runs if job.name == told.file and not told.line), None)
    if job is None:
        return told
    keys = re.findall(r"[^.\[\]]+", told.field)
    route: Route = tuple(int(key) if key.isdecimal() else key for key in keys)
    if route[:1] == (job.backend,):
        route = ("options", *route[1:])
    return group.problem(job, route, told.what, told.allowed)
