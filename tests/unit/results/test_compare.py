"""Pairs by (benchmark, task, seed); what is in no pair is listed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eval.records.task_record import TaskRecord
from eval.scores.summary import summarise
from launcher.cli.printing.results import comparison_text
from launcher.errors import BadInput
from launcher.results import stats
from launcher.results.compare import Comparison, PerSolved
from launcher.results.compare import compare as compare_all
from launcher.results.identity import mixed
from launcher.results.read import TaskResult


def compare(*arguments: Any, **more: Any) -> Comparison:
    """The one comparison that there is."""
    (comparison,) = compare_all(*arguments, **more)
    return comparison


def task(number: int, success: bool | None, **more: object) -> TaskResult:
    outcome = "infra" if success is None else "scored"
    score = None if success is None else float(success)
    return TaskResult("login", f"t{number}", number, score, success, outcome, **more)  # type: ignore[arg-type]


def test_pairs_by_task_and_seed_whatever_the_order() -> None:
    before = [task(k, k < 2) for k in range(20)]
    after = [task(k, k != 0) for k in reversed(range(20))]
    found = compare("before", before, "after", after)
    assert (found.pairs, found.gained, found.lost) == (20, 18, 1)
    assert found.p == pytest.approx(2 * 20 / 2**19)  # P(X <= 1) of 19 fair coins, twice
    assert found.difference is not None
    assert found.difference.value == pytest.approx(0.85)
    # from the score test itself, its nuisance parameter found by a search, not by Tango's closed form
    assert (found.difference.low, found.difference.high) == pytest.approx((0.483526, 0.958960), abs=1e-6)
    assert found.value_a is not None
    assert found.value_a.value == 0.1
    assert found.left_out == 0


def test_missing_and_infra_tasks_are_counted_and_listed() -> None:
    a = [task(0, True), task(1, False), task(2, None), task(3, True)]
    b = [task(0, True), task(1, None), task(2, True), task(4, True)]
    found = compare("a", a, "b", b)
    assert found.pairs == 1
    assert found.only_a == (("login", "t3", "3"),)
    assert found.only_b == (("login", "t4", "4"),)
    assert found.infra_a == (("login", "t2", "2"),)
    assert found.infra_b == (("login", "t1", "1"),)
    assert found.left_out == 4


def test_seeds_of_one_task_are_different_pairs() -> None:
    a = [TaskResult("login", "same", seed, 1.0, True) for seed in range(3)]
    b = [TaskResult("login", "same", seed, 0.0, False) for seed in range(1, 4)]
    found = compare("a", a, "b", b)
    assert (found.pairs, found.lost, len(found.only_a), len(found.only_b)) == (2, 2, 1, 1)


def test_scores_get_the_sign_flip_and_no_mcnemar() -> None:
    a = [TaskResult("agentnet", f"t{k}", None, 0.5, None) for k in range(10)]
    b = [TaskResult("agentnet", f"t{k}", None, 0.5 + k / 20, None) for k in range(10)]
    found = compare("a", a, "b", b, "score")
    assert (found.test, found.p) == ("sign-flip", 4 / 2**10)  # all or none of nine signs, and either of the zero
    assert found.difference is not None
    assert found.difference.value == pytest.approx(0.225)
    assert found.difference.low > 0
    with pytest.raises(BadInput, match=r"no task has the metric `success` on both sides; allowed: success, score"):
        compare("a", a, "b", b, "success")


def test_nothing_in_common_is_an_error_that_names_both() -> None:
    with pytest.raises(BadInput, match="a and b have no task in common: login against other"):
        compare("a", [task(0, True)], "b", [TaskResult("other", "t0", 0, 1.0, True)])


def test_the_same_task_twice_on_one_side_is_refused() -> None:
    with pytest.raises(BadInput, match="a has login / t0 / 0 more than once"):
        compare("a", [task(0, True), task(0, False)], "b", [task(0, True)])


def test_all_pairs_infra_compares_nothing_and_says_so() -> None:
    found = compare("a", [task(0, None)], "b", [task(0, True)])
    assert (found.pairs, found.difference, found.p) == (0, None, None)
    assert found.value_a == stats.wilson(0, 1)
    assert found.left_out == 1


def steps(trajectories: int, scores: Any, **more: Any) -> list[TaskResult]:
    """Ten steps of each trajectory, as eval.agentnetbench writes them."""
    return [
        TaskResult("agentnetbench", f"t{t}/{s}", 0, scores(t, s), scores(t, s) == 1, cluster=f"t{t}", **more)
        for t in range(trajectories)
        for s in range(10)
    ]


def test_steps_of_a_trajectory_are_not_independent_pairs() -> None:
    """Twelve trajectories that go one way or the other as a whole: 7 against 5 is no difference. Pair by pair it is."""
    a, b = steps(12, lambda t, s: float(t >= 7)), steps(12, lambda t, s: float(t < 7))
    found = compare("a", a, "b", b)
    assert (found.pairs, found.clusters, found.gained, found.lost) == (120, 12, 70, 50)
    assert found.test == "sign-flip by cluster"
    assert found.p == pytest.approx(stats.mcnemar(7, 5))
    assert stats.mcnemar(70, 50) < 0.1 < 0.7 < found.p
    assert found.difference is not None
    assert found.difference.low < -0.4
    assert found.difference.high > 0.6
    alone = compare("a", [msgspec.structs.replace(t, cluster=t.task_id) for t in a], "b", b)
    assert alone.clusters == 120


def test_records_of_before_clusters_were_written_are_clustered_by_trajectory() -> None:
    old = [msgspec.structs.replace(one, cluster=None) for one in steps(12, lambda t, s: float(t >= 7))]
    assert compare("a", old, "b", steps(12, lambda t, s: 1.0)).clusters == 12


@pytest.mark.parametrize("clusters", [3, 9, 10])
def test_few_clusters_are_said(clusters: int) -> None:
    a, b = steps(clusters, lambda t, s: 0.5), steps(clusters, lambda t, s: (s + t) % 3 / 2)
    notes = compare("a", a, "b", b, "score").notes
    assert bool(notes) == (clusters < 10)
    if notes:
        assert notes == (f"{clusters} clusters: below 10 neither the intervals nor p can be relied on",)


def test_no_interval_of_zero_width_beside_a_p_of_a_quarter() -> None:
    found = compare("a", [task(k, False) for k in range(3)], "b", [task(k, True) for k in range(3)])
    assert found.p == 0.25
    assert found.difference is not None
    assert found.difference == stats.tango(3, 0, 3)
    assert found.difference.low < 0 < found.difference.value == found.difference.high
    clustered = compare("a", steps(3, lambda t, s: 0.0), "b", steps(3, lambda t, s: 1.0))
    assert clustered.p == 0.25
    assert clustered.difference is not None
    assert clustered.difference.low < 0
    same = compare("a", steps(20, lambda t, s: 0.5), "b", steps(20, lambda t, s: 0.5), "score").difference
    assert same is not None
    assert same.low < 0 < same.high


def test_what_the_infrastructure_broke_stays_in_the_denominator_and_is_no_score() -> None:
    """8 of 8, and 2 that never ran: 80 %, as `results` says, and no pair."""
    a = [task(k, True) for k in range(8)] + [task(8, None), task(9, None)]
    b = [task(k, True) for k in range(10)]
    found = compare("a", a, "b", b)
    assert (found.tasks, found.pairs, found.lost, found.gained, found.p) == (10, 8, 0, 0, 1.0)
    assert found.value_a is not None
    assert found.value_b is not None
    assert (found.value_a.value, found.value_b.value) == (0.8, 1.0)
    assert found.value_a == stats.wilson(8, 10)
    assert found.difference is not None
    assert found.difference.value == 0


# What defines a score


def test_versions_of_the_rules_are_compared_each_with_itself() -> None:
    """`versions: [v1]` against `[v1, v2]`, the answers the same: no difference on v1."""
    v1 = steps(12, lambda t, s: 1.0, version="v1")
    v2 = steps(12, lambda t, s: 0.0, version="v2")
    found = compare("one", v1, "both", [*v1, *v2])
    assert (found.version, found.pairs, found.p) == ("v1", 120, 1.0)
    assert found.difference is not None
    assert found.difference.value == 0
    assert [one.version for one in compare_all("both", [*v1, *v2], "again", [*v2, *v1])] == ["v1", "v2"]
    with pytest.raises(BadInput, match="one and two are scored by different versions of agentnetbench: v1 against v2"):
        compare_all("one", v1, "two", v2)


def test_a_record_without_a_version_is_compared_with_a_note() -> None:
    new, old = [task(k, True, version="1") for k in range(12)], [task(k, True) for k in range(12)]
    found = compare("old", old, "new", new)
    assert found.version == "1"
    assert found.notes == ("old does not say by which version of the rules it was scored",)
    assert compare("old", old, "older", old).notes == ()


def test_other_rules_are_refused_with_the_names_of_what_differs() -> None:
    a = [task(k, True, rules={"max_steps": 15, "options": {"size": 4}}) for k in range(3)]
    b = [task(k, True, rules={"max_steps": 50, "options": {"size": 4}}) for k in range(3)]
    with pytest.raises(BadInput, match="not scored by the same rules of login: max_steps: 15 against 50"):
        compare("a", a, "b", b)
    assert compare("a", a, "old", [task(k, True) for k in range(3)]).pairs == 3


def test_benchmarks_are_compared_each_with_itself() -> None:
    other = [TaskResult("other", f"t{k}", k, 0.0, False) for k in range(4)]
    first, second = compare_all("a", [*other, task(0, True)], "b", [task(0, True), *other])
    assert [(first.benchmark, first.pairs), (second.benchmark, second.pairs)] == [("login", 1), ("other", 4)]
    alone = compare("a", [*other, task(0, True)], "b", [task(0, True)])
    assert len(alone.only_a) == 4


@pytest.mark.parametrize("options", [[1], "x", 3, None, {}, {"revision": 2}])
def test_strange_rules_name_no_revision(options: object) -> None:
    assert task(1, True, version="2", rules={"options": options}).edition == "2"
    assert task(1, True, version="2", rules={"options": {"revision": "r"}}).edition == "2 (r)"


OLD = {"environment": "login", "options": {}, "max_steps": 15, "parse_failures": 1}
NEW = {**OLD, "answers": {"rule": "2", "waiting": 900.0}}


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (OLD, NEW, "what an answer counts as was decided otherwise: a by rule 1 and b by rule 2"),
        (NEW, NEW, None),
        (OLD, OLD, None),
    ],
)
def test_results_by_another_rule_of_answers_are_compared_with_a_warning(
    left: Any, right: Any, said: str | None
) -> None:
    known = {"code": "a"}
    a, b = ([task(number, True, rules=rules, identity=known) for number in range(12)] for rules in (left, right))
    notes = compare("a", a, "b", b).notes
    assert any(said in note for note in notes) if said else notes == ()


@pytest.mark.parametrize("answers", [{"rule": "2", "waiting": 60.0}, {"rule": "2", "waiting": 900.0, "lenient": True}])
def test_other_limits_by_the_same_rule_of_answers_are_refused(answers: Any) -> None:
    a, b = ([task(number, True, rules=rules) for number in range(12)] for rules in (NEW, {**OLD, "answers": answers}))
    with pytest.raises(BadInput, match="not scored by the same rules of login: answers"):
        compare("a", a, "b", b)


def test_a_task_that_could_not_run_counts_as_not_solved_and_is_told() -> None:
    a = [task(number, True) for number in range(12)]
    b = [*a[:8], *(TaskResult("login", f"t{number}", number, None, None, "not run") for number in range(8, 12))]
    found = compare("a", a, "b", b)
    assert (found.tasks, found.pairs, found.unscored) == (12, 8, ())
    assert found.value_b is not None
    assert found.value_b.value == pytest.approx(8 / 12)
    assert (found.not_run_a, [key[1] for key in found.not_run_b]) == ((), ["t10", "t11", "t8", "t9"])
    assert (found.infra_b, found.left_out) == ((), 4)
    assert "could not run in b, in no pair and not solved there: 4" in comparison_text(found)


def test_what_a_solved_task_took_is_told_of_both_sides() -> None:
    """Of 12 tasks `a` solves 6 with 4 answers and 2 s each, `b` 12 with 3 answers and 5 s at 0.01 USD; failures count,
    and what the infrastructure broke does not."""
    a = [task(n, n < 6, steps=4, duration_ms=2000.0) for n in range(12)]
    b = [task(n, True, steps=3, duration_ms=5000.0, metrics={"cost": 0.01}) for n in range(12)]
    a, b = [*a, task(12, None, steps=99)], [*b, task(12, None, steps=99)]
    found = compare("a", a, "b", b)
    assert found.per_solved_a == PerSolved(8.0, 4.0, None)
    assert found.per_solved_b == PerSolved(3.0, 5.0, pytest.approx(0.01))
    said = "per solved task, a against b: 8.0 against 3.0 answers, 4.0 against 5.0 seconds, - against 0.0100 USD"
    assert said in comparison_text(found)
    nothing = compare("a", [task(n, False, steps=4) for n in range(12)], "b", [task(n, False) for n in range(12)])
    assert nothing.per_solved_a == PerSolved(None, None, None)
    assert "per solved task" not in comparison_text(nothing)


def test_what_a_solved_task_took_counts_every_trial() -> None:
    a = [task(n, trial != 0, trial=trial, steps=2) for n in range(12) for trial in range(3)]
    b = [task(n, True, trial=trial, steps=2) for n in range(12) for trial in range(3)]
    found = compare("a", a, "b", b, "pass_all/2")
    assert (found.per_solved_a.steps, found.per_solved_b.steps) == (3.0, 2.0)
    assert found.per_solved_a == compare("a", a, "b", b).per_solved_a


def test_what_compare_says_of_a_solved_task_is_what_the_summary_says() -> None:
    records = [
        TaskRecord(
            benchmark="login", version="1", task_id=f"t{n}", seed=n, agent="x", score=float(n < 5), success=n < 5,
            outcome="scored", steps=3 + n, duration_ms=1000 * n, metrics={"cost": 0.5},
        )
        for n in range(12)
    ]  # fmt: skip
    rows = {row.metric: row.value for row in summarise(records, version="1", split="", seed=0)}
    tasks = [msgspec.convert(msgspec.to_builtins(record), TaskResult) for record in records]
    found = compare("a", tasks, "b", tasks).per_solved_a
    assert (found.steps, found.seconds, found.cost) == tuple(
        pytest.approx(rows[f"{name}_per_solved"]) for name in ("steps", "seconds", "cost")
    )


def test_pass_all_compares_the_chance_that_every_trial_solves() -> None:
    """Three trials: of `a` two of three solve each task, of `b` all of them: 1 of 3 pairs of trials, and all."""
    a = [task(n, trial != 0, trial=trial) for n in range(12) for trial in range(3)]
    b = [task(n, True, trial=trial) for n in range(12) for trial in range(3)]
    found = compare("a", a, "b", b, "pass_all/2")
    assert (found.tasks, found.pairs, found.gained) == (12, 12, 12)
    assert found.value_a is not None
    assert found.value_b is not None
    assert (found.value_a.value, found.value_b.value) == (pytest.approx(1 / 3), 1.0)
    with pytest.raises(BadInput, match="a: t0 has 3 of the 5 trials that pass_all/5 needs"):
        compare("a", a, "b", b, "pass_all/5")


@pytest.mark.parametrize(("by", "groups"), [("difficulty", ["easy", "hard"]), ("program", ["calc + writer", "writer"])])
def test_a_comparison_by_group_follows_that_of_all_tasks(by: str, groups: list[str]) -> None:
    def side(solved: bool) -> list[TaskResult]:
        return [
            task(n, solved or n % 2 == 0, difficulty="hard" if n % 2 else "easy", programs=("calc", "writer")[n % 2 :])
            for n in range(24)
        ]

    found = compare_all("a", side(False), "b", side(True), by=by)
    assert [one.group for one in found] == ["", *groups]
    assert [one.tasks for one in found] == [24, 12, 12]
    assert [one.gained for one in found] == [12, 0, 12]
    with pytest.raises(BadInput, match=f"--by {by}: the tasks of a and b tell no {by} that both have"):
        compare_all("a", [task(0, True)], "b", [task(0, True)], by=by)


OLD_JUDGE = {"code": "a1", "localc": "7.4"}
NEW_JUDGE = {"code": "a1", "localc": "25.2"}


def test_a_task_with_another_judge_is_left_out_and_named_by_the_part_that_changed() -> None:
    """Red before: the same figures without a word, whatever had judged the two sides."""
    a = [task(k, False, identity=OLD_JUDGE) for k in range(4)]
    b = [task(k, True, identity=NEW_JUDGE if k < 3 else OLD_JUDGE) for k in range(4)]
    found = compare("a", a, "b", b)
    assert (found.pairs, found.gained, found.left_out) == (1, 1, 3)
    assert found.other_task == tuple(("login", f"t{k}", str(k)) for k in range(3))
    assert found.notes[0] == "not the same tasks, and left out: 3 of 4: localc: 7.4 against 25.2 (3)"


@pytest.mark.parametrize(
    ("mine", "others", "words"),
    [
        (OLD_JUDGE, NEW_JUDGE, r"localc: 7\.4 against 25\.2 \(2\)"),
        (OLD_JUDGE, {"code": "a1"}, r"localc: 7\.4 against none \(2\)"),
        ({}, NEW_JUDGE, r"judge unknown in a \(2\)"),
        (NEW_JUDGE, {}, r"judge unknown in b \(2\)"),
    ],
)
def test_two_sides_without_one_same_task_are_refused(mine: dict[str, str], others: dict[str, str], words: str) -> None:
    a, b = [task(k, False, identity=mine) for k in range(2)], [task(k, True, identity=others) for k in range(2)]
    with pytest.raises(BadInput, match=f"no task of login in common that was judged in the same way: {words}"):
        compare_all("a", a, "b", b)


def test_results_of_before_are_compared_with_one_another_and_their_judge_is_said_to_be_unknown() -> None:
    rules = {"environment": "login", "answers": {"rule": "2"}}
    old = [task(k, k > 1, rules=rules) for k in range(4)]
    assert compare("a", old, "b", old).notes[0].startswith("judge unknown: neither a nor b says which judge")
    steps = [task(k, k > 1, rules={"step": "d"}) for k in range(4)]  # judged by a published rule, without an episode
    assert not any("judge" in note for note in compare("a", steps, "b", steps).notes)


def test_agents_in_one_table_are_told_apart_where_their_tasks_are_not_the_same() -> None:
    rules = {"environment": "login"}
    sides = [
        ("a", [task(k, True, identity=OLD_JUDGE, rules=rules) for k in range(2)]),
        ("b", [task(k, True, identity=NEW_JUDGE, rules=rules) for k in range(2)]),
        ("c", [task(k, True, identity=OLD_JUDGE, rules=rules) for k in range(2)]),
        ("d", [task(5, True, rules=rules)]),
    ]
    assert mixed(sides) == [
        "judge unknown: d",
        "2 of 2 tasks are not the same in a and b: localc: 7.4 against 25.2 (2)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (4, 0, "does not contain 0, but p is not below 0.05: go by p"),  # 4 of 4 changes one way: p = .125
        (6, 0, ""),  # p = .03125, and the interval agrees
        (1, 0, ""),  # neither finds a difference
    ],
)
def test_where_the_interval_and_p_differ_it_says_which_to_believe(before: int, after: int, said: str) -> None:
    a = [task(k, k < before) for k in range(30)]
    b = [task(k, k < after) for k in range(30)]
    found = compare("a", a, "b", b)
    assert found.difference is not None
    notes = [note for note in found.notes if note.startswith("the interval")]
    assert [said in note for note in notes] == ([True] if said else [])
    if before == 4:
        assert found.p == 0.125
        assert found.difference.high < 0
