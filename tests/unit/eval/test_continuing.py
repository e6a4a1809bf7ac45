"""What stands of an earlier run: raised limits, newer task sets, trials, and results of another run."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import RandomAction
from eval.config import ConfigError
from eval.desktop import Task
from eval.episodes import jsonl
from eval.records.earlier_results import REPLACED, content_of, longest_first, repeated, take_over
from eval.rollout.loop import RECORDS, Rollout, RolloutLimits, TaskRecord, rollout
from eval.scores.stats import Estimate, pass_all, pass_at, per_solved
from eval.scores.summary import summarise
from tests.unit.eval.doubles import Counting, Saying

CLICK = "Action: CLICK(x=0.50, y=0.50)"
DONE = "Action: DONE()"
EXPERT = (CLICK, CLICK, CLICK, DONE)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Counting.started.clear()


def run(
    tasks: Sequence[Task], out: Path, steps: int | None = 8, *says: str, options: dict[str, Any] | None = None
) -> list[Rollout]:
    limits = RolloutLimits(max_steps=steps, concurrency=1, attempts=1, backoff=0.0)
    told: dict[str, Any] = {"benchmark": "b", "environment": "counting", "options": options or {}}
    return asyncio.run(rollout(Saying(*(says or EXPERT)), Counting, tasks, out=out, limits=limits, **told))


def starts(tasks: Sequence[Task]) -> list[int]:
    return [Counting.started[task.task_id] for task in tasks]


def test_a_higher_limit_runs_only_what_the_lower_one_had_ended(tmp_path: Path) -> None:
    """t0 says done at its last allowed step, t1's desktop ends there, t2 is cut off, t3 is done before."""

    class Own(Saying):
        async def act(self, observations: Any, histories: Any) -> Any:
            self.texts = {"t0": (CLICK, CLICK, DONE), "t3": (DONE,)}.get(histories[0].task.task_id, EXPERT)
            return await super().act(observations, histories)

    tasks = [Task(f"t{i}", "x", options={"ends": 3} if i == 1 else {}) for i in range(4)]

    def again(steps: int) -> list[TaskRecord]:
        limits = RolloutLimits(max_steps=steps, concurrency=1)
        made = rollout(Own(), Counting, tasks, out=tmp_path, benchmark="b", environment="c", limits=limits)
        return [each.record for each in asyncio.run(made)]

    assert [record.cut for record in again(3)] == [False, False, True, False]
    records = again(4)
    assert starts(tasks) == [1, 1, 2, 1]
    assert [record.success for record in records] == [False, False, True, False]
    assert [record.rules["step_budget"] for record in records] == [4] * 4
    assert [record.earlier for record in records] == [{"step_budget": 3}, {"step_budget": 3}, {}, {"step_budget": 3}]
    assert [(each.task_id, each.steps) for each in jsonl.read(tmp_path / REPLACED, TaskRecord)] == [("t2", 3)]
    again(4)
    assert starts(tasks) == [1, 1, 2, 1]


def test_a_lower_limit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    tasks = [Task("t", "x")]
    run(tasks, tmp_path, 8)
    before = (tmp_path / RECORDS).read_bytes()
    words = r"step_budget 8 where it is 3 now \(a limit can be raised, not lowered\); name another folder"
    with pytest.raises(ConfigError, match=words):
        run(tasks, tmp_path, 3)
    assert (tmp_path / RECORDS).read_bytes() == before
    assert starts(tasks) == [1]


def test_the_tasks_own_limit_and_one_for_all_are_compared_by_task(tmp_path: Path) -> None:
    """A task says 2 steps, the other nothing, which is 15. Three for all raises the first and lowers the second."""
    own, unsaid = Task("own", "x", max_steps=2), Task("unsaid", "x")
    run([own, unsaid], tmp_path, None)
    with pytest.raises(ConfigError, match="a limit can be raised"):
        run([own, unsaid], tmp_path, 3)
    run([own, unsaid], tmp_path, 20)
    assert starts([own, unsaid]) == [2, 1]


