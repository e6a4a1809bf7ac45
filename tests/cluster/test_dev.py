"""`launcher dev` in a pod: the job's image, environment and inputs, and nothing left behind."""

from __future__ import annotations

import pytest

from tests.cluster.laptop import Laptop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_session_in_a_pod_has_the_jobs_environment_and_goes(laptop: Laptop) -> None:
    (laptop.path / "data").mkdir()
    (laptop.path / "data" / "rows").write_text("1 2 3\n")
    job = laptop.job("train", "print('never run')", config={"lr": 0.5}, env={"GREETING": "hello"})
    path = laptop.write(job)
    text = "echo in $SLIPWAY_RUN; cat $SLIPWAY_CONFIG; echo $GREETING; id -u; exit 7"
    shown = laptop.launcher("dev", path, "--command", text, code=7)
    (name,) = [line.split()[1] for line in shown.splitlines() if line.startswith("in ")]
    assert name.startswith("dev-train-")
    assert '"lr"' in shown or "lr: 0.5" in shown
    assert "\nhello\n" in shown
    # one pod for both, in the same place as a run's
    assert name in laptop.launcher("dev", path, "--command", "echo $SLIPWAY_RUN")
    assert [pod["metadata"]["labels"]["slipway.dev/label-slipway-dev"] for pod in laptop.pods(name)]
    assert len(laptop.cluster.get("jobs", namespace=laptop.namespace)) == 1
    laptop.launcher("dev", path, "--stop")
    assert laptop.result(name).outcome == "cancelled"

    def over() -> bool:
        """Its Job is gone, or it had ended before it could be deleted."""
        jobs = laptop.cluster.get("jobs", namespace=laptop.namespace)
        return not any(job.get("status", {}).get("active") for job in jobs)

    laptop.cluster.wait_for("its pod's end", over, 120)


def test_a_session_that_nobody_uses_ends_by_itself(laptop: Laptop) -> None:
    path = laptop.write(laptop.job("train", "print('never run')"))
    shown = laptop.launcher("dev", path, "--idle", "2s", "--command", "sleep 4; echo in $SLIPWAY_RUN")
    (name,) = [line.split()[1] for line in shown.splitlines() if line.startswith("in ")]
    assert laptop.result(name).outcome == "succeeded"
    assert "nobody was in it" in laptop.launcher("logs", name)
    assert laptop.ended_job(name)["type"] == "Complete"
