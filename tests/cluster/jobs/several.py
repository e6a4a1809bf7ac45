"""What the tests of several ranks, stages and roles share: a laptop whose runs beat fast, and a look at JobSets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from launcher.backends.base import BackendObservation
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.protocol.read import read_run
from launcher.protocol.records import Exit, Placement
from launcher.protocol.view import RunView
from launcher.runtime.uploads import stored_checkpoints
from launcher.store.layout import RunKeys
from tests.cluster.laptop import UNTIL_TOLD, Laptop
from tests.support.cluster.cluster import Cluster

T = TypeVar("T")
# of pods: what the image's runtime would wait for at length. Pods read it out of the store's Secret
TUNING = {"poll": 0.2, "quiet": 1.0, "live": 1.0, "upstream": 5.0, "leftovers": 1.0, "ready": 0.2, "log_longest": 1.0}
# the machine may be loaded: silence of a minute is no death
TIMING = {"beat": "1s", "stale": "60s", "fence": "45s"}
# two ranks that add up their numbers in every step, and save each
RANKS = """
import socket
rank, steps = int(E["RANK"]), int(E["STEPS"])
host, port = E["MASTER_ADDR"], int(E["MASTER_PORT"])
print("meets at", host, flush=True)
resume = E.get("SLIPWAY_RESUME")
done = int(pathlib.Path(resume, "state").read_text()) if resume else 0
print("begins at", done, flush=True)
if rank == 0:
    peer = socket.create_server(("", port)).accept()[0]
else:
    while True:
        try: peer = socket.create_connection((host, port), 5); break
        except OSError: time.sleep(0.2)
    peer.settimeout(None)
lines = peer.makefile("r")
for step in range(done + 1, steps + 1):
    peer.sendall(f"{rank + step}\\n".encode())
    line = lines.readline()
    if not line: sys.exit("connection lost")
    print("step", step, rank + step + int(line), flush=True)
    time.sleep(0.2 if resume else float(E["PACE"]))
    folder = pathlib.Path(E["SLIPWAY_OUTPUTS"], "checkpoints", f".checkpoint-{step}"); folder.mkdir(parents=True)
    (folder / "state").write_text(str(step)); (folder / "done").touch()
    folder.rename(folder.with_name(f"checkpoint-{step}"))
(out / "count").write_text(str(steps))
"""


class Desk(Laptop):
    """A laptop whose cluster has JobSet; its jobs beat every second."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        super().__init__(cluster, path)
        secret = {**cluster.s3.environment, "SLIPWAY_TUNING": json.dumps(TUNING)}
        cluster.secret(self.namespace, "store", secret)

    def job(self, name: str, script: str, **changes: Any) -> dict[str, Any]:
        return super().job(name, script, **{"timing": TIMING, **changes})

    def until_told(self, name: str, **changes: Any) -> dict[str, Any]:
        """A job that works for as long as a test wants: until `let_go`."""
        return self.job(name, UNTIL_TOLD, **changes)

    def let_go(self, run: str) -> None:
        self.launcher("exec", run, "--", "touch", "/tmp/go")

    def ranks(self, name: str, steps: int, pace: float = 1.0, **changes: Any) -> dict[str, Any]:
        """RANKS as a job."""
        checkpoints = {"kind": "checkpoints", "match": "checkpoint-*", "done": "done"}
        two = {"nodes": 2, "cpus": 0.1, "memory": "256Mi"}
        env = {"STEPS": str(steps), "PACE": str(pace)}
        outputs = {"results": {}, "checkpoints": checkpoints}
        return self.job(name, RANKS, outputs=outputs, env=env, resources=two, **changes)

    def keys(self, run: str) -> RunKeys:
        return RunKeys(run)

    def view(self, run: str) -> RunView:
        return read_run(self.store, run)

    def exit(self, run: str, attempt: int, member: str) -> Exit:
        found = self.view(run).attempts[attempt - 1].exits[member]
        assert isinstance(found, Exit)
        return found

    def placements(self, run: str, member: str) -> list[Placement]:
        """Where each attempt's rank was."""
        return [attempt.claims[member].placement for attempt in self.view(run).attempts]

    def checkpoints(self, run: str) -> list[int]:
        """The steps of complete checkpoints, in order."""
        return sorted(found.step for found, _ in stored_checkpoints.complete(self.store, run))

    def log(self, run: str, attempt: int = 1, member: str = "main-0") -> str:
        """What a rank printed in an attempt, as the store has it now: whole once the rank has left."""
        role, _, rank = member.rpartition("-")
        return self.launcher("logs", run, "--attempt", attempt, "--role", role, "--rank", rank)

    def goes_on_from_its_newest_checkpoint(self, run: str, attempt: int) -> None:
        """Each rank of the attempt began where the attempts before it had saved last, and computed nothing twice."""
        saved = max(step for earlier in self.view(run).attempts[: attempt - 1] for step in earlier.checkpoints)
        for member in self.view(run).attempts[attempt - 1].claims:
            log = self.log(run, attempt, member)
            assert f"\nbegins at {saved}\n" in log, log
            assert min(steps_in(log), default=saved + 1) == saved + 1

    def set_of(self, run: str) -> dict[str, Any]:
        """The JobSet that carries a run. Raises LookupError."""
        for one in self.cluster.get("jobset", namespace=self.namespace):
            if run in json.loads(one["metadata"]["annotations"]["slipway.dev/runs"]):
                found: dict[str, Any] = one
                return found
        raise LookupError(run)

    def pod(self, run: str, role: str = "main", rank: int = 0) -> dict[str, Any] | None:
        """The rank's pod that runs."""
        for one in self.pods(run):
            labels = one["metadata"]["labels"]
            if (labels["slipway.dev/role"], labels["batch.kubernetes.io/job-completion-index"]) != (role, str(rank)):
                continue
            if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]:
                return one
        return None

    def evict(self, pod: str) -> None:
        """As `kubectl drain` does."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", data=json.dumps(body))

    def look(self, run: str) -> BackendObservation:
        """What the backend says of a run that is there."""
        seen = KubernetesBackend({"namespace": self.namespace}).look_up(run)
        assert seen is not None
        return seen

    def until(self, what: str, try_it: Callable[[], T | None], run: str, limit: float = 180) -> T:
        """Waits for something true; else fails with all that is known of a run."""
        deadline = time.monotonic() + limit
        while not (found := try_it()):
            assert time.monotonic() < deadline, f"waited {limit} s for {what}\n{self.told(run)}"
            time.sleep(0.5)
        return found


def steps_in(log: str) -> list[int]:
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith("step ")]


def condition(value: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """A condition that holds."""
    for one in (value.get("status") or {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            assert isinstance(one, dict)
            return one
    return None