def test_a_newer_task_set_runs_only_what_changed(tmp_path: Path) -> None:
    old = [Task("same", "x", options={"file": "a"}), Task("other", "x", options={"file": "b"})]
    new = [old[0], replace(old[1], options={"file": "c"}), Task("added", "x", options={"file": "d"})]
    run(old, tmp_path, options={"folder": "tasks", "revision": "1", "stale": []})
    results = run(new, tmp_path, options={"folder": "tasks", "revision": "2", "stale": ["gone"]})
    assert starts(new) == [1, 2, 1]
    assert {each.record.rules["options"]["revision"] for each in results} == {"2"}
    assert [each.record.earlier.get("revision") for each in results] == ["1", None, None]
    with pytest.raises(ConfigError, match=r"options .*'tasks'.* where it is .*'others'"):
        run(new, tmp_path, options={"folder": "others", "revision": "2", "stale": ["gone"]})


def test_records_of_before_contents_were_written_stand_only_with_the_same_revision(tmp_path: Path) -> None:
    tasks = [Task("t", "x")]
    run(tasks, tmp_path, options={"revision": "1"})
    lines = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    for line in lines:
        for name in ("content", "cut", "trial", "earlier"):
            del line[name]
    (tmp_path / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(tasks, tmp_path, options={"revision": "1"})
    assert starts(tasks) == [1]
    (tmp_path / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(tasks, tmp_path, options={"revision": "2"})
    assert starts(tasks) == [2]


@pytest.mark.parametrize(
    "change",
    [{"instruction": "y"}, {"options": {"a": 2}}, {"max_steps": 3}, {"feasible": False}, {"seed": 1}],
    ids=str,
)
def test_a_content_is_what_defines_the_task(change: dict[str, Any]) -> None:
    task = Task("t", "x", options={"a": 1, "b": [1, 2]})
    assert content_of(replace(task, **change)) != content_of(task)
    assert content_of(replace(task, options={"b": [1, 2], "a": 1}, tags=("x",), trial=2)) == content_of(task)


def test_a_task_whose_judge_changed_is_run_again_and_it_is_said_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Red before: nothing was run again."""
    old = [Task(name, "x", identity={"code": name, "localc": "7.4"}) for name in ("same", "other")]
    new = [old[0], replace(old[1], identity={"code": "new", "localc": "7.4"})]
    run(old, tmp_path)
    results = run(new, tmp_path)
    assert starts(new) == [1, 2]
    assert "1 judged tasks whose identity changed (code) are run again" in capsys.readouterr().out
    assert [each.record.identity["code"] for each in results] == ["same", "new"]
    assert [each.task_id for each in jsonl.read(tmp_path / REPLACED, TaskRecord)] == ["other"]


def test_records_without_a_judge_are_refused_and_stay(tmp_path: Path) -> None:
    run([Task("t", "x")], tmp_path)
    before = (tmp_path / RECORDS).read_bytes()
    with pytest.raises(ConfigError, match=r"results whose judge is unknown, such as t: .*; name another folder"):
        run([Task("t", "x", identity={"code": "a"})], tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == before
    assert starts([Task("t", "x")]) == [1]


def test_infrastructure_failures_alone_are_run_again(tmp_path: Path) -> None:
    tasks = [Task("good", "x"), Task("flaky", "x", options={"fault": "reset", "times": 1}), Task("failed", "x")]
    first = run(tasks, tmp_path)
    assert [each.record.outcome for each in first] == ["scored", "infra", "scored"]
    second = run(tasks, tmp_path)
    assert [each.record.success for each in second] == [True] * 3
    assert starts(tasks) == [1, 2, 1]


def test_another_runs_results_are_taken_over_whole(tmp_path: Path) -> None:
    tasks = [Task("a", "x"), Task("b", "x")]
    run(tasks, tmp_path / "first", 8)
    run(tasks, tmp_path / "first" / "baselines" / "other", 8)
    take_over(tmp_path / "first", tmp_path / "second")
    run(tasks, tmp_path / "second", 9)
    assert starts(tasks) == [2, 2]
    assert (tmp_path / "second/episodes/a-0/000.png").is_file()
    assert len(jsonl.read(tmp_path / "second/baselines/other" / RECORDS, TaskRecord)) == 2
    before = (tmp_path / "second" / RECORDS).read_bytes()
    take_over(tmp_path / "first", tmp_path / "second")  # a new start of the same run keeps what it has
    assert (tmp_path / "second" / RECORDS).read_bytes() == before
    with pytest.raises(ConfigError, match=r"earlier: .*tasks.jsonl is not there"):
        take_over(tmp_path / "nothing", tmp_path / "third")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / RECORDS).write_text("{}\n")
    with pytest.raises(ConfigError, match=r"earlier: .*tasks.jsonl: Object missing required field"):
        take_over(tmp_path / "bad", tmp_path / "third")


def test_trials_are_run_apart_and_judged_by_task(tmp_path: Path) -> None:
    tasks = repeated([Task("a", "x"), Task("b", "x", cluster="family")], 3)
    results = run(tasks, tmp_path)
    assert [(each.record.task_id, each.record.trial) for each in results] == [
        (name, trial) for trial in range(3) for name in "ab"
    ]
    assert {each.record.cluster for each in results} == {"a 0", "family"}
    assert sorted(each.name for each in (tmp_path / "episodes").iterdir()) == [
        "a-0",
        "a-0.1",
        "a-0.2",
        *(f"b-0{end}" for end in ("", ".1", ".2")),
    ]
    assert starts(tasks[:2]) == [3, 3]
    run(tasks, tmp_path)
    assert starts(tasks[:2]) == [3, 3]


def test_a_random_agent_draws_anew_in_each_trial(tmp_path: Path) -> None:
    limits = RolloutLimits(max_steps=4, step_timeout=0.05, attempts=1, parse_failures=99)
    tasks = repeated([Task("a", "x")], 4)
    made = rollout(RandomAction(Dsl(4)), Counting, tasks, out=tmp_path, benchmark="b", environment="c", limits=limits)
    said = {tuple(step.response for step in each.episode.steps) for each in asyncio.run(made) if each.episode}
    assert len(said) == 4


@pytest.mark.parametrize("trials", [1, 2, 5, 6])
def test_pass_at_is_the_share_of_all_choices_with_a_solved_trial(trials: int) -> None:
    """Against counting every choice, which is what the estimator's formula is short for."""
    for solved in range(trials + 1):
        outcomes = [True] * solved + [False] * (trials - solved)
        for k in range(1, trials + 1):
            chosen = [any(some) for some in combinations(outcomes, k)]
            assert math.isclose(pass_at(k, solved, trials), sum(chosen) / len(chosen))
    with pytest.raises(ValueError, match="2 of 1 trials"):
        pass_at(2, 0, 1)


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 6])
def test_pass_all_is_the_share_of_all_choices_in_which_every_trial_solved(trials: int) -> None:
    """pass^k of tau-bench, against counting every choice."""
    for solved in range(trials + 1):
        outcomes = [True] * solved + [False] * (trials - solved)
        for k in range(1, trials + 1):
            chosen = [all(some) for some in combinations(outcomes, k)]
            assert math.isclose(pass_all(k, solved, trials), sum(chosen) / len(chosen))
    with pytest.raises(ValueError, match="2 of 1 trials"):
        pass_all(2, 0, 1)


