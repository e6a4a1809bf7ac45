"""One rank's part in the protocol (docs/explanation/protocol.md): reads the store, asks `launcher.protocol.decide` for
the next step, and takes it.

member = Member(store, job, "main-0", placement)
begun = member.start()              # Leave: exit with its code; Started: this process has a claim and sends heartbeats
stop = member.form()                # several ranks: waits until all have joined
...fetch inputs...
stop = member.settle()              # waits until earlier attempts are over; then `member.checkpoint()` may be called
...restore...
stop = member.before_command()      # None: start the command now, and end it when `member.stopped` is set
code = member.end(exit, outputs_done)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from launcher.decoding import decode
from launcher.errors import Unreachable
from launcher.protocol import decide, steps
from launcher.protocol.facts import Verdict
from launcher.protocol.finish import adopt, complete_works, put_result
from launcher.protocol.records import Beat, Broken, Claim, Endpoint, Exit, Formed, Placement, Result
from launcher.protocol.steps import Leave, Stop
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import EXIT_AGAIN, EXIT_PREEMPTED, Reason, stage_code
from launcher.runtime.beating import Beating, BeatState, Clock, SystemClock
from launcher.runtime.member.adoption import Holds, cannot_tell, find_done
from launcher.runtime.member.group_budget import GroupBudget
from launcher.runtime.member.observer import Retrier, RunObserver
from launcher.runtime.uploads.stored_checkpoints import newest_of
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import AttemptKeys, RunKeys, work_run

LONGEST_POLL: Final = 5.0  # seconds
NEVER: Final = threading.Event()  # never set: after an interrupt the waits at the end keep their length


class Started(msgspec.Struct, frozen=True):
    """This process holds its member's claim in `attempt` and sends heartbeats."""

    attempt: int
    previous: tuple[AttemptView, ...]  # earlier attempts as read before the claim; settle() updates `Member.previous`
    running: float  # seconds the command has run in earlier attempts
    formed: Formed | None = None  # set at once in a run of one rank; else None, and Member.form() waits for it


