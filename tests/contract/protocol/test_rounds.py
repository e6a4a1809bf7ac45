"""Every group of two runs that a submit may find, each in every state that a crash may have left, taken to its end with
the decisions and the order that `launcher submit` uses: nothing reaches the backend too early, and never twice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from launcher.protocol import decide, steps
from launcher.protocol.decide import BackendObject, Submission
from launcher.protocol.facts import AttemptFacts, RunFacts
from launcher.protocol.steps import next_round
from launcher.reasons import Reason

PREEMPTED = AttemptFacts((True,), (Reason.PREEMPTED,), (False,))
NONE, OURS, THEIRS = BackendObject(there=False), BackendObject(there=True), BackendObject(there=True, ours=False)
# (what is known of the run at first, the object that its backend has, whether another run has done the work)
STATES = [
    (Submission(RunFacts(attempts, result, cancelled), job=job, served=None), there, served)
    for attempts in ((), (PREEMPTED,))
    for result in (None, "succeeded", "failed")
    for cancelled in (False, True)
    for job in (False, True)
    for there in (NONE, OURS, THEIRS)
    for served in (False, True)
    if job or (not attempts and result is None)
]


def take(kind: type, known: Submission, there: BackendObject, served: bool) -> Submission | None:
    """What is known of a run after a step; None: it is done."""
    if kind is steps.PutJob:
        return known._replace(job=True)
    if kind is steps.LookUp:
        return known._replace(object=there)
    if kind is steps.LookForWork:
        return known._replace(served=served)
    if kind is steps.Adopt:
        return known._replace(run=known.run._replace(result="succeeded"))
    if kind is steps.Finish:
        return known._replace(run=known.run._replace(result="cancelled"))
    if kind is steps.Submit:
        return known._replace(submitted=True)
    return None


def played(group: Mapping[str, tuple[Submission, BackendObject, bool]], grouped: bool) -> list[tuple[type, int]]:
    """The kinds of steps in the order in which they were taken, each with how many runs were at it."""
    known = {run: state[0] for run, state in group.items()}
    taken: list[tuple[type, int]] = []
    while known:
        kind, runs = next_round({run: decide.submit(each) for run, each in known.items()}, grouped)
        taken.append((kind, len(runs)))
        if kind is steps.Refuse:
            return taken
        if kind is steps.PutGroup:
            grouped = True
            continue
        for run in runs:
            after = take(kind, known.pop(run), *group[run][1:])
            if after is not None:
                known[run] = after
        assert len(taken) < 12, taken
    return taken


@pytest.mark.parametrize("grouped", [False, True])
def test_a_group_is_written_before_its_backend_gets_it_and_refused_before_that(grouped: bool) -> None:
    submits = 0
    for first, second in product(STATES, repeat=2):
        taken = played({"a": first, "b": second}, grouped)
        kinds = [kind for kind, _ in taken]
        assert steps.PutJob not in kinds[1:]
        assert kinds.count(steps.PutGroup) == (not grouped)
        assert grouped or kinds.index(steps.PutGroup) == kinds.count(steps.PutJob)
        assert kinds.count(steps.LookUp) <= 1
        assert kinds.count(steps.Submit) <= 1
        if steps.Refuse in kinds:
            assert not {steps.Submit, steps.Adopt, steps.Finish, steps.CancelThere} & set(kinds)
        if steps.Submit in kinds:
            submits += 1
            assert not {steps.LookUp, steps.Finish, steps.Adopt} & set(kinds[kinds.index(steps.Submit) :])
    assert submits > 100
