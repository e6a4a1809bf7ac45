"""What decisions look at, made from a view: each field by the record that it comes from."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from launcher.protocol.facts import (
    AttemptFacts,
    RetryPolicy,
    RunFacts,
    Verdict,
    facts,
    gone,
    proves_dead,
    same_placement,
)
from launcher.protocol.finish import result_of
from launcher.protocol.records import Beat, Broken, Claim, Exit, Placement, Result
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import MAX_INFRASTRUCTURE_ATTEMPTS, Reason
from launcher.spec.model import Limits, Output, ResolvedJob, Role, Timing

NOW = 10_000.0
JOB = ResolvedJob(
    name="job",
    roles={"main": Role(command=("x",), replicas=2, leader=True), "env": Role(command=("y",))},
    store="file:///s",
    backend="local",
    outputs={"out": Output(), "ckpt": Output(kind="checkpoints")},
    limits=Limits(retries=3, grace=10.0, deadline=77.0),
    timing=Timing(beat=5.0, stale=100.0, fence=80.0),
)
HERE = Placement("job", "uid-1")
ELSEWHERE = Placement("job", "uid-2")


def attempt(number: int = 1, at: Placement = HERE, age: float = 50.0, **more: object) -> AttemptView:
    members = JOB.members()
    claims = {member: Claim(at, "n", 0.0) for member in members}
    base = AttemptView(number, claims=claims, claimed=dict.fromkeys(members, NOW - age))
    return replace(base, **more)  # type: ignore[arg-type]


def view(*attempts: AttemptView, **more: object) -> RunView:
    return RunView("job-1", job=JOB, attempts=attempts, now=NOW, **more)  # type: ignore[arg-type]


def test_of_a_job() -> None:
    again = replace_limits(retry_on=("out_of_memory",))
    assert RetryPolicy.of(JOB) == RetryPolicy(3, MAX_INFRASTRUCTURE_ATTEMPTS, frozenset(), 77.0)
    assert RetryPolicy.of(again).again == {Reason.OUT_OF_MEMORY}
    assert RetryPolicy.of(replace_limits(retry_on=("78", "config_error"))).again == {Reason.CONFIG_ERROR}
    run = facts(view(cancelled=True, result=Result("failed", 1, Reason.LOST, "", 0.0, "n")), JOB)
    assert run == RunFacts((), "failed", True, 2, RetryPolicy.of(JOB))
    assert facts(view(), JOB).result is None


def replace_limits(**changes: object) -> ResolvedJob:
    return msgspec.structs.replace(JOB, limits=msgspec.structs.replace(JOB.limits, **changes))


def test_of_records() -> None:
    seen = facts(
        view(
            attempt(
                exits={"main-1": Exit("main-1", Reason.PREEMPTED)},
                broken=Broken("main-1", "main-0", "why", "n"),
                outputs=frozenset({"out"}),
                checkpoints=(10, 30),
                beats={"main-0": (Beat(1, "running", running=12.0, held=20.0), NOW - 1)},
            )
        ),
        JOB,
    ).attempts[0]
    assert seen == AttemptFacts(
        claimed=(True,) * 3,
        exits=(None, Reason.PREEMPTED, None),
        gone=(False,) * 3,
        broken=True,
        outputs=True,
        checkpoint=30,
        running=12.0,
        held=20.0,
    )
    bare = facts(view(replace(attempt(), claims={}, claimed={})), JOB).attempts[0]
    assert bare == AttemptFacts((False,) * 3, (None,) * 3, (False,) * 3)
    assert facts(view(attempt(outputs=frozenset({"ckpt"}))), JOB).attempts[0].outputs is False


@pytest.mark.parametrize(("running", "brief"), [(None, True), (0.0, True), (4.9, True), (5.0, False)])
def test_a_leader_that_was_lost_before_its_second_heartbeat(running: float | None, brief: bool) -> None:
    job = msgspec.structs.replace(JOB, timing=Timing(beat=5.0, stale=100.0, fence=50.0))
    beats = {} if running is None else {"main-0": (Beat(1, "running", running=running), NOW)}
    assert facts(view(attempt(beats=beats)), job).attempts[0].brief is brief
    ended = attempt(beats=beats, exits={"main-0": Exit("main-0", Reason.PREEMPTED)})
    assert facts(view(ended), job).attempts[0].brief is False


def test_an_end_by_kills_at_the_start_says_what_may_kill() -> None:
    job = msgspec.structs.replace(JOB, timing=Timing(beat=5.0, stale=100.0, fence=50.0))
    killed = view(*(attempt(number) for number in range(1, 6)))
    lost = Verdict("failed", 5, Reason.LOST)
    assert "/dev/shm" in result_of(killed, job, lost, writer="me", message="", data={}).message
    lived = view(
        *(attempt(n) for n in range(1, 5)), attempt(5, beats={"main-0": (Beat(1, "running", running=9.0), NOW)})
    )
    assert result_of(lived, job, lost, writer="me", message="", data={}).message == ""


def test_an_attempt_that_a_reader_missed_ended() -> None:
    first, second = facts(view(attempt(2)), JOB).attempts
    assert first == AttemptFacts((False,) * 3, (None,) * 3, (True,) * 3)
    assert second.claimed == (True,) * 3


@pytest.mark.parametrize(
    ("age", "beat", "dead"), [(100, None, False), (101, None, True), (999, 100, False), (999, 101, True)]
)
def test_silence_is_told_by_the_stores_times(age: float, beat: float | None, dead: bool) -> None:
    beats = {"main-0": (Beat(1, "running"), NOW - beat)} if beat is not None else {}
    seen = facts(view(attempt(age=age, beats=beats)), JOB).attempts[0]
    assert seen.gone[0] is dead


@pytest.mark.parametrize("beats", [{}, {"main-0": (Beat(1, "running"), NOW - 999)}], ids=["claim", "beat"])
@pytest.mark.parametrize(("watched", "dead"), [(None, False), (100.0, False), (101.0, True)])
def test_where_clocks_can_be_set_silence_is_what_was_watched(
    watched: float | None, dead: bool, beats: dict[str, tuple[Beat, float]]
) -> None:
    """However old the times are, a first reading knows of no silence; and a time ahead of now hides none."""
    for age in (999.0, -999.0):
        seen = {} if watched is None else {(1, "main-0"): watched}
        run = facts(view(attempt(age=age, beats=beats), settable=True, watched=seen), JOB)
        assert run.attempts[0].gone == (dead, False, False)


@pytest.mark.parametrize(("age", "settled"), [(15, False), (16, True)])
def test_a_beat_and_the_kill_time_since_the_next_claim(age: float, settled: bool) -> None:
    first, last = facts(view(attempt(1), attempt(2, age=age)), JOB).attempts
    assert (first.settled, last.settled) == (settled, False)
    later = view(attempt(1), attempt(2, age=999), settable=True, watched={(2, ""): float(age), (1, ""): 999.0})
    assert facts(later, JOB).attempts[0].settled is settled
    assert facts(replace(later, watched={}), JOB).attempts[0].settled is False


def test_what_was_never_watched_has_been_silent_for_no_time_at_all() -> None:
    hasty = msgspec.structs.replace(
        JOB,
        limits=msgspec.structs.replace(JOB.limits, grace=0.1),
        timing=Timing(beat=0.1, stale=0.5, fence=0.3),
    )
    assert facts(view(attempt(), settable=True), hasty).attempts[0].gone == (False, False, False)
    assert not facts(view(attempt(1), attempt(2), settable=True), hasty).attempts[0].settled


@pytest.mark.parametrize(("leader", "others", "settled"), [(15, 999, False), (16, 1, True)])
def test_the_leaders_next_claim_counts(leader: float, others: float, settled: bool) -> None:
    members = JOB.members()
    claimed = {member: NOW - (leader if member == members[0] else others) for member in members}
    run = facts(view(attempt(1), replace(attempt(2), claimed=claimed)), JOB)
    assert run.attempts[0].settled is settled


def test_whose_attempt_it_is_and_whether_it_moved() -> None:
    both = view(attempt(1), attempt(2, at=ELSEWHERE))
    run = facts(both, JOB, HERE, "main-0", moved=frozenset({2}))
    assert [one.own for one in run.attempts] == [True, False]
    assert [one.moved for one in run.attempts] == [False, True]
    assert [one.own for one in facts(both, JOB).attempts] == [False, False]
    nobody = replace(attempt(), claims={}, claimed={})
    assert facts(view(nobody), JOB, HERE, "main-0").attempts[0].own is False


@pytest.mark.parametrize(("age", "dead"), [(49.0, True), (50.0, False), (51.0, False)])
def test_a_predecessor_is_dead_when_its_claim_was_there_before_this_process(age: float, dead: bool) -> None:
    """The claims are 50 s old; this process, rank 0 of the same Job, has existed for `age` seconds."""
    seen = facts(view(attempt()), JOB, HERE, "main-0", age=age).attempts[0]
    assert seen.gone == (dead, False, False)  # of other ranks a Job proves nothing


@pytest.mark.parametrize(("start", "dead"), [(6, False), (5, False), (4, True)])
def test_of_two_processes_of_one_boot_the_kernel_says_which_was_first(start: int, dead: bool) -> None:
    """No clock can make a successor of a predecessor: its times say both here."""
    earlier = Placement("container", "docker/q/run", boot="b", pid=1, start=start)
    mine = replace_start(earlier, 5)
    for age in (0.0, 999.0):
        seen = facts(view(attempt(at=earlier)), JOB, mine, "main-0", age=age).attempts[0]
        assert seen.gone[0] is dead
    other = Placement("container", "docker/q/run", boot="another", pid=1, start=start)
    assert facts(view(attempt(at=other)), JOB, mine, "main-0", age=0.0).attempts[0].gone[0] is True
    assert facts(view(attempt(at=other)), JOB, mine, "main-0", age=999.0).attempts[0].gone[0] is False


def replace_start(placement: Placement, start: int) -> Placement:
    return msgspec.structs.replace(placement, start=start)


def test_a_machine_that_started_anew_proves_its_processes_dead_whenever_they_claimed() -> None:
    earlier = Placement("process", "box/q/run", boot="b1", pid=1, start=99)
    mine = Placement("process", "box/q/run", boot="b2", pid=2, start=5)
    assert facts(view(attempt(at=earlier)), JOB, mine, "main-0", age=999.0).attempts[0].gone == (True,) * 3


@pytest.mark.parametrize(("says", "dead"), [(None, False), (True, False), (False, True)])
def test_who_can_look_a_process_up_is_believed(says: bool | None, dead: bool) -> None:
    asked = []

    def alive(placement: Placement) -> bool | None:
        asked.append(placement)
        return says

    for mine, member in ((None, None), (ELSEWHERE, "main-0")):
        seen = facts(view(attempt()), JOB, mine, member, alive=alive).attempts[0]
        assert seen.gone == (dead,) * 3
    assert set(asked) == {HERE}
    assert facts(view(replace(attempt(), claims={}, claimed={})), JOB, alive=alive).attempts[0].gone == (False,) * 3


def test_a_later_claim_of_the_same_member_proves_the_earlier_dead() -> None:
    claims = (HERE, HERE, None)
    known = {"mine": None, "same_member": False, "before": False, "alive": None}
    assert [gone(claims, at, False, **known) for at in range(3)] == [True, False, False]  # type: ignore[arg-type]
    assert gone((HERE, ELSEWHERE), 0, False, **known) is False  # type: ignore[arg-type]
    assert gone((HERE, None, HERE), 0, False, **known) is True  # type: ignore[arg-type]


def test_the_same_place_is_of_one_kind_name_and_restart() -> None:
    one = Placement("set", "uid", 1)
    assert same_placement(one, Placement("set", "uid", 1, host="h", pid=3))
    for other in (Placement("set", "uid", 2), Placement("set", "uid-2", 1), Placement("job", "uid", 1)):
        assert not same_placement(one, other)


@pytest.mark.parametrize(
    ("earlier", "same_member", "before", "dead"),
    [
        (Placement("set", "uid", 1), False, False, True),  # a set that restarted has none of its earlier processes
        (Placement("set", "uid", 3), True, True, False),  # the set restarted since: this process is the old one
        (Placement("set", "uid", 2), True, True, True),  # in one restart a member's pod follows the one before it
        (Placement("set", "uid", 2), True, False, False),
        (Placement("set", "uid", 2), False, True, False),
        (Placement("set", "uid-2", 1), True, True, False),
        (Placement("job", "uid", 1), True, True, False),  # another kind: nothing is known
    ],
)
def test_who_is_dead_to_a_member_of_a_set(earlier: Placement, same_member: bool, before: bool, dead: bool) -> None:
    assert proves_dead(earlier, Placement("set", "uid", 2), same_member=same_member, before=before) is dead


def test_a_generation_says_nothing_of_a_job() -> None:
    assert not proves_dead(Placement("job", "uid", 1), Placement("job", "uid", 2), same_member=False, before=True)
