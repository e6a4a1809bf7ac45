"""The errors of the launcher."""

from __future__ import annotations

import pickle  # noqa: TID251 - as multiprocessing does
from collections.abc import Iterator

import pytest

from launcher import errors
from launcher.errors import BadInput, Problem, SlipwayError


def kinds(kind: type[SlipwayError] = SlipwayError) -> Iterator[type[SlipwayError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from kinds(below)


@pytest.mark.parametrize("kind", list(kinds()))
def test_an_error_passes_between_processes(kind: type[SlipwayError]) -> None:
    """A pool of multiprocessing whose child raises one that cannot be read again waits for ever."""
    again = pickle.loads(pickle.dumps(kind("what went wrong")))
    assert (type(again), str(again), again.exit_code) == (kind, "what went wrong", kind.exit_code)


def test_and_so_do_its_problems() -> None:
    problem = Problem("job.yaml", 1, 2, "name", "is missing", "a name")
    again = pickle.loads(pickle.dumps(BadInput([problem])))
    assert again.problems == (problem,)
    assert str(again) == "job.yaml:1:2: name: is missing; allowed: a name"
