"""The view is a join and the fold is pure: any order, any parts, any repetition of the records give the same status."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.errors import SlipwayError
from launcher.protocol.fold import State, Status, fold
from launcher.protocol.records import Beat, Broken, Cancel, Claim, Endpoint, Event, Exit, Formed, Placement, Result
from launcher.protocol.view import RunView, add
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Limits, Output, ResolvedJob, Role
from launcher.store.layout import RunKeys

JOB: Final = ResolvedJob(
    name="fold",
    roles={"main": Role(command=("x",), leader=True, replicas=2), "env": Role(command=("y",))},
    store="file:///s",
    backend="local",
    outputs={"model": Output(), "ckpt": Output(kind="checkpoints")},
    limits=Limits(retries=1),
)
RUN: Final = run_id(JOB)
KEYS: Final = RunKeys(RUN)
MEMBERS: Final = JOB.members()
Object = tuple[str, bytes, float]
RANKS = {State.QUEUED: 0, State.STARTING: 1, State.RUNNING: 2, State.STOPPING: 3}


def encoded(key: str, record: object, modified: float) -> Object:
    return key, msgspec.json.encode(record), modified


def view_of(objects: list[Object], now: float) -> RunView:
    view = RunView(RUN, now=now)
    for key, body, modified in objects:
        view = add(view, key, body, modified)
    return view


@st.composite
def histories(draw: st.DrawFn) -> list[Object]:
    """The objects of a run in the order in which they were written, one a second: several attempts, perhaps an end."""
    objects: list[Object] = [(KEYS.job, encode_job(JOB), 0.0)]

    def write(key: str, record: object) -> None:
        objects.append(encoded(key, record, float(len(objects))))

    attempts = draw(st.integers(0, 3))
    for number in range(1, attempts + 1):
        keys = KEYS.attempt(number)
        joined = MEMBERS[: draw(st.integers(1, 3))]
        for member in joined:
            write(keys.claim(member), Claim(Placement("process", "q", pid=number), f"{number}{member}", 0.0))
        if joined == MEMBERS:
            write(keys.formed, Formed(dict.fromkeys(MEMBERS, "h"), "n"))
            write(keys.endpoint("env-0"), Endpoint("env-0", {"http": "h:1"}, 0.0))
        for seq in range(1, draw(st.integers(1, 4))):
            phase = "running" if seq > 1 else "fetching"
            for member in joined:
                write(keys.beat(member), Beat(seq, phase, step=float(seq), total=4.0, running=seq * 10.0))
        if draw(st.booleans()):
            write(keys.checkpoint_complete(number * 10), {})
        write(KEYS.event(number, "main-0", 1), Event(number, "main-0", 1, "warning"))
        if number < attempts or draw(st.booleans()):
            reason = draw(st.sampled_from([Reason.PREEMPTED, Reason.LOST, Reason.INFRASTRUCTURE]))
            if draw(st.booleans()):
                write(keys.broken, Broken("main-1", "main-0", "gone", "n"))
            for member in reversed(joined):
                write(keys.exit(member), Exit(member, reason, running=25.0))
    if draw(st.booleans()):
        write(KEYS.cancel, Cancel("me", 0.0, "n"))
    outcome = draw(st.sampled_from([None, "succeeded", "failed", "cancelled"]))
    if outcome:
        if outcome == "succeeded" and attempts:
            write(KEYS.attempt(attempts).output_manifest("model"), {})
        write(KEYS.result, Result(outcome, attempts, Reason.LOST, "why", 99.0, "n"))
    return objects


@given(histories(), st.randoms(use_true_random=False), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_any_order_and_repetition_gives_the_same_status(objects: list[Object], random: object, again: int) -> None:
    expected = view_of(objects, 100.0)
    mixed = objects + objects[:again]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    mixed_view = view_of(mixed, 100.0)
    assert mixed_view == expected
    assert fold(mixed_view) == fold(expected)


def position(status: Status, view: RunView) -> tuple[int, int]:
    """How far a run is: a state of a later attempt comes after every state of an earlier one."""
    last = view.attempts[-1] if view.attempts else None
    over = last is not None and MEMBERS[0] in last.exits
    if status.state.final or status.state is State.STOPPING:
        return 99, 9 if status.state.final else 3
    return status.attempt + over, 0 if over else RANKS[status.state]


@given(histories())
@settings(max_examples=60, deadline=None)
def test_states_never_go_back(objects: list[Object]) -> None:
    before = (0, 0)
    final: Status | None = None
    for count in range(1, len(objects) + 1):
        view = view_of(objects[:count], 100.0)
        status = fold(view)
        after = position(status, view)
        assert after >= before
        before = after
        if final is not None:
            assert (status.state, status.reason, status.detail) == (final.state, final.reason, final.detail)
        final = status if status.state.final else None


@given(histories(), st.floats(0, 1e6))
@settings(max_examples=40, deadline=None)
def test_result_wins_whatever_else_is_there_and_whenever_one_looks(objects: list[Object], now: float) -> None:
    view = view_of(objects, now)
    status = fold(view)
    assert status.state.final == (view.result is not None)
    if view.result is not None:
        assert status.state == view.result.outcome
        assert not status.stale
    assert fold(view, now) == status


def test_a_run_of_one_beat() -> None:
    keys = KEYS.attempt(1)
    beat = Beat(3, "running", 25.0, 100.0, "epoch 1", 20, 50.0, first_step=5.0, first_running=10.0)
    objects = [
        (KEYS.job, encode_job(JOB), 0.0),
        encoded(keys.claim("main-0"), Claim(Placement("process", "q", host="box"), "n", 0.0), 10.0),
        encoded(keys.beat("main-0"), beat, 60.0),
    ]
    status = fold(view_of(objects, 70.0))
    assert (status.state, status.step, status.total, status.checkpoint) == (State.RUNNING, 25.0, 100.0, 20)
    assert status.eta == pytest.approx(150.0)  # 20 steps in 40 s, 75 to go
    assert status.started == 10.0
    assert not status.stale
    assert status.members[0].host == "box"
    late = fold(view_of(objects, 70.0), 60.0 + 901.0)
    assert late.stale
    assert late.state is State.STARTING
    assert late.reason is Reason.LOST


def test_a_run_that_can_not_go_on_is_stopping_until_its_record_is_there() -> None:
    keys = KEYS.attempt(1)
    objects = [
        (KEYS.job, encode_job(JOB), 0.0),
        encoded(keys.claim("main-0"), Claim(Placement("process", "q"), "n", 0.0), 10.0),
        encoded(keys.exit("main-1"), Exit("main-1", Reason.OUT_OF_MEMORY), 20.0),
        encoded(keys.exit("main-0"), Exit("main-0", Reason.INFRASTRUCTURE), 21.0),
    ]
    status = fold(view_of(objects, 30.0))
    assert (status.state, status.reason) == (State.STOPPING, Reason.OUT_OF_MEMORY)


def test_without_a_job_the_result_still_counts() -> None:
    view = replace(RunView("some-run-123"), result=Result("failed", 2, Reason.LOST, "why", 0.0, "n"))
    assert fold(view).state is State.FAILED
    assert fold(view).name == "some-run"


def test_other_objects_are_ignored_and_bad_records_are_named() -> None:
    view = RunView(RUN)
    for key in (KEYS.attempt(1).log_piece("main-0", 0), KEYS.prefix + "else", KEYS.attempts + "x/claim/main-0.json"):
        assert add(view, key, b"\xff", 1.0).attempts == ()
    with pytest.raises(SlipwayError, match=r"result\.json is not a valid record"):
        add(view, KEYS.result, b"{", 1.0)
