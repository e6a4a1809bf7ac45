"""Retry counting, reasons of attempts, the checkpoint to go on from, and what proves a process dead."""

from __future__ import annotations

import pytest

from launcher.protocol.decide import BackendObject, Submission, finish, settle, submit
from launcher.protocol.facts import (
    AttemptFacts,
    RetryPolicy,
    RunFacts,
    Verdict,
    deserted,
    exhausted,
    finished,
    newest_checkpoint,
    proves_dead,
    reason_of,
    same_placement,
    silent,
    verdict,
)
from launcher.protocol.records import Placement
from launcher.protocol.steps import Finish
from launcher.reasons import Reason


def attempt(
    *exits: Reason | None,
    gone: bool = False,
    outputs: bool = False,
    checkpoint: int = -1,
    running: float = 0.0,
    held: float = 0.0,
) -> AttemptFacts:
    return AttemptFacts(
        claimed=(True,) * len(exits),
        exits=exits,
        gone=(gone,) * len(exits),
        outputs=outputs,
        checkpoint=checkpoint,
        running=running,
        held=held,
    )


def run(*attempts: AttemptFacts, leading: int = 1, cancelled: bool = False, **policy: object) -> RunFacts:
    return RunFacts(attempts, None, cancelled, leading, RetryPolicy(**policy))  # type: ignore[arg-type]


LOST = attempt(None, gone=True)
LIVE = attempt(None)


def test_user_errors_count_against_retries() -> None:
    user = attempt(Reason.USER_ERROR)
    assert exhausted(run(user, retries=1)) is None
    assert exhausted(run(user, LOST, user, retries=1)) == Verdict("failed", 3, Reason.USER_ERROR)
    assert exhausted(run(user, retries=0)) == Verdict("failed", 1, Reason.USER_ERROR)


def test_infrastructure_counts_until_a_new_checkpoint() -> None:
    assert exhausted(run(*[LOST] * 19)) is None
    assert exhausted(run(*[LOST] * 20)) == Verdict("failed", 20, Reason.LOST)
    further = attempt(None, gone=True, checkpoint=5)
    assert exhausted(run(*[LOST] * 10, further, *[LOST] * 18)) is None
    assert exhausted(run(*[LOST] * 10, further, *[LOST] * 19)) == Verdict("failed", 30, Reason.LOST)
    again = attempt(None, gone=True, checkpoint=5)  # the same step once more is no progress
    assert exhausted(run(further, *[again] * 19)) == Verdict("failed", 20, Reason.LOST)


def test_five_attempts_that_were_lost_at_their_start_are_enough() -> None:
    """As where a tmpfs fills the memory, and the kernel kills the runtime itself each time."""
    brief = LOST._replace(brief=True)
    assert exhausted(run(*[brief] * 4)) is None
    assert exhausted(run(*[brief] * 5)) == Verdict("failed", 5, Reason.LOST)
    assert exhausted(run(*[brief] * 4, *[LOST] * 3)) is None
    assert exhausted(run(*[brief] * 4, *[LOST] * 4)) == Verdict("failed", 8, Reason.LOST)
    further = attempt(None, gone=True, checkpoint=5)
    assert exhausted(run(*[brief] * 4, further, *[brief] * 4)) is None
    told = attempt(Reason.PREEMPTED)._replace(brief=True)  # it left a word
    assert exhausted(run(*[told] * 19)) is None


def test_user_errors_in_between_do_not_forgive_infrastructure() -> None:
    attempts = [LOST] * 10 + [attempt(Reason.USER_ERROR)] + [LOST] * 10
    assert exhausted(run(*attempts, retries=3)) == Verdict("failed", 21, Reason.LOST)


def test_nothing_is_decided_while_the_highest_attempt_lives() -> None:
    assert exhausted(run(attempt(Reason.OUT_OF_MEMORY), LIVE)) is None
    assert exhausted(run(attempt(Reason.OUT_OF_MEMORY), LOST)) == Verdict("failed", 1, Reason.OUT_OF_MEMORY)


def test_memory_is_tried_again_only_when_asked() -> None:
    memory = attempt(Reason.OUT_OF_MEMORY)
    assert exhausted(run(memory)) == Verdict("failed", 1, Reason.OUT_OF_MEMORY)
    assert exhausted(run(memory, again=frozenset({Reason.OUT_OF_MEMORY}))) is None


