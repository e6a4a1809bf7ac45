"""The supervisor: at most one process per state folder, which brings every entry of the queue to its end.

It holds the folder's lock while it lives, adopts the runtimes that an earlier supervisor started, gives out slots,
starts one runtime per member, obeys their exit codes, orders pipelines by what is in the store, and ends cancelled
runs. All state that matters is in files or in the store, so a kill -9 or a reboot at any point costs only time. The
supervisor sleeps in poll() until a process ends, a verb writes to the FIFO, or a timer expires.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from launcher.backends.local import queue
from launcher.backends.local.entry import QueueEntry, parse
from launcher.backends.local.environment import adopt_store_variables, own_site, python
from launcher.backends.local.slots import Capacity, Slots
from launcher.backends.local.state import QueueNote, Site, StateDir, read
from launcher.backends.local.supervisor import store_requests
from launcher.backends.local.supervisor.end_notifier import EndNotifier
from launcher.backends.local.supervisor.metrics_file import SupervisorMetrics
from launcher.backends.local.supervisor.run import QueuedRun, Runner
from launcher.backends.local.supervisor.spawner import SpawnerFor
from launcher.errors import SlipwayError
from launcher.files import replace
from launcher.parallel import Threads
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime import store_fault
from launcher.store import Store, open_store

COMMAND: Final = ("-m", "launcher.runtime")
LOOK: Final = 5.0  # seconds after which the folder is read even without a wake-up
THREADS: Final = 4  # for requests to the store
TELL: Final = 1.0  # least seconds between two writes of the order of waiting runs
KEEP: Final = 50  # finished runs whose output is kept on this machine

Task = tuple[QueuedRun, str, Any]


def open_there(url: str) -> Store:
    """Opens the store of a queued run. It existed at submission, so an empty folder is an outage."""
    return open_store(url, there=True)


class Supervisor:
    def __init__(
        self,
        state: StateDir,
        capacity: Capacity,
        spawners: Mapping[str, SpawnerFor],
        secrets: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        idle: float | None = 60.0,
        command: tuple[str, ...] = COMMAND,
        opener: Callable[[str], Store] = open_there,
    ) -> None:
        self.state = state
        self.slots = Slots(capacity)
        self.runs: dict[str, QueuedRun] = {}
        self.runner = Runner(state, spawners, secrets, log, command, self.known)
        self.idle = idle
        self.opener = opener
        self.stores: dict[str, Store] = {}
        self.threads = Threads(THREADS, "store")
        self.tellers = Threads(THREADS, "tell")  # a receiver may be slow
        self.teller = EndNotifier(log)
        self.numbers = SupervisorMetrics(self.runner.id)
        self.results: deque[Task] = deque()
        self.stop = False
        self.first = True
        self.retired = 0
        self.told: tuple[queue.Waiting, ...] | None = None  # the order as it was last written
        self.tell_at = 0.0
        self.wake = os.open(state.wake_fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def known(self) -> frozenset[int]:
        live = (member for run in self.runs.values() for member in run.members.values() if member.live)
        return frozenset(member.record.pid for member in live if member.record.pid) | self.teller.known()

    def run(self) -> None:
        """Works until it is told to stop, or had no runs for `idle` seconds. Runtimes keep running. Its numbers stay
        where it fails, and grow old: so an alert sees it."""
        try:
            self._work()
            self.numbers.leave()
        finally:
            self.threads.leave()
            self.tellers.leave()

    def _work(self) -> None:
        busy_at = time.monotonic()
        while not self.stop:
            timeout = self.turn()
            now = time.monotonic()
            if self.runs:
                busy_at = now
            elif self.idle is not None and now - busy_at >= self.idle:
                return
            elif self.idle is not None:
                timeout = min(timeout, busy_at + self.idle - now)
            self.sleep(timeout)

    def turn(self) -> float:
        """One pass over all runs. Returns the seconds until something is due."""
        if not self.state.is_still(self.runner.id):
            return self.abandon()
        self.read_queue()
        while self.results:
            self.take_result(*self.results.popleft())
        due: list[float | None] = []
        for run in list(self.runs.values()):
            if run.started:
                due.append(self.runner.step(run))
                if run.over:
                    due.append(self.end(run))
            elif run.stopping:
                due.append(self.end(run))
            elif not run.ready:
                due.append(self.look(run))
        waiting = self.start_ready()
        for run in self.runs.values():
            self.write_note(run)
        self.numbers.write(run.note.phase for run in self.runs.values() if run.note is not None)
        due.append(self.tell_order(waiting))
        now = time.monotonic()
        return max(0.0, min([when - now for when in due if when is not None], default=LOOK))

    def sleep(self, timeout: float) -> None:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        for run in self.runs.values():
            for member in run.live():
                assert member.live is not None
                poll.register(member.live.fileno(), select.POLLIN)
        if self.results:
            return
        for handle, _ in poll.poll(min(timeout, LOOK) * 1000):
            if handle == self.wake:
                while len(os.read(self.wake, 65536)) == 65536:
                    pass

    def abandon(self) -> float:
        """The folder was deleted: kills all runs, so that no process of theirs meets a new queue in its place."""
        log(f"{self.state.path} was deleted; its runs end")
        for run in self.runs.values():
            self.runner.kill(run)
        self.runs.clear()
        self.stop = True
        return 0.0

    # the queue

    def read_queue(self) -> None:
        queued = self.state.queued()
        for name in queued:
            if name not in self.runs and (run := self.read_entry(name)):
                self.runs[name] = run
                if not self.first:
                    continue
                self.runner.adopt(run)
                if run.started:
                    held = [gpu for member in run.members.values() for gpu in member.record.gpus]
                    self.slots.take(name, self.slots.capacity.need(run.entry.job), held)
        self.first = False
        for name in self.state.cancelled():
            if name in self.runs:
                self.runs[name].cancelled = True
            elif name not in queued:
                self.state.cancel(name).unlink(missing_ok=True)
        if len(self.runs) > 1:
            self.runs = dict(sorted(self.runs.items(), key=lambda item: (*item[1].rank, item[0])))

    def read_entry(self, name: str) -> QueuedRun | None:
        try:
            entry: QueueEntry = parse(self.state.entry(name).read_text())
        except FileNotFoundError:
            return None
        except SlipwayError as error:
            log(f"{name}: {error}")
            self.state.entry(name).rename(self.state.entry(name).with_suffix(".damaged"))
            return None
        # without a site file a kill interrupted `retire`: the run is over and only has to be removed
        site = read(self.state.site(name), Site) or Site(python(), 0, own_site())
        return QueuedRun(entry, site, {}, ready=not entry.works)

    def start_ready(self) -> tuple[queue.Waiting, ...]:
        """Starts the runs that fit; returns those that wait, in their order."""
        ready = [run for run in self.runs.values() if run.ready and not run.started and not run.busy]
        ready = [run for run in ready if not run.stopping]
        need = self.slots.capacity.need
        for name in self.slots.choose((run.name, need(run.entry.job)) for run in ready):
            run = self.runs[name]
            self.runner.start(run, self.slots.take(name, need(run.entry.job)))
        now = time.monotonic()
        for run in ready:
            limit = run.entry.job.limits.start_deadline
            if not run.started and limit is not None and now - run.queued_since > limit:
                short = self.slots.capacity.shortage(run.entry.job) or "others held this machine's slots"
                self.fail(run, Reason.CAPACITY, f"not started within {limit:.0f} s: {short}")
        waiting = [run for run in ready if not run.started and not run.stopping]
        return queue.waiting(self.slots, ((run.name, need(run.entry.job)) for run in waiting))

    # the store

    def ask(self, run: QueuedRun, question: str, call: Callable[[Store], Any]) -> None:
        """Runs `call` in a thread; its answer comes back through take_result."""
        run.busy = True

        def work() -> None:
            try:
                answer: Any = call(self.store(run))
            except Exception as error:  # the request is repeated later: a store may come back
                answer = error
            self.results.append((run, question, answer))
            self.state.wake()

        self.threads.start(work)

    def store(self, run: QueuedRun) -> Store:
        url = run.entry.job.store
        if url not in self.stores:
            adopt_store_variables(run.site.private)
            self.stores[url] = self.opener(url)
        return self.stores[url]

    def take_result(self, run: QueuedRun, question: str, answer: Any) -> None:
        run.busy = False
        run.looks += 1
        if self.runs.get(run.name) is not run:
            return
        if isinstance(answer, Exception):
            self.numbers.failures += 1
            self.stores.pop(run.entry.job.store, None)  # credentials may have been renewed
            run.next_look = time.monotonic() + min(0.5 * 2 ** min(run.looks, 8), 30.0)
            log(f"{run.name}: {question}: {type(answer).__name__}: {answer}")
        elif question == "inputs":
            self.take_inputs(run, answer)
        elif question == "fail":
            self.tell(run, answer)
        elif question == "told":
            self.retire(run, answer)
        elif question == "close":
            if answer is None and run.cancelled and not run.closers:
                # killed before it could write its end: a new runtime proves that and writes it
                self.runner.close_with_runtime(run)
                run.started = True
            else:
                self.tell(run, answer)

    def look(self, run: QueuedRun) -> float | None:
        """Asks whether the inputs are there: at once when an upstream run of this queue ended, otherwise at intervals.
        Returns when to ask again; None while another event will wake the supervisor."""
        if run.looks and any(name in self.runs for name in run.entry.upstream):
            return None
        if not run.busy and time.monotonic() >= run.next_look:
            self.ask(run, "inputs", lambda store: store_requests.look_at_inputs(store, run.entry))
        return None if run.busy else run.next_look

    def take_inputs(self, run: QueuedRun, inputs: store_requests.Inputs) -> None:
        run.next_look = time.monotonic() + min(0.2 * 2 ** min(run.looks, 6), 10.0)
        if inputs.forgotten:
            self.retire(run, None)
        elif inputs.cancelled:
            run.cancelled = True
        elif inputs.failed:
            self.fail(run, Reason.UPSTREAM_FAILED, f"{inputs.failed} ended without success")
        elif inputs.ready:
            run.ready, run.queued_since = True, time.monotonic()

    def fail(self, run: QueuedRun, reason: Reason, message: str) -> None:
        """Ends a run that has no process here."""
        run.verdict = reason, message
        self.end(run)

    def end(self, run: QueuedRun) -> float | None:
        """Has the end of a run without processes recorded, then removes the run. Returns when to try again."""
        self.slots.release(run.name)
        if not run.busy and time.monotonic() >= run.next_look:
            turn = run.entry.job.turn if run.entry.job.alternatives else None
            if verdict := run.verdict:
                end = store_requests.end_unstarted
                self.ask(run, "fail", lambda store: end(store, run.name, self.runner.id, *verdict, turn))
            else:
                refused = self.runner.refused(run)
                self.ask(
                    run, "close", lambda store: store_requests.close(store, run.name, self.runner.id, refused, turn)
                )
        return None if run.busy else run.next_look

    def tell(self, run: QueuedRun, result: Result | None) -> None:
        """Removes a run whose end is recorded, after people were told of it."""
        if result is None or run.site.notify is None:
            self.retire(run, result)
            return
        run.busy = True

        def work() -> None:  # the process starts here, too: many runs may end at once
            try:
                child = self.teller.start(run.name, run.entry.job.store, run.site)
                if child is not None and self.teller.wait(child) != 0:
                    log(f"{run.name}: not everybody was told of its end: `launcher notify` says why")
            finally:
                self.results.append((run, "told", result))
                self.state.wake()

        self.tellers.start(work)

    def retire(self, run: QueuedRun, result: Result | None) -> None:
        outcome = f"{result.outcome}, {result.reason}" if result else "ended without a result from this machine"
        log(f"{run.name}: {outcome}")
        self.numbers.ended[result.outcome if result else "elsewhere"] += 1
        self.numbers.forget(run.name)
        del self.runs[run.name]
        self.slots.release(run.name)
        self.state.retire(run.name)
        self.runner.forget(run)
        self.retired += 1
        if self.retired % KEEP == 0:
            self.state.prune(KEEP)
        for other in self.runs.values():
            if run.name in other.entry.upstream:
                other.next_look = other.looks = 0

    # for users

    def write_note(self, run: QueuedRun) -> None:
        note = self.describe(run)
        if note != run.note:
            with contextlib.suppress(OSError):  # a full disk: no decision depends on a note
                replace(self.state.note(run.name), msgspec.json.encode(note), durable=False)
            run.note = note

    def tell_order(self, waiting: tuple[queue.Waiting, ...]) -> float | None:
        """Writes the order of waiting runs, at most every TELL seconds; returns when the next write is due."""
        if waiting == (self.told or ()):
            return None
        now = time.monotonic()
        if now < self.tell_at:
            return self.tell_at
        queue.write(self.state, waiting)
        self.told, self.tell_at = waiting, now + TELL
        return None

    def describe(self, run: QueuedRun) -> QueueNote:
        if run.stopping:
            return QueueNote("stopping" if run.live() else "closing", evidence=run.verdict[1] if run.verdict else "")
        if run.started:
            if run.over:
                return QueueNote("closing")
            phase = "running" if run.live() else "restarting"
            works = (self.state.member(run.name, member) / "work" for member in run.members)
            store = next(filter(None, map(store_fault.read, works)), "")
            if store and not run.trouble:  # the runtime cannot report an unreachable store in the store itself
                return QueueNote(phase, Reason.STORE_UNREACHABLE, store)
            return QueueNote(phase, evidence=run.trouble)
        if not run.ready:
            return QueueNote("waiting", evidence=f"for {', '.join(run.entry.upstream) or 'its inputs'}")
        short = self.slots.capacity.shortage(run.entry.job)
        return QueueNote("queued", Reason.UNSCHEDULABLE if short else "", short or "waits for slots")


def log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def catch_signals(supervisor: Supervisor) -> None:
    def on_signal(number: int, frame: object) -> None:
        supervisor.stop = True
        supervisor.state.wake()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
