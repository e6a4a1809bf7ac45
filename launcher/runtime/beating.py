"""The threads that send an attempt's heartbeats, and the state that they share with the rest of the runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from launcher.clock import boottime
from launcher.decoding import decode
from launcher.errors import Unreachable
from launcher.protocol import decide
from launcher.protocol.records import Beat, Broken, Exit, Result, StoredFolder
from launcher.protocol.steps import Stop
from launcher.reasons import Reason
from launcher.runtime.process.threads import ErrorReporter, ResilientThread
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch, for display."""
        ...

    def boottime(self) -> float:
        """Seconds on a clock that never jumps, cannot be set, and goes on while the machine is suspended."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Waits for the event for at most `seconds`. Returns whether it is set."""
        ...


class SystemClock:
    def time(self) -> float:
        return time.time()

    def boottime(self) -> float:
        return boottime()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


class BeatState(msgspec.Struct):
    """The content of the next heartbeat. Any thread may assign a field; no thread may change a value in place."""

    phase: str = "waiting"
    step: float | None = None
    total: float | None = None
    message: str = ""
    checkpoint: int | None = None
    running: float = 0.0  # seconds the command has run in this attempt
    usage: dict[str, float] = msgspec.field(default_factory=dict)
    events: int = 0
    first: tuple[float | None, float] = (None, 0.0)  # the first step that was reported, and `running` at that time
    since: float | None = None  # boot time from which `running` counts, while the command runs
    stored: tuple[int, int, int] = (0, 0, 0)  # bytes of the log and of the metrics in the store; bytes of both lost
    outputs: dict[str, int] = msgspec.field(default_factory=dict)  # live output -> its newest complete version
    told: dict[str, int] = msgspec.field(default_factory=dict)  # `outputs` as in the last heartbeat in the store
    folders: dict[str, StoredFolder] = msgspec.field(default_factory=dict)  # outputs that are whole; in no heartbeat


