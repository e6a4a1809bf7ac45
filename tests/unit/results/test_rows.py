"""From runs in a store to rows: verified, ordered, nothing dropped."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

import pytest

from launcher.cli.printing.results import results_text
from launcher.cli.verbs.results import encode
from launcher.errors import NotFound
from launcher.reasons import Reason
from launcher.results.facts import load_facts
from launcher.results.read import DamagedResults, open_output, read_tasks
from launcher.results.rows import COLUMNS, Comparisons, arrange, auto_compare, by_depth, load_files, load_rows
from launcher.spec.model import Budget, Limits, Output, Resources
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import START, FakeAttempt, eval_files, fake_job, login_pipeline, write_run

RESULTS = {"results": Output()}


def write_eval(store: Store, name: str, files: Mapping[str, bytes]) -> str:
    return write_run(store, fake_job(name, outputs=RESULTS), [FakeAttempt(outputs={"results": files})])


def test_a_pipeline_reads_before_then_after(file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=40)
    runs = [pipeline.after, pipeline.data, pipeline.before, pipeline.sft]
    edges = {pipeline.sft: (pipeline.data,), pipeline.after: (pipeline.sft,)}
    order = by_depth([pipeline.data, pipeline.sft, pipeline.after, pipeline.before], edges)
    assert order.index(pipeline.before) < order.index(pipeline.after)
    facts = load_facts(file_store, by_depth(runs, {}))
    rows = load_rows(file_store, facts)
    assert [row.facts.run for row in rows] == [pipeline.after, pipeline.before]
    (line,), _ = auto_compare(file_store, load_facts(file_store, order))
    assert (line.a, line.b) == ("eval-before", "eval-after")
    assert line.infra_b == (("login", "task-1", "17"),)


def test_facts_say_where_a_result_came_from(file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=8)
    sft, after = load_facts(file_store, [pipeline.sft, pipeline.after])
    assert sft.attempt == 2  # the result's attempt counts
    assert sft.seconds == pytest.approx(46 + 94)
    assert sft.git_commit.startswith("1f3a5b7c9d")
    assert sft.git_dirty
    assert set(sft.data) == {"episodes"}
    assert not sft.evaluates
    assert after.evaluates


def test_the_attempt_that_counts_is_the_results(file_store: Store) -> None:
    first = FakeAttempt(reason=Reason.LOST, outputs={"results": eval_files([False] * 4)})
    second = FakeAttempt(started=START + 70, ended=START + 80, outputs={"results": eval_files([True] * 4)})
    run = write_run(file_store, fake_job("eval", outputs=RESULTS), [first, second])
    (row,) = load_rows(file_store, load_facts(file_store, [run]))
    assert row.metric is not None
    assert row.metric.value == 1.0


def test_a_run_without_results_is_a_row_that_says_why(file_store: Store) -> None:
    job = fake_job("eval", outputs=RESULTS)
    failed = FakeAttempt(reason=Reason.OUT_OF_MEMORY, code=-9)
    run = write_run(file_store, job, [failed], outcome="failed")
    waiting = write_run(file_store, fake_job("later", outputs=RESULTS), [], outcome=None)
    rows = load_rows(file_store, load_facts(file_store, [run, waiting]))
    assert [(row.metric, row.problem) for row in rows] == [(None, "out_of_memory"), (None, "queued")]
    flat = rows[0].flat()
    assert set(flat) == set(COLUMNS)
    assert (flat["state"], flat["reason"], flat["value"]) == ("failed", "out_of_memory", None)
    text = results_text(rows, [row.facts for row in rows], Comparisons([], []))
    assert f"{run}: out_of_memory" in text


def test_wrong_bytes_are_never_a_result(file_store: Store) -> None:
    run = write_eval(file_store, "eval", eval_files([True] * 4))
    key = RunKeys(run).attempt(1).output("results") + "summary.json"
    file_store.put(key, file_store.get(key).replace(b"1.0", b"0.9"))
    (row,) = load_rows(file_store, load_facts(file_store, [run]))
    assert row.metric is None
    assert "sha256 is not the manifest's" in row.problem


@pytest.mark.parametrize(
    "files",
    [
        {"summary.json": b"{}"},
        {"summary.json": b'[{"benchmark": "x"}]'},
        {"summary.json": b"[\xff]"},
        {"summary.json": b'[{"benchmark": "x", "metric": "m", "value": "high"}]'},
    ],
)
def test_a_summary_of_another_shape_is_said(file_store: Store, files: Mapping[str, bytes]) -> None:
    run = write_eval(file_store, "eval", files)
    (row,) = load_rows(file_store, load_facts(file_store, [run]))
    assert row.metric is None
    assert "summary.json" in row.problem


def test_a_manifest_that_is_missing_is_said(file_store: Store) -> None:
    run = write_run(file_store, fake_job("eval", outputs=RESULTS), [FakeAttempt()])
    (row,) = load_rows(file_store, load_facts(file_store, [run]))
    assert row.problem == "the output `results` has no manifest"


def test_tasks_name_the_line_that_is_wrong(file_store: Store) -> None:
    files = {"tasks.jsonl": b'{"benchmark": "b", "task_id": "t"}\n\n{"benchmark": 3}\n'}
    run = write_eval(file_store, "eval", files)
    output = open_output(file_store, run, 1)
    assert output is not None
    with pytest.raises(DamagedResults, match=r"tasks.jsonl:3: "):
        read_tasks(output)
    with pytest.raises(NotFound, match="is not in the manifest"):
        output.read("other.json")


def test_rows_of_one_metric_stand_together(file_store: Store) -> None:
    def files(value: float) -> dict[str, bytes]:
        metrics = [
            {"benchmark": "login", "metric": name, "value": value, "n": 5} for name in ("success", "step_accuracy")
        ]
        return {"summary.json": json.dumps(metrics).encode()}

    runs = [write_eval(file_store, "before", files(0.1)), write_eval(file_store, "after", files(0.9))]
    rows = arrange(load_rows(file_store, load_facts(file_store, runs)))
    assert [(row.metric.metric, row.facts.name) for row in rows if row.metric] == [
        ("success", "before"),
        ("success", "after"),
        ("step_accuracy", "before"),
        ("step_accuracy", "after"),
    ]


def test_the_rate_of_those_that_ran_stands_beside_the_rate_of_all(file_store: Store) -> None:
    names = ("success", "success_of_run", "success/program/gimp", "mean_steps", "mean_steps/long")
    metrics = [{"benchmark": "login", "metric": name, "value": 0.5, "n": 5} for name in names]
    run = write_eval(file_store, "eval", {"summary.json": json.dumps(metrics).encode()})
    rows = arrange(load_rows(file_store, load_facts(file_store, [run])))
    assert [row.metric.metric for row in rows if row.metric] == list(names)


def test_gpu_hours_and_cost_count_every_role(file_store: Store) -> None:
    job = fake_job("big", resources=Resources(cpus=8.0, gpus=2, gpu="H100"), replicas=2)
    run = write_run(file_store, job, [FakeAttempt(ended=START + 1800)])
    (known,) = load_facts(file_store, [run], prices={"H100": (3.0, "EUR")})
    (unknown,) = load_facts(file_store, [run])
    assert (known.gpu_hours, known.cost, known.currency) == (2.0, 6.0, "EUR")
    assert (unknown.cost, unknown.currency) == (None, "")
    limits = Limits(budget=Budget(40.0, "USD", hourly=10.0))
    budgeted = write_run(file_store, fake_job("budgeted", limits=limits), [FakeAttempt(ended=START + 360)])
    (facts,) = load_facts(file_store, [budgeted], prices={"cpu": (1.0, "EUR")})
    assert (facts.cost, facts.currency) == (1.0, "USD")


def test_every_format_has_every_column(file_store: Store) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    pipeline = login_pipeline(file_store, n=8)
    rows = [row.flat() for row in load_rows(file_store, load_facts(file_store, [pipeline.before, pipeline.after]))]
    assert json.loads(encode(rows, "json")) == rows
    lines = list(csv.DictReader(io.StringIO(encode(rows, "csv").decode())))
    assert [line["run"] for line in lines] == [pipeline.before, pipeline.after]
    assert list(lines[0]) == list(COLUMNS)
    table = parquet.read_table(io.BytesIO(encode(rows, "parquet")))
    assert table.column_names == list(COLUMNS)
    assert table.column("value").to_pylist() == [row["value"] for row in rows]


def test_a_run_that_measured_nothing_lists_its_files(file_store: Store) -> None:
    many = {f"part-{number:02}.txt": b"x" * number for number in range(25)}
    job = fake_job("made", outputs={"results": Output(), "data": Output()})
    run = write_run(file_store, job, [FakeAttempt(outputs={"results": {"greeting.json": b"{}"}, "data": many})])
    measured = write_eval(file_store, "eval", eval_files([True, False]))
    facts = load_facts(file_store, [run, measured])
    rows = load_rows(file_store, facts)
    files = load_files(file_store, facts, rows)
    assert list(files) == [run]
    assert files[run][0] == ("data/part-00.txt", 0)
    assert files[run][-1] == ("results/greeting.json", 2)
    text = results_text(rows, facts, Comparisons([], []), files)
    assert "data/part-19.txt" in text
    assert "part-20" not in text
    assert "and 6 more: give --all" in text
    assert f"`launcher gather {run} --to DIR --what outputs`" in text
    assert "results/greeting.json  2 B" in results_text(rows, facts, Comparisons([], []), files, everything=True)
