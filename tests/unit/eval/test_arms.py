"""The figures of arms: formulas as the launcher has them, and what is paired with what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.records.task_record import TaskRecord
from eval.scores import arms
from launcher.results import stats as launchers


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 90))
def test_tangos_interval_is_the_launchers(gained: int, lost: int, n: int) -> None:
    n = max(n, gained + lost)
    mine, theirs = arms.tango(gained, lost, n), launchers.tango(gained, lost, n)
    assert mine is not None
    assert theirs is not None
    assert (mine.value, mine.low, mine.high) == pytest.approx((theirs.value, theirs.low, theirs.high), abs=1e-9)


@given(st.lists(st.integers(-4, 4), max_size=30))
def test_p_is_the_launchers_exact_one(sums: list[int]) -> None:
    assert arms.sign_flip(sums) == launchers.sign_flip(sums)


@given(st.integers(0, 30), st.integers(0, 30))
def test_where_tasks_are_independent_p_is_mcnemars(gained: int, lost: int) -> None:
    assert arms.sign_flip([1] * gained + [-1] * lost + [0] * 5) == pytest.approx(launchers.mcnemar(lost, gained))


def test_nothing_in_common_has_no_difference() -> None:
    assert arms.tango(0, 0, 0) is None
    one = arms.Unit("a", {"success": True})
    found = arms.compare({"none": {"a": one}, "right": {"b": one}})
    (pair,) = found.pairs
    assert (pair.n, pair.left_out, pair.difference, pair.p) == (0, 2, None, None)
    assert "no task in both" in arms.table(found)


def record(number: int, success: bool | None, cluster: str | None = None, **changes: object) -> TaskRecord:
    scored = success is not None
    values: dict[str, object] = {
        "benchmark": "b",
        "agent": "a",
        "task_id": f"t{number}",
        "seed": 0,
        "score": float(success) if success is not None else None,
        "success": success,
        "outcome": "scored" if scored else "infra",
        "cluster": cluster,
    }
    return TaskRecord(**{**values, **changes})  # type: ignore[arg-type]


def test_tasks_of_one_cluster_are_one_observation() -> None:
    """Five templates of four tasks: where a whole template goes over, that is one change and not four."""
    before = [record(number, False, f"template {number // 4}") for number in range(20)]
    after = [record(number, number < 12, f"template {number // 4}") for number in range(20)]
    found = arms.compare({"none": arms.of_tasks(before), "right": arms.of_tasks(after)})
    (pair,) = found.pairs
    assert (pair.n, pair.clusters, pair.gained, pair.difference) == (20, 5, 12, 0.6)
    assert pair.p == launchers.sign_flip([4.0, 4.0, 4.0, 0.0, 0.0]) == 0.25
    assert launchers.mcnemar(0, 12) < 0.001


def test_a_task_has_a_first_action_only_where_an_expert_said_which() -> None:
    records = [record(0, True, metrics={"first_action": 0.0}), record(1, False, metrics={"first_action": 1.0})]
    rates = {(r.metric, r.reached, r.n) for r in arms.compare({"a": arms.of_tasks(records)}).arms}
    assert rates == {("first_action", 1, 2), ("success", 1, 2)}
    without = arms.compare({"a": arms.of_tasks([record(0, True), record(1, False)])}).arms
    assert [rate.metric for rate in without] == ["success"]


def test_a_recording_is_solved_where_every_step_is_and_not_scored_where_one_is_not() -> None:
    records = [
        *(record(0, True, "x"), record(1, True, "x")),
        *(record(2, True, "y"), record(3, False, "y")),
        *(record(4, True, "z"), record(5, None, "z")),
    ]
    units = arms.of_recordings(records)
    assert {name: unit.reached["success"] for name, unit in units.items()} == {"x": True, "y": False, "z": None}
    assert {unit.reached["first_action"] for unit in units.values()} == {True}
    (_, rate) = arms.compare({"a": units}).arms
    assert (rate.metric, rate.reached, rate.n, rate.infra) == ("success", 1, 3, 1)
