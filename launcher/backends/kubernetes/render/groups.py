"""Groups the runs of a submit into objects. Pure; the order of the runs does not matter.

A single run is an object. Runs of which one reads another's output are stages of one pipeline, because Kubernetes can
order Jobs only within a JobSet. Runs of a matrix with `array: true` that need the same pod share an Indexed Job. An
array is one stage, so a stage that reads all its outputs waits for one stage instead of hundreds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from launcher.backends.kubernetes.render.pod import PodContext, template
from launcher.errors import BadInput
from launcher.spec.hashing import ID_DIGITS, canonical, run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob

OF_OBJECT: Final = (
    "namespace",
    "queue",
    "queue_priority",
    "provisioning",
    "min_parallelism",
    "ttl",
)  # options of an object, so equal for all its runs
ARRAY: Final = 500  # most runs in one array: their hashes are in one annotation, which kubectl stores twice


class StageRun(msgspec.Struct, frozen=True):
    job: ResolvedJob
    id: str
    hash: str


class Stage(msgspec.Struct, frozen=True):
    """One run, or an array: several runs that share a pod template, in the order of their ids, which is also that of
    their indexes."""

    runs: tuple[StageRun, ...]
    after: tuple[str, ...] = ()  # ids of runs in other stages whose outputs it reads

    @property
    def job(self) -> ResolvedJob:
        """The job from which its pods are made."""
        return self.runs[0].job

    @property
    def array(self) -> bool:
        return len(self.runs) > 1

    @property
    def alone(self) -> bool:
        """Whether each of its runs has one rank, so that no other rank must restart with it."""
        return self.array or len(self.job.members()) == 1

    @property
    def id(self) -> str:
        """Its name as an object, or within a pipeline."""
        return self.runs[0].id if not self.array else f"{self.job.name}-{fingerprint(self.runs)[:ID_DIGITS]}"


def fingerprint(runs: Iterable[StageRun]) -> str:
    """The hash of a single run; for several, the sha256 over their sorted hashes, one a line."""
    hashes = sorted(run.hash for run in runs)
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def grouped(group: Sequence[ResolvedJob]) -> list[list[Stage]]:
    """The stages of each object; every stage comes after those whose outputs it reads."""
    runs = {run.id: run for job in group for run in (_run(job),)}
    upstream = _edges(runs)
    stages = _stages(runs, upstream)
    owner = {run.id: number for number, stage in enumerate(stages) for run in stage.runs}
    before = [frozenset(owner[run] for run in stage.after) for stage in stages]
    component = list(range(len(stages)))

    def top(number: int) -> int:
        while component[number] != number:
            number = component[number]
        return number

    for number, others in enumerate(before):
        for other in others:
            first, two = sorted((top(number), top(other)))
            component[two] = first
    sets: dict[int, list[int]] = {}
    for number in range(len(stages)):
        sets.setdefault(top(number), []).append(number)
    depth: dict[int, int] = {}

    def deep(number: int) -> int:
        if number not in depth:
            depth[number] = 1 + max((deep(other) for other in before[number]), default=-1)
        return depth[number]

    return [[stages[n] for n in sorted(some, key=lambda n: (deep(n), stages[n].id))] for some in sets.values()]


def _run(job: ResolvedJob) -> StageRun:
    hashed = run_hash(job)
    return StageRun(job, run_id(job, hashed), hashed)


def _edges(runs: Mapping[str, StageRun]) -> dict[str, tuple[str, ...]]:
    """Run -> runs of this submit whose work it reads."""
    wanted = {
        run.id: {work for item in run.job.inputs.values() for work in (item.work, *item.works.values()) if work}
        for run in runs.values()
        if run.job.inputs
    }
    if not any(wanted.values()):
        return {}
    doers: dict[str, list[str]] = {}
    for run in runs.values():
        doers.setdefault(work_hash(run.job), []).append(run.id)
    return {
        run: tuple(sorted({doer for work in works for doer in doers.get(work, ()) if doer != run}))
        for run, works in wanted.items()
    }


def _stages(runs: Mapping[str, StageRun], upstream: Mapping[str, tuple[str, ...]]) -> list[Stage]:
    arrays: dict[tuple[bytes, int], list[StageRun]] = {}
    stages = []
    levels: dict[str, int] = {}

    def level(run: str) -> int:
        if run not in levels:
            levels[run] = 1 + max((level(other) for other in upstream.get(run, ())), default=-1)
        return levels[run]

    for run in runs.values():
        # a run that may move has an object of its own: the others of an array stay
        if not run.job.options.get("array") or run.job.alternatives:
            stages.append(Stage((run,), upstream.get(run.id, ())))
            continue
        if len(run.job.members()) > 1:
            raise BadInput(f"kubernetes.array: {run.job.name} has several ranks; an array's runs have one each")
        # of one level: a run must not share a stage with one whose output it reads, directly or through others
        arrays.setdefault((_shape(run.job), level(run.id)), []).append(run)
    for some in arrays.values():
        ordered = sorted(some, key=lambda run: run.id)
        for start in range(0, len(ordered), ARRAY):
            part = tuple(ordered[start : start + ARRAY])
            stages.append(Stage(part, tuple(sorted({other for run in part for other in upstream.get(run.id, ())}))))
    return stages


def _shape(job: ResolvedJob) -> bytes:
    """A key that is equal for runs of a matrix that can share a pod template and an object."""
    role = job.leading
    pod = template(job, "", role, PodContext("job", array=True, files=("",)))
    identity = (job.name, {key: job.options.get(key) for key in OF_OBJECT})
    return canonical([*identity, job.limits.retries, pod])
