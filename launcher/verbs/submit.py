"""Submit, exactly once: writes job.json, looks the run up on the backend by its name, and creates it there if it is
missing. The block **submit** of docs/explanation/protocol.md has the details.

Every step can be repeated, so the same command repairs a crash or a lost response at any point.
`launcher.protocol.decide.submit` decides the steps; this module takes them for a whole group at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from launcher import foreign
from launcher.backends.base import Backend, Handle, Rendered
from launcher.deleting.guard import guard, served_by
from launcher.errors import Conflict, NotFound, SlipwayError
from launcher.parallel import Threads
from launcher.protocol import decide, steps
from launcher.protocol.applied import note_applied
from launcher.protocol.ceiling import write_ceilings
from launcher.protocol.deleted import read_deleted, told
from launcher.protocol.facts import facts
from launcher.protocol.finish import adopt, complete_works, finish, lacks_works, nowhere
from launcher.protocol.read import read_run
from launcher.protocol.records import Deleted, Result
from launcher.protocol.view import RunView
from launcher.spec.backends import traits
from launcher.spec.hashing import decode_job, encode_job, run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve import Group
from launcher.spec.turns import as_written
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.find import GroupRecord
from launcher.store.known import entry, marked
from launcher.store.opening import make_store
from launcher.userdata.interrupted import noted
from launcher.verbs.ended import compare_ended, compare_results

if TYPE_CHECKING:
    from launcher.spec.code import Packed
    from launcher.spec.environment import LocalEnvironment
    from launcher.verbs.estimate import CeilingPlan

WRITER: Final = "submit"
PARALLEL: Final = 16  # requests to the store at once
ADOPTED: Final = "adopted"  # the reason when another run had done the same work
DELETED: Final = "deleted"  # the reason when the run succeeded and its outputs were deleted since


@runtime_checkable
class Checks(Protocol):
    """A backend that can refuse jobs before anything is written."""

    def check(self, group: Iterable[ResolvedJob]) -> None: ...


@runtime_checkable
class Finds(Protocol):
    """A backend that can look up many runs at once."""

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The handles of the runs that it has. Raises Conflict for an object that does not run what its jobs say."""
        ...


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


class _One(msgspec.Struct):
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


def submit(
    group: Group,
    store: Store,
    backend: Backend,
    *,
    overlays: Mapping[str, Packed] | None = None,
    checked: Path | None = None,
    plan: bool = False,
    notes: Path | None = None,
    ceiling: CeilingPlan | None = None,
    tell: Callable[[str], None] = lambda line: None,
    environment: LocalEnvironment | None = None,
) -> list[Submitted]:
    """Submits a group to one backend; returns the outcome of each run, in the group's order.

    overlays  digest -> what the jobs name and the store may lack: code overlays, Python environments
    checked   folder that remembers which stores were found sound, so that each is checked once; None: not checked
    plan      only says what would be done; writes nothing
    notes     folder that remembers a submit until its end (launcher.userdata.interrupted); None: it is not remembered
    ceiling   what the runs may cost together; None: what an earlier submit of this group said, if any did
    tell      is given a line for each new run that only its code or packages make another one than the newest of its
              name; `environment`: this machine's packages, where the jobs run with them

    Raises BadInput (the backend can never run it, or the store's create-only puts do not hold), Conflict (another job
    under that name), Unreachable.
    """
    rendered = backend.render(group.runs)
    with Threads(PARALLEL, "submit") as threads:
        runs = {run_id(job, hashed): (job, hashed) for job in group.runs for hashed in (run_hash(job),)}
        views = dict(zip(runs, threads.map(lambda run: _read(store, run), runs), strict=True))
        ones = {
            run: _One(job, hashed, _known(views[run], job, hashed), views[run]) for run, (job, hashed) in runs.items()
        }
        new = [pending.job for pending in ones.values() if pending.known.run.result is None]
        if isinstance(backend, Checks):
            backend.check(new)
        _refuse_deleted(store, group, ones, threads)
        compare_ended(backend, [pending.view for pending in ones.values()])
        if new:
            unknown = [one.job for one in ones.values() if one.view.job is None]
            from launcher.verbs.difference import only_code_or_packages_differ

            for line in only_code_or_packages_differ(store, group, unknown, overlays or {}, environment):
                tell(line)
        if new and not plan:
            make_store(store, marked(checked, store.url) if checked is not None else None)
            check_store(store, checked)
            _upload(store, new, overlays or {})
        with noted(store, backend.place if new else "", [run_id(job) for job in new], None if plan else notes):
            _Rounds(group, store, backend, rendered, ones, threads, plan, overlays or {}, ceiling).go()
    return [pending.done for pending in ones.values() if pending.done is not None]


