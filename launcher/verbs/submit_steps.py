"""Takes the steps of a submit: for each kind of step, what it reads and writes for all the runs that take it together.
`launcher.protocol.decide.submit` names each run's next step, `launcher.protocol.steps` says in which order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from launcher.backends.abilities import ComparesEnded, Finds
from launcher.backends.base import Backend, Handle, Rendered
from launcher.deleting.guard import guard
from launcher.errors import Conflict, NotFound
from launcher.parallel import Threads
from launcher.protocol import decide, steps
from launcher.protocol.applied import note_applied
from launcher.protocol.ceiling import write_ceilings
from launcher.protocol.deleted import describe_deletion, read_deleted
from launcher.protocol.facts import facts
from launcher.protocol.finish import adopt, complete_works, finish, lacks_works, nowhere
from launcher.protocol.read import read_run
from launcher.protocol.records import Deleted, Result
from launcher.protocol.steps import next_round
from launcher.protocol.view import RunView
from launcher.spec.backends import traits
from launcher.spec.hashing import decode_job, encode_job, run_hash
from launcher.spec.model import ResolvedJob, as_written
from launcher.spec.resolve.group import Group
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.find import GroupRecord

if TYPE_CHECKING:
    from launcher.spec.code.overlay import Packed
    from launcher.verbs.estimate import CeilingPlan

WRITER: Final = "submit"
PARALLEL: Final = 16  # requests to the store at once
ADOPTED: Final = "adopted"  # the reason when another run had done the same work
DELETED: Final = "deleted"  # the reason when the run succeeded and its outputs were deleted since


class Submitted(msgspec.Struct, frozen=True):
    """The outcome of submitting one run. `state`: submitted | attached | succeeded | failed | cancelled."""

    run: str
    name: str
    state: str
    reason: str = ""
    message: str = ""

    @property
    def why(self) -> str:
        """The reason, unless it only repeats the state."""
        return "" if self.reason == self.state else self.reason

    @property
    def final(self) -> bool:
        return self.state in ("succeeded", "failed", "cancelled")


class PendingRun(msgspec.Struct):
    """The state of one run during a submit."""

    job: ResolvedJob
    hashed: str  # the run hash, kept because it is the most expensive computation of a submit
    known: decide.Submission
    view: RunView
    handle: Handle | None = None
    wrote: bool = False  # this submit has created job.json
    done_before: Result | None = None  # the result of another run that did the same work
    recorded: bool = False  # its record of the work is not missing, or must be
    deleted: Deleted | None = None  # then it must be missing
    done: Submitted | None = None
    action: Any = None


class GroupSubmit:
    """One submit of a group to one backend. `take` takes one kind of step for all the runs that are at it."""

    def __init__(
        self,
        group: Group,
        store: Store,
        backend: Backend,
        rendered: Rendered,
        ones: dict[str, PendingRun],
        threads: Threads,
        plan: bool,
        overlays: Mapping[str, Packed],
        ceiling: CeilingPlan | None,
    ) -> None:
        self.ceiling = ceiling
        self.group = group
        self.store = store
        self.backend = backend
        self.rendered = rendered
        self.ones = ones
        self.threads = threads
        self.plan = plan
        self.overlays = overlays
        self.grouped = plan

    def go(self) -> None:
        """Takes the next steps until every run is done. What a step read or wrote changes what is known of its run, so
        every run is decided again after each kind of step."""
        while open_runs := {run: one for run, one in self.ones.items() if one.done is None}:
            pending = {run: decide.submit(one.known) for run, one in open_runs.items()}
            for run, step in pending.items():
                open_runs[run].action = step
            kind, runs = next_round(pending, self.grouped)
            self.take(kind, {run: open_runs[run] for run in runs})

    def take(self, kind: type, ones: Mapping[str, PendingRun]) -> None:
        match kind:
            case steps.PutJob:
                self._each(ones, self.put_job)
            case steps.PutGroup:
                self.put_group()
            case steps.LookUp:
                self.look_up(ones)
            case steps.Refuse:
                run = next(iter(ones))
                raise Conflict(f"{run}: the backend has another job under that name; give this job another name")
            case steps.Attached:
                self._each(ones, self.attached)
            case steps.CancelThere:
                self._each(ones, self.cancel)
            case steps.ReportResult:
                self._each(ones, self.report)
            case steps.Finish:
                self._each(ones, self.finish)
            case steps.LookForWork:
                self._each(ones, self.look_for_work)
                self.compare_done(ones)
            case steps.Adopt:
                self._each(ones, self.adopt)
            case steps.Submit:
                self.give(ones)

    def _each(self, ones: Mapping[str, PendingRun], step: Callable[[str, PendingRun], None]) -> None:
        """Takes a step for several runs in parallel."""
        for _ in self.threads.map(lambda item: step(*item), ones.items()):
            pass

    def put_job(self, run: str, one: PendingRun) -> None:
        """Creates job.json: from now on the run is meant, and any submit of it goes on from here."""
        one.wrote = not self.plan and self.store.create(layout.RunKeys(run).job, encode_job(as_written(one.job)))
        if not self.plan and not one.wrote:
            stored = decode_job(self.store.get(layout.RunKeys(run).job))
            if run_hash(stored) != one.hashed:
                raise Conflict(f"{run}: the store has another job under that name")
        one.known = one.known._replace(job=True)

    def put_group(self) -> None:
        """Writes what must be there before a backend starts one of the runs: groups/<group>.json, the ceiling, the
        records of what has succeeded, the code. The same runs have the same group id, so a second submit writes no
        group."""
        edges = {run: tuple(others) for run, others in self.group.edges.items()}
        record = GroupRecord(self.group.id, tuple(self.ones), dict(self.group.names), edges, uuid.uuid4().hex)
        self.store.create(layout.group(self.group.id), msgspec.json.encode(record))
        self.grouped = True
        open_runs = {run: one for run, one in self.ones.items() if one.known.run.result is None}
        if self.ceiling is not None:
            write_ceilings(self.store, self.group.id, *self.ceiling, list(open_runs))
        jobs = [one.job for one in open_runs.values()]
        succeeded = {run: one for run, one in self.ones.items() if one.known.run.result == "succeeded"}
        self._each(succeeded, self.complete)  # without its record the guard takes the outputs of a run for deleted
        ended = [one.job for one in succeeded.values()]
        guard(self.store, jobs, ended, lambda: upload(self.store, jobs, self.overlays))

    def look_up(self, asked: Mapping[str, PendingRun]) -> None:
        """Looks the runs up on the backend, with one call where the backend supports it."""
        if isinstance(self.backend, Finds):
            handles = self.backend.find(asked)
        else:
            observations = {run: self.backend.look_up(run) for run in asked}
            handles = {run: each.handle for run, each in observations.items() if each is not None}
        for run, pending in asked.items():
            pending.handle = handles.get(run)
            ours = pending.handle is not None and pending.handle.fingerprint == pending.hashed
            there = decide.BackendObject(there=pending.handle is not None, ours=ours)
            if ours and pending.handle is not None and pending.wrote and traits(pending.job.backend).carries:
                # it was there before job.json: somebody applied it, and may do so again
                note_applied(self.store, run, pending.handle.place.get("namespace", ""))
            pending.known = pending.known._replace(object=there)

    def attached(self, run: str, one: PendingRun) -> None:
        one.done = Submitted(run, self._name(run), "submitted" if one.known.submitted else "attached")

    def cancel(self, run: str, one: PendingRun) -> None:
        if one.handle is not None and not self.plan:
            self.backend.cancel([one.handle])
        one.done = Submitted(run, self._name(run), "cancelled", "cancelled", "it was cancelled meanwhile")

    def complete(self, run: str, one: PendingRun) -> None:
        """Writes a missing works/ record: the runtime may have died right after the result."""
        result = one.view.result
        if one.recorded or result is None:
            return
        if result.adopted or lacks_works(self.store, one.job, result, run):
            one.deleted = read_deleted(self.store, run)
            if one.deleted is None and result.adopted is None and not self.plan:
                complete_works(self.store, one.job, result, run)
        one.recorded = True

    def report(self, run: str, one: PendingRun) -> None:
        """Reports how a run has ended, and completes its record of the work."""
        result = one.view.result
        reason, message = (str(result.reason), result.message) if result else ("", "")
        self.complete(run, one)
        if one.deleted is not None:
            reason, message = DELETED, describe_deletion(one.deleted)
        elif result is not None and result.adopted is not None:
            reason = ADOPTED
        one.done = Submitted(run, self._name(run), one.action.outcome, reason, message)

    def finish(self, run: str, one: PendingRun) -> None:
        if self.plan:
            one.done = Submitted(run, self._name(run), one.action.verdict.outcome, str(one.action.verdict.reason))
            return
        finish(self.store, run, backend_active=None, here=nowhere, writer=WRITER)
        one.view = read_pending(self.store, run)
        one.known = one.known._replace(run=facts(one.view, one.job))

    def look_for_work(self, run: str, one: PendingRun) -> None:
        """Looks for another run that did the same work already. Inputs outside the store are left to the runtime, which
        sees them as the command would."""
        from launcher.runtime.member.adoption import find_done

        one.done_before = find_done(self.store, one.job, run)
        one.known = one.known._replace(served=one.done_before is not None)

    def compare_done(self, ones: Mapping[str, PendingRun]) -> None:
        """Raises Conflict when an object whose result is about to be adopted ran something else than its job says."""
        takers = {one.done_before.adopted.run: run for run, one in ones.items()
                  if one.done_before is not None and one.done_before.adopted is not None}  # fmt: skip
        if not takers or not isinstance(self.backend, ComparesEnded):
            return
        try:
            self.backend.compare_ended(takers)
        except Conflict as error:  # job.json of the takers is written, and it keeps the results from being deleted
            raise Conflict(f"{error}. First of all: launcher cancel {' '.join(takers.values())}") from None

    def adopt(self, run: str, one: PendingRun) -> None:
        assert one.done_before is not None
        if self.plan:
            one.done = Submitted(run, self._name(run), "succeeded", ADOPTED)
            return
        adopt(self.store, one.view, one.job, one.done_before, writer=WRITER)
        one.view = read_pending(self.store, run)
        one.known = one.known._replace(run=facts(one.view, one.job))

    def give(self, chosen: Mapping[str, PendingRun]) -> None:
        """Calls backend.submit once for all runs, then checks for cancel.json once more."""
        if not self.plan:
            objects = {run: self.rendered.objects[run] for run in chosen}
            documents = {name: self.rendered.documents[name] for name in dict.fromkeys(objects.values())}
            handles = self.backend.submit(Rendered(documents, objects), [pending.job for pending in chosen.values()])
            for run, pending in chosen.items():
                pending.handle = handles[run]
        # a cancel that came between the reading and backend.submit found nothing to end
        heads = self.threads.map(lambda run: self.store.head(layout.RunKeys(run).cancel), chosen)
        for pending, cancelled in zip(chosen.values(), heads, strict=True):
            pending.known = pending.known._replace(
                submitted=True, run=pending.known.run._replace(cancelled=cancelled is not None)
            )

    def _name(self, run: str) -> str:
        return self.group.names.get(run, run)


def read_pending(store: Store, run: str) -> RunView:
    """What the store holds of a run. A new run costs one request, not one for each possible record."""
    if next(iter(store.scan(layout.RunKeys(run).prefix)), None) is None:
        return RunView(run)
    try:
        return read_run(store, run, full=False)
    except NotFound:
        return RunView(run)


def upload(store: Store, jobs: Collection[ResolvedJob], overlays: Mapping[str, Packed]) -> None:
    if any(job.blobs() for job in jobs):
        from launcher.verbs.overlays import upload_overlays

        upload_overlays(store, jobs, overlays)
