"""`launcher dev` on the local backend: what is in a session, whose it is, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.local.machine import Machine, environ, wait_for
from tests.support.documented import ROOT

LAUNCHER = Path(sys.executable).with_name("launcher")
JOB = """\
name: train
command: [sh, -c, "echo done > $SLIPWAY_OUTPUTS/results/note"]
outputs: [results]
config: {lr: 0.5}
code: code
inputs: {data: data}
env: {GREETING: hello}
limits: {retries: 3}
"""
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(here: Machine, tmp_path: Path) -> Call:
    """The command line in a project with a job."""
    project = tmp_path / "project"
    for folder, name, text in (("code", "main.py", "print('mine')\n"), ("data", "rows", "1 2 3\n")):
        (project / folder).mkdir(parents=True)
        (project / folder / name).write_text(text)
    (project / "job.yaml").write_text(JOB)
    (project / "slipway.yaml").write_text(f"store: {here.store.url}\nlocal: {{state: {here.state.path}}}\n")

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [LAUNCHER, *words],
            cwd=project,
            env=environ(XDG_CACHE_HOME=str(tmp_path / "cache"), XDG_CONFIG_HOME=str(tmp_path / "config")),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    return run


def runs(call: Call) -> dict[str, dict[str, Any]]:
    return {each["run"]: each for each in json.loads(call("status", "-o", "json").stdout)}


def test_a_session_has_the_jobs_code_inputs_config_and_environment(call: Call) -> None:
    text = (
        "python main.py; cat $SLIPWAY_INPUTS/data/rows; cat $SLIPWAY_CONFIG; echo $GREETING; echo $SLIPWAY_DEV_COMMAND"
    )
    shown = call("dev", "job.yaml", "--command", text).stdout
    for part in ("mine\n", "1 2 3\n", "0.5", "hello\n", "sh -c"):
        assert part in shown
    assert call("dev", "job.yaml", "--command", "exit 7", code=7)
    # one session for both, entered twice
    ((run, line),) = runs(call).items()
    assert run.startswith("dev-train-")
    assert (line["state"], line["name"]) == ("running", "dev-train")
    assert line["labels"]["slipway-dev"]
    call("dev", "job.yaml", "--stop")
    wait_for(lambda: runs(call)[run]["state"] == "cancelled", explain=lambda: str(runs(call)))
    assert "no open session" in call("dev", "job.yaml", "--stop", code=3).stderr
    # a session that ended does not come back: the next one is another run
    second = call("dev", "job.yaml", "--detach").stdout.strip()
    assert second != run
    assert set(runs(call)) == {run, second}
    call("dev", "job.yaml", "--stop")


def test_it_ends_when_nobody_was_in_it_and_not_while_somebody_is(call: Call, here: Machine) -> None:
    # longer in it than it may be empty
    shown = call("dev", "job.yaml", "--idle", "2s", "--command", "sleep 5; echo still here; echo $SLIPWAY_RUN").stdout
    still, run = shown.splitlines()[-2:]
    assert still == "still here"
    wait_for(lambda: runs(call)[run]["state"] == "succeeded", explain=lambda: str(runs(call)))
    assert "nobody was in it" in call("logs", run).stdout
    assert not Path(f"/tmp/slipway-dev-{run}").exists()
    # the supervisor looks a little later
    wait_for(lambda: here.state.queued() == [], explain=lambda: str(here.state.queued()))


def test_a_session_is_neither_the_jobs_run_nor_its_result(call: Call) -> None:
    session = call("dev", "job.yaml", "--idle", "1s", "--command", "echo $SLIPWAY_RUN").stdout.strip()
    wait_for(lambda: runs(call)[session]["state"] == "succeeded", explain=lambda: str(runs(call)))
    call("submit", "job.yaml", "--follow")
    (run,) = set(runs(call)) - {session}
    assert runs(call)[run]["attempts"] == 1  # it ran: nothing of the session was taken for its work
    named = json.loads(call("status", "train", "-o", "json").stdout)
    assert [each["run"] for each in named] == [run]
    shown = call("results", "train").stdout
    assert run in shown
    assert session not in shown
    # and nothing of it for another session, which has the same work
    again = call("dev", "job.yaml", "--detach").stdout.strip()
    wait_for(lambda: runs(call)[again]["state"] == "running", explain=lambda: str(runs(call)))
    call("dev", "job.yaml", "--stop")


def test_what_changed_since_its_start_is_said(call: Call, tmp_path: Path) -> None:
    run = call("dev", "job.yaml", "--detach").stdout.strip()
    (tmp_path / "project" / "code" / "main.py").write_text("print('changed')\n")
    done = call("dev", "job.yaml", "--command", "python main.py")
    assert done.stdout == "mine\n"
    assert f"{run} was started before the job or these options changed" in done.stderr
    call("dev", "job.yaml", "--stop")
    wait_for(lambda: runs(call)[run]["state"] == "cancelled", explain=lambda: str(runs(call)))
    assert call("dev", "job.yaml", "--command", "python main.py").stdout == "changed\n"
    call("dev", "job.yaml", "--stop")


def test_bad_words_are_refused_before_anything_starts(call: Call, tmp_path: Path) -> None:
    (tmp_path / "project" / "two.yaml").write_text("name: a\ncommand: ['true']\n---\nname: b\ncommand: ['true']\n")
    assert "which job? --job; allowed: a, b" in call("dev", "two.yaml", code=2).stderr
    assert "--job c: there is no such job" in call("dev", "two.yaml", "--job", "c", code=2).stderr
    assert "the job has no such role; allowed: main" in call("dev", "job.yaml", "--role", "x", code=2).stderr
    assert "is not a duration" in call("dev", "job.yaml", "--idle", "soon", code=2).stderr
    assert "--stop takes neither" in call("dev", "job.yaml", "--stop", "--detach", code=2).stderr
    assert runs(call) == {}


def test_who_comes_in_later_than_the_idle_time_is_not_put_out(tmp_path: Path) -> None:
    """A busy cluster needs more than a short `--idle` until somebody is in."""
    folder = ROOT / "launcher/verbs/dev"
    variables = {**os.environ, "SLIPWAY_RUN": f"late-{tmp_path.parent.name}"}
    session = [sys.executable, str(folder / "watch.py"), "1"]
    with subprocess.Popen(session, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL) as watch:
        time.sleep(2)
        inside = [sys.executable, str(folder / "enter.py"), variables["SLIPWAY_RUN"], "sleep", "1.5"]
        assert subprocess.run(inside, env=variables, timeout=60, check=False).returncode == 0
        assert watch.poll() is None
        assert watch.wait(60) == 0