class Member:
    """One rank of one attempt. `start`, `form`, `settle`, `before_command` and `end` are called in this order by one
    thread; `beat_state`, `beat_soon`, `stopped`, `should_stop` and `interrupt` may be used by any."""

    def __init__(
        self,
        store: Store,
        job: ResolvedJob,
        member: str,
        placement: Placement,
        *,
        clock: Clock | None = None,
        log: Callable[[str], None] = lambda line: None,
        version: str = "",
        image: str = "",
        stage: bool = False,
        fed: Callable[[float], None] = lambda began: None,
        holds: Holds = cannot_tell,
        trouble: Callable[[str], None] = lambda what: None,
    ) -> None:
        """
        image    the id of the container's image, for the claim
        fed      called with the boot time at which each successful heartbeat began
        holds    whether an input outside the store still has a content; see `launcher.runtime.member.adoption`
        trouble  called with why the store cannot be reached, and with "" when it can be again
        """
        self.store, self.job, self.member, self.placement = store, job, member, placement
        self.clock: Clock = clock or SystemClock()
        self.log, self.version, self.image, self.stage, self._holds, self._fed = log, version, image, stage, holds, fed
        self.run = run_id(job)
        self.keys = RunKeys(self.run)
        self.members = job.members()
        self.index = self.members.index(member)
        self.beat_state = BeatState()
        self.stopped = threading.Event()
        self.stop: Stop | None = None
        self.previous: tuple[AttemptView, ...] = ()
        self.formed: Formed | None = None
        self._interrupted = threading.Event()
        self.poll = min(job.timing.beat, LONGEST_POLL)  # seconds between two looks at the store
        self._patiently = Retrier(self.clock, job.timing.stale, self.poll, self._interrupted, log, trouble)
        self._view = RunView(self.run)
        self._number = 0
        self._nonce = uuid4().hex
        self._settled = False
        self._sight = RunObserver(store, job, self.run, member, placement, self._nonce, self.clock)
        self._beating: Beating | None = None
        self._budget: GroupBudget | None = None

    # start

    def start(self) -> Started | Leave:
        """Takes this member's claim, or says that this process has to leave. Waits for earlier attempts if the protocol
        says so. If the store cannot be reached it returns Leave with code 75 and raises nothing."""
        since: float | None = None
        works = False
        served: bool | None = None
        done: Result | None = None  # of the run that has done this work
        while True:
            try:
                view = self._patiently(self._sight.read)
                run = self._sight.facts(view)
                if run.result == "succeeded" and not works:
                    record = work_run(work_hash(self.job), self.run)
                    works = self._patiently(lambda: self.store.head(record)) is not None  # noqa: B023 - called at once
                step = decide.start(run, self.index, works, served, turn=self.job.turn)
                if isinstance(step, steps.LookForWork):
                    done = self._patiently(lambda: find_done(self.store, self.job, self.run, self._holds))
                    served = done is not None
                    if served:
                        continue  # looking at the inputs may have taken long: read the run again
                    step = decide.start(run, self.index, works, served, turn=self.job.turn)
                match step:
                    case Leave():
                        return step._replace(code=self._code(step, view))
                    case steps.Finish(verdict):
                        self._patiently(lambda: self._finish(view, verdict))  # noqa: B023 - called at once
                    case steps.PutWorks() if view.result is not None:
                        result = view.result
                        self._patiently(lambda: complete_works(self.store, self.job, result, self.run))  # noqa: B023
                        works = True
                    case steps.Adopt() if done is not None:
                        self._patiently(lambda: adopt(self.store, view, self.job, done, writer=self.member))  # noqa: B023
                    case steps.PutClaim(number):
                        if self._claim(view, number):
                            return self._begin(view, number)
                        served = None
                    case steps.Break(number, member, why):
                        self._patiently(lambda: self._break(number, member, why))
                    case steps.Wait(why):
                        now = self.clock.boottime()
                        if since is None:
                            since = now
                            self.log(f"waiting: {why}")
                        if now - since > self.job.timing.stale + 2 * self.job.timing.beat:
                            return Leave(EXIT_AGAIN, Reason.INFRASTRUCTURE, f"gave up waiting: {why}")
                        self.clock.wait(self._interrupted, self.poll)
                        served = None  # the answer may be out of date by now
            except Unreachable as error:
                return Leave(EXIT_AGAIN, Reason.STORE_UNREACHABLE, str(error))
            if self._interrupted.is_set():
                return Leave(EXIT_PREEMPTED, Reason.PREEMPTED, "asked to stop before the attempt began")

    def interrupt(self) -> None:
        """Called on SIGTERM. Every wait ends: `start` returns Leave(143), the others return Stop(preempted)."""
        self._interrupted.set()
        if self._beating is not None:
            self._halt(Stop(Reason.PREEMPTED, "asked to stop"))

    def _claim(self, view: RunView, number: int) -> bool:
        claim = Claim(self.placement, self._nonce, self.clock.time(), self.version, self.image)
        body = msgspec.json.encode(claim)
        self._own_claim, self._claimed_at = claim, self.clock.boottime()
        return self._patiently(lambda: self.store.create(self.keys.attempt(number).claim(self.member), body))

    def _begin(self, view: RunView, number: int) -> Started:
        self._number, self._view = number, view
        self.previous = tuple(attempt for attempt in view.computing if attempt.number < number)
        leader = self.members[0]
        before = sum(attempt.running(leader) for attempt in self.previous)
        if len(self.members) == 1:
            self.formed = Formed({self.member: self.placement.host}, self._nonce)
        helper = self.index >= self.job.roles[self.job.leading].replicas
        self._beating = Beating(
            self.store,
            self.job,
            self.run,
            number,
            self.index,
            helper,
            self.beat_state,
            clock=self.clock,
            log=self.log,
            halt=self._halt,
            nonce=self._nonce,
            claimed=self._claimed_at,
            before=before,
            held_before=sum(attempt.held(leader) for attempt in self.previous),
            fed=self._fed,
            trouble=self._patiently.trouble,
        )
        return Started(number, self.previous, before, self.formed)

    # several ranks

    def form(self) -> Stop | None:
        """Waits until every member has joined; the leader then writes formed.json. None: all have joined."""
        if (stop := self._keep_ceilings()) is not None:
            return stop
        since = self.clock.boottime()
        patience = max(self.job.timing.stale, self.job.limits.start_deadline or 0.0)
        claims: dict[str, Claim] = {}
        while self.formed is None:
            stop = self.should_stop()
            if stop is not None:
                return stop
            try:
                self._form(claims)
            except Unreachable as error:
                self.log(f"store: {error}")
            missing = [member for member in self.members if member not in claims]
            if self.formed is None and self.index == 0 and self.clock.boottime() - since > patience:
                stop = Stop(Reason.INFRASTRUCTURE, f"did not join within {patience:.0f} s: {', '.join(missing)}")
                self._halt(stop)
                return stop
            if self.formed is None:
                self.clock.wait(self.stopped, self.poll)
        if self._beating is not None:
            self._beating.formed = True
        return None

    def _keep_ceilings(self) -> Stop | None:
        """The leader begins to watch what the run's groups cost. A Stop when they may cost nothing more."""
        beating = self._beating
        while self.index == 0 and self._budget is None and beating is not None:
            if (stop := self.should_stop()) is not None:
                return stop
            budget = GroupBudget(
                self.store, self.job, self.run, beating.paid, clock=self.clock, log=self.log, halt=self._halt
            )
            try:
                stop = budget.begin()
            except Unreachable as error:
                self.log(f"store: {error}")
                self.clock.wait(self.stopped, self.poll)
                continue
            self._budget = budget
            if stop is not None:
                self._halt(stop)
                return stop
        return None

    def _form(self, claims: dict[str, Claim]) -> None:
        keys = self.attempt_keys
        if self.index > 0:
            record = self.store.read(keys.formed)
            self.formed = decode(record[0], Formed) if record else None
            return
        for member in self.members:
            if member not in claims and (record := self.store.read(keys.claim(member))):
                claims[member] = decode(record[0], Claim)
        if len(claims) == len(self.members):
            formed = Formed({member: claims[member].placement.host for member in self.members}, self._nonce)
            self.store.create(keys.formed, msgspec.json.encode(formed))
            self.formed = formed

    @property
    def attempt_keys(self) -> AttemptKeys:
        """The names in the store of the attempt that this member has a claim in."""
        return self.keys.attempt(self._number)

    def publish_endpoint(self, ports: Mapping[str, str]) -> None:
        """Writes where this member listens, for the other members. `ports`: name -> host:port."""
        endpoint = Endpoint(self.member, dict(ports), self.clock.time(), self._nonce)
        key = self.attempt_keys.endpoint(self.member)
        self._patiently(lambda: self.store.create(key, msgspec.json.encode(endpoint)))

    # before the command

    def settle(self) -> Stop | None:
        """Waits until every earlier attempt is over. After that `previous` no longer changes."""
        view = self._view
        leaders = [attempt.exits.get(self.members[0]) for attempt in self.previous]
        reread = any(set(attempt.claims) - set(attempt.exits) for attempt in self.previous) or None in leaders
        said = False
        while not self._settled:
            stop = self.should_stop()
            if stop is not None:
                return stop
            try:
                view = self._sight.read() if reread else view
                step = decide.settle(self._sight.facts(view), self._number)
                match step:
                    case steps.Go():
                        self._view = view
                        self.previous = tuple(old for old in view.computing if old.number < self._number)
                        self._settled = True
                        if self._beating is not None:
                            leader = self.members[0]
                            used = [(old.running(leader), old.held(leader)) for old in self.previous]
                            self._beating.earlier(sum(run for run, _ in used), sum(held for _, held in used))
                    case steps.Finish(verdict):
                        result = self._finish(view, verdict)
                        self._halt(Stop(Reason.LOST, f"the run is {result.outcome}"))
                    case steps.Wait(why):
                        if not said:
                            self.log(f"waiting: {why}")
                        said = True
                        self.clock.wait(self.stopped, self.poll)
            except Unreachable as error:
                self.log(f"store: {error}")
                self.clock.wait(self.stopped, self.poll)
        return None

    def checkpoint(self, lost: Collection[tuple[int, int]] = ()) -> tuple[int, int] | None:
        """(attempt, step) of the checkpoint to continue from; None: start from the beginning. Call after settle().
        `lost`: checkpoints that were deleted meanwhile; none of them is chosen."""
        return newest_of(self._sight.with_me(self._view, self._number), self._number, lost)

    def beat_soon(self) -> None:
        """Sends the next heartbeat at once, because `beat_state` has changed."""
        if self._beating is not None:
            self._beating.soon()

    def before_command(self) -> Stop | None:
        """The last check before the command. Calls form() and settle() if they have not been called. None: start the
        command now."""
        stop = self.form() or self.settle()
        while stop is None:
            try:
                view = self._sight.look(
                    self._sight.with_me(self._view, self._number), self._sight.wanted(self._number, after=False)
                )
                step = decide.before_command(self._sight.facts(view), self._number, self.index)
                if isinstance(step, steps.Go):
                    return self.should_stop()
                if isinstance(step, steps.Finish):
                    self._finish(view, step.verdict)
                    continue
                self._halt(step)
                stop = self.stop
            except Unreachable as error:
                self.log(f"store: {error}")
                self.clock.wait(self.stopped, self.poll)
                stop = self.should_stop()
        return stop

    # while it runs

    def should_stop(self) -> Stop | None:
        """Why the command has to end, or None. Asks no store."""
        stop = self._beating.fence() if self._beating is not None else None
        if stop is not None:
            self._halt(stop)
        return self.stop

    def halt_if_idle(self, seconds: float) -> None:
        """Ends the command when its GPUs have done nothing for longer than the job allows."""
        stop = decide.idle(seconds, self.job.limits.gpu_idle)
        if stop is not None:
            self._halt(stop)

    def _halt(self, stop: Stop) -> None:
        news = self.stop is None
        if news:
            self.stop = stop
        self.stopped.set()  # before a word is said, which may fail
        if news:
            self.log(f"stopping: {stop.message}")

    def _break(self, number: int, member: int, why: str) -> bool:
        broken = Broken(self.members[member], self.member, why, self._nonce)
        return self.store.create(self.keys.attempt(number).broken, msgspec.json.encode(broken))

    # the end

    def end(self, ended: Exit, outputs_done: bool, data: Mapping[str, str] | None = None) -> int:
        """Writes this member's exit and, if the protocol says so, broken, result and works. Waits for other ranks where
        the protocol says so. Returns the container's exit code. Call it after everything else is in the store. `data`:
        input -> digest of the bytes that were read.
        """
        if self.index == 0 and ended.reason is Reason.SUCCEEDED and not outputs_done:
            ended = msgspec.structs.replace(ended, reason=Reason.OUTPUT_MISSING)
        ended = msgspec.structs.replace(ended, member=self.member, nonce=self._nonce)
        if self._beating is not None:
            ended = msgspec.structs.replace(ended, held=self._beating.held())
        try:
            return self._end(ended, outputs_done, data)
        finally:
            if self._beating is not None:
                self._beating.finish()
            if self._budget is not None:
                self._budget.finish()

    def _end(self, mine: Exit, outputs_done: bool, data: Mapping[str, str] | None) -> int:
        # a single rank that succeeded needs to read only the next attempt's claim: result.json is create-only anyway
        alone = len(self.members) == 1 and mine.reason is Reason.SUCCEEDED
        view: RunView | None = None
        written, works, waited = False, True, False
        while True:
            try:
                if view is None and alone:
                    following = self.keys.attempt(self._number + 1).claim(self.member)
                    view = self._sight.look(self._view, [following])
                elif view is None:
                    view = self._sight.read()
                elif waited:
                    view = self._sight.look(view, self._sight.wanted(self._number, after=True))
                waited = False
                view = self._sight.with_me(
                    view, self._number, mine if written else None, outputs_done and self.index == 0
                )
                ending = decide.Ending(
                    self._sight.facts(view), self._number, self.index, mine.reason, self.should_stop()
                )
                match decide.end(ending, works):
                    case steps.WriteExit(reason, why):
                        message = "; ".join(filter(None, (why, mine.message)))
                        mine = msgspec.structs.replace(mine, reason=reason, message=message)
                        key = self.attempt_keys.exit(self.member)
                        self.store.create(key, msgspec.json.encode(mine))
                        written = True
                    case steps.Break(number, member, why):
                        self._break(number, member, why)
                        view = None
                    case steps.Finish(verdict):
                        view = replace(view, result=self._finish(view, verdict, data, mine=True))
                    case steps.PutWorks() if view.result is not None:
                        complete_works(self.store, self.job, view.result, self.run)
                        works = True
                    case Leave() as leave:
                        self.log(leave.message)
                        return self._code(leave, view)
                    case _:
                        waited = True
                        self.clock.wait(NEVER, self.job.timing.beat)
            except Unreachable as error:
                self.log(f"store: {error}")
                if self._beating is None or self._beating.fence() is not None:
                    return EXIT_AGAIN
                self.clock.wait(NEVER, self.poll)

    def _code(self, leave: Leave, view: RunView) -> int:
        return stage_code(leave.code, (view.result or leave).reason) if self.stage else leave.code

    def _finish(
        self, view: RunView, verdict: Verdict, data: Mapping[str, str] | None = None, *, mine: bool = False
    ) -> Result:
        """`mine`: after this process's own attempt, which is the view's newest."""
        state = self.beat_state
        if not mine or self.index != 0 or view.attempts[-1].number != self._number:
            return put_result(self.store, view, self.job, verdict, writer=self.member, data=data)
        last = Beat(0, state.phase, state.step, state.total, state.message)
        return put_result(
            self.store, view, self.job, verdict, writer=self.member, data=data,
            last=last, claim=self._own_claim, folders=state.folders,
        )  # fmt: skip
