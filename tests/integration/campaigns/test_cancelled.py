"""docs/howto/benchmark.md, Pause and go on: its commands, with the job that they are about."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.campaigns.slow import ENVIRONMENT, lines
from tests.support.documented import ROOT, blocks
from tests.support.waiting import until

COMMAND = "command: [python, -m, eval.run, --config, $SLIPWAY_CONFIG]\n"
JOB = """\
name: slow
image: slipway-cpu
command: [python, -m, eval.run, --config, $SLIPWAY_CONFIG]
code: ./code
env: {{LOG: {log}}}
config:
  benchmark: slow
  environment: slow_world:Slow
  tasks: {{count: 16, seed: 0}}
  agent: {{kind: random}}
  limits: {{max_steps: {steps}, concurrency: 2}}
{more}
outputs:
  results: {{sync: live}}
limits: {{deadline: 10m}}
backend: local
"""
MORE = """\
  earlier: $SLIPWAY_INPUTS/earlier
inputs:
  earlier: {url: %s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/slow_world.py").write_text(ENVIRONMENT)
    (tmp_path / "log.mended").touch()
    yield tmp_path
    typed("launcher local stop", tmp_path)


def typed(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**environ, **home, "PATH": path, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documented(start: str) -> str:
    """The command of the page that begins so."""
    (line,) = [one.line for block in blocks(ROOT / "docs/howto/benchmark.md") for one in block if start in one.line]
    return line.split("#")[0].strip()


@pytest.mark.timeout(600)
def test_a_cancelled_evaluation_goes_on_with_a_higher_limit(folder: Path) -> None:
    log = folder / "log"
    (folder / "log.hold").touch()
    (folder / "job.yaml").write_text(JOB.format(log=log, steps=6, more=""))
    run = re.search(r"slow-[0-9a-f]{12}", typed("launcher submit job.yaml", folder))
    assert run is not None
    until(lambda: len(lines(log, "judge")) >= 4)
    typed(documented("launcher cancel").replace("RUN", run[0]), folder)
    until(lambda: "cancelled" in typed(f"launcher status {run[0]}", folder))
    typed(documented("launcher gather").replace("RUN", run[0]), folder)
    first = folder / "earlier" / run[0] / "outputs/results"
    judged = [json.loads(line) for line in (first / "tasks.jsonl").read_text().splitlines()]
    assert len(judged) >= 4
    before = lines(log, "start")
    assert sum(before.values()) < 16
    (folder / "log.hold").unlink()

    (folder / "job.yaml").write_text(JOB.format(log=log, steps=6, more=MORE % first.relative_to(folder)))
    assert "succeeded" in typed("launcher submit job.yaml --follow", folder)
    again = lines(log, "start") - before
    assert not {each["task_id"] for each in judged} & set(again)
    assert len(again) == 16 - len(judged)


def test_a_role_of_three_processes_shares_its_tasks(folder: Path) -> None:
    """docs/howto/benchmark.md, Several machines: its `roles`, in a job."""
    shown = re.search(r"```yaml\n(roles:.*?)```", (ROOT / "docs/howto/benchmark.md").read_text(), re.DOTALL)
    assert shown is not None
    job = JOB.format(log=folder / "log", steps=6, more="").replace(COMMAND, "")
    (folder / "job.yaml").write_text(f"{job}{shown[1]}    resources: {{cpus: 0.5, memory: 500Mi}}\n")
    log = folder / "log"
    (folder / "log.hold").touch()  # two quick processes could do all of it before the third is there
    run = re.search(r"slow-[0-9a-f]{12}", typed("launcher submit job.yaml", folder))
    assert run is not None
    until(lambda: len({line.split()[2] for line in log.read_text().splitlines()} if log.exists() else ()) == 3)
    (folder / "log.hold").unlink()
    until(lambda: "succeeded" in typed(f"launcher status {run[0]}", folder))
    assert sorted(lines(folder / "log", "judge").values()) == [1] * 16