class _Rounds:
    """Takes the next step of every run, all steps of one kind together, until every run is done."""

    def __init__(
        self,
        group: Group,
        store: Store,
        backend: Backend,
        rendered: Rendered,
        ones: dict[str, _One],
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
        while left := {run: pending for run, pending in self.ones.items() if pending.done is None}:
            for pending in left.values():
                pending.action = decide.submit(pending.known)
            self._each(left, steps.PutJob, self.put_job)
            waiting = [run for run, pending in left.items() if not isinstance(pending.action, steps.PutJob)]
            if len(waiting) == len(left):
                self._rest(left)

    def _rest(self, left: dict[str, _One]) -> None:
        """Takes the steps that need every job.json to be written."""
        if not self.grouped:
            _put_group(self.store, self.group, self.ones)
            self.grouped = True
            if self.ceiling is not None:  # before a backend starts one of them
                open_runs = [run for run, one in self.ones.items() if one.known.run.result is None]
                write_ceilings(self.store, self.group.id, *self.ceiling, open_runs)
            jobs = [pending.job for pending in self.ones.values() if pending.known.run.result is None]
            succeeded = {run: one for run, one in self.ones.items() if one.known.run.result == "succeeded"}
            for _ in self.threads.map(lambda item: self.complete(*item), succeeded.items()):
                pass  # without its record the guard takes the outputs of a run for deleted
            ended = [one.job for one in succeeded.values()]
            guard(self.store, jobs, ended, lambda: _upload(self.store, jobs, self.overlays))
        self.look_up({run: pending for run, pending in left.items() if isinstance(pending.action, steps.LookUp)})
        for run, pending in left.items():
            match pending.action:
                case steps.Refuse():
                    raise Conflict(f"{run}: the backend has another job under that name; give this job another name")
                case steps.Attached():
                    state = "submitted" if pending.known.submitted else "attached"
                    pending.done = Submitted(run, self._name(run), state)
                case steps.CancelThere():
                    if pending.handle is not None and not self.plan:
                        self.backend.cancel([pending.handle])
                    pending.done = Submitted(
                        run, self._name(run), "cancelled", "cancelled", "it was cancelled meanwhile"
                    )
        self._each(left, steps.ReportResult, self.report)
        self._each(left, steps.Finish, self.finish)
        self._each(left, steps.LookForWork, self.look_for_work)
        compare_results(
            self.backend,
            {
                pending.done_before.adopted.run: run
                for run, pending in left.items()
                if pending.done_before is not None and pending.done_before.adopted is not None
            },
        )
        self._each(left, steps.Adopt, self.adopt)
        self.give({run: pending for run, pending in left.items() if isinstance(pending.action, steps.Submit)})

    def _each(self, left: Mapping[str, _One], kind: type, step: Callable[[str, _One], None]) -> None:
        """Takes the steps of one kind in parallel."""
        items = [(run, pending) for run, pending in left.items() if isinstance(pending.action, kind)]
        for _ in self.threads.map(lambda item: step(*item), items):
            pass

    def put_job(self, run: str, one: _One) -> None:
        one.wrote = not self.plan and self.store.create(layout.RunKeys(run).job, encode_job(as_written(one.job)))
        if not self.plan and not one.wrote:
            stored = decode_job(self.store.get(layout.RunKeys(run).job))
            if run_hash(stored) != one.hashed:
                raise Conflict(f"{run}: the store has another job under that name")
        one.known = one.known._replace(job=True)

    def look_up(self, asked: Mapping[str, _One]) -> None:
        """Looks the runs up on the backend, with one call where the backend supports it."""
        if not asked:
            return
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

    def complete(self, run: str, one: _One) -> None:
        """Writes a missing works/ record: the runtime may have died right after the result."""
        result = one.view.result
        if one.recorded or result is None:
            return
        if result.adopted or lacks_works(self.store, one.job, result, run):
            one.deleted = read_deleted(self.store, run)
            if one.deleted is None and result.adopted is None and not self.plan:
                complete_works(self.store, one.job, result, run)
        one.recorded = True

    def report(self, run: str, one: _One) -> None:
        """Reports how a run has ended, and completes its record of the work."""
        result = one.view.result
        reason, message = (str(result.reason), result.message) if result else ("", "")
        self.complete(run, one)
        if one.deleted is not None:
            reason, message = DELETED, told(one.deleted)
        elif result is not None and result.adopted is not None:
            reason = ADOPTED
        one.done = Submitted(run, self._name(run), one.action.outcome, reason, message)

    def finish(self, run: str, one: _One) -> None:
        if self.plan:
            one.done = Submitted(run, self._name(run), one.action.verdict.outcome, str(one.action.verdict.reason))
            return
        finish(self.store, run, backend_active=None, here=nowhere, writer=WRITER)
        one.view = _read(self.store, run)
        one.known = one.known._replace(run=facts(one.view, one.job))

    def look_for_work(self, run: str, one: _One) -> None:
        """Looks for another run that did the same work already. Inputs outside the store are left to the runtime, which
        sees them as the command would."""
        from launcher.runtime.adoption import find_done

        one.done_before = find_done(self.store, one.job, run)
        one.known = one.known._replace(served=one.done_before is not None)

    def adopt(self, run: str, one: _One) -> None:
        assert one.done_before is not None
        if self.plan:
            one.done = Submitted(run, self._name(run), "succeeded", ADOPTED)
            return
        adopt(self.store, one.view, one.job, one.done_before, writer=WRITER)
        one.view = _read(self.store, run)
        one.known = one.known._replace(run=facts(one.view, one.job))

    def give(self, chosen: Mapping[str, _One]) -> None:
        """Calls backend.submit once for all runs, then checks for cancel.json once more."""
        if not chosen:
            return
        if not self.plan:
            objects = {run: self.rendered.objects[run] for run in chosen}
            documents = {name: self.rendered.documents[name] for name in dict.fromkeys(objects.values())}
            handles = self.backend.submit(Rendered(documents, objects), [pending.job for pending in chosen.values()])
            for run, pending in chosen.items():
                pending.handle = handles[run]
        heads = self.threads.map(lambda run: self.store.head(layout.RunKeys(run).cancel), chosen)
        for pending, cancelled in zip(chosen.values(), heads, strict=True):
            pending.known = pending.known._replace(
                submitted=True, run=pending.known.run._replace(cancelled=cancelled is not None)
            )

    def _name(self, run: str) -> str:
        return self.group.names.get(run, run)


def _read(store: Store, run: str) -> RunView:
    """What the store holds of a run. A new run costs one request, not one for each possible record."""
    if next(iter(store.scan(layout.RunKeys(run).prefix)), None) is None:
        return RunView(run)
    try:
        return read_run(store, run, full=False)
    except NotFound:
        return RunView(run)


def _known(view: RunView, job: ResolvedJob, hashed: str) -> decide.Submission:
    return decide.Submission(facts(view, job), job=_ours(view, hashed), served=None, turn=job.turn)


def _ours(view: RunView, hashed: str) -> bool:
    """Whether job.json exists. Raises Conflict when its run hash differs from `hashed`."""
    if view.job is not None and run_hash(view.job) != hashed:
        raise Conflict(f"{view.run}: the store has another job under that name")
    return view.job is not None


def _refuse_deleted(store: Store, group: Group, ones: Mapping[str, _One], threads: Threads) -> None:
    """Raises Conflict, before anything is written, when a run that has not ended reads deleted outputs."""
    readers: dict[str, str] = {}
    for run, pending in ones.items():
        for above in group.edges.get(run, ()) if pending.known.run.result is None else ():
            if above in ones and ones[above].known.run.result == "succeeded":
                readers.setdefault(above, run)
    for above, record in zip(readers, threads.map(lambda run: read_deleted(store, run), readers), strict=True):
        if record is not None and not served_by(store, work_hash(ones[above].job)):
            reader, maker = (group.names.get(run, run) for run in (readers[above], above))
            raise Conflict(
                f"{reader} reads what {maker} made, and {told(record)}. Compute it again: launcher retry {above}, and "
                "submit this when that has succeeded; or all of it: --fresh N"
            )


def _upload(store: Store, jobs: Collection[ResolvedJob], overlays: Mapping[str, Packed]) -> None:
    if any(job.blobs() for job in jobs):
        from launcher.verbs.overlays import upload_overlays

        upload_overlays(store, jobs, overlays)


def _put_group(store: Store, group: Group, runs: Iterable[str]) -> None:
    """Writes groups/<group>.json. The same runs have the same group id, so a second submit writes nothing."""
    record = GroupRecord(
        id=group.id,
        runs=tuple(runs),
        names=dict(group.names),
        edges={run: tuple(others) for run, others in group.edges.items()},
        nonce=uuid.uuid4().hex,
    )
    store.create(layout.group(group.id), msgspec.json.encode(record))


def check_store(store: Store, checked: Path | None) -> None:
    """Raises Unfit when the store's create-only puts do not work; the folder `checked` remembers the stores where they
    do."""
    if checked is None:
        return
    marker = entry(checked, store.url)
    if marker.exists():
        return
    from launcher.store.check import conditional_puts_hold

    conditional_puts_hold(store)
    try:
        checked.mkdir(parents=True, exist_ok=True)
        marker.write_text(store.url.partition("?")[0] + "\n")
    except OSError:
        return  # the marker only saves time: the next submit checks again


def failure(done: Iterable[Submitted]) -> SlipwayError | None:
    """The error for runs that had failed or were cancelled before; it names the commands that start them again."""
    lines = [
        foreign.line(
            f"{submitted.run} {submitted.state}{': ' + submitted.reason if submitted.reason else ''}"
            f"{' (' + submitted.message + ')' if submitted.message else ''}; again: launcher retry {submitted.run}"
        )
        for submitted in done
        if submitted.state in ("failed", "cancelled")
    ]
    return SlipwayError("\n".join(lines)) if lines else None
