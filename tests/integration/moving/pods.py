"""A stand-in for a cluster that keeps Jobs and plays their controller: the pod of a Job is a process of this machine
with the real runtime, started with what the Job says. What a real API server answers is tested on one
(tests/integration/kubernetes); here a run leaves it."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.integration.kubernetes.speaker import Answer, Speaker, refusal, speaking

JOBS: Final = re.compile(r"/apis/batch/v1(?:/namespaces/n)?/jobs(?:/([^/]+))?")
PODS: Final = re.compile(r"/api/v1(?:/namespaces/n)?/pods")
FULL: Final = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


class Pods:
    """`room`: whether a new pod finds a node; `started`: a line for each process that was started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.room = True
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[str] = []
        self.numbers = itertools.count(1)
        self.lock = threading.RLock()
        self.server: Speaker

    @contextmanager
    def running(self) -> Iterator[Pods]:
        with speaking(self.answer) as self.server:
            try:
                yield self
            finally:
                for name in list(self.jobs):
                    self.delete(name)

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        with self.lock:
            if query.get("watch"):
                return refusal(403, "Forbidden")
            if path.endswith("selfsubjectaccessreviews"):
                return 201, {"status": {"allowed": True}}
            if path in ("/api/v1/namespaces/n", "/api/v1/namespaces/n/persistentvolumeclaims/shared"):
                return 200, {"metadata": {"name": path.rpartition("/")[2]}}
            if path.endswith("/events"):
                return 200, {"items": []}
            if PODS.fullmatch(path):
                self.look()
                return 200, {"items": list(self.pods.values())}
            found = JOBS.fullmatch(path)
            if found is None:
                return refusal(404, "NotFound")
            return self.answer_jobs(method, found[1], dry="dryRun" in query)

    def answer_jobs(self, method: str, name: str | None, *, dry: bool) -> Answer:
        if method == "POST":
            # what was sent last, in whatever order several threads were heard
            sent = next(json.loads(text) for text in reversed(self.server.forms) if '"kind":"Job"' in text)
            return self.create(sent, dry=dry)
        if name is None:
            return 200, {"items": list(self.jobs.values())}
        if name not in self.jobs:
            return refusal(404, "NotFound")
        if method == "DELETE":
            self.delete(name)
        return 200, self.jobs.get(name, {"kind": "Status", "status": "Success"})

    def create(self, value: dict[str, Any], *, dry: bool) -> Answer:
        name = value["metadata"]["name"]
        if name in self.jobs:
            return refusal(409, "AlreadyExists")
        value["metadata"] |= {"uid": f"uid-{next(self.numbers)}", "creationTimestamp": now(), "resourceVersion": "1"}
        value["metadata"]["namespace"] = "n"
        if not dry:
            self.jobs[name] = value
            self.replace(name)
        return 201, value

    def replace(self, name: str) -> None:
        """The controller's next pod of a Job."""
        job = self.jobs[name]
        pod = f"{name}-{next(self.numbers)}"
        uid = job["metadata"]["uid"]
        template = job["spec"]["template"]
        self.pods[pod] = {
            "metadata": {
                "name": pod,
                "namespace": "n",
                "uid": pod,
                "creationTimestamp": now(),
                "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/controller-uid": uid},
                "ownerReferences": [{"kind": "Job", "name": name, "uid": uid, "controller": True}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        if not self.room:
            self.pods[pod]["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
            ]
            return
        self.pods[pod]["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
        self.start(pod, uid)

    def start(self, pod: str, uid: str) -> None:
        folder = self.path / "pods" / pod
        folder.mkdir(parents=True)
        (container,) = self.pods[pod]["spec"]["containers"]
        own = {"SLIPWAY_POD": pod, "SLIPWAY_OWNER": uid, "SLIPWAY_ADDRESS": "127.0.0.1"}
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        text = {key: re.sub(r"\$\((\w+)\)", lambda match: own[match[1]], value) for key, value in given.items()}
        text |= {"SLIPWAY_WORKDIR": str(folder), "HOME": str(folder)}
        environment = {**os.environ, **own, **text, "PATH": f"{self.path}:{os.environ['PATH']}"}
        with (folder / "log").open("wb") as log:
            self.processes[pod] = subprocess.Popen(
                container["command"], env=environment, cwd=folder, stdout=log, stderr=log
            )
        self.started.append(pod)

    def look(self) -> None:
        """What the kubelet tells of pods whose process has ended."""
        for pod, process in self.processes.items():
            if pod in self.pods and (code := process.poll()) is not None:
                status = self.pods[pod]["status"]
                status["phase"] = "Succeeded" if code == 0 else "Failed"
                ended = {"exitCode": code if code >= 0 else 128 - code, "finishedAt": now()}
                status["containerStatuses"] = [{"name": "main", "state": {"terminated": ended}}]

    def preempt(self, name: str) -> None:
        """Its node is wanted by others: SIGTERM, and the next pod finds none."""
        with self.lock:
            self.room = False
            (pod,) = [each for each in self.processes if each in self.pods]
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            self.pods[pod]["status"]["conditions"] = [condition]
        self.processes[pod].send_signal(signal.SIGTERM)
        self.processes[pod].wait(60)
        with self.lock:
            self.look()
            self.replace(name)

    def delete(self, name: str) -> None:
        uid = self.jobs.pop(name)["metadata"]["uid"]
        mine = [pod for pod, value in self.pods.items() if value["metadata"]["ownerReferences"][0]["uid"] == uid]
        for pod in mine:
            del self.pods[pod]
            process = self.processes.get(pod)
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def alive(self) -> list[str]:
        return [pod for pod, process in self.processes.items() if process.poll() is None]


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
