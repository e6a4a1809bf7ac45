"""Reaps one run that has no result: reads it and asks its backend once, then takes the steps of
`launcher.protocol.reaping.reap`, until the run has its result, has moved, or stays open.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from launcher.backends.base import Handle
from launcher.decoding import decode_record
from launcher.errors import Conflict, NoCapacity, NotMadeYet, SlipwayError
from launcher.protocol import reaping, steps
from launcher.protocol.applied import was_applied
from launcher.protocol.finish import finish, is_own_placement, onlookers, seconds_silent
from launcher.protocol.read import unlisted
from launcher.protocol.reaping import Open, Situation
from launcher.protocol.records import Event, Placement
from launcher.protocol.view import RunView
from launcher.reasons import Reason, named
from launcher.spec.backends import traits
from launcher.spec.model import ResolvedJob, backend_order
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.verbs.ask_backend import BackendOf, ask_backend, note_if_applied
from launcher.verbs.leftovers import Reaped
from launcher.verbs.move import begin_move, complete_move, end_on_former

WRITER: Final = "reap"


class OpenRun:
    """Takes the steps of `reaping.reap` for one run, until the run has its result, has moved, or stays open."""

    def __init__(self, store: Store, view: RunView, job: ResolvedJob, backend_of: BackendOf, plan: bool) -> None:
        self.store, self.view, self.job, self.backend_of, self.plan = store, view, job, backend_of, plan
        self.backend = backend_order(job)[view.turn]  # its name
        self.said = ask_backend(store, view, backend_of)
        if not plan:  # before anything is concluded from the absence of its object
            note_if_applied(store, view, self.said, backend_of(view.placed or job))
        # a noted deletion is read only where the backend has nothing and says nothing: one request less for every run
        self.deletion = self._deletion()
        self.now = self._situation()
        self.doomed: Handle | None = None  # the object that is about to be deleted
        self.done: list[Reaped] = []

    def rows(self) -> list[Reaped]:
        while self._take(reaping.reap(self.now)):
            pass
        return self.done

    def _take(self, step: object) -> bool:
        """Whether there is another step after this one."""
        match step:
            case steps.EndFormer():
                self._end_former()
                return True
            case steps.SubmitNext():
                return self._submit_next()
            case steps.NoteDeletion(reason):
                self._note_deletion(reason)
                return True
            case steps.EndObject():
                self._end_object()
                return True
            case steps.Move():
                self.done.append(self._move(step))
            case steps.Finish():
                self._finish(step)
            case reaping.Open():
                self.done += self._stays_open(step)
        return False

    def _situation(self) -> Situation:
        view, said = self.view, self.said
        return Situation(
            run=onlookers(view, self.job, said.dead),
            active=said.active,
            evidence=said.reason,
            own=is_own_placement(view, said.here),
            absent=seconds_silent(view) if said.absent else None,
            object=said.seen is not None,
            explained=bool(said.message),
            shared=said.seen is not None and bool(said.active) and said.seen.handle.name != view.run,
            queue=traits(self.backend).on_this_machine,
            waited=view.now - self._waits_since(),
            start_deadline=self.job.limits.start_deadline,
            deletion=self.deletion.reason if self.deletion is not None else None,
            interrupted=bool(said.repair),
        )

    def _waits_since(self) -> float:
        """When the backend whose turn it is got the run."""
        view, seen = self.view, self.said.seen
        made = seen.made if seen is not None else 0.0
        moves = (time for attempt in view.attempts if attempt.moved_to for time in attempt.claimed.values())
        if made and was_applied(view):
            return max((made, *moves))  # its job.json may have been written long after
        head = self.store.head(RunKeys(view.run).job)
        # a submit that was interrupted may give the run to its backend long after it wrote job.json
        return max((head.modified if head is not None else view.now, made, *moves))

    def _message(self) -> str:
        """Why the run has no place, for its result and for the next backend."""
        if reaping.deleted(self.now) and self.deletion is not None:
            return self.deletion.message
        told = self.said.message
        if not reaping.overdue(self.now):
            return told
        return f"not started within {reaping.start_limit(self.now):g} s{': ' + told if told else ''}"

    def _end_former(self) -> None:
        """Cancels the run's objects on the backends that it has left. A row says where one was found."""

        def stopped(name: str) -> None:
            self.done.append(Reaped(self.view.run, "stopped", f"{name} still had it; it has moved on"))

        faults = end_on_former(self.view, self.backend_of, plan=self.plan, tell=stopped)
        self.done += [Reaped(self.view.run, "unreachable", line) for line in faults]
        self.now = self.now._replace(left=True)

    def _submit_next(self) -> bool:
        """Whether the run could not be submitted."""
        run = self.view.run
        try:
            if not self.plan:
                complete_move(self.store, self.view, self.backend_of)
        except (NoCapacity, NotMadeYet) as error:
            self.done.append(Reaped(run, "unsubmitted", str(error)))
        except SlipwayError as error:
            self.done.append(Reaped(run, "unreachable", str(error)))
        else:
            self.done.append(Reaped(run, "moved", f"{self.backend} did not have it yet"))
            return False  # the next reaper looks at what becomes of it
        self.now = self.now._replace(passed_on=True)
        return True

    def _move(self, step: steps.Move) -> Reaped:
        """Moves the run to its next backend, before its object on the present one is ended."""
        run, why, target = (
            self.view.run,
            self._message() or str(step.reason),
            backend_order(self.job)[self.view.turn + 1],
        )
        try:
            if not self.plan:
                begin_move(self.store, self.view, self.backend_of, step, why)
        except Conflict as error:
            return Reaped(run, "unknown", str(error))
        except (NoCapacity, NotMadeYet) as error:
            return Reaped(run, "moved", f"to {target}: {why}; {error}")
        except SlipwayError as error:
            return Reaped(run, "unreachable", f"it may go on at {target}: {error}")
        return Reaped(run, "moved", f"to {target}: {why}")

    def _note_deletion(self, reason: Reason) -> None:
        """Reads the object again, and notes that it goes. Where it cannot be read, nothing is known of it any more."""
        self.now = self.now._replace(noted=True, ended=not self.plan)
        if self.plan:
            return
        active = None
        with suppress(SlipwayError):
            backend = self.backend_of(self.view.placed) if self.view.placed is not None else None
            there = backend.look_up(self.view.run) if backend is not None else None
            # an attempt that the list lacked has begun: the object is not the reaper's to delete
            if there is not None and not unlisted(self.store, self.view):
                event = Event(0, WRITER, 0, "evidence", self._message(), {"reason": reason}, time.time())
                self.store.create(_key(self.view.run), msgspec.json.encode(event))
                self.doomed = there.handle
                self.now = self.now._replace(ended=False)
                active = self.now.active
        self.now = self.now._replace(active=active)

    def _end_object(self) -> None:
        active: bool | None = False
        if not self.plan:
            try:
                active = self._cancel()
            except SlipwayError:
                active = None
        self.now = self.now._replace(active=active, ended=True)

    def _cancel(self) -> bool | None:
        """Deletes the object. Returns whether something of it may still start; None: unknown."""
        backend = self.backend_of(self.view.placed) if self.view.placed is not None else None
        if backend is None or self.doomed is None:
            return None
        backend.cancel([self.doomed])
        there = backend.look_up(self.view.run)
        return there is not None and there.active

    def _finish(self, step: steps.Finish) -> None:
        run, end = self.view.run, f"{step.verdict.outcome}: {step.verdict.reason}"
        if not self.plan:
            last = reaping.concluded(self.now)
            # reads the run again: what changed since may have another end, or none
            result = finish(
                self.store,
                run,
                backend_active=last.active,
                here=_anywhere if reaping.deleted(self.now) else self.said.here,
                dead=self.said.dead,
                writer=WRITER,
                evidence=last.evidence,
                message=self._message(),
                absent=self.said.absent,
            )
            if result is None:
                return  # the run has changed since it was read
            end = f"{result.outcome}: {result.reason}"
        self.done.append(Reaped(run, "ended", end))

    def _stays_open(self, why: Open) -> list[Reaped]:
        run, said = self.view.run, self.said
        match why:
            case Open.UNSUBMITTED:
                again = "submit the same job again"
                if was_applied(self.view):
                    again = "what applied it makes it again, or `launcher cancel` ends it"
                text = f"{self.backend} has no object of this run: if no other cluster has one, {again}"
                return [Reaped(run, "unsubmitted", text)]
            case Open.INTERRUPTED:
                return [Reaped(run, "unsubmitted", said.message)]
            case Open.COMES_BACK:
                return [Reaped(run, "unknown", said.message)] if said.message else []
            case Open.UNDECIDED:
                unseen = "it has no object of this run; another cluster or queue may have one"
                text = f"may have ended, and {self.backend} cannot tell: {said.message or unseen}"
                return [Reaped(run, "unknown", text)]

    def _deletion(self) -> _Deletion | None:
        """What a reaper noted before it deleted the run's object; it may have died before it wrote the result."""
        if self.said.seen is not None or self.said.message or self.view.since_move:
            return None
        answer = self.store.read(_key(self.view.run))
        if answer is None:
            return None
        event = decode_record(answer[1].key, answer[0], Event)
        return _Deletion(named(event.fields.get("reason", "")) or Reason.UNSCHEDULABLE, event.message)


class _Deletion(NamedTuple):
    """Why a reaper deleted the object of a run that had not started."""

    reason: Reason
    message: str


def _key(run: str) -> str:
    """The key of the event before a deletion."""
    return RunKeys(run).event(0, WRITER, 0)


def _anywhere(placement: Placement | None) -> bool:
    """The `here` of a run whose object a reaper has deleted."""
    return True
