"""Moves a run to the next of its backends, as far as the store is concerned (docs/explanation/protocol.md, Moving a
run): the claim of the next attempt says so. Who puts it then ends the run's object on the backend that it leaves and
submits it to the next: `launcher.verbs.move`."""

from __future__ import annotations

import time
from uuid import uuid4

import msgspec

from launcher.protocol import decide
from launcher.protocol.finish import Here, is_own_placement, nowhere, onlookers
from launcher.protocol.read import read_run
from launcher.protocol.records import Claim, Placement
from launcher.protocol.steps import Move
from launcher.protocol.view import RunView
from launcher.reasons import Reason
from launcher.spec.turns import order
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.version import __version__

NOWHERE = "nowhere"  # the kind of placement of a claim in which nothing computes


def put_move(store: Store, view: RunView, step: Move, why: str) -> str:
    """Creates the claim that moves a run. Returns the backend to which it has moved; "" if another claim of that
    attempt came first: the run was moved by somebody else, or its backend has started it again."""
    job = view.job
    assert job is not None
    target = order(job)[view.turn + 1]
    claim = Claim(Placement(NOWHERE, ""), uuid4().hex, time.time(), __version__, moved_to=target, why=why)
    key = RunKeys(view.run).attempt(step.attempt).claim(job.members()[0])
    return target if store.create(key, msgspec.json.encode(claim)) else ""


def move_on(
    store: Store, run: str, turn: int, here: Here, dead: Here = nowhere, evidence: Reason | None = None, why: str = ""
) -> str:
    """Moves a run of which a backend has nothing left, if the protocol says so. `turn`: of that backend; the rest is as
    in `finish`. Returns the next backend; "" if the run stays. Raises NotFound, Unreachable."""
    view = read_run(store, run, full=False)
    if view.job is None or view.turn != turn:
        return ""
    own = is_own_placement(view, here)
    step = decide.move(onlookers(view, view.job, dead), False if own else None, evidence if own else None, own=own)
    return put_move(store, view, step, why or str(step.reason)) if step is not None else ""