class Beating:
    """The threads of an attempt. One sends heartbeats and reads the records of the others. The other watches the clock
    and fences this process: a heartbeat may hang in the network for longer than the fence allows."""

    def __init__(
        self,
        store: Store,
        job: ResolvedJob,
        run: str,
        number: int,
        index: int,
        helper: bool,
        state: BeatState,
        *,
        clock: Clock,
        log: Callable[[str], None],
        halt: Callable[[Stop], None],
        nonce: str,
        claimed: float,
        before: float,
        held_before: float = 0.0,
        fed: Callable[[float], None] = lambda began: None,
        trouble: Callable[[str], None] = lambda what: None,
    ) -> None:
        """
        claimed  boot time just before the claim was written
        before   seconds the command ran in earlier attempts
        held_before  seconds for which earlier attempts held their machines
        halt     called from a thread with every reason to stop
        fed      called after each heartbeat that reached the store, with the boot time at which it began
        trouble  called with why a heartbeat did not reach the store, and with "" when one did
        """
        self.formed = False  # set once every member has joined: before that a missing heartbeat means nothing
        self._store, self._job, self._index, self._helper, self._state = store, job, index, helper, state
        self._clock, self._log, self._halt, self._nonce, self._before = clock, log, halt, nonce, before
        self._run, self._keys = RunKeys(run), RunKeys(run).attempt(number)
        self._claimed, self._held_before = claimed, held_before
        self._members = job.members()
        self._stopping = False
        self._over = threading.Event()
        self._soon = threading.Event()  # set: the next heartbeat is due
        self._fed, self._told_trouble = fed, trouble
        self._trouble = ""  # why the last heartbeat did not reach the store
        self._fed(claimed)
        self._last = claimed  # boot time at which the last successful heartbeat began
        self._seq = 0
        self._turn = 0
        self._marks: dict[
            int, tuple[tuple[int, float], float]
        ] = {}  # member -> its last heartbeat, and when it was new
        self._ask_exit: set[int] = set()
        self._done: set[int] = set()  # members that exited 0
        self._teller = ErrorReporter(log)
        self._threads = [
            ResilientThread(name, step, log, pause=min(job.timing.beat, 1.0))
            for name, step in (("beat", self._next_beat), ("fence", self._watch_clock))
        ]
        for thread in self._threads:
            thread.start()

    def soon(self) -> None:
        """Sends the next heartbeat at once, because its content is new."""
        self._soon.set()

    def finish(self) -> None:
        self._over.set()
        self._soon.set()
        for thread in self._threads:
            thread.join(timeout=1.0)  # a heartbeat that hangs ends with the process

    def fence(self) -> Stop | None:
        """Why this process must stop computing, judged by its own clock alone; None: it may go on."""
        stop = decide.fence(self._clock.boottime() - self._last, self._job.timing.fence)
        return stop._replace(message=f"{stop.message}: {self._trouble}") if stop and self._trouble else stop

    def deadline(self) -> Stop | None:
        """A Stop when the command has reached its deadline, all attempts together; else None."""
        return decide.deadline(self._before + self._running(), self._job.limits.deadline)

    def budget(self) -> Stop | None:
        """A Stop when the run has spent its budget, all attempts together; else None."""
        return decide.budget(self.paid(), self._job.limits.paid_seconds)

    def paid(self) -> float:
        """Seconds for which the run has held its machines, all attempts together."""
        return self._held_before + self.held()

    def held(self) -> float:
        """Seconds since the claim."""
        return self._clock.boottime() - self._claimed

    def earlier(self, running: float, held: float) -> None:
        """What the earlier attempts have used, once they are over."""
        self._before, self._held_before = running, held

    def _running(self) -> float:
        since = self._state.since
        return max(self._state.running, 0.0 if since is None else self._clock.boottime() - since)

    def _watch_clock(self) -> bool:
        """Checks the fence, the deadline and the budget. None waits for a heartbeat, which may hang in the network."""
        rest = min(1.0, self._job.timing.fence / 20)
        limit = self._job.limits.deadline
        if limit is not None and not self._stopping:
            rest = min(rest, max(0.01, limit - self._before - self._running()))
        paid = self._job.limits.paid_seconds
        if paid is not None and not self._stopping:
            rest = min(rest, max(0.01, paid - self._held_before - self.held()))
        if self._clock.wait(self._over, rest):
            return False
        stop = self.fence() or (None if self._stopping else self.deadline() or self.budget())
        if stop is not None:
            self._tell(stop)
        return True

    def _tell(self, stop: Stop) -> None:
        self._stopping = True
        self._halt(stop)

    def _next_beat(self) -> bool:
        began = self._clock.boottime()
        try:
            self._beat(began)
            self._teller.well()
        except BaseException as error:  # after any error the fence's time runs on
            if isinstance(error, Unreachable):
                self._trouble = str(error)
                self._told_trouble(self._trouble)
            self._teller.tell(error)
        rest = self._job.timing.beat - (self._clock.boottime() - began)
        self._clock.wait(self._soon, max(rest, self._job.timing.beat / 10))
        self._soon.clear()
        return not self._over.is_set()

    def _beat(self, began: float) -> None:
        state = self._state
        outputs = state.outputs
        self._seq += 1
        beat = Beat(
            self._seq,
            state.phase,
            state.step,
            state.total,
            state.message,
            state.checkpoint,
            state.running,
            state.usage,
            self._clock.time(),
            state.events,
            *state.first,
            *state.stored,
            outputs,
            self.held(),
        )
        stop = self.fence()
        if stop is not None:
            self._tell(stop)  # a heartbeat that succeeds too late does not cancel the stop
        self._store.put(self._keys.beat(self._members[self._index]), msgspec.json.encode(beat))
        self._last, state.told = began, outputs
        self._fed(began)
        self._trouble = ""
        self._told_trouble("")
        if self._stopping:
            return
        glance = self._look()
        stop = decide.beat(glance)
        if stop is None:
            return
        self._tell(stop)
        if stop.gone is not None:
            broken = Broken(self._members[stop.gone], self._members[self._index], stop.message, self._nonce)
            self._store.create(self._keys.broken, msgspec.json.encode(broken))

    def _look(self) -> decide.BeatFacts:
        """Reads the same four keys every time, and the heartbeat or exit of one other member, each in turn."""
        store = self._store
        record = store.read(self._run.result)
        glance = decide.BeatFacts(decode(record[0], Result).outcome if record else None, helper=self._helper)
        if record is not None:
            return glance
        following = self._run.attempt(self._keys.number + 1).claim(self._members[0])
        glance = glance._replace(
            cancelled=store.head(self._run.cancel) is not None, successor=store.head(following) is not None
        )
        if len(self._members) == 1:
            return glance
        glance = glance._replace(broken=store.head(self._keys.broken) is not None)
        others = [0] if self._index else [who for who in range(1, len(self._members)) if who not in self._done]
        if not others:
            return glance
        self._turn += 1
        return self._watch(glance, others[self._turn % len(others)])

    def _watch(self, glance: decide.BeatFacts, who: int) -> decide.BeatFacts:
        """Reads another member's heartbeat. If it has not changed since the last time, the next call reads the
        member's exit instead."""
        now = self._clock.boottime()
        name = self._members[who]
        if who in self._ask_exit:
            self._ask_exit.discard(who)
            record = self._store.read(self._keys.exit(name))
            if record is not None:
                reason = decode(record[0], Exit).reason
                if reason is Reason.SUCCEEDED:
                    self._done.add(who)
                return glance._replace(watched=who, exit=reason)
        else:
            record = self._store.read(self._keys.beat(name))
            mark = (decode(record[0], Beat).seq, record[1].modified) if record else (0, 0.0)
            old = self._marks.get(who)
            if old is None or old[0] != mark or (record is None and not self.formed):
                self._marks[who] = (mark, now)  # it is new, or missing because its rank has not joined yet
            else:
                self._ask_exit.add(who)
        since = now - self._marks[who][1] if who in self._marks else 0.0
        return glance._replace(watched=who, gone=since > self._job.timing.stale)
