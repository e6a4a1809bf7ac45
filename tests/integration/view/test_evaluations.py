"""What an evaluation writes, as `launcher results` and `launcher compare` show it to a user."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from eval.benchmarks.agentnetbench.score import VERSIONS
from eval.rollout.loop import TaskRecord
from eval.scores.stats import by_cluster, rate
from eval.scores.summary import row, summarise, table
from launcher.cli import main
from launcher.spec.model import Output
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, fake_job, write_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store, the caches and the working folder of one user."""
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


def stored(store: Store, name: str, records: Sequence[TaskRecord], summary: bytes | None = None) -> str:
    rows = summarise(records, version="1", split="test", seed=0)
    files = {
        "summary.json": json.dumps(msgspec.to_builtins(rows)).encode() if summary is None else summary,
        "tasks.jsonl": b"".join(msgspec.json.encode(record) + b"\n" for record in records),
    }
    return write_run(store, fake_job(name, outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])


def record(number: int, success: bool | None, **more: object) -> TaskRecord:
    score = None if success is None else float(success)
    described = {"benchmark": "login", "agent": "a", "task_id": f"t{number}", "seed": number, "version": "1", **more}
    outcome = "infra" if success is None else "scored"
    return TaskRecord(score=score, success=success, outcome=outcome, steps=3, **described)  # type: ignore[arg-type]


def test_an_outage_is_the_same_figure_in_results_and_compare(file_store: Store, capsys: Capture) -> None:
    """8 solved of 8, and 2 that never ran: 80 % in both, and no difference to an agent that solved all."""
    run = stored(file_store, "outage", [record(k, True if k < 8 else None) for k in range(10)])
    other = stored(file_store, "whole", [record(k, True) for k in range(10)])
    assert main(["results", run]) == 0
    assert re.search(r"success .* 80\.0 % +49\.0 – +94\.3 % +10 +2 ", capsys.readouterr().out)
    assert main(["compare", run, other]) == 0
    told = capsys.readouterr().out
    assert re.search(r"outage-\S+ +80\.0 % +49\.0 – +94\.3 % +10\n", told)
    assert "difference +0.0 points" in told
    assert "infrastructure failed in " + run + ", in no pair and not solved there: 2" in told


def bench(version: str, score: float, trajectories: int) -> list[TaskRecord]:
    return [
        record(0, score == 1, benchmark="agentnetbench", task_id=f"t{t}/{s}", cluster=f"t{t}", version=version)
        for t in range(trajectories)
        for s in range(20)
    ]


def summary(*records: list[TaskRecord]) -> bytes:
    rows = [
        row(
            "average",
            by_cluster([(one.cluster or "", one.score or 0.0) for one in part]),
            benchmark="agentnetbench", version=part[0].version, split="test", infra=0, seed=0, agent="a",
        )
        for part in records
    ]  # fmt: skip
    return json.dumps(msgspec.to_builtins(rows)).encode()


def test_identical_answers_do_not_differ_because_one_side_was_scored_by_two_versions(
    file_store: Store, capsys: Capture
) -> None:
    """`versions: [v1]` against `[v1, v2]`, where v2 gives the same answers nothing."""
    first, second = bench(VERSIONS[0], 1.0, 12), bench(VERSIONS[1], 0.0, 12)
    one = stored(file_store, "one", first, summary(first))
    both = stored(file_store, "both", [*first, *second], summary(first, second))
    assert main(["compare", one, both]) == 0
    told = capsys.readouterr().out
    assert "success on 240 tasks of agentnetbench v1" in told
    assert "difference +0.0 points" in told
    assert "p = 1.0000" in told
    two = stored(file_store, "two", second, summary(second))
    assert main(["compare", one, two]) == 2
    assert "are scored by different versions of agentnetbench: v1 against v2" in capsys.readouterr().err
    assert main(["results", one, two]) == 0
    assert "not compared: one and two are scored by different versions of agentnetbench" in capsys.readouterr().out
    # as an earlier release wrote it: the last version's scores, without saying so
    bare = [
        msgspec.json.decode(msgspec.json.encode({k: v for k, v in msgspec.to_builtins(r).items() if k != "version"}))
        for r in second
    ]
    old = stored(file_store, "old", [msgspec.convert(r, TaskRecord) for r in bare], summary(first, second))
    assert main(["compare", one, old]) == 2
    assert "v1 against v2" in capsys.readouterr().err


def test_a_rate_near_1_over_fewer_than_50_trajectories_is_marked(file_store: Store, capsys: Capture) -> None:
    """A rare kind of trajectory may be missing among them. In `results`, the report and what an evaluation says."""
    rows = {
        name: row(
            "accuracy", rate([9.0] * (clusters - 1) + [share], [10.0] * clusters),
            benchmark="login", version="1", split="test", infra=0, seed=0, agent="a",
        )
        for name, clusters, share in (("near", 49, 8.0), ("many", 50, 8.0))
    }  # fmt: skip
    marked = {}
    for name, one in rows.items():
        run = stored(file_store, name, [record(0, True)], json.dumps([msgspec.to_builtins(one)]).encode())
        assert main(["results", run]) == 0
        marked[name] = "* over fewer than 10 clusters" in capsys.readouterr().out
        assert main(["report", run, "--file", f"{name}.html"]) == 0
        assert ("* over fewer than 10 clusters" in Path(f"{name}.html").read_text()) == marked[name]
        assert ("* over fewer than 10 clusters" in table([one])) == marked[name]
        capsys.readouterr()
    assert marked == {"near": True, "many": False}


def test_few_trajectories_are_marked_in_results_and_said_in_compare(file_store: Store, capsys: Capture) -> None:
    few = bench("v1", 1.0, 4)
    one, other = (stored(file_store, name, few, summary(few)) for name in ("one", "other"))
    assert main(["results", one, other]) == 0
    told = capsys.readouterr().out
    assert "* over fewer than 10 clusters (episodes, trajectories), or fewer than 50 with a value near 0 or 1" in told
    assert "80 pairs of tasks in 4 clusters" in told
    assert main(["report", one, other, "--file", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert "* over fewer than 10 clusters" in page
    assert "4 clusters: below 10 neither the intervals nor p can be relied on" in page
    capsys.readouterr()
    assert main(["compare", one, other]) == 0
    assert "4 clusters: below 10 neither the intervals nor p can be relied on" in capsys.readouterr().out
