"""What the backend of a run says of it, and what that means for a run whose end nobody has written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from launcher.backends.abilities import Spread, Strands
from launcher.backends.base import Backend, BackendObservation
from launcher.errors import BadInput, SlipwayError
from launcher.protocol import decide
from launcher.protocol.applied import note_applied, was_applied
from launcher.protocol.finish import Here, is_own_placement, nowhere, seconds_silent
from launcher.protocol.read import read_events
from launcher.protocol.view import RunView
from launcher.reasons import Reason, named
from launcher.results.run_cost import HANDLE, REFUSED, STATE
from launcher.spec.model import ResolvedJob
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.userdata.cluster_contexts import reached
from launcher.userdata.submits import repair
from launcher.verbs.applied import listed_by_gitops

# of a run that GitOps applied and whose object is gone
ABSENT = (
    "its object is gone, and what applied it (Argo CD, Flux) may make it again: unknown until "
    f"{decide.GONE_FOR_GOOD / 60:.0f} min after its last heartbeat; `launcher cancel` ends it now"
)


BackendOf = Callable[[ResolvedJob], Backend | None]


class BackendReport(NamedTuple):
    """What a backend says of a run. `active`: something runs or may start; None when it cannot be known from here.
    `reason`, `message`: why the object ended, why it does not start, or why nothing is known. `seen`: the object.
    `here`: whether a claim was made on this backend. `dead`: whether the process of such a claim has certainly ended.
    """

    active: bool | None
    reason: Reason | None = None
    message: str = ""
    seen: BackendObservation | None = None
    here: Here = nowhere
    dead: Here = nowhere
    repair: str = ""  # the command that gives the run to its backend, after an interrupted submit
    absent: bool = False  # the run was applied without submit, and its object is gone


def ask_backend(store: Store, view: RunView, backend_of: BackendOf) -> BackendReport:
    """Asks the run's backend. A backend on which the run does not run (another folder's queue, another cluster) knows
    nothing of it, even if it has an object of that name."""
    job = view.placed
    backend = backend_of(job) if job is not None else None
    if job is None or backend is None:
        return BackendReport(None)
    try:
        observation = backend.look_up(view.run)
        if observation is None and isinstance(backend, Spread):
            for line in backend.elsewhere([view.run]).values():
                return BackendReport(None, message=f"unknown from here: {line}")
        if observation is None and isinstance(backend, Strands):
            observation = backend.stranded(view.run, job)
        if observation is None and not view.since_move and not view.cancelled:
            command = repair(store.url, view.run, backend.place)
            if command:
                why = _refusal(store, view) or "its submit was interrupted"
                return BackendReport(None, message=f"{why}, and no backend has the run: {command}", repair=command)
        here = partial(backend.here, seen=observation)
        if (observation is None or not observation.active) and not is_own_placement(view, here):
            return BackendReport(None, message=_elsewhere(view))
        absent = observation is None and (
            was_applied(view) or (bool(view.attempts) and listed_by_gitops(backend, view))
        )
    except SlipwayError as error:
        return BackendReport(None, message=str(error).partition("\n")[0])
    if observation is not None:
        return BackendReport(
            observation.active,
            named(observation.reason),
            observation.evidence,
            observation,
            here,
            partial(backend.dead, seen=observation),
        )
    told = absent and bool(view.attempts) and seconds_silent(view) < decide.GONE_FOR_GOOD
    return BackendReport(
        False, None, ABSENT if told else "", None, here, partial(backend.dead, seen=observation), absent=absent
    )


def _refusal(store: Store, view: RunView) -> str:
    """The provider's words, where the last that the store knows of a run's machines is that they were refused."""
    told = [event for event in read_events(store, view).events if event.kind == HANDLE and event.fields.get(STATE)]
    last = max(told, key=lambda event: (event.time, event.seq), default=None)
    return last.message if last is not None and last.fields[STATE] == REFUSED else ""


def note_if_applied(store: Store, view: RunView, said: BackendReport, backend: Backend | None = None) -> None:
    """Notes that somebody applies the object of a run that was submitted: its file was committed later. Only of a run
    that has started, because the absence of another's object says nothing in any case. `backend`: asked about an object
    that has no mark, too. A store that takes no writes is passed over."""
    if not view.attempts or was_applied(view):
        return
    seen = said.seen
    with suppress(SlipwayError):
        if seen is None:
            applied = said.absent
        else:
            applied = seen.applied or (seen.active and backend is not None and listed_by_gitops(backend, view))
        if applied:
            note_applied(store, view.run, seen.handle.place.get("namespace", "") if seen is not None else "")


def _elsewhere(view: RunView) -> str:
    """Where the run's claims say that it runs, for a run that is unknown here."""
    from launcher.spec.backends import traits

    local = view.job is not None and traits(view.job.backend).on_this_machine
    for attempt in view.since_move[-1:]:
        for claim in attempt.claims.values():
            by = "another queue than this folder's" if local else "another cluster than the one that is asked here"
            host = claim.placement.host or "a host that its claim does not name"
            return f"unknown from here: attempt {attempt.number} was started by {by}, on {host}"
    return ""


def backends(profile: Profile, waiting: float | None = None) -> BackendOf:
    """Returns a function: job -> its backend, with this machine's settings and the job's own block (namespace,
    workspace). Jobs with equal blocks share a backend; None when the SDK or settings are missing. `waiting`: how many
    seconds a submit there may wait for machines, whatever the job says."""
    from launcher.backends.base import backend_of

    common = {} if waiting is None else {"waiting": waiting}

    by_block: dict[tuple[str, bytes], Backend | None] = {}

    def get(job: ResolvedJob) -> Backend | None:
        key = (job.backend, msgspec.json.encode([job.options, reached(job)], order="sorted"))
        if key not in by_block:
            try:
                by_block[key] = backend_of(job, {**profile.backend_options(job.backend), **common})
            except BadInput:
                by_block[key] = None
        return by_block[key]

    return get
