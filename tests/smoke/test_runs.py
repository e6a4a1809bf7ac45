"""Runs on this machine, with the real supervisor, the real runtime and real commands; and what each backend renders."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.backends.local import daemon
from launcher.cli import main
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits
from launcher.store.layout import RunKeys
from launcher.verbs.cancel import cancel
from tests.integration.local.machine import Machine, alive, machine, wait_for
from tests.support.jobs import OUT, reads
from tests.support.verbs import launcher, local_project
from tools import golden

HELLO = str(Path(__file__).parents[2] / "examples" / "hello")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        yield made


def test_hello_runs_once_and_everything_about_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> str:
        assert main(words) == 0
        return capfd.readouterr().out

    with local_project(tmp_path, monkeypatch):
        assert "succeeded" in launcher(tmp_path, "submit", HELLO, "--follow")
        (again,) = json.loads(launcher(tmp_path, "submit", HELLO, "-o", "json"))
        (status,) = json.loads(told("status", "-o", "json"))
    run = again["run"]
    assert (again["state"], status["run"], status["state"], status["attempt"]) == ("succeeded", run, "succeeded", 1)
    log = told("logs", run)
    assert [line for line in log.splitlines() if "[slipway]" not in line] == ["hello 1", "hello 2", "hello 3"]
    (row,) = csv.DictReader(io.StringIO(told("results", run, "-o", "csv")))
    figures = {name: row[name] for name in ("run", "benchmark", "metric", "value", "n")}
    assert figures == {"run": run, "benchmark": "hello", "metric": "said", "value": "1.0", "n": "3"}
    told("gather", run, "--to", "copy")
    assert (tmp_path / "copy" / run / "logs/1/main-0.log").read_text() == log
    assert json.loads((tmp_path / "copy" / run / "outputs/results/summary.json").read_text())[0]["n"] == 3


@pytest.mark.s3
def test_an_object_store_with_the_submitters_credentials(
    tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor was started by somebody without credentials; the run has its own submitter's."""
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with machine(tmp_path, store=s3_url) as here:
        for name in keys:
            monkeypatch.delenv(name)
        daemon.ensure(here.state.make(), here.backend.options)
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        first = here.job("first", "pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out', 'x').write_text('written')", outputs=OUT)
        read = "say('read', pathlib.Path(E['SLIPWAY_INPUTS'], 'x', 'x').read_text())"
        second = here.job("second", read, inputs={"x": reads(first)})
        here.submit(first, second)
        assert [result.outcome for result in here.wait(first, second)] == ["succeeded"] * 2, here.explain()
        assert here.lines("read") == ["written"]
        assert here.store.get(RunKeys(run_id(first)).attempt(1).output("out") + "x") == b"written"
        secret = keys["AWS_SECRET_ACCESS_KEY"].encode()
        assert not [path for path in here.path.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_cancel_ends_a_tree_that_does_not_want_to(here: Machine) -> None:
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        break
say("pids", os.getpid())
time.sleep(600)
"""
    one = here.job("stubborn", script, limits=Limits(grace=0.3))
    here.submit(one)
    wait_for(lambda: len(here.lines("pids")) == 3, explain=here.explain)
    assert cancel(here.store, run_id(one), here.backend, reason="enough").state == "stopping"
    (result,) = here.wait(one)
    assert (result.outcome, result.reason) == ("cancelled", Reason.CANCELLED)
    assert not any(alive(pid) for pid in here.lines("pids"))
    assert here.attempts(one) == 1


def test_killed_runtime_goes_on_from_its_checkpoint(here: Machine) -> None:
    one = here.count(limits=Limits(grace=0.3))
    here.submit(one)
    done = RunKeys(run_id(one)).attempt(1).checkpoint_complete(4)
    wait_for(lambda: here.store.head(done), explain=here.explain)
    (record,) = here.runtimes().values()
    os.kill(record.pid, signal.SIGKILL)
    assert here.wait(one)[0].outcome == "succeeded"
    assert here.attempts(one) == 2
    starts = here.lines("starts")
    assert len(starts) == 2
    assert int(starts[1].split()[1]) >= 4
    steps = [int(line) for line in here.lines("steps")]
    assert sorted(set(steps)) == list(range(1, 9))
    assert all(steps.count(step) == 1 for step in range(1, 5))


def test_a_wrong_job_is_refused_with_its_place_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state}\n")
    (tmp_path / "job.yaml").write_text("name: wrong\nimage: slipway-cpu\ncommand: [true]\nlimits: {deadlin: 5m}\n")
    assert main(["submit", "job.yaml", "--backend", "local"]) == 2
    told = capsys.readouterr().err
    assert "job.yaml:3:11: command[0]: " in told
    assert "job.yaml:4:10: limits.deadlin: " in told
    assert "did you mean `deadline`" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "slipway.yaml"]


def test_each_backend_renders_what_its_golden_files_hold() -> None:
    names = {Path(name).parts[2]: name for name in golden.FILES if "/golden/" in name}
    assert set(names) == {"azureml", "kubernetes", "lambda_labs", "local"}  # docker's are beside the local ones
    manifests = "".join(golden.texts(names["kubernetes"]).values())
    assert set(re.findall(r"^kind: (Job.*)$", manifests, re.MULTILINE)) == {"Job", "JobSet"}
    for name in names.values():
        assert list(golden.outdated(name)) == [], "run `make golden`"
