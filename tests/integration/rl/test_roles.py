"""One run whose trainer and desktops are members of their own: each is killed in mid-run and replaced, and every
rollout counts once. Real processes of the local backend, real desktops behind real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.desktops import need_desktops
from tests.support.rl_roles import SERVER, TRAINER, counted_once, job, processes, until
from tests.support.verbs import launcher

pytestmark = [pytest.mark.ml, pytest.mark.nightly, pytest.mark.timeout(1800)]
LISTEN = "127.0.0.1:$SLIPWAY_PORT_HTTP"


def told(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(launcher(folder, "status", "-o", "json"))
    return found


def step(folder: Path) -> int:
    (run,) = told(folder)
    assert run["state"] not in ("failed", "cancelled"), launcher(folder, "logs", str(run["run"]))
    return int(str(run["step"] or 0).partition(".")[0])


def test_each_member_is_replaced_in_mid_run_and_every_rollout_counts_once(start: Path, tmp_path: Path) -> None:
    need_desktops()
    state = tmp_path / "state"
    place = str(state)
    (tmp_path / "slipway.yaml").write_text(f"store: store\nlocal: {{state: {state}, cpus: 8, memory: 16Gi}}\n")
    here = job(LISTEN) | {"image": "slipway-cpu", "backend": "local"}
    here["config"]["model"] = str(start)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(here))
    homes = {"XDG_STATE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home")}
    verb: list[Path | str] = [Path(sys.executable).with_name("launcher"), "secrets", "set", "DESKTOP_TOKEN"]
    subprocess.run(verb, cwd=tmp_path, env={**os.environ, **homes}, input="any-word\n", text=True, check=True)
    try:
        launcher(tmp_path, "submit", "job.yaml")
        until(lambda: step(tmp_path) >= 1)
        os.kill(processes(SERVER, place)[0], signal.SIGKILL)
        until(lambda: step(tmp_path) >= 2)
        (trainer,) = processes(TRAINER, place)
        os.kill(trainer, signal.SIGKILL)
        until(lambda: len(processes(TRAINER, place)) == 1 and trainer not in processes(TRAINER, place))
        os.kill(processes(SERVER, place)[-1], signal.SIGKILL)
        launcher(tmp_path, "wait", "rl-roles", timeout=900)
        (run,) = told(tmp_path)
        launcher(tmp_path, "gather", "rl-roles", "--to", "got")
    finally:
        launcher(tmp_path, "local", "stop", "--runs")
    assert run["state"] == "succeeded"
    counted_once(tmp_path / "got")
    until(lambda: not processes(SERVER, place) and not processes(TRAINER, place), 60)
