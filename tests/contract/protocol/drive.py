"""A whole runtime in a thread of the test: start, a small command, end; started again as a backend would."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.protocol.records import Exit, Placement
from launcher.reasons import EXIT_DONE, EXIT_NEVER, Reason
from launcher.runtime.member.member import Leave, Member
from launcher.spec.model import Limits, Output, ResolvedJob, Role, Timing
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.crashing import Crashed
from tests.support.waiting import HANGS

PIDS = itertools.count(4_000_000)  # of the processes that the threads stand for
LIVING: set[int] = set()  # conftest makes procs.alive look here
LOST = -9

Command = Callable[[Member, int], Reason]  # (member, attempt) -> why it ended


def job(
    store: Store, *, ranks: int = 1, name: str = "drive", retries: int = 0, stale: float = 5.0, grace: float = 0.02
) -> ResolvedJob:
    return ResolvedJob(
        name=name,
        roles={"main": Role(command=("true",), replicas=ranks)},
        store=store.url,
        backend="local",
        outputs={"out": Output()},
        limits=Limits(retries=retries, grace=grace),
        timing=Timing(beat=0.03, stale=stale, fence=stale * 0.8),
    )


def placement(where: str = "queue", kind: str = "process") -> Placement:
    return Placement(kind, where, host="host", boot="boot", pid=next(PIDS), start=1)


@dataclass
class Live:
    """Which commands run at this moment, and which ever did."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    now: set[tuple[str, int]] = field(default_factory=set)  # (member, attempt)
    ever: list[tuple[str, int]] = field(default_factory=list)
    overlaps: list[tuple[str, int, str, int]] = field(default_factory=list)

    def begin(self, member: str, attempt: int) -> None:
        with self.lock:
            self.overlaps += [(member, attempt, *other) for other in self.now if other[1] != attempt]
            self.now.add((member, attempt))
            self.ever.append((member, attempt))

    def over(self, member: str, attempt: int) -> None:
        with self.lock:
            self.now.discard((member, attempt))


def once(
    store: Store, made: ResolvedJob, member: str, live: Live, command: Command, at: Placement | None = None
) -> int:
    """One process of the runtime; its exit code, LOST when it died."""
    at = at or placement()
    LIVING.add(at.pid)
    try:
        me = Member(store, made, member, at)
        begun = me.start()
        if isinstance(begun, Leave):
            return begun.code
        attempt = begun.attempt
        stop = me.before_command()
        reason = stop.reason if stop else Reason.SUCCEEDED
        if stop is None:
            me.beat_state.phase = "running"
            live.begin(member, attempt)
            try:
                reason = command(me, attempt)
            finally:
                live.over(member, attempt)
            if me.stop is not None:
                reason = me.stop.reason
        done = reason is Reason.SUCCEEDED and me.index == 0
        if done:
            store.create(RunKeys(me.run).attempt(attempt).output_manifest("out"), b"{}")
        return me.end(Exit(member, reason, message="from the test"), outputs_done=done)
    except Crashed:
        return LOST
    finally:
        LIVING.discard(at.pid)


def backend(
    make: Callable[[str, int], Store],
    made: ResolvedJob,
    member: str,
    live: Live,
    command: Command,
    limit: float = HANGS,
) -> list[int]:
    """Starts a member again and again, as its exit codes ask; `make(member, start)` gives each process its store."""
    codes: list[int] = []
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        codes.append(once(make(member, len(codes)), made, member, live, command))
        if codes[-1] in (EXIT_DONE, EXIT_NEVER):
            return codes
    raise AssertionError(f"{member} came to no end: {codes[:20]}")
