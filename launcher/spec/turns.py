"""The backends of a job that names several: `backend: [kubernetes, lambda]`.

In job.json, `backend`, `options` and `secrets` are those of the first, and `alternatives` has the others in their
order. What another backend renders and carries is the same run seen from there: `at_turn` exchanges the first with that
alternative and says so in `turn`. Both have the same run hash and id, because `as_written` is what is hashed.
"""

from __future__ import annotations

import msgspec

from launcher.spec.model import Alternative, ResolvedJob


def named(value: str | list[str] | None) -> tuple[str, ...]:
    """The backends that a job file names: `backend`, as it was checked."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def order(job: ResolvedJob) -> tuple[str, ...]:
    """The names of a job's backends in the order in which it may use them."""
    written = as_written(job)
    return (written.backend, *(other.backend for other in written.alternatives))


def as_written(job: ResolvedJob) -> ResolvedJob:
    """The job as job.json has it: the first backend's turn."""
    return _exchanged(job, job.turn, 0) if job.turn else job


def at_turn(job: ResolvedJob, turn: int) -> ResolvedJob:
    """The job as the backend `turn` (0: the first) runs it. Raises IndexError for one that the job does not name."""
    return _exchanged(as_written(job), turn, turn) if turn else as_written(job)


def _exchanged(job: ResolvedJob, place: int, turn: int) -> ResolvedJob:
    other = job.alternatives[place - 1]
    mine = Alternative(job.backend, job.options, job.secrets)
    others = (*job.alternatives[: place - 1], mine, *job.alternatives[place:])
    return msgspec.structs.replace(
        job, backend=other.backend, options=other.options, secrets=other.secrets, alternatives=others, turn=turn
    )
