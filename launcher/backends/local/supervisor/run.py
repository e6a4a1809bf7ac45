"""One queue entry in the supervisor: its members' processes, when they start again, and how they end.

The runtime decides whether to try again; here its exit code is obeyed: 0 and 78 are final, any other restarts the
member after a growing pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import msgspec

from launcher.backends.local import environment
from launcher.backends.local.entry import QueueEntry
from launcher.backends.local.queue import priority
from launcher.backends.local.state import QueueNote, Site, StartRecord, StateDir, read
from launcher.backends.local.supervisor.spawner import (
    UNKNOWN,
    Launch,
    LiveRuntime,
    NeverStarts,
    NotYet,
    Spawner,
    SpawnerFor,
)
from launcher.errors import SlipwayError
from launcher.files import replace
from launcher.reasons import EXIT_AGAIN, EXIT_DONE, EXIT_NEVER, EXIT_PREEMPTED, Reason

FLUSH = 10.0  # seconds a runtime has after the command's grace to upload what is left
MAX_FOREIGN = 20  # ends in a row, over `retries`, with exit codes that the runtime never uses: it cannot even start
MAX_PAUSE = 30.0  # longest pause in seconds between kills of a process that does not end
ASK_AGAIN = 1.0  # seconds between requests to an engine that does not answer
KEPT_OUTPUTS = 2  # starts whose output is kept: the newest and the previous one


class MemberProcess(msgspec.Struct):
    """One rank. Times are of the monotonic clock, which stops while the machine sleeps."""

    name: str
    record: StartRecord
    live: LiveRuntime | None = None
    since: float = 0.0  # when `live` began
    not_before: float = 0.0  # when it may start again
    swept: bool = True  # no process of an earlier start can be alive
    foreign: int = 0
    adopting: bool = False  # unknown whether it lives: ask again
    unswept: str = ""  # why the last sweep was incomplete; logged once


class QueuedRun(msgspec.Struct):
    """A queue entry and what this supervisor knows of it."""

    entry: QueueEntry
    site: Site
    members: dict[str, MemberProcess]
    started: bool = False  # holds slots
    ready: bool = False  # its inputs are there
    cancelled: bool = False
    trouble: str = ""  # why a member cannot start now
    verdict: tuple[Reason, str] | None = None  # how the run ends when no runtime will write it
    asked_at: float | None = None  # when SIGTERM went out
    kills: int = 0  # number of SIGKILLs since
    killed_at: float = 0.0
    leave_by: float | None = None  # when the other members must have ended after their leader
    queued_since: float = msgspec.field(default_factory=time.monotonic)
    next_look: float = 0.0  # when to ask the store again
    looks: int = 0
    busy: bool = False  # a thread is asking the store
    closers: int = 0  # runtimes started only to write the end
    note: QueueNote | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: higher priority first, then earlier submission."""
        return -priority(self.entry.job), self.site.order

    @property
    def name(self) -> str:
        return self.entry.run

    @property
    def leader(self) -> str:
        return self.entry.job.members()[0]

    @property
    def stopping(self) -> bool:
        """No process will be started any more."""
        late = self.leave_by is not None and time.monotonic() >= self.leave_by
        return self.cancelled or self.verdict is not None or late

    @property
    def over(self) -> bool:
        """Every process is gone, and none will be started again."""
        if any(member.live or member.adopting for member in self.members.values()):
            return False
        return self.stopping or all(member.record.final is not None for member in self.members.values())

    def live(self) -> list[MemberProcess]:
        return [member for member in self.members.values() if member.live]


