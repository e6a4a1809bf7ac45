"""The rows of the transition table (docs/explanation/protocol.md), each with its reason and its exit code."""

from __future__ import annotations

from itertools import product

import pytest

from launcher.protocol.decide import (
    BeatFacts,
    Ending,
    beat,
    before_command,
    budget,
    deadline,
    end,
    fence,
    finish,
    idle,
    leaving,
    move,
    settle,
    start,
)
from launcher.protocol.facts import AttemptFacts, RetryPolicy, RunFacts, Verdict
from launcher.protocol.steps import Break, Finish, Go, Leave, LookForWork, PutClaim, PutWorks, Stop, Wait, WriteExit
from launcher.reasons import EXIT_AGAIN, EXIT_DONE, EXIT_NEVER, EXIT_PREEMPTED, EXIT_USER, Reason

LIVE = AttemptFacts((True,), (None,), (False,))
GONE = LIVE._replace(gone=(True,))


def over(reason: Reason, **more: object) -> AttemptFacts:
    return LIVE._replace(exits=(reason,), **more)  # type: ignore[arg-type]


def run(*attempts: AttemptFacts, **more: object) -> RunFacts:
    return RunFacts(attempts, **more)  # type: ignore[arg-type]


def code(step: object) -> tuple[int, Reason]:
    assert isinstance(step, Leave)
    return step.code, step.reason


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("succeeded", (EXIT_DONE, Reason.SUCCEEDED)),
        ("cancelled", (EXIT_NEVER, Reason.CANCELLED)),
        ("failed", (EXIT_NEVER, Reason.LOST)),
    ],
)
def test_a_run_that_has_its_result_is_left(outcome: str, told: tuple[int, Reason]) -> None:
    assert code(leaving(outcome)) == told
    assert code(start(run(result=outcome), 0)) == told
    assert code(end(Ending(run(over(Reason.PREEMPTED), result=outcome), 1, 0, Reason.PREEMPTED))) == told
    lacks = PutWorks() if outcome == "succeeded" else leaving(outcome)
    # steps without fields are equal tuples, so their types are compared as well
    for step in (
        start(run(result=outcome), 0, works=False),
        end(Ending(run(over(Reason.PREEMPTED), result=outcome), 1, 0, Reason.PREEMPTED), works=False),
    ):
        assert (type(step), step) == (type(lacks), lacks)
    assert isinstance(
        finish(run(result=outcome), False, works=False), PutWorks if outcome == "succeeded" else type(None)
    )
    assert finish(run(result=outcome), False) is None


def test_a_start() -> None:
    assert start(run(), 0) == PutClaim(1)
    assert isinstance(start(run(), 0, served=None), LookForWork)
    assert isinstance(start(run(), 1), Wait)
    assert start(run(over(Reason.PREEMPTED)), 0) == start(run(GONE), 0) == PutClaim(2)
    assert start(run(over(Reason.USER_ERROR)), 0) == Finish(Verdict("failed", 1, Reason.USER_ERROR))
    assert isinstance(start(run(LIVE), 0), Wait)
    assert isinstance(start(run(LIVE._replace(moved=True, own=True)), 0), Wait)
    assert code(start(run(LIVE._replace(moved=True)), 0)) == (EXIT_NEVER, Reason.DUPLICATE)
    assert start(run(cancelled=True), 0) == Finish(Verdict("cancelled", 0, Reason.CANCELLED))
    assert start(run(GONE, cancelled=True), 1) == Finish(Verdict("cancelled", 1, Reason.CANCELLED))
    assert code(start(run(LIVE, cancelled=True), 0)) == (EXIT_NEVER, Reason.CANCELLED)


TWO = AttemptFacts((True, False), (None, None), (False, False), own=True)
BOTH = TWO._replace(claimed=(True, True))


@pytest.mark.parametrize(
    ("attempt", "step"),
    [
        (TWO, PutClaim(1)),
        (TWO._replace(own=False), Wait),
        (TWO._replace(broken=True), Wait),
        (BOTH, Wait),
        (BOTH._replace(gone=(False, True)), Break(1, 1, "its process is gone")),
        (BOTH._replace(gone=(False, True), broken=True), Wait),
        (BOTH._replace(gone=(False, True), exits=(None, Reason.PREEMPTED)), Wait),
    ],
)
def test_a_rank_joins_its_leaders_attempt(attempt: AttemptFacts, step: object) -> None:
    found = start(run(attempt, leading=2), 1)
    assert found == step or (step is Wait and isinstance(found, Wait))


