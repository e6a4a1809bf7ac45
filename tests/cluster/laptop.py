"""A user's laptop: a project folder, a kubeconfig, credentials for the store, and the `launcher` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from launcher.protocol.records import Result
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.opening import open_store
from tests.support.cluster.cluster import Cluster

# works until `Desk.let_go`
UNTIL_TOLD = """
print("up", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.2)
"""
# runs in every job below: E is the environment, `out` the folder of the output `results`
HEAD = """import json, os, pathlib, signal, sys, time
E = os.environ
out = pathlib.Path(E["SLIPWAY_OUTPUTS"], "results"); out.mkdir(parents=True, exist_ok=True); (out / "began").touch()
"""
# counts to STEPS, a checkpoint for each step, PACE seconds apart; goes on from the newest, and then fast: a test gives
# the first attempt all the time that a loaded machine may need to disturb it, and does not wait for the rest
COUNT = """
steps = int(E["STEPS"])
resume = E.get("SLIPWAY_RESUME")
done = int(pathlib.Path(resume, "state").read_text()) if resume else 0
print("begins at", done, flush=True)
for step in range(done + 1, steps + 1):
    time.sleep(0.1 if resume else float(E["PACE"]))
    folder = pathlib.Path(E["SLIPWAY_OUTPUTS"], "checkpoints", f".checkpoint-{step}"); folder.mkdir(parents=True)
    (folder / "state").write_text(str(step)); (folder / "done").touch()
    folder.rename(folder.with_name(f"checkpoint-{step}"))
    print("step", step, flush=True)