def test_a_config_error_is_tried_again_only_when_asked_and_counts() -> None:
    never, named = attempt(Reason.CONFIG_ERROR), frozenset({Reason.CONFIG_ERROR})
    assert exhausted(run(never, retries=3)) == Verdict("failed", 1, Reason.CONFIG_ERROR)
    assert exhausted(run(never, again=named, retries=1)) is None
    assert exhausted(run(never, never, again=named, retries=1)) == Verdict("failed", 2, Reason.CONFIG_ERROR)
    assert exhausted(run(never, again=named)) == Verdict("failed", 1, Reason.CONFIG_ERROR)
    memory = frozenset({Reason.OUT_OF_MEMORY})
    assert exhausted(run(never, again=memory, retries=3)) == Verdict("failed", 1, Reason.CONFIG_ERROR)


def test_deadline_is_summed_over_attempts() -> None:
    first = attempt(Reason.PREEMPTED, running=50.0)
    killed = attempt(None, gone=True, running=49.0)  # from its last beat
    assert exhausted(run(first, killed, deadline=100.0)) is None
    assert exhausted(run(first, killed, deadline=99.0)) == Verdict("failed", 2, Reason.DEADLINE)


def test_the_budget_is_spent_by_all_attempts_together() -> None:
    first = attempt(Reason.PREEMPTED, held=50.0)
    killed = attempt(None, gone=True, held=49.0)  # from its last beat
    assert exhausted(run(first, killed, budget=100.0)) is None
    assert exhausted(run(first, killed, budget=99.0)) == Verdict("failed", 2, Reason.BUDGET)
    done = attempt(Reason.SUCCEEDED, outputs=True, held=100.0)
    assert verdict(run(first, done, budget=99.0)) == Verdict("succeeded", 2, Reason.SUCCEEDED)


@pytest.mark.parametrize(
    ("exits", "reason"),
    [
        ((Reason.PREEMPTED, Reason.LOST), Reason.LOST),
        ((Reason.LOST, Reason.USER_ERROR), Reason.USER_ERROR),
        ((Reason.USER_ERROR, Reason.OUT_OF_MEMORY), Reason.OUT_OF_MEMORY),
        ((None, Reason.USER_ERROR), Reason.USER_ERROR),
        ((None, Reason.PREEMPTED), Reason.LOST),
        ((None, Reason.SUCCEEDED), Reason.LOST),
        ((Reason.PREEMPTED, Reason.SUCCEEDED), Reason.PREEMPTED),
        ((Reason.SUCCEEDED, None), Reason.LOST),
    ],
)
def test_the_reason_of_an_attempt_is_the_worst_of_its_ranks(exits: tuple[Reason, ...], reason: Reason) -> None:
    assert reason_of(attempt(*exits, gone=True), 2) is reason


def test_success_needs_every_leading_rank_and_every_output() -> None:
    both = (Reason.SUCCEEDED, Reason.SUCCEEDED)
    assert finished(run(attempt(*both, outputs=True), leading=2)) == Verdict("succeeded", 1, Reason.SUCCEEDED)
    assert finished(run(attempt(*both), leading=2)) is None
    assert finished(run(attempt(Reason.SUCCEEDED, None, outputs=True), leading=2)) is None
    helper_was_stopped = attempt(Reason.SUCCEEDED, Reason.LOST, outputs=True)
    assert finished(run(helper_was_stopped, leading=1)) == Verdict("succeeded", 1, Reason.SUCCEEDED)


@pytest.mark.parametrize(
    ("claimed", "exits", "gone", "expected"),
    [
        ((True, False), (None, None), (True, False), False),  # the leader came
        ((False, False), (None, None), (False, False), True),  # nobody came
        ((False, True, True), (None, Reason.LOST, None), (False, False, False), False),  # the second is still there
        ((False, True, True), (None, Reason.LOST, None), (False, False, True), True),
        ((False, True, False), (None, Reason.LOST, None), (False, False, False), True),  # the second never came
    ],
)
def test_an_attempt_is_deserted_when_its_leader_never_came_and_nobody_else_is_left(
    claimed: tuple[bool, ...], exits: tuple[Reason | None, ...], gone: tuple[bool, ...], expected: bool
) -> None:
    assert deserted(AttemptFacts(claimed, exits, gone)) is expected


def test_any_attempt_that_did_the_work_finishes_the_run() -> None:
    done = attempt(Reason.SUCCEEDED, outputs=True)
    assert verdict(run(attempt(Reason.USER_ERROR), done, LIVE)) == Verdict("succeeded", 2, Reason.SUCCEEDED)
    assert settle(run(done, LIVE), 2) == Finish(Verdict("succeeded", 1, Reason.SUCCEEDED))


def test_the_newest_checkpoint_of_all_earlier_attempts() -> None:
    attempts = [attempt(None, checkpoint=step) for step in (10, 30, -1, 30, 20, 99)]
    assert newest_checkpoint(run(*attempts), 6) == (4, 30)
    assert newest_checkpoint(run(*attempts), 2) == (1, 10)
    assert newest_checkpoint(run(*attempts), 1) is None