class Runner:
    """Starts, adopts, stops and restarts the processes of runs; the supervisor decides which."""

    def __init__(
        self,
        state: StateDir,
        spawners: Mapping[str, SpawnerFor],
        secrets: Callable[[Mapping[str, str]], Mapping[str, str]],
        log: Callable[[str], None],
        command: tuple[str, ...],
        known: Callable[[], frozenset[int]],
    ) -> None:
        self.state = state
        self.id = state.id
        self.spawners = spawners  # by backend; each takes the submitter's environment
        self.secrets = secrets
        self.log = log
        self.command = command
        self.known = known  # the pids of every live runtime

    def adopt(self, run: QueuedRun) -> None:
        """Takes over what an earlier supervisor, or this machine before a reboot, left of a run."""
        for name in run.entry.job.members():
            record = read(self.state.record(run.name, name), StartRecord)
            member = MemberProcess(name, record or StartRecord(starts=0), swept=False)
            run.members[name] = member
            if record is None:
                continue
            run.started = True
            if record.final is None and (record.pid or record.container):
                self._adopt(run, member)

    def _adopt(self, run: QueuedRun, member: MemberProcess) -> None:
        """Adopts a member. While its engine cannot say whether it lives, it is neither started nor counted as ended."""
        record = member.record
        try:
            output = self.state.output(run.name, member.name, record.starts)
            member.live = self.spawner(run).adopt(record, output)
            member.adopting = False
        except SlipwayError as error:
            if run.trouble != str(error):
                self.log(f"{run.name} {member.name}: {error}")
            member.adopting, run.trouble = True, str(error)
            member.not_before = time.monotonic() + ASK_AGAIN
            return
        run.trouble = ""
        member.since = time.monotonic()
        if member.live and run.asked_at is not None:
            member.live.terminate()
        self.log(f"{run.name} {member.name}: {describe_process(record)} {'adopted' if member.live else 'is gone'}")

    def spawner(self, run: QueuedRun) -> Spawner:
        return self.spawners[run.entry.job.backend](run.site.env)

    def start(self, run: QueuedRun, gpus: tuple[str, ...]) -> None:
        """Gives out the GPUs and starts every member."""
        run.started = True
        free = list(gpus)
        for name in run.entry.job.members():
            count = run.entry.job.roles[name.rpartition("-")[0]].resources.gpus
            member = run.members.setdefault(name, MemberProcess(name, StartRecord(starts=0)))
            member.record = msgspec.structs.replace(member.record, gpus=tuple(free[:count]))
            del free[:count]
        self.step(run)

    def step(self, run: QueuedRun) -> float | None:
        """Advances a run that holds slots; returns when to call again (monotonic clock), None for no time."""
        now = time.monotonic()
        for member in run.members.values():
            if member.live and (code := member.live.ended()) is not None:
                self._ended(run, member, code, now)
            elif member.adopting and member.not_before <= now:
                self._adopt(run, member)
        self._stop(run, now)
        wake = [when for when in (self._kill_at(run) or run.leave_by,) if when is not None]
        wake += [member.not_before for member in run.members.values() if member.adopting]
        if run.stopping:
            return min(wake, default=None)
        for member in run.members.values():
            if member.live or member.adopting or member.record.final is not None or run.verdict:
                continue
            if member.not_before <= now:
                self._spawn(run, member)
            if not member.live:
                wake.append(member.not_before)
        return min(wake, default=None)

    def kill(self, run: QueuedRun) -> None:
        """Ends every process of a run at once."""
        for member in run.members.values():
            self._sweep(run, member)

    def forget(self, run: QueuedRun) -> None:
        """Removes what is left of runs that left the queue: of this one, and of earlier ones whose removal was
        interrupted."""
        self.spawner(run).forget(self.id, frozenset(self.state.queued()))

    def close_with_runtime(self, run: QueuedRun) -> None:
        """Starts the leader once more, only to read cancel.json and write the end."""
        run.closers += 1
        run.asked_at = time.monotonic()  # it gets no SIGTERM, but has as long as any other run to end
        member = run.members.setdefault(run.leader, MemberProcess(run.leader, StartRecord(starts=0), swept=False))
        self._spawn(run, member)

    # ends

    def refused(self, run: QueuedRun) -> str:
        """The last line of a leader's runtime that exited with 78; "" otherwise."""
        leader = run.members.get(run.leader)
        if leader is None or leader.record.final != EXIT_NEVER:
            return ""
        said = "".join(last_line(path) for path in self.state.outputs(run.name, run.leader)[-1:])
        return f"the runtime did not begin an attempt: {said}" if said else "the runtime exited with 78"

    def _ended(self, run: QueuedRun, member: MemberProcess, code: int, now: float) -> None:
        assert member.live is not None
        lived = now - member.since
        if code == -SIGKILL and member.live.out_of_memory:
            self._out_of_memory(run, member)
        member.live.close()
        member.live = None
        self.spawner(run).reap(self.known())
        member.swept = self._sweep(run, member)
        record = member.record
        if code in (EXIT_DONE, EXIT_NEVER):
            member.record = msgspec.structs.replace(record, pid=0, container="", final=code)
        else:
            beat = run.entry.job.timing.beat
            failures = 0 if lived > 4 * beat else record.failures + 1
            member.not_before = now + min(beat / 15 * 2 ** min(failures, 10), 4 * beat)
            member.record = msgspec.structs.replace(record, pid=0, container="", failures=failures)
            self._count_foreign(run, member, code)
        self.log(f"{run.name} {member.name}: {describe(code)} after {lived:.1f} s")
        self._write(run, member)
        if member.name == run.leader and member.record.final is not None and not run.over:
            timing, limits = run.entry.job.timing, run.entry.job.limits
            run.leave_by = now + 2 * timing.beat + limits.grace + FLUSH

    def _out_of_memory(self, run: QueuedRun, member: MemberProcess) -> None:
        """The kernel killed the runtime itself, as where /dev/shm or a tmpfs is full: no exit says why. Another attempt
        would end likewise; it follows only where the job asks for it."""
        if Reason.OUT_OF_MEMORY in run.entry.job.limits.retry_on:
            return
        memory = run.entry.job.roles[member.name.rpartition("-")[0]].resources.memory
        limit = f" of {memory / 2**20:.0f} MiB" if memory is not None else ""
        message = (
            f"{member.name}: the kernel killed the runtime because the container's memory{limit} ran out; files in "
            "/dev/shm and in a tmpfs count as memory"
        )
        run.verdict = run.verdict or (Reason.OUT_OF_MEMORY, message)

    def _count_foreign(self, run: QueuedRun, member: MemberProcess, code: int) -> None:
        """Counts ends that the runtime itself cannot count, because it could not even start."""
        ours = code in (EXIT_AGAIN, EXIT_PREEMPTED, UNKNOWN, -SIGHUP, -SIGINT, -SIGKILL, -SIGTERM)
        member.foreign = 0 if ours else member.foreign + 1
        if member.foreign > MAX_FOREIGN + run.entry.job.limits.retries:
            message = f"the runtime of {member.name} ended {member.foreign} times in a row with {describe(code)}"
            run.verdict = Reason.INFRASTRUCTURE, message

    def _sweep(self, run: QueuedRun, member: MemberProcess) -> bool:
        try:
            clean = self.spawner(run).sweep(environment.mark(self.id, run.name, member.name))
            why = "" if clean else "a process survives SIGKILL; waiting for it"
        except SlipwayError as error:  # an engine that does not answer may still run the member
            clean, why = False, str(error)
        if why and why != member.unswept:
            self.log(f"{run.name} {member.name}: {why}")
        member.unswept = why
        return clean

    def _stop(self, run: QueuedRun, now: float) -> None:
        """Sends SIGTERM once; after the grace, kills every process with the mark."""
        if not run.stopping:
            return
        if run.asked_at is None:
            run.asked_at = now
            for member in run.live():
                assert member.live is not None
                member.live.terminate()
        elif now >= (self._kill_at(run) or now):
            for member in run.live():
                if not run.kills:
                    self.log(f"{run.name} {member.name}: did not end in time, killed")
                self._sweep(run, member)
            run.kills, run.killed_at = run.kills + 1, now

    def _kill_at(self, run: QueuedRun) -> float | None:
        """When to kill a run that was asked to end. Later kills have growing pauses, as when the engine does not
        answer."""
        if run.asked_at is None:
            return None
        if run.kills:
            return run.killed_at + min(0.1 * 2.0 ** min(run.kills, 10), MAX_PAUSE)
        return run.asked_at + run.entry.job.limits.grace + FLUSH

    # starts

    def _spawn(self, run: QueuedRun, member: MemberProcess) -> None:
        now = time.monotonic()
        if not member.swept:
            member.swept = self._sweep(run, member)
        if not member.swept:
            member.not_before, run.trouble = now + ASK_AGAIN, f"{member.name}: {member.unswept}"
            return
        starts = member.record.starts + 1
        member.record = msgspec.structs.replace(member.record, starts=starts)
        try:
            launch = self._launch(run, member, starts)
            member.live = self.spawner(run).spawn(launch, member.record)
        except NotYet as wait:
            member.record = msgspec.structs.replace(member.record, starts=starts - 1)
            member.not_before, run.trouble = now + 1.0, str(wait)
            return
        except NeverStarts as error:
            run.verdict = error.reason, str(error)
            self.log(f"{run.name} {member.name}: {error}")
            return
        except (OSError, SlipwayError) as error:
            failures = member.record.failures + 1
            member.record = msgspec.structs.replace(member.record, failures=failures)
            member.not_before = now + min(2.0 ** min(failures, 6), 60.0)
            member.swept = False  # the engine may have started it although its answer was lost
            run.trouble = f"{member.name} cannot be started: {error}"
            self.log(f"{run.name} {run.trouble}")
            return
        run.trouble = ""
        member.record = member.live.record
        member.since, member.swept = now, False
        self._write(run, member)
        self.log(f"{run.name} {member.name}: start {starts}, {describe_process(member.record)}")

    def _launch(self, run: QueuedRun, member: MemberProcess, starts: int) -> Launch:
        job, site = run.entry.job, run.site
        folder = self.state.member(run.name, member.name)
        folder.mkdir(parents=True, exist_ok=True)
        for old in self.state.outputs(run.name, member.name)[: 1 - KEPT_OUTPUTS or None]:
            old.unlink(missing_ok=True)
        role = member.name.rpartition("-")[0]
        before = (other.record.image for name, other in run.members.items() if name.rpartition("-")[0] == role)
        secrets = self.secrets(job.secrets)
        variables = environment.runtime_environment(
            job,
            run.name,
            member.name,
            state_id=self.id,
            site=site.env,
            private=site.private,
            secrets=secrets,
            gpus=member.record.gpus,
            work=folder / "work",
            python=site.python,
        )
        return Launch(
            job=job,
            run=run.name,
            member=member.name,
            argv=(site.python, *self.command, f"--mark={environment.mark(self.id, run.name, member.name)}"),
            environment=variables,
            private={**site.private, **secrets},
            mark=environment.mark(self.id, run.name, member.name),
            work=folder / "work",
            output=self.state.output(run.name, member.name, starts),
            image=site.images.get(role) or next((image for image in before if image), ""),
            umask=site.umask,
        )

    def _write(self, run: QueuedRun, member: MemberProcess) -> None:
        path = self.state.record(run.name, member.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, msgspec.json.encode(member.record))
        except OSError as error:
            # a full disk ends no run: the next supervisor finds the process by its mark and starts the member again
            self.log(f"{run.name} {member.name}: {path.name} cannot be written: {error}")


def last_line(path: Path, most: int = 4096) -> str:
    """The last line of a process's output file, without the runtime's prefix; "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            lines = file.read(most).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.removeprefix("[slipway] ").strip() for line in reversed(lines) if line.strip()), "")


def describe_process(record: StartRecord) -> str:
    return f"container {record.container[:12]}" if record.container else f"pid {record.pid}"


def describe(code: int) -> str:
    if code == UNKNOWN:
        return "ended unseen"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