(out / "count").write_text(str(steps))
"""


class Laptop:
    """
    store      the bucket that runs go to, opened here: credentials are in the environment (fixture `laptop`)
    namespace  a restricted one of its own, with the Secret `store`
    """

    def __init__(self, cluster: Cluster, path: Path, *, url: str | None = None, s3: Cluster | None = None) -> None:
        own = (s3 or cluster).s3
        self.cluster = cluster
        self.path = path
        self.path.mkdir(exist_ok=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLIPWAY_"))},
            **own.environment,
            "KUBECONFIG": str(cluster.kubeconfig),
            "NO_COLOR": "1",
            **{f"XDG_{name}_HOME": str(path / name.lower()) for name in ("CACHE", "STATE", "CONFIG")},
        }
        self.url = url or own.url()
        self.store: Store = open_store(self.url)
        self.namespace = cluster.namespace()
        cluster.secret(self.namespace, "store", own.environment)
        block = {"namespace": self.namespace, "store_secret": "store"}
        (path / "slipway.yaml").write_text(yaml.safe_dump({"store": self.url, "kubernetes": block}))

    def job(self, name: str, script: str, **changes: Any) -> dict[str, Any]:
        """A small job of one rank in the image `launcher`. Jobs of different names are different work."""
        return {
            "name": name,
            "image": self.cluster.launcher(),
            "command": ["python", "-c", HEAD + script],
            "outputs": {"results": {}},
            "resources": {"cpus": 0.1, "memory": "256Mi"},
            "limits": {"deadline": "10m", "grace": "5s"},
            "backend": "kubernetes",
            **changes,
            "env": {"TEST_JOB": name, **changes.get("env", {})},
        }

    def counting(self, name: str, steps: int, pace: float = 0.5, **changes: Any) -> dict[str, Any]:
        checkpoints = {"kind": "checkpoints", "match": "checkpoint-*", "done": "done"}
        env = {"STEPS": str(steps), "PACE": str(pace)}
        return self.job(name, COUNT, outputs={"results": {}, "checkpoints": checkpoints}, env=env, **changes)

    def write(self, *jobs: Mapping[str, Any], file: str = "job.yaml") -> Path:
        (self.path / file).write_text(yaml.safe_dump_all(jobs, sort_keys=False))
        return self.path / file

    def launcher(self, *words: object, code: int | None = 0, timeout: float = 240, errors: bool = True) -> str:
        """What `launcher WORDS` prints on both streams, or without `errors` on its output alone; its exit code must be
        `code` (None: any)."""
        command = [str(Path(sys.executable).with_name("launcher")), *map(str, words)]
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        assert code is None or done.returncode == code, f"{done.returncode}: {text}"
        return text if errors else done.stdout

    def submit(self, *jobs: Mapping[str, Any], options: tuple[str, ...] = ()) -> list[str]:
        """Run ids, in the file's order."""
        text = self.launcher("submit", self.write(*jobs), "-o", "json", *options)
        if "--follow" in options:  # a document a line, what is said to people between them
            rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
            return [str(row["run"]) for row in rows if row["event"] == "submitted"]
        return [str(row["run"]) for row in json.loads(text[: text.rindex("]") + 1])]

    def status(self, run: str) -> dict[str, Any]:
        (record,) = json.loads(self.launcher("status", run, "-o", "json"))
        assert isinstance(record, dict)
        return record

    def wait_for_state(self, run: str, *states: str, limit: float = 120) -> dict[str, Any]:
        deadline = time.monotonic() + limit
        while (record := self.status(run))["state"] not in states:
            assert time.monotonic() < deadline, self.told(run, record)
            time.sleep(0.5)
        return record

    def wait_for_log(self, run: str, text: str, limit: float = 120) -> None:
        deadline = time.monotonic() + limit
        while text not in self.launcher("logs", run, code=None):
            assert time.monotonic() < deadline, self.told(run)
            time.sleep(0.5)

    def result(self, run: str, limit: float = 180) -> Result:
        """Waits for the end of a run, as only the store tells it."""
        import msgspec

        deadline = time.monotonic() + limit
        while (found := self.store.read(RunKeys(run).result)) is None:
            assert time.monotonic() < deadline, self.told(run)
            time.sleep(0.3)
        return msgspec.json.decode(found[0], type=Result)

    def pods(self, run: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.get(
            "pods", namespace=self.namespace, selector=f"slipway.dev/run={run}"
        )
        return found

    def running_pod(self, run: str, limit: float = 60) -> str:
        def name() -> str | None:
            phases = {one["metadata"]["name"]: one["status"].get("phase") for one in self.pods(run)}
            return next((pod for pod, phase in phases.items() if phase == "Running"), None)

        return self.cluster.wait_for(f"a running pod of {run}", name, limit) or ""

    def ended_pod(self, run: str) -> dict[str, Any]:
        """The one pod of a run of one rank that has ended, as the API server has it once its kubelet has said so: after
        the run's result is in the store. Fails where there was another pod, or another try in the same one."""
        (before,) = self.pods(run)
        self.cluster.ended(before["metadata"]["name"], self.namespace, 120)
        (pod,) = self.pods(run)
        assert pod["metadata"]["uid"] == before["metadata"]["uid"]
        assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
        return pod

    def ended_job(self, run: str, limit: float = 120, cluster: Cluster | None = None) -> dict[str, Any]:
        """The condition with which a run's Job has ended. Others come before it: FailureTarget, SuccessCriteriaMet."""

        def over() -> dict[str, Any] | None:
            status = (cluster or self.cluster).get("job", run, self.namespace)["status"]
            true = [one for one in status.get("conditions", ()) if one["status"] == "True"]
            return next((one for one in true if one["type"] in ("Complete", "Failed")), None)

        found = self.cluster.wait_for(f"the end of Job {run}", over, limit)
        assert found is not None
        return found

    def told(self, run: str, record: object = None, namespace: str = "") -> str:
        """For the message of a test that gives up."""
        namespace = namespace or self.namespace
        events = self.cluster.kubectl("get", "events,pods,jobs", "-n", namespace, "-o", "wide", check=False)
        logs = self.cluster.kubectl("logs", "-n", namespace, "-l", f"slipway.dev/run={run}", check=False)
        return f"{run}: {record}\n{events[-3000:]}\n{logs[-3000:]}"