def test_all_of_k_is_a_row_with_an_interval_by_task_and_groups_have_rows_of_their_own() -> None:
    drawn = random.Random(11)
    chances = [drawn.random() for _ in range(400)]
    records = [
        TaskRecord(
            benchmark="b", agent="a", task_id=f"t{number}", seed=0, trial=trial, cluster=f"t{number} 0",
            score=float(solved), success=solved, outcome="scored", steps=3 if solved else 9, duration_ms=2000,
            feasible=number % 5 > 0, difficulty="easy" if number % 2 else "hard",
            programs=("writer",) if number % 4 else ("calc", "writer"),
            metrics={"cost": 0.5},
        )
        for number, chance in enumerate(chances)
        for trial in range(6)
        for solved in [drawn.random() < (chance if number % 2 else chance / 2)]
    ]  # fmt: skip
    rows = {row.metric: row for row in summarise(records, version="1", split="test", seed=0)}
    assert [name for name in rows if name.startswith("pass_all")] == [f"pass_all/{k}" for k in (1, 2, 3, 5)]
    true_chances = [chance if number % 2 else chance / 2 for number, chance in enumerate(chances)]
    for k in (1, 2, 3, 5):
        row, true = rows[f"pass_all/{k}"], sum(chance**k for chance in true_chances) / 400
        assert row.ci_low is not None
        assert row.ci_high is not None
        assert row.ci_low < true < row.ci_high
    assert rows["pass_all/1"].value == pytest.approx(rows["success"].value)
    for name, chosen in (
        ("feasible", [r for r in records if r.feasible]),
        ("infeasible", [r for r in records if not r.feasible]),
        ("difficulty/easy", [r for r in records if r.difficulty == "easy"]),
        ("difficulty/hard", [r for r in records if r.difficulty == "hard"]),
        ("program/writer", [r for r in records if r.programs == ("writer",)]),
        ("program/calc + writer", [r for r in records if len(r.programs) == 2]),
    ):
        assert rows[f"success/{name}"].value == pytest.approx(sum(bool(r.success) for r in chosen) / len(chosen))
        assert rows[f"success/{name}"].n == len(chosen)
    solved = sum(bool(r.success) for r in records)
    assert rows["steps_per_solved"].value == pytest.approx(sum(r.steps for r in records) / solved)
    assert rows["seconds_per_solved"].value == pytest.approx(2.0 * len(records) / solved)
    assert rows["cost_per_solved"].value == pytest.approx(0.5 * len(records) / solved)


