"""One run whose trainer and desktops are members of their own: each is killed in mid-run and replaced, and every
rollout counts once. Real processes of the local backend, real desktops behind real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from launcher.results import training_records as reading
from tests.integration.rl.test_asynchronous import of
from tests.support.desktops import need_desktops
from tests.support.verbs import launcher

pytestmark = [pytest.mark.ml, pytest.mark.nightly, pytest.mark.timeout(1800)]
GENERATIONS, ROLLOUTS = 4, 8
SERVER = ["python", "-m", "eval.desktops.server", "--listen", "127.0.0.1:$SLIPWAY_PORT_HTTP", "--screen", "128x96"]


def job(model: Path) -> dict[str, object]:
    return {
        "name": "rl-roles",
        "image": "slipway-cpu",
        "roles": {
            "trainer": {
                "leader": True,
                "needs": ["desktop"],
                "command": ["python", "-m", "training.rl", "--config", "$SLIPWAY_CONFIG"],
            },
            "desktop": {
                "replicas": 2,
                "restarts": 20,
                "command": SERVER,
                "ports": {"http": 0},
            },
        },
        "secrets": ["DESKTOP_TOKEN"],
        "config": {
            "model": str(model),
            "environment": "gtk-forms",
            "options": {"split": "train", "kinds": ["press"], "tree": False, "role": "desktop"},
            "tasks": {"count": 10, "seed": 0},
            "prompt": {"decimals": 2, "system": "", "history": 2, "images": 2},
            "limits": {"concurrency": 2, "attempts": 20, "backoff": 0.5, "parse_failures": 9, "max_steps": 3},
            "tasks_per_generation": 2,
            "group_size": 4,
            "steps": GENERATIONS,
            "batch_size": 5,
            "max_completion": 14,
            "save_every": 1,
            "log_every": 1,
        },
        "outputs": {
            "model": {},
            "results": {"sync": "live"},
            "checkpoints": {"kind": "checkpoints", "match": "checkpoint-*", "done": "trainer_state.json", "keep": 2},
        },
        "limits": {"deadline": "1h", "retries": 3},
        "timing": {"beat": "1s"},
        "env": {"OMP_NUM_THREADS": "1"},
        "backend": "local",
    }


def processes(module: str, state: Path) -> list[int]:
    """Of this run's, those that run a module themselves: neither their children nor what started them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environ = (folder / "environ").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if words[1:3] == [b"-m", module.encode()] and os.fsencode(state) in environ:
            found.append(int(folder.name))
    return sorted(found)


def until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.5)


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
    (tmp_path / "slipway.yaml").write_text(f"store: store\nlocal: {{state: {state}, cpus: 8, memory: 16Gi}}\n")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(start)))
    homes = {"XDG_STATE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home")}
    verb: list[Path | str] = [Path(sys.executable).with_name("launcher"), "secrets", "set", "DESKTOP_TOKEN"]
    subprocess.run(verb, cwd=tmp_path, env={**os.environ, **homes}, input="any-word\n", text=True, check=True)
    try:
        launcher(tmp_path, "submit", "job.yaml")
        until(lambda: step(tmp_path) >= 1)
        os.kill(processes("eval.desktops.server", state)[0], signal.SIGKILL)
        until(lambda: step(tmp_path) >= 2)
        (trainer,) = processes("training.rl", state)
        os.kill(trainer, signal.SIGKILL)
        until(lambda: len(processes("training.rl", state)) == 1 and trainer not in processes("training.rl", state))
        os.kill(processes("eval.desktops.server", state)[-1], signal.SIGKILL)
        launcher(tmp_path, "wait", "rl-roles", timeout=900)
        (run,) = told(tmp_path)
        launcher(tmp_path, "gather", "rl-roles", "--to", "got")
    finally:
        launcher(tmp_path, "local", "stop", "--runs")
    assert run["state"] == "succeeded"
    (results,) = (tmp_path / "got").rglob("records")
    rollouts = of(reading.RlRollout, results.parent.parent)
    assert Counter(line.step for line in rollouts) == dict.fromkeys(range(1, GENERATIONS + 1), ROLLOUTS)
    assert len({(line.step, line.group, line.rollout) for line in rollouts}) == GENERATIONS * ROLLOUTS
    assert {line.outcome for line in rollouts} == {"scored"}
    until(lambda: not processes("eval.desktops.server", state) and not processes("training.rl", state), 60)
