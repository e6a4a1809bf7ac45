"""Agents side by side: figures of tasks made by hand, and what the page shows of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.report.agents import (
    AgentResults,
    by_benchmark,
    effort,
    failure_counts,
    failure_kind,
    grouped,
    solved,
    solved_within,
)
from launcher.report.collect import collect
from launcher.report.side_by_side import budget_series
from launcher.results.read import DetailedResult, FailureNote
from launcher.results.stats import wilson
from launcher.selection.select import select
from launcher.spec.model import Output
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run
from tests.unit.report.test_html import parsed, rendered

OUTPUTS = {"results": Output()}


def task(task_id: str = "t", success: bool | None = True, **fields: Any) -> DetailedResult:
    outcome = "infra" if success is None else "scored"
    return DetailedResult(benchmark="b", task_id=task_id, success=success, **{"outcome": outcome, **fields})


def agent(label: str, *tasks: DetailedResult) -> AgentResults:
    return AgentResults(label, "run", "b", "1", tasks)


def test_a_task_that_the_infrastructure_broke_is_not_solved_and_stays_in_the_number() -> None:
    lacking = task("e", None, outcome="not run")
    share = solved([task("a"), task("b", False), task("c", None), task("d"), lacking])
    assert (share.solved, share.n, share.infra, share.not_run) == (2, 5, 1, 1)
    assert share.interval == wilson(2, 5)


def test_tasks_of_one_cluster_widen_the_interval() -> None:
    alone = [task(f"t{number}", number < 10, seed=number) for number in range(20)]
    together = [task("t", number < 10, seed=number, cluster=str(number // 10)) for number in range(20)]
    first, second = solved(alone).interval, solved(together).interval
    assert first is not None
    assert second is not None
    assert second.high - second.low > first.high - first.low


def test_two_revisions_of_a_task_set_stand_in_two_tables(file_store: Store) -> None:
    """The 154 tasks of Windows Agent Arena and the 141 of its V2 have the same ids."""
    runs = []
    for name, revision in (("first", "aaaaaaaaaaaa"), ("second", "bbbbbbbbbbbb")):
        rules = {"environment": "osworld", "options": {"folder": "x", "revision": revision}}
        line = {
            "benchmark": "waa", "task_id": "clock/1", "seed": 0, "score": 1.0, "success": True, "outcome": "scored",
            "agent": "a", "version": "1", "rules": rules,
        }  # fmt: skip
        files = {**eval_files([True], benchmark="waa"), "tasks.jsonl": json.dumps(line).encode() + b"\n"}
        runs.append(write_run(file_store, fake_job(name, outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})]))
    agents = collect(file_store, select(file_store, runs)).agents
    assert [title for title, _ in by_benchmark(agents)] == ["waa 1 (aaaaaaaaaaaa)", "waa 1 (bbbbbbbbbbbb)"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"stand": 2, "summary": []}, "a: verified by replay: 2 of 2 scores stand (verify)."),
        ({"stand": 1, "summary": []}, "a: not verified by replay: 1 of 2 scores stand (verify)."),
        (
            {"stand": 2, "summary": ["success is missing"]},
            "a: not verified by replay: 2 of 2 scores stand (verify); the summary is not that of the records.",
        ),
        (
            {"stand": 2, "summary": [], "missing": 3},
            "a: not verified by replay: 2 of 2 scores stand (verify); 3 tasks are missing.",
        ),
        ({"stand": 0, "scored": 0, "summary": []}, "a: not verified by replay: 0 of 0 scores stand (verify)."),
        ({"stand": 2, "summary": [], "records": "0" * 64}, None),  # of other records
        ({"stand": "two", "summary": []}, "verified.json: Expected `int`"),
    ],
)
def test_the_page_says_whether_a_replay_verified_the_scores(
    file_store: Store, told: dict[str, Any], said: str | None
) -> None:
    files = {
        **eval_files([True, False]),
        "tasks.jsonl": lines({"task_id": "t", "agent": "a"}, {"task_id": "u", "agent": "a"}),
    }
    report = {"records": hashlib.sha256(files["tasks.jsonl"]).hexdigest(), "scored": 2, "missing": 0, **told}
    verified = {"verified.json": json.dumps(report).encode()}
    runs = [
        write_run(file_store, fake_job(name, outputs=OUTPUTS), [FakeAttempt(outputs={"results": content})])
        for name, content in (("evaluate", files), ("verify", verified))
    ]
    page = parsed(rendered(collect(file_store, select(file_store, runs)))).text
    assert (said in page) if said else ("by replay" not in page)


def test_success_within_counts_only_what_was_solved_by_then() -> None:
    tasks = [task("a", steps=2), task("b", steps=4), task("c", False, steps=1), task("d", None, steps=5)]
    assert solved_within(tasks) == [(0, 0), (1, 0), (2, 0.25), (3, 0.25), (4, 0.5), (5, 0.5)]
    short, long = budget_series([agent("x", task(steps=1)), agent("y", *tasks)])
    assert short.points[-1] == (5.0, 1.0)  # a shorter agent's curve goes on
    assert list(long.points) == solved_within(tasks)
    assert solved_within([]) == []


def test_groups_are_the_same_for_all_agents_and_easy_comes_first() -> None:
    first = agent("x", task("a", programs=("thunar",), difficulty="hard"), task("b", difficulty="easy"))
    second = agent("y", task("b", programs=("mousepad", "thunar"), difficulty="medium"))
    assert [(name, [len(part) for part in parts]) for name, parts in grouped([first, second], "difficulty")] == [
        ("easy", [1, 0]),
        ("medium", [0, 1]),
        ("hard", [1, 0]),
    ]
    assert [name for name, _ in grouped([first, second], "program")] == ["", "mousepad + thunar", "thunar"]
    assert grouped([agent("x", task("a"), task("b"))], "program") == []  # nothing told


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (task(success=True), ""),
        (task(success=None, outcome="scored"), ""),
        (task(success=None), "infrastructure"),
        (task(success=False), "not classified"),
        (task(success=False, failure=FailureNote("loop", "rule", "why")), "loop"),
    ],
)
def test_the_class_of_a_task(given: DetailedResult, kind: str) -> None:
    assert failure_kind(given) == kind


def test_classes_are_counted_for_each_agent_the_most_frequent_first() -> None:
    loop, format_ = FailureNote("loop", "rule of loop"), FailureNote("format", "rule of format")
    first = agent("x", task(success=False, failure=format_), task(success=False, failure=loop))
    second = agent("y", task(success=False, failure=loop), task())
    found = failure_counts([first, second])
    assert [(row.kind, row.rules, row.counts) for row in found] == [
        ("loop", ("rule of loop",), (1, 1)),
        ("format", ("rule of format",), (1, 0)),
    ]


def test_time_and_cost_of_failed_episodes_count_for_those_that_were_solved() -> None:
    tasks = [
        task(steps=4, duration_ms=2000, metrics={"cost": 0.25, "input_tokens": 10, "output_tokens": 5}),
        task(steps=8, duration_ms=6000, success=False, metrics={"cost": 0.75}),
    ]
    spent = effort(tasks)
    assert (spent.seconds_per_solved, spent.cost_per_solved) == (8.0, 1.0)
    assert (spent.steps, spent.steps_of_solved, spent.tokens) == (6.0, 4.0, 15)
    assert spent.unpriced == 0
    none = effort([task(success=False, steps=1)])
    assert (none.seconds_per_solved, none.cost, none.cost_per_solved) == (None, None, None)


def test_a_sum_that_leaves_answers_out_is_a_lower_bound() -> None:
    whole = task(steps=4, metrics={"cost": 0.25})
    cut = task(steps=3, success=False, metrics={"cost": 0.5, "answers_without_cost": 1.0})
    assert effort([whole]).unpriced == 0
    assert effort([whole, cut]).unpriced == 1
    assert effort([whole, cut, task(steps=5, success=False)]).unpriced == 6
    assert effort([task(steps=5)]).unpriced == 0  # a model without prices has no cost at all


def lines(*tasks: dict[str, Any]) -> bytes:
    told = {"benchmark": "login", "version": "1", "score": 1.0, "success": True, "outcome": "scored"}
    return b"".join(json.dumps(told | one).encode() + b"\n" for one in tasks)


def test_baselines_and_other_runs_stand_beside_the_agent(file_store: Store) -> None:
    mine = eval_files([True], agent="mine") | {
        "tasks.jsonl": lines(
            {"task_id": "a", "agent": "mine", "difficulty": "easy", "steps": 3},
            {"task_id": "b", "agent": "mine", "difficulty": "hard", "steps": 5},
        ),
        "baselines/random/tasks.jsonl": lines(
            {"task_id": "a", "agent": "random", "success": False, "difficulty": "easy"},
            {
                "task_id": "b",
                "agent": "random",
                "success": False,
                "difficulty": "hard",
                "failure": {"kind": "loop", "rule": "The <last> answers", "why": "four times"},
            },
        ),
    }
    runs = [
        write_run(file_store, fake_job(name, outputs=OUTPUTS), [FakeAttempt(outputs={"results": mine})])
        for name in ("eval-a", "eval-b")
    ]
    report = collect(file_store, select(file_store, runs))
    labels = {found.label for found in report.agents}
    assert labels == {"mine (eval-a)", "random (eval-a)", "mine (eval-b)", "random (eval-b)"}
    text = parsed(rendered(report)).text
    for words in ("Agents side by side", "By difficulty", "Why episodes failed", "The <last> answers", "four times"):
        assert words in text, words


def test_a_cell_has_the_rate_of_all_and_of_those_that_ran_with_both_numbers(file_store: Store) -> None:
    lacking = {"success": None, "score": None, "outcome": "not run", "error": "no program gimp"}
    files = {
        "tasks.jsonl": lines(
            {"task_id": "a", "difficulty": "easy"},
            {"task_id": "b", "difficulty": "easy", **lacking},
            {"task_id": "c", "difficulty": "hard", **lacking},
        ),
    }
    run = write_run(file_store, fake_job("eval", outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    text = " ".join(parsed(rendered(collect(file_store, select(file_store, [run])))).text.split())
    assert re.search(r"· 1/2, 1 not run ?of those that ran 100 % · 1/1", text)
    assert "· 0/1, 1 not run" in text


def test_records_of_others_with_odd_fields_are_a_line_not_an_end(file_store: Store) -> None:
    files = eval_files([True, False]) | {"baselines/odd/tasks.jsonl": lines({"task_id": "a", "metrics": "none"})}
    run = write_run(file_store, fake_job("eval", outputs=OUTPUTS), [FakeAttempt(outputs={"results": files})])
    report = collect(file_store, select(file_store, [run]))
    assert [found.label for found in report.agents] == ["eval"]
    assert any("baselines/odd/tasks.jsonl:1" in problem for problem in report.problems)


def test_groups_of_very_many_agents_take_no_list_for_each_task() -> None:
    """Of 5,000 evaluations of eight tasks a list of 5,000 lists was made for each of the 40,000 tasks, three times."""

    class Counted(list[AgentResults]):
        times = 0

        def __iter__(self) -> Iterator[AgentResults]:
            self.times += 1
            return super().__iter__()

    tasks = tuple(DetailedResult("login", f"task-{number % 4}", success=True) for number in range(40))
    agents = Counted(AgentResults(f"agent-{number}", "run", "login", "1", tasks) for number in range(50))
    found = grouped(agents, "task")
    assert [(name, sum(map(len, parts))) for name, parts in found] == [(f"task-{k}", 500) for k in range(4)]
    assert agents.times == 1 + len(found)
