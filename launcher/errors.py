"""The root error of the launcher, its subclasses, and their exit codes.

Libraries raise them; the command line prints each once and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with an input: `file:line:col: field: what; allowed: ...`."""

    file: str
    line: int
    col: int
    field: str
    what: str
    allowed: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.col}" if self.line else self.file
        parts = [where, self.field, self.what] if self.field else [where, self.what]
        text = ": ".join(parts)
        return f"{text}; allowed: {self.allowed}" if self.allowed else text


class SlipwayError(Exception):
    """Root of all errors that are meant for users."""

    exit_code = 1


class RunFailed(SlipwayError):
    """A run ended without success."""


class BadInput(SlipwayError, ValueError):
    """The user's input is wrong; contains every problem, not only the first."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = ()
            super().__init__(problems)
        else:
            self.problems = tuple(problems)
            super().__init__("\n".join(str(problem) for problem in self.problems))


def refused(lines: Iterable[tuple[str, str]]) -> BadInput:
    """The error of a backend that refuses jobs. `lines`: (a job's name, `field: what; allowed: ...`). The caller knows
    in which file each field is (`launcher.spec.resolve.group.with_positions`)."""
    problems = []
    for name, line in lines:
        field, _, rest = line.partition(": ")
        what, _, allowed = rest.partition("; allowed: ")
        problems.append(Problem(name, 0, 0, field, what, allowed))
    return BadInput(dict.fromkeys(problems))


class NotFound(SlipwayError, LookupError):
    """A run, group, object or file does not exist."""

    exit_code = 3


class Unreachable(SlipwayError, ConnectionError):
    """A backend or a store cannot be reached, or it refused the credentials."""

    exit_code = 4


class BadRecord(SlipwayError):
    """One object of a store cannot be read, written or understood, though the store answers: that of another user, a
    pipe in its place, a record that was cut off or that a newer launcher wrote. It stops its own run, and no other."""

    exit_code = 4


class NoCapacity(Unreachable):
    """A backend has no capacity or no quota for a run now. It has nothing of the run."""


class NotMadeYet(Unreachable):
    """A backend still makes what a run needs; the same submit goes on later."""


class Conflict(SlipwayError):
    """Something else already exists under that name."""

    exit_code = 5
