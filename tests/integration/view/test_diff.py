"""`launcher diff` of two runs, and of a run and the file that it came from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.cli.arguments import resolved
from launcher.cli.verbs import submit
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Limits
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import fake_job, write_run

Capture = pytest.CaptureFixture[str]
JOB = "name: hello\ncommand: [echo, a]\nconfig: {count: 3}\nlimits: {deadline: 5m}\nbackend: docker\nimage: base:1\n"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


def document(capsys: Capture, *words: str, code: int) -> dict[str, object]:
    assert main(["diff", *words, "-o", "json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_two_runs(file_store: Store, capsys: Capture) -> None:
    first = write_run(file_store, fake_job("train", config={"lr": 0.1, "layers": [1, 2]}))
    changed = fake_job("train", config={"lr": 0.2, "layers": [1, 3, 4]}, limits=Limits(retries=2))
    second = write_run(file_store, changed)
    found = document(capsys, first, second, code=1)
    assert (found["a"], found["b"], found["same_work"]) == (first, second, False)
    fields = {one["field"]: (one["a"], one["b"], one["missing"]) for one in found["differences"]}  # type: ignore[attr-defined]
    assert fields == {
        "config.lr": (0.1, 0.2, []),
        "config.layers[1]": (2, 3, []),
        "config.layers[2]": (None, 4, ["a"]),
        "limits.retries": (0, 2, []),
    }
    assert main(["diff", first, second]) == 1
    out = capsys.readouterr().out
    assert "the work is another" in out
    assert [line.split() for line in out.splitlines() if line.startswith("config.lr")] == [["config.lr", "0.1", "0.2"]]
    assert document(capsys, first, first, code=0)["differences"] == []
    assert main(["diff", first, first]) == 0
    assert capsys.readouterr().out == f"{first} and {first}: the same job\n"


def test_a_run_and_its_file_after_an_edit(file_store: Store, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    parser = argparse.ArgumentParser()
    submit.add(parser)
    (job,) = resolved(parser.parse_args(["job.yaml"]))[0].runs
    file_store.create(RunKeys(run_id(job)).job, encode_job(job))
    capsys.readouterr()
    assert document(capsys, "hello", "job.yaml", code=0)["differences"] == []
    (tmp_path / "job.yaml").write_text(JOB.replace("echo, a", "echo, b").replace("5m", "10m"))
    found = document(capsys, "hello", "./job.yaml", code=1)
    assert [(one["field"], one["a"], one["b"]) for one in found["differences"]] == [  # type: ignore[attr-defined]
        ("command[1]", "a", "b"),
        ("limits.deadline", 300.0, 600.0),
    ]
    found = document(capsys, "job.yaml", "hello", "--set", "config.count=4", code=1)
    assert "config.count" in str(found)


def test_a_job_of_a_pipeline_is_found_by_its_name(file_store: Store, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "jobs.yaml").write_text(f"{JOB}---\n{JOB.replace('hello', 'other')}matrix: {{config.count: [1, 2]}}\n")
    write_run(file_store, fake_job("hello"))
    write_run(file_store, fake_job("stranger"))
    write_run(file_store, fake_job("other", variant={"config.count": 2}))
    assert main(["diff", "hello", "jobs.yaml"]) == 1
    assert main(["diff", "other", "jobs.yaml", "-o", "json"]) == 1
    capsys.readouterr()
    assert main(["diff", "stranger", "jobs.yaml"]) == 2
    assert "jobs.yaml has 3 runs, and only one can be compared: hello-" in capsys.readouterr().err


def test_what_is_not_there_is_said(file_store: Store, capsys: Capture) -> None:
    run = write_run(file_store, fake_job("hello"))
    assert main(["diff", run, "nothing"]) == 3
    assert main(["diff", run, "nothing.yaml"]) == 2
    err = capsys.readouterr().err
    assert "no run, group or job `nothing`" in err
    assert "nothing.yaml" in err
