"""The next step of a submit, for every state in which a crash may have left the run before."""

from __future__ import annotations

import pytest

from launcher.protocol.decide import BackendObject, Submission, submit
from launcher.protocol.facts import AttemptFacts, RunFacts, Verdict
from launcher.protocol.steps import (
    Adopt,
    Attached,
    CancelThere,
    Finish,
    LookForWork,
    LookUp,
    PutJob,
    Refuse,
    ReportResult,
    Submit,
)
from launcher.reasons import Reason

NONE, OURS, THEIRS = BackendObject(there=False), BackendObject(there=True), BackendObject(there=True, ours=False)
LIVE = AttemptFacts((True,), (None,), (False,))
PREEMPTED = LIVE._replace(exits=(Reason.PREEMPTED,))
NEW, CANCELLED = RunFacts(()), RunFacts((), cancelled=True)


@pytest.mark.parametrize(
    ("known", "step"),
    [
        (Submission(RunFacts((), result="succeeded")), ReportResult("succeeded")),
        (Submission(NEW), PutJob()),
        (Submission(CANCELLED), PutJob()),
        (Submission(NEW, job=True), LookUp()),
        (Submission(NEW, job=True, object=THEIRS), Refuse()),
        (Submission(NEW, job=True, object=OURS), Attached()),
        (Submission(CANCELLED, job=True, object=OURS), CancelThere()),
        (Submission(NEW, job=True, object=OURS, submitted=True), Attached()),
        (Submission(CANCELLED, job=True, object=OURS, submitted=True), CancelThere()),
        (Submission(NEW, job=True, object=NONE), Submit()),
        (Submission(NEW, job=True, object=NONE, served=True), Adopt()),
        (Submission(NEW, job=True, object=NONE, served=None), LookForWork()),
        (Submission(CANCELLED, job=True, object=NONE), Finish(Verdict("cancelled", 0, Reason.CANCELLED))),
        (Submission(RunFacts((PREEMPTED,)), job=True, object=NONE), Submit()),
        (Submission(RunFacts((PREEMPTED,)), job=True, object=NONE, served=True), Adopt()),
        (
            Submission(RunFacts((PREEMPTED,), cancelled=True), job=True, object=NONE),
            Finish(Verdict("cancelled", 1, Reason.CANCELLED)),
        ),
        # the object is gone, but a process of the run may live: nothing may be ended, and nothing taken from elsewhere
        (Submission(RunFacts((LIVE,), cancelled=True), job=True, object=NONE), Attached()),
        (Submission(RunFacts((LIVE,)), job=True, object=NONE, served=True), Submit()),
        (Submission(RunFacts((PREEMPTED, LIVE), cancelled=True), job=True, object=NONE), Attached()),
        (
            Submission(RunFacts((LIVE._replace(gone=(True,)), PREEMPTED), cancelled=True), job=True, object=NONE),
            Finish(Verdict("cancelled", 2, Reason.CANCELLED)),
        ),
    ],
)
def test_the_next_step(known: Submission, step: object) -> None:
    answer = submit(known)
    assert (type(answer), answer) == (type(step), step)  # steps without fields are equal tuples