def test_earlier_attempts_are_waited_out() -> None:
    assert isinstance(settle(run(LIVE), 1), Go)
    assert settle(run(LIVE, LIVE), 2) == Wait("attempt 1 still beats")
    assert settle(run(GONE, LIVE), 2) == Wait("attempt 1 gets the time to stop")
    assert settle(run(over(Reason.PREEMPTED), LIVE, LIVE), 3) == Wait("attempt 2 still beats")
    assert isinstance(settle(run(GONE._replace(settled=True), LIVE), 2), Go)
    assert isinstance(settle(run(over(Reason.PREEMPTED), LIVE), 2), Go)
    assert settle(run(over(Reason.USER_ERROR), LIVE), 2) == Finish(Verdict("failed", 1, Reason.USER_ERROR))
    rank = AttemptFacts((True, True), (Reason.PREEMPTED, None), (False, False))
    assert isinstance(settle(run(rank, TWO, leading=2), 2), Wait)
    assert isinstance(settle(run(rank._replace(claimed=(True, False)), TWO, leading=2), 2), Go)


def test_an_attempt_that_began_after_the_last_one_allowed_ends_the_run() -> None:
    """Two tries lost to the infrastructure were all that the policy allows; a third began all the same."""
    lost = over(Reason.PREEMPTED)
    policy = RetryPolicy(3, 2, False, None)
    step = settle(run(lost, lost, LIVE, policy=policy), 3)
    assert step == Finish(Verdict("failed", 2, Reason.PREEMPTED))
    assert isinstance(settle(run(lost, LIVE, policy=policy), 2), Go)


def test_directly_before_the_command() -> None:
    assert isinstance(before_command(run(LIVE), 1, 0), Go)
    done = over(Reason.SUCCEEDED, outputs=True)
    assert before_command(run(done, LIVE), 2, 0) == Finish(Verdict("succeeded", 1, Reason.SUCCEEDED))
    for stopped, reason in (
        (run(LIVE, result="failed"), Reason.LOST),
        (run(done, LIVE, result="succeeded"), Reason.LOST),
        (run(LIVE, cancelled=True), Reason.CANCELLED),
        (run(LIVE._replace(broken=True)), Reason.INFRASTRUCTURE),
    ):
        step = before_command(stopped, len(stopped.attempts), 0)
        assert isinstance(step, Stop)
        assert step.reason is reason
    step = before_command(run(LIVE, LIVE), 1, 0)
    assert step == Stop(Reason.LOST, "the next attempt has begun")
    for exits, member, stops in (
        ((None, Reason.PREEMPTED), 0, Stop(Reason.PREEMPTED, "another rank ended: preempted", 1)),
        ((None, Reason.SUCCEEDED), 0, None),
        ((Reason.SUCCEEDED, None), 1, Stop(Reason.SUCCEEDED, "another rank ended: succeeded", 0)),
        ((None, Reason.PREEMPTED), 1, None),
    ):
        found = before_command(run(BOTH._replace(exits=exits), leading=2), 1, member)
        assert found == (stops or Go())


@pytest.mark.parametrize(
    ("glance", "reason"),
    [
        (BeatFacts(), None),
        (BeatFacts("succeeded"), Reason.LOST),
        (BeatFacts("succeeded", helper=True), Reason.SUCCEEDED),
        (BeatFacts("failed", helper=True), Reason.LOST),
        (BeatFacts("cancelled"), Reason.CANCELLED),
        (BeatFacts(cancelled=True), Reason.CANCELLED),
        (BeatFacts(successor=True), Reason.LOST),
        (BeatFacts(broken=True), Reason.INFRASTRUCTURE),
        (BeatFacts(watched=1), None),
        (BeatFacts(watched=1, exit=Reason.SUCCEEDED, gone=True), None),
        (BeatFacts(watched=1, exit=Reason.PREEMPTED), Reason.PREEMPTED),
        (BeatFacts(watched=1, exit=Reason.USER_ERROR), Reason.INFRASTRUCTURE),
        (BeatFacts(watched=1, gone=True), Reason.INFRASTRUCTURE),
    ],
)
def test_a_beat(glance: BeatFacts, reason: Reason | None) -> None:
    stop = beat(glance)
    assert (stop.reason if stop else None) is reason
    if stop is not None:
        assert stop.gone == glance.watched