def test_finish_waits_for_the_backend_and_for_the_attempt() -> None:
    lost = run(LOST)
    assert finish(lost, None) is None
    assert finish(lost, True) is None
    assert finish(lost, False) == Finish(Verdict("failed", 1, Reason.LOST))
    assert finish(run(LIVE), False) is None
    assert finish(run(LOST, cancelled=True), False) == Finish(Verdict("cancelled", 1, Reason.CANCELLED))
    assert finish(run(), False) is None  # never given to the backend
    assert finish(run(cancelled=True), False) == Finish(Verdict("cancelled", 0, Reason.CANCELLED))
    assert finish(run(), False, evidence=Reason.IMAGE_PULL) == Finish(Verdict("failed", 0, Reason.IMAGE_PULL))
    done = run(attempt(Reason.SUCCEEDED, outputs=True))
    assert finish(done, None) == Finish(Verdict("succeeded", 1, Reason.SUCCEEDED))


def test_submit_of_a_run_that_can_not_go_on_completes_it() -> None:
    absent = BackendObject(there=False)
    known = Submission(run(attempt(Reason.CONFIG_ERROR)), job=True, object=absent)
    assert submit(known) == Finish(Verdict("failed", 1, Reason.CONFIG_ERROR))


PROCESS = Placement("process", "box/queue-1", host="box", boot="b1", pid=10, start=5)
MACHINE = Placement("machine", "lab/run-1", host="10.0.0.2", boot="b1", container="m1")


@pytest.mark.parametrize(
    ("earlier", "mine", "same_member", "alive", "dead"),
    [
        # a process of this host and boot: its pid and start time say it, whatever queue entry it belonged to
        (PROCESS, Placement("process", "box/queue-1", host="box", boot="b1", pid=11), True, False, True),
        (PROCESS, Placement("process", "box/queue-1", host="box", boot="b1", pid=11), True, True, False),
        (PROCESS, Placement("process", "box/queue-2", host="box", boot="b1", pid=11), False, False, True),
        # the same queue entry after the machine started anew; another entry or host proves nothing
        (PROCESS, Placement("process", "box/queue-1", host="box", boot="b2"), False, None, True),
        (PROCESS, Placement("process", "box/queue-2", host="box", boot="b2"), True, None, False),
        (PROCESS, Placement("process", "other/queue-1", host="other", boot="b2"), True, None, False),
        # a Job starts a pod for a rank only when the one before is gone; that says nothing of other ranks
        (Placement("job", "uid"), Placement("job", "uid"), True, None, True),
        (Placement("job", "uid"), Placement("job", "uid"), False, None, False),
        (Placement("job", "uid"), Placement("job", "uid-2"), True, None, False),
        # a run's machines share `where`: another boot id proves something on the same machine only
        (MACHINE, Placement("machine", "lab/run-1", boot="b2", container="m1"), False, None, True),
        (MACHINE, Placement("machine", "lab/run-1", boot="b2", container="m2"), True, None, False),
        (MACHINE, Placement("machine", "lab/run-1", boot="b1", container="m1"), True, None, False),
        (MACHINE, Placement("machine", "lab/run-2", boot="b2", container="m1"), True, None, False),
        # a set restarts as a whole, and only a higher restart number proves a lower one dead
        (Placement("set", "uid", 1), Placement("set", "uid", 2), False, None, True),
        (Placement("set", "uid", 2), Placement("set", "uid", 1), True, None, False),
        (Placement("set", "uid", 1), Placement("set", "uid", 1), False, None, False),
    ],
)
def test_what_proves_a_process_dead(
    earlier: Placement, mine: Placement, same_member: bool, alive: bool | None, dead: bool
) -> None:
    assert proves_dead(earlier, mine, same_member=same_member, before=True, alive=alive) is dead


def test_a_claim_made_after_this_process_began_is_no_predecessors() -> None:
    job = Placement("job", "uid")
    assert not proves_dead(job, job, same_member=True, before=False)


def test_ranks_belong_together_by_place_and_restart() -> None:
    assert same_placement(Placement("set", "uid", 1, host="a"), Placement("set", "uid", 1, host="b"))
    assert not same_placement(Placement("set", "uid", 1), Placement("set", "uid", 2))


def test_a_claim_counts_as_the_first_beat() -> None:
    assert silent(901.0, None, 900.0)
    assert not silent(899.0, None, 900.0)
    assert not silent(5000.0, 10.0, 900.0)
    assert silent(5000.0, 901.0, 900.0)
