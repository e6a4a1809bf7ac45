"""Submit, exactly once: writes job.json, looks the run up on the backend by its name, and creates it there if it is
missing. The block **submit** of docs/explanation/protocol.md has the details.

Every step can be repeated, so the same command repairs a crash or a lost response at any point.
`launcher.protocol.decide.submit` names the next step of each run, `launcher.protocol.steps` the order in which a group
takes them, and `launcher.verbs.submit_steps` takes them. Here is what comes before: everything that can refuse the
group without leaving a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import safe_text
from launcher.backends.abilities import Checks, ComparesEnded
from launcher.backends.base import Backend
from launcher.deleting.guard import served_by
from launcher.errors import BadInput, Conflict, SlipwayError, Unreachable
from launcher.parallel import Threads
from launcher.protocol import decide
from launcher.protocol.deleted import describe_deletion, read_deleted
from launcher.protocol.facts import facts
from launcher.protocol.view import RunView
from launcher.selection.select import say
from launcher.spec.hashing import run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve.group import Group
from launcher.store.base import Store
from launcher.store.opening import check_store, make_store, marked
from launcher.userdata.submits import noted
from launcher.verbs.submit_steps import PARALLEL, GroupSubmit, PendingRun, read_pending, upload
from launcher.verbs.submit_steps import Submitted as Submitted

if TYPE_CHECKING:
    from launcher.spec.code.environment import LocalEnvironment
    from launcher.spec.code.overlay import Packed
    from launcher.verbs.estimate import CeilingPlan


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
    notes     folder that remembers a submit until its end (launcher.userdata.submits); None: none does
    ceiling   what the runs may cost together; None: what an earlier submit of this group said, if any did
    tell      is given a line for each new run that only its code, image or packages make another one than the newest of
              its name; `environment`: this machine's packages, where the jobs run with them

    Raises BadInput (the backend can never run it, or the store's create-only puts do not hold), Conflict (another job
    under that name), Unreachable.
    """
    rendered = backend.render(group.runs)
    with Threads(PARALLEL, "submit") as threads:
        runs = {run_id(job, hashed): (job, hashed) for job in group.runs for hashed in (run_hash(job),)}
        views = dict(zip(runs, threads.map(lambda run: read_pending(store, run), runs), strict=True))
        ones = {run: _pending(job, hashed, views[run]) for run, (job, hashed) in runs.items()}
        new = [pending.job for pending in ones.values() if pending.known.run.result is None]
        if isinstance(backend, Checks):
            backend.check(new)
        _refuse_deleted(store, group, ones, threads)
        _compare_ended(backend, [pending.view for pending in ones.values()])
        if new:
            unknown = [one.job for one in ones.values() if one.view.job is None]
            from launcher.verbs.overlays import only_software_differs

            for line in only_software_differs(store, group, unknown, overlays or {}, environment):
                tell(line)
        if new and not plan:
            make_store(store, marked(checked, store.url) if checked is not None else None)
            check_store(store, checked)
            upload(store, new, overlays or {})
        with noted(store, backend.place if new else "", [run_id(job) for job in new], None if plan else notes):
            GroupSubmit(group, store, backend, rendered, ones, threads, plan, overlays or {}, ceiling).go()
    return [pending.done for pending in ones.values() if pending.done is not None]


def _pending(job: ResolvedJob, hashed: str, view: RunView) -> PendingRun:
    known = decide.Submission(facts(view, job), job=_ours(view, hashed), served=None, turn=job.turn)
    return PendingRun(job, hashed, known, view)


def _ours(view: RunView, hashed: str) -> bool:
    """Whether job.json exists. Raises Conflict when its run hash differs from `hashed`."""
    if view.job is not None and run_hash(view.job) != hashed:
        raise Conflict(f"{view.run}: the store has another job under that name")
    return view.job is not None


def _compare_ended(backend: Backend, views: Collection[RunView]) -> None:
    """Raises Conflict when a run that has ended, or the one whose result it adopted, ran something else than its job
    says. A backend that is away is a note: without its objects the results in the store are all there is."""
    results = {view.run: view.result for view in views if view.result is not None}
    if not results or not isinstance(backend, ComparesEnded):
        return
    adopted = [result.adopted.run for result in results.values() if result.adopted is not None]
    try:
        backend.compare_ended(dict.fromkeys([*results, *adopted]))
    except (BadInput, Unreachable) as error:
        say(f"what has ended is not compared with its job: {str(error).partition(chr(10))[0]}")


def _refuse_deleted(store: Store, group: Group, ones: Mapping[str, PendingRun], threads: Threads) -> None:
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
                f"{reader} reads what {maker} made, and {describe_deletion(record)}. Compute it again: "
                f"launcher retry {above}, and submit this when that has succeeded; or all of it: --fresh N"
            )


def failure(done: Iterable[Submitted]) -> SlipwayError | None:
    """The error for runs that had failed or were cancelled before; it names the commands that start them again."""
    lines = [
        safe_text.line(
            f"{submitted.run} {submitted.state}{': ' + submitted.reason if submitted.reason else ''}"
            f"{' (' + submitted.message + ')' if submitted.message else ''}; again: launcher retry {submitted.run}"
        )
        for submitted in done
        if submitted.state in ("failed", "cancelled")
    ]
    return SlipwayError("\n".join(lines)) if lines else None