def test_the_fence_and_the_deadline() -> None:
    assert fence(10.0, 10.0) is None
    assert fence(10.1, 10.0) == Stop(Reason.STORE_UNREACHABLE, "no beat reached the store for 10 s")
    assert deadline(9.9, 10.0) is None
    assert deadline(99.0, None) is None
    assert budget(9.9, 10.0) is None
    assert budget(99.0, None) is None
    assert idle(9.9, 10.0) is None
    assert idle(99.0, None) is None
    for stopped, reason in ((budget(10.0, 10.0), Reason.BUDGET), (idle(10.0, 10.0), Reason.IDLE)):
        assert stopped is not None
        assert stopped.reason is reason
    stop = deadline(10.0, 10.0)
    assert stop is not None
    assert stop.reason is Reason.DEADLINE


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.USER_ERROR, Reason.PREEMPTED])
@pytest.mark.parametrize("member", [0, 1])
def test_whoever_was_overtaken_says_lost_whatever_its_command_did(reason: Reason, member: int) -> None:
    step = end(Ending(run(BOTH, TWO, leading=2), 1, member, reason))
    assert step == WriteExit(Reason.LOST, "the next attempt has begun")


def test_an_end_writes_its_exit_first() -> None:
    assert end(Ending(run(LIVE), 1, 0, Reason.USER_ERROR)) == WriteExit(Reason.USER_ERROR)
    assert end(Ending(run(LIVE), 1, 0, Reason.SUCCEEDED)) == WriteExit(Reason.SUCCEEDED)
    waits = Ending(run(BOTH, leading=2), 1, 0, Reason.SUCCEEDED)
    assert isinstance(end(waits), Wait)
    assert end(waits._replace(stop=Stop(Reason.CANCELLED, ""))) == WriteExit(Reason.CANCELLED)
    other = BOTH._replace(exits=(None, Reason.SUCCEEDED))
    assert end(waits._replace(run=run(other, leading=2))) == WriteExit(Reason.SUCCEEDED)
    assert end(waits._replace(run=run(BOTH, leading=1))) == WriteExit(Reason.SUCCEEDED)
    assert end(waits._replace(member=1)) == WriteExit(Reason.SUCCEEDED)


@pytest.mark.parametrize("member", [0, 1])
def test_who_is_told_to_go_by_a_cancel_says_so(member: int) -> None:
    """Where the backend's SIGTERM comes before the next heartbeat, which looks at cancel.json."""
    told = Ending(run(BOTH, leading=2, cancelled=True), 1, member, Reason.PREEMPTED)
    assert end(told) == WriteExit(Reason.CANCELLED, "the run was cancelled")
    assert end(told._replace(reason=Reason.USER_ERROR)) == WriteExit(Reason.USER_ERROR)
    assert end(told._replace(run=run(BOTH, leading=2))) == WriteExit(Reason.PREEMPTED)
    assert end(told._replace(run=run(BOTH, TWO, leading=2, cancelled=True))).reason is Reason.LOST


@pytest.mark.parametrize("leading", [1, 2, 3, 4])
def test_the_leader_has_succeeded_when_every_other_leading_rank_has(leading: int) -> None:
    """However many there are. The last member is a helper, whose end does not count."""
    many = AttemptFacts((True,) * (leading + 1), (None,) * (leading + 1), (False,) * (leading + 1), own=True)
    for others in product((None, Reason.SUCCEEDED, Reason.PREEMPTED), repeat=leading - 1):
        step = end(Ending(run(many._replace(exits=(None, *others, None)), leading=leading), 1, 0, Reason.SUCCEEDED))
        done = all(reason is Reason.SUCCEEDED for reason in others)
        assert step == WriteExit(Reason.SUCCEEDED) if done else isinstance(step, Wait), others