def test_what_a_solved_task_takes_has_an_interval_that_covers_it() -> None:
    """300 draws of 60 tasks, each with a chance of .4 and 10 answers, 4 where it is solved: (.4 * 4 + .6 * 10) / .4."""
    drawn, covered = random.Random(5), 0
    for _ in range(300):
        solved = [float(drawn.random() < 0.4) for _ in range(60)]
        found = per_solved([4.0 if one else 10.0 for one in solved], solved)
        assert found is not None
        covered += found.low <= 19.0 <= found.high
    assert 270 <= covered <= 300
    assert per_solved([1.0, 2.0], [0.0, 0.0]) is None
    assert per_solved([1.0, 2.0], [1.0, 0.0]) == Estimate(3.0, 3.0, 3.0, 1, 2)


def test_best_of_n_is_a_row_with_an_interval_by_task() -> None:
    drawn = random.Random(7)
    chances = [drawn.random() for _ in range(400)]
    records = [
        TaskRecord(
            benchmark="b", agent="a", task_id=f"t{number}", seed=0, trial=trial, cluster=f"t{number} 0",
            score=float(solved), success=solved, outcome="scored", steps=1,
        )
        for number, chance in enumerate(chances)
        for trial in range(6)
        for solved in [drawn.random() < chance]
    ]  # fmt: skip
    rows = {row.metric: row for row in summarise(records, version="1", split="test", seed=0)}
    assert [name for name in rows if name.startswith("pass_at")] == ["pass_at/2", "pass_at/4", "pass_at/6"]
    for k in (2, 4, 6):
        row = rows[f"pass_at/{k}"]
        true = sum(1 - (1 - chance) ** k for chance in chances) / len(chances)
        assert row.ci_low is not None
        assert row.ci_high is not None
        assert row.ci_low < true < row.ci_high
        assert row.n == row.clusters if row.clusters else row.n == 400
    assert rows["success"].clusters == 400
    assert not [row for row in summarise(records[::6], version="1", split="test", seed=0) if "pass_at" in row.metric]


def test_the_longest_tasks_begin_first(tmp_path: Path) -> None:
    tasks = [Task("short", "x", max_steps=2), Task("long", "x", max_steps=9), Task("seen", "x", seed=1, max_steps=3)]
    record = TaskRecord(
        benchmark="b", agent="a", task_id="seen", seed=0, score=1.0, success=True, outcome="scored", steps=3,
        duration_ms=60_000,
    )  # fmt: skip
    limits = RolloutLimits()
    assert longest_first(tasks, [], limits.steps_of) == [1, 2, 0]
    assert longest_first(tasks, [record], limits.steps_of) == [1, 2, 0]
    quick = msgspec.structs.replace(record, task_id="other", steps=100, duration_ms=1_000)
    assert longest_first(tasks, [record, quick], limits.steps_of) == [2, 1, 0]
