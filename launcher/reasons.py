"""The reasons why an attempt ends, each with the container's exit code and whether the run is tried again.

This table is the only place where exit codes are decided; docs/explanation/protocol.md prints it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

EXIT_DONE: Final = 0
EXIT_USER: Final = 1
EXIT_AGAIN: Final = 75
EXIT_NEVER: Final = 78
EXIT_PREEMPTED: Final = 143


class Reason(StrEnum):
    """Why an attempt (or a run) ended."""

    SUCCEEDED = "succeeded"
    USER_ERROR = "user_error"
    CONFIG_ERROR = "config_error"
    INPUT_MISSING = "input_missing"
    OUTPUT_MISSING = "output_missing"
    DUPLICATE = "duplicate"
    UPSTREAM_FAILED = "upstream_failed"
    INFRASTRUCTURE = "infrastructure"
    LOST = "lost"
    STORE_UNREACHABLE = "store_unreachable"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
    BUDGET = "budget"
    IDLE = "idle"
    CANCELLED = "cancelled"
    IMAGE_PULL = "image_pull"
    CAPACITY = "capacity"
    QUOTA = "quota"
    UNSCHEDULABLE = "unschedulable"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """The decoder's answer to a reason that a newer launcher wrote."""
        return UNKNOWN if isinstance(value, str) else None


def _unknown() -> Reason:
    """A member that is in no list of the reasons: nobody may choose it."""
    made = str.__new__(Reason, "unknown")
    made._name_, made._value_ = "UNKNOWN", "unknown"
    return made


UNKNOWN: Final = _unknown()


def named(text: str) -> Reason | None:
    """The reason with that name; None for any other text of a backend."""
    return Reason(text) if text in Reason.__members__.values() else None


class Consequence(NamedTuple):
    """What follows from a reason."""

    code: int | None  # the container's exit code; None when no process ever ran
    again: bool  # whether the run is tried again, if limits.retry_on does not name the reason
    counts: bool  # whether a retry counts against limits.retries
    severity: int  # an attempt's reason is the most severe reason of its ranks


class _Rules(dict[Reason, Consequence]):
    def __missing__(self, reason: Reason) -> Consequence:
        """Of UNKNOWN: this launcher ends no run for it, and takes no other rank's reason in its place."""
        return Consequence(None, True, False, 5)


RULES: Final = _Rules(
    {
        Reason.SUCCEEDED: Consequence(EXIT_DONE, False, False, 0),
        Reason.PREEMPTED: Consequence(EXIT_PREEMPTED, True, False, 1),
        Reason.EVICTED: Consequence(EXIT_PREEMPTED, True, False, 1),
        Reason.INFRASTRUCTURE: Consequence(EXIT_AGAIN, True, False, 2),
        Reason.LOST: Consequence(EXIT_AGAIN, True, False, 2),
        Reason.STORE_UNREACHABLE: Consequence(EXIT_AGAIN, True, False, 2),
        Reason.IMAGE_PULL: Consequence(None, True, False, 2),
        Reason.CAPACITY: Consequence(None, True, False, 2),
        Reason.QUOTA: Consequence(None, True, False, 2),
        Reason.UNSCHEDULABLE: Consequence(None, True, False, 2),
        Reason.USER_ERROR: Consequence(EXIT_USER, True, True, 3),
        Reason.CONFIG_ERROR: Consequence(EXIT_NEVER, False, True, 4),
        Reason.INPUT_MISSING: Consequence(EXIT_NEVER, False, False, 4),
        Reason.OUTPUT_MISSING: Consequence(EXIT_NEVER, False, False, 4),
        Reason.DUPLICATE: Consequence(EXIT_NEVER, False, False, 4),
        Reason.UPSTREAM_FAILED: Consequence(EXIT_NEVER, False, False, 4),
        Reason.OUT_OF_MEMORY: Consequence(EXIT_NEVER, False, False, 4),
        Reason.DEADLINE: Consequence(EXIT_NEVER, False, False, 4),
        Reason.BUDGET: Consequence(EXIT_NEVER, False, False, 4),
        Reason.IDLE: Consequence(EXIT_NEVER, False, False, 4),
        Reason.CANCELLED: Consequence(EXIT_NEVER, False, False, 4),
    }
)


# what limits.retry_on may name: a command's ends that are not tried again otherwise
NAMED: Final = (Reason.OUT_OF_MEMORY, Reason.CONFIG_ERROR)


def stage_code(code: int, reason: Reason) -> int:
    """The exit code of a stage that would exit with `code` if it were alone. Several stages share one object, which
    ends at the first failure. A stage that was cancelled, or that waited for a cancelled one, therefore exits without
    failure, so that the others continue. Its own result has its real outcome."""
    return EXIT_DONE if reason in (Reason.CANCELLED, Reason.UPSTREAM_FAILED) else code


MAX_INFRASTRUCTURE_ATTEMPTS: Final = 20  # attempts without a new checkpoint in between
MAX_BRIEF_ATTEMPTS: Final = 5  # of them, where each was lost within its first heartbeat