@pytest.mark.parametrize(
    ("reason", "policy", "step"),
    [
        (Reason.USER_ERROR, RetryPolicy(retries=1), (EXIT_USER, Reason.USER_ERROR)),
        (Reason.USER_ERROR, RetryPolicy(), Finish(Verdict("failed", 1, Reason.USER_ERROR))),
        (Reason.PREEMPTED, RetryPolicy(), (EXIT_PREEMPTED, Reason.PREEMPTED)),
        (Reason.LOST, RetryPolicy(), (EXIT_AGAIN, Reason.LOST)),
        (Reason.OUT_OF_MEMORY, RetryPolicy(), Finish(Verdict("failed", 1, Reason.OUT_OF_MEMORY))),
        (
            Reason.OUT_OF_MEMORY,
            RetryPolicy(again=frozenset({Reason.OUT_OF_MEMORY})),
            (EXIT_AGAIN, Reason.OUT_OF_MEMORY),
        ),
        (Reason.CONFIG_ERROR, RetryPolicy(retries=3), Finish(Verdict("failed", 1, Reason.CONFIG_ERROR))),
        (
            Reason.CONFIG_ERROR,
            RetryPolicy(retries=1, again=frozenset({Reason.CONFIG_ERROR})),
            (EXIT_USER, Reason.CONFIG_ERROR),
        ),
        (Reason.CANCELLED, RetryPolicy(), Finish(Verdict("cancelled", 1, Reason.CANCELLED))),
    ],
)
def test_a_leader_leaves_or_ends_the_run(reason: Reason, policy: RetryPolicy, step: object) -> None:
    found = end(Ending(run(over(reason), policy=policy), 1, 0, reason))
    assert found == step or code(found) == step


def test_a_leader_that_succeeded_ends_the_run_or_waits() -> None:
    done = Finish(Verdict("succeeded", 1, Reason.SUCCEEDED))
    assert end(Ending(run(over(Reason.SUCCEEDED, outputs=True)), 1, 0, Reason.SUCCEEDED)) == done
    alone = run(over(Reason.SUCCEEDED))
    assert isinstance(end(Ending(alone, 1, 0, Reason.SUCCEEDED)), Wait)
    stopped = end(Ending(alone, 1, 0, Reason.SUCCEEDED, Stop(Reason.CANCELLED, "")))
    assert code(stopped) == (EXIT_AGAIN, Reason.LOST)
    cancelled = run(over(Reason.PREEMPTED), cancelled=True)
    assert end(Ending(cancelled, 1, 0, Reason.PREEMPTED)) == Finish(Verdict("cancelled", 1, Reason.CANCELLED))
    overtaken = run(over(Reason.USER_ERROR), LIVE, cancelled=True)
    assert code(end(Ending(overtaken, 1, 0, Reason.USER_ERROR))) == (EXIT_USER, Reason.USER_ERROR)


def test_a_rank_breaks_its_attempt_and_leaves_or_stays() -> None:
    failed = BOTH._replace(exits=(None, Reason.USER_ERROR))
    ending = Ending(run(failed, leading=2), 1, 1, Reason.USER_ERROR)
    assert end(ending) == Break(1, 1, "user_error")
    broken = run(failed._replace(broken=True), leading=2)
    assert code(end(ending._replace(run=broken))) == (EXIT_USER, Reason.USER_ERROR)
    for reason, again in ((Reason.USER_ERROR, EXIT_USER), (Reason.INFRASTRUCTURE, EXIT_AGAIN)):
        over_for_good = BOTH._replace(exits=(Reason.USER_ERROR, reason), broken=True)
        for policy, told in ((RetryPolicy(), EXIT_NEVER), (RetryPolicy(retries=1), again)):
            failed_too = Ending(run(over_for_good, leading=2, policy=policy), 1, 1, reason)
            assert code(end(failed_too)) == (told, reason)
    stays = BOTH._replace(exits=(None, Reason.SUCCEEDED))
    ending = Ending(run(stays, leading=2), 1, 1, Reason.SUCCEEDED)
    assert isinstance(end(ending), Wait)
    for changed in (
        run(stays._replace(exits=(Reason.PREEMPTED, Reason.SUCCEEDED)), leading=2),
        run(stays._replace(broken=True), leading=2),
        run(stays._replace(gone=(True, False)), leading=2),
        run(stays, TWO, leading=2),
    ):
        assert code(end(ending._replace(run=changed))) == (EXIT_AGAIN, Reason.INFRASTRUCTURE)
    waits = run(stays._replace(exits=(Reason.SUCCEEDED, Reason.SUCCEEDED), gone=(True, False)), leading=2)
    assert isinstance(end(ending._replace(run=waits)), Wait)


def test_what_an_onlooker_completes() -> None:
    """By the records alone what they say; by the word of the run's own place the rest."""
    used = run(over(Reason.USER_ERROR))
    between = run(over(Reason.PREEMPTED))
    for active, own in ((None, True), (False, False), (None, False)):
        assert finish(used, active, own=own) == Finish(Verdict("failed", 1, Reason.USER_ERROR))
        cancelled = finish(between._replace(cancelled=True), active, own=own)
        assert cancelled == Finish(Verdict("cancelled", 1, Reason.CANCELLED))
        assert finish(between, active, evidence=Reason.CAPACITY, own=own) is None
        assert finish(run(LIVE, cancelled=True), active, own=own) is None
    for known in (used, between, between._replace(cancelled=True)):
        assert finish(known, True, evidence=Reason.CAPACITY) is None
        assert finish(known, True, own=False) is None
    assert finish(between, False) == Finish(Verdict("failed", 1, Reason.LOST))
    assert finish(between, False, evidence=Reason.CAPACITY) == Finish(Verdict("failed", 1, Reason.CAPACITY))
    assert finish(run(), False) is None


