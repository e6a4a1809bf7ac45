"""The place in the queue as `launcher status` shows it, with the real supervisor and a process of the verb's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from launcher.spec.hashing import run_id
from launcher.spec.model import Resources
from tests.integration.local.machine import environ, machine, wait_for

LAUNCHER = Path(sys.executable).with_name("launcher")
WAIT = "import time\nwhile not (here / 'go').exists(): time.sleep(0.02)\n"


def test_status_shows_the_place_and_what_is_waited_for(tmp_path: Path) -> None:
    with machine(tmp_path, cpus=2) as here:
        two = {"resources": Resources(cpus=2)}
        holds = here.job("holds", WAIT, role=two)
        low = here.job("low", "say('order', 'low')", role=two)
        high = here.job("high", "say('order', 'high')", role=two, options={"queue_priority": 5})
        here.submit(holds)
        wait_for(lambda: here.attempts(holds), explain=here.explain)
        here.submit(low)
        here.submit(high)
        (tmp_path / "slipway.yaml").write_text(
            f"store: {here.store.url}\nlocal: {{state: {here.state.path}, cpus: 2}}\n"
        )

        def status(*words: str) -> str:
            return subprocess.run(
                [LAUNCHER, "status", *words],
                cwd=tmp_path,
                env=environ(XDG_CACHE_HOME=str(tmp_path / "cache")),
                capture_output=True,
                text=True,
                check=True,
            ).stdout

        def told() -> dict[str, str]:
            return {one["run"]: one["detail"] for one in json.loads(status("-o", "json")) if one["state"] == "queued"}

        has = f"2nd of 2, waits for 2 cpus, after {run_id(holds)}"
        expected = {
            run_id(high): f"1st of 2, waits for 2 cpus, after {run_id(holds)}",
            run_id(low): f"{has} and 1 more",
        }
        wait_for(lambda: told() == expected, explain=lambda: str(told()))
        (line,) = [line for line in status().splitlines() if line.startswith(run_id(low))]
        assert f"2nd of 2, after {run_id(holds)} and 1 more" in line
        assert "2nd of 2, waits for 2 cpus" in status(run_id(low))
        (here.path / "go").touch()
        here.wait(holds, high, low)
        assert here.lines("order") == ["high", "low"]


def test_queues_shows_the_length_the_places_and_what_is_free(tmp_path: Path) -> None:
    with machine(tmp_path, cpus=3) as here:
        two = {"resources": Resources(cpus=2, memory=1 << 30)}
        holds = here.job("holds", WAIT, role=two)
        waits = [here.job(name, "say('order', 'x')", role=two) for name in ("second", "third")]
        here.submit(holds)
        wait_for(lambda: here.attempts(holds), explain=here.explain)
        for each in waits:
            here.submit(each)
        (tmp_path / "slipway.yaml").write_text(
            f"store: {here.store.url}\nlocal: {{state: {here.state.path}, cpus: 3, memory: 8Gi, gpus: 0}}\n"
        )

        def queues(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
            done = subprocess.run(
                [LAUNCHER, "queues", *words],
                cwd=tmp_path,
                env=environ(XDG_CACHE_HOME=str(tmp_path / "cache")),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == code, done.stderr
            return done

        def queue() -> dict[str, Any]:
            (record,) = json.loads(queues("-o", "json").stdout)
            assert isinstance(record, dict)
            return record

        expected = [{"run": run_id(each), "position": place, "checks": []} for place, each in enumerate(waits, 1)]
        wait_for(lambda: queue()["runs"] == expected, explain=lambda: str(queue()))
        shown = queue()
        assert (shown["queue"], shown["state"], shown["waiting"], shown["running"]) == ("local", "open", 2, 1)
        quotas = {each["resource"]: (each["quota"], each["used"], each["free"]) for each in shown["quotas"]}
        gib = 1 << 30
        assert quotas == {"cpu": (3, 2, 1), "memory": (8 * gib, gib, 7 * gib), "gpu": (0, 0, 0)}
        # docker shares the queue: it is not shown twice
        assert json.loads(queues("--backend", "local", "--backend", "docker", "-o", "json").stdout) == [shown]
        table = queues().stdout
        assert all(run_id(each) in table for each in waits)
        refused = queues("local", "--stop", "--yes", code=2).stderr
        assert "no backend here has queues that can be stopped" in refused
        assert "there is no queue `team-a` here; there is: local" in queues("team-a", code=3).stderr
        assert "name the queue" in queues("--stop", code=2).stderr
        (here.path / "go").touch()
        here.wait(holds, *waits)
