"""Reads the current CPU, memory and GPU usage of runs from the heartbeats of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from launcher.decoding import decode_record
from launcher.errors import NotFound
from launcher.protocol.records import Beat
from launcher.protocol.view import AttemptView
from launcher.spec.model import ResolvedJob, Resources
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.record_cache import Memory
from launcher.verbs.quick_read import quick_read
from launcher.verbs.status import PARALLEL, Line


class Rank(NamedTuple):
    """The usage of one rank. `cpus`: mean since the previous heartbeat; `memory`: resident bytes; `gpu`: mean over its
    GPUs, in [0, 1]; `gpu_memory`: bytes, summed over its GPUs; None: not reported. `seen`: when the store got the last
    heartbeat."""

    member: str
    host: str
    phase: str
    seen: float | None
    cpus: float | None = None
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


class Used(NamedTuple):
    """The usage of one run: sums over the ranks that report (`gpu`: the mean), and what the job asked for (None: no
    limit)."""

    line: Line
    ranks: tuple[Rank, ...]
    cpus: float | None
    memory: float | None
    gpu: float | None
    gpu_memory: float | None
    cpus_asked: float
    memory_asked: int | None
    gpus_asked: int


def usage(store: Store, lines: Sequence[Line], memory: Memory) -> list[Used]:
    """The usage of the running runs among `lines`, in their order; runs that wait or ended meanwhile are left out.
    Costs one request per rank beside those of a glance."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        ranks = pool.map(lambda line: _one(store, line, memory), [line for line in lines if not line.final])
        return [used for used in ranks if used is not None]


def _one(store: Store, line: Line, memory: Memory) -> Used | None:
    try:
        view = quick_read(store, line.run, memory)
    except NotFound:
        return None
    if view is None or view.job is None or not view.since_move:
        return None
    last = view.since_move[-1]
    ranks = tuple(_rank(store, line.run, last, member) for member in view.job.members() if member in last.claims)
    return total(line, view.job, ranks)


def _rank(store: Store, run: str, attempt: AttemptView, member: str) -> Rank:
    beat, seen = attempt.beats.get(member, (None, None))
    if beat is not None and not beat.phase:  # a glance knows only the time of this heartbeat
        stored = store.read(RunKeys(run).attempt(attempt.number).beat(member))
        beat = decode_record(stored[1].key, stored[0], Beat) if stored is not None else None
    used = beat.usage if beat is not None else {}
    host = attempt.claims[member].placement.host
    return Rank(
        member,
        host,
        beat.phase if beat is not None else "",
        seen,
        cpus=used.get("cpus"),
        memory=used.get("memory"),
        gpu=used.get("gpu"),
        gpu_memory=used.get("gpu_memory"),
    )


def total(line: Line, job: ResolvedJob, ranks: tuple[Rank, ...]) -> Used:
    asked = [(role.resources, role.replicas) for role in job.roles.values()]
    gpus = [rank.gpu for rank in ranks if rank.gpu is not None]
    return Used(
        line,
        ranks,
        cpus=_sum([rank.cpus for rank in ranks]),
        memory=_sum([rank.memory for rank in ranks]),
        gpu=sum(gpus) / len(gpus) if gpus else None,
        gpu_memory=_sum([rank.gpu_memory for rank in ranks]),
        cpus_asked=sum(resources.cpus * replicas for resources, replicas in asked),
        memory_asked=_memory(asked),
        gpus_asked=sum(resources.gpus * replicas for resources, replicas in asked),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _memory(asked: Sequence[tuple[Resources, int]]) -> int | None:
    sizes = [resources.memory for resources, _ in asked]
    if any(size is None for size in sizes):
        return None
    return sum((resources.memory or 0) * replicas for resources, replicas in asked)