def test_a_member_of_an_earlier_attempt_that_lives_is_waited_out_however_long_ago_the_next_was_claimed() -> None:
    step = settle(run(LIVE._replace(settled=True), LIVE), 2)
    assert isinstance(step, Wait)
    assert step.why == "attempt 1 still beats"
    step = settle(run(GONE, LIVE), 2)
    assert isinstance(step, Wait)
    assert step.why == "attempt 1 gets the time to stop"
    assert isinstance(settle(run(GONE._replace(settled=True), LIVE), 2), Go)


def test_only_ones_own_attempt_counts_as_broken_before_the_command() -> None:
    two = LIVE._replace(claimed=(True, True), exits=(None, None), gone=(False, False))
    old = two._replace(exits=(Reason.LOST, Reason.LOST), broken=True)
    assert isinstance(before_command(run(old, two, leading=2), 2, 0), Go)
    step = before_command(run(old, two._replace(broken=True), leading=2), 2, 0)
    assert isinstance(step, Stop)
    assert step.reason is Reason.INFRASTRUCTURE


def test_the_first_rank_behind_the_leading_ones_is_a_helper() -> None:
    two = LIVE._replace(claimed=(True, True), exits=(None, None), gone=(False, False))
    helper = before_command(run(two, result="succeeded", leading=1), 1, 1)
    leader = before_command(run(two, result="succeeded", leading=1), 1, 0)
    assert isinstance(helper, Stop)
    assert isinstance(leader, Stop)
    assert (helper.reason, leader.reason) == (Reason.SUCCEEDED, Reason.LOST)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SUCCEEDED])
def test_a_rank_that_is_done_leaves_when_its_leader_has_failed(reason: Reason) -> None:
    two = LIVE._replace(claimed=(True, True), exits=(reason, Reason.SUCCEEDED), gone=(False, False))
    assert code(end(Ending(run(two, leading=2), 1, 1, Reason.SUCCEEDED))) == (EXIT_AGAIN, Reason.INFRASTRUCTURE)


def test_an_attempt_whose_leader_never_came_ends_with_its_object() -> None:
    """The other rank has claimed and is gone. While the backend may still start the leader, or cannot be asked, nobody
    knows; once its object is gone, nobody is left who would end the attempt."""
    alone = AttemptFacts((False, True), (None, None), (False, True))
    lost = Finish(Verdict("failed", 1, Reason.LOST))
    assert finish(run(alone), False) == lost
    assert finish(run(alone), False, evidence=Reason.INFRASTRUCTURE) == Finish(
        Verdict("failed", 1, Reason.INFRASTRUCTURE)
    )
    assert finish(run(alone, cancelled=True), False) == Finish(Verdict("cancelled", 1, Reason.CANCELLED))
    assert finish(run(alone._replace(exits=(None, Reason.USER_ERROR), gone=(False, False))), False) == lost
    for active in (True, None):
        assert finish(run(alone), active) is None
        assert finish(run(alone, cancelled=True), active) is None
    assert finish(run(alone), False, own=False) is None
    assert finish(run(alone._replace(gone=(False, False))), False) is None  # the other rank lives
    assert finish(run(alone._replace(claimed=(True, True))), False) is None  # the leader lives


@pytest.mark.parametrize("evidence", [None, Reason.INFRASTRUCTURE])
def test_a_run_whose_machine_was_taken_away_moves_whatever_its_backend_says(evidence: Reason | None) -> None:
    """Lambda and Azure ML say `infrastructure` of a machine that is gone, a queue says nothing."""
    two = run(GONE, backends=2)
    step = move(two, False, evidence)
    assert step is not None
    assert step.reason is Reason.LOST
    assert finish(two, False, evidence=evidence) is None
    assert move(two, True, evidence) is None
    assert move(two, None, evidence) is None
    assert move(two, False, Reason.IMAGE_PULL) is None
    assert move(run(GONE, backends=1), False, evidence) is None
