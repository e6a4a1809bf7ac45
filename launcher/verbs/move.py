"""Move: a run that was preempted or has no place goes on at the next of its backends, from its last checkpoint.

First the claim that moves it (`launcher.protocol.finish`), then its objects on the backends that it has left are ended,
then it is submitted. Whoever dies in between leaves a claim from which the next `move` or `reap` goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from launcher.backends.abilities import Checks, SentParts
from launcher.backends.base import Backend
from launcher.errors import BadInput, Conflict, NoCapacity, NotFound, SlipwayError
from launcher.protocol import decide
from launcher.protocol.finish import onlookers, put_move
from launcher.protocol.read import read_run
from launcher.protocol.steps import Move
from launcher.protocol.view import RunView
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob, at_turn, backend_order
from launcher.store.base import Store
from launcher.verbs.ask_backend import BackendOf
from launcher.verbs.retry import group_of
from launcher.verbs.submit import submit

BY_HAND: Final = "by `launcher move`"


@dataclass(frozen=True)
class Moved:
    """Where a run goes on. `state`: moved (by this call) | completed (a move that somebody began) | there (its backend
    had it already). `left`: a line for each backend that the run has left and that could not be told."""

    run: str
    backend: str
    state: str
    left: tuple[str, ...] = ()


def move(store: Store, run: str, backend_of: BackendOf, to: str = "") -> Moved:
    """Moves a run to the next of its backends because a person asks for it; a live attempt stops, saves, and the next
    backend waits for that. A move that was begun is completed first, and is all that is done.

    to  the backend that is meant; a run that is there already stays. Without it the next one
    Raises NotFound, BadInput (the run has no such backend), Conflict (it has ended, or no backend is left), and
    Unreachable.
    """
    view = read_run(store, run)
    job = view.job
    if job is None:
        raise NotFound(f"no run `{run}` in {store.url}")
    names = backend_order(job)
    if to and to not in names:
        raise BadInput(f"--to {to}: {run} may run on {', '.join(names)}, as its job says")
    if view.result is not None or view.cancelled:
        ended = view.result.outcome if view.result is not None else "being cancelled"
        raise Conflict(f"{run} is {ended}: it does not move; `launcher retry {run}` makes a new run of it")
    if begun(view, backend_of):
        if to not in ("", names[view.turn]):
            raise Conflict(f"{run} is on its way to {names[view.turn]}; move it there first: launcher move {run}")
        return Moved(run, names[view.turn], "completed", complete_move(store, view, backend_of))
    if to == names[view.turn]:
        return Moved(run, to, "there")
    if view.turn + 1 >= len(names):
        raise Conflict(f"{run} is on {names[view.turn]}, the last of its backends; it goes to each of them once")
    if to not in ("", names[view.turn + 1]):
        raise Conflict(f"{run} goes to {names[view.turn + 1]} next, as its job says: launcher move {run}")
    step = decide.move(onlookers(view, job), None, asked=True)
    if step is None:
        raise Conflict(f"{run} has ended, its record is not written yet: launcher status {run}")
    return begin_move(store, view, backend_of, step, BY_HAND)


def move_until_placed(store: Store, run: str, backend_of: BackendOf, error: NoCapacity) -> Moved:
    """Moves a run for which its backend has just said that it has no place, until one of its backends takes it. Raises
    the error of the last."""
    while True:
        view = read_run(store, run)
        assert view.job is not None
        step = decide.move(onlookers(view, view.job), False, Reason.CAPACITY)
        if step is None:
            raise error
        try:
            return begin_move(store, view, backend_of, step, str(error))
        except NoCapacity as another:
            error = another


def begin_move(store: Store, view: RunView, backend_of: BackendOf, step: Move, why: str) -> Moved:
    """Moves a run as the protocol says. Raises Conflict when another claim came first, and BadInput or Unreachable,
    before anything is written, when the next backend cannot take the run."""
    assert view.job is not None
    turned = at_turn(view.job, view.turn + 1)
    backend = _reach(turned, backend_of)
    backend.render([turned])
    if isinstance(backend, Checks):
        backend.check([turned])
    target = put_move(store, view, step, why)
    view = read_run(store, view.run)
    if not target:
        raise Conflict(f"{view.run} was not moved: attempt {step.attempt} has begun meanwhile")
    return Moved(view.run, target, "moved", complete_move(store, view, backend_of))


def begun(view: RunView, backend_of: BackendOf) -> bool:
    """Whether the run has moved to a backend that does not have it yet."""
    job = view.placed
    if job is None or not view.turn or view.since_move or view.result is not None or view.cancelled:
        return False
    return _reach(job, backend_of).look_up(view.run) is None


def complete_move(store: Store, view: RunView, backend_of: BackendOf) -> tuple[str, ...]:
    """Does what the claim of a move says: ends the run's objects on the backends that it has left, and submits it to
    the one whose turn it is. It may be repeated. Returns a line for each backend that could not be told; its processes
    end without that, as the store says."""
    problems = end_on_former(view, backend_of)
    job = view.placed
    assert job is not None
    submit(group_of({view.run: job}), store, _reach(job, backend_of))
    return problems


def end_on_former(
    view: RunView, backend_of: BackendOf, *, plan: bool = False, tell: Callable[[str], None] = lambda name: None
) -> tuple[str, ...]:
    """Ends what the backends still have that the run has left; `tell` gets the name of each that had something."""
    assert view.job is not None
    problems = []
    for turn in range(view.turn):
        job = at_turn(view.job, turn)
        try:
            backend = _reach(job, backend_of)
            observation = backend.look_up(view.run)
            if isinstance(backend, SentParts) and (observation is None or not observation.active):
                observation = backend.part(view.run, job) or observation
            if observation is not None and (observation.active or observation.billed):
                if not plan:
                    backend.cancel([observation.handle])
                tell(job.backend)
        except (SlipwayError, BadInput) as error:
            problems.append(f"{job.backend} could not be told that {view.run} has left it: {_first(error)}")
    return tuple(problems)


def _reach(job: ResolvedJob, backend_of: BackendOf) -> Backend:
    backend = backend_of(job)
    if backend is None:
        raise BadInput(f"{run_id(job)} may run on {job.backend}, which this machine cannot reach: launcher doctor")
    return backend


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]
