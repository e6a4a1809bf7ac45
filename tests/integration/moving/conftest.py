"""Two backends and a person who has both: the first is real (a Kubernetes API server with its controllers, scheduler
and a node; a Docker engine), the second the stand-in for Lambda Cloud, whose machines are processes with the real
runtime."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.docker.container import MARK
from launcher.backends.local import daemon
from launcher.backends.local.state import StateDir
from launcher.protocol.read import read_run
from launcher.protocol.view import RunView
from launcher.store import open_store
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.cluster.laptop import Laptop
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.moving.witness import COMMAND, Witness
from tests.support.cluster.cluster import Cluster
from tests.support.engine import Engine, engine
from tests.support.lean_image import lean_image
from tests.support.registry import Registry
from tests.support.waiting import until

__all__ = ["engine"]
ROOT = Path(__file__).parents[3]
LAMBDA = {"instance_types": ["gpu_1x_a10"], "ssh_key": "laptop"}
TUNING = '{"poll": 0.05, "quiet": 0.3, "live": 0.2, "leftovers": 0.5}'


class Moves:
    """What runs that move have in common, whatever their first backend is."""

    path: Path
    environment: dict[str, str]
    store: Store
    witness: Witness
    machines: FakeLambda

    def view(self, run: str) -> RunView:
        return read_run(self.store, run)

    def checkpoints(self, run: str, attempt: int = 1) -> tuple[int, ...]:
        """The complete ones of an attempt."""
        found = self.view(run).attempt(attempt)
        return found.checkpoints if found is not None else ()

    def dying(self, verb: str, run: str, at: int = -1) -> list[str]:
        """What `move` or `reap` did; [] where it was killed at that moment."""
        argv = [sys.executable, "-m", "tests.integration.moving.dying", verb, run, str(at)]
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.stdout.splitlines()

    def reap(self, run: str) -> list[str]:
        return self.dying("reap", run)[1:]

    def living(self) -> list[str]:
        """The machines that Lambda bills."""
        return [each["id"] for each in self.machines.bodies() if each["status"] not in ("terminating", "terminated")]

    def moved(self, run: str) -> list[tuple[int, str]]:
        return [(each.number, each.moved_to) for each in self.view(run).attempts if each.moved_to]

    def went_on(self, run: str, attempt: int) -> None:
        """At Lambda, on one machine, from the last checkpoint, while nothing was left of it where it was before."""
        until(lambda: len(self.witness.of(attempt)) > 3, lambda: self.explain(run))
        assert not self.witness.found[attempt], "the backend that it has left still had it"
        assert len(self.living()) == len(self.machines.ledger("launched")) == 1
        self.witness.enough.add(run)
        until(lambda: self.store.head(RunKeys(run).result), lambda: self.explain(run))
        view = self.view(run)
        assert view.result is not None
        assert (view.result.outcome, view.result.attempt) == ("succeeded", attempt)
        assert self.moved(run) == [(attempt - 1, "lambda")]
        assert self.witness.one_at_a_time()
        before = max((step for number in range(1, attempt) for step in self.checkpoints(run, number)), default=0)
        assert self.witness.of(attempt)[0] == before + 1

    def explain(self, run: str) -> str:
        consoles = "\n".join(path.read_text()[-2000:] for path in (self.path / "machines").glob("*/console"))
        return f"{run}: steps {self.witness.steps[-5:]}\n{consoles}"


class OfCluster(Moves, Laptop):
    """A user with a namespace, and Lambda beside it."""

    def __init__(self, cluster: Cluster, path: Path, witness: Witness, machines: FakeLambda) -> None:
        Laptop.__init__(self, cluster, path)
        self.witness, self.machines = witness, machines
        witness.look = lambda run: self.object(run)
        self.environment |= {
            "LAMBDA_API_URL": machines.url,
            "LAMBDA_API_KEY": KEY,
            "AWS_ENDPOINT_URL_STS": witness.url,
            "SLIPWAY_TUNING": TUNING,
        }
        profile = yaml.safe_load((path / "slipway.yaml").read_text())
        (path / "slipway.yaml").write_text(yaml.safe_dump({**profile, "lambda": LAMBDA}))

    def moving(self, name: str, **changes: Any) -> dict[str, Any]:
        return moving(name, self.cluster.launcher(), self.witness, ["kubernetes", "lambda"], **changes)

    def object(self, run: str) -> Any:
        """The Job, and the pods of it that have not ended."""
        pods = [each["metadata"]["name"] for each in self.pods(run) if each["status"].get("phase") in ("Running",)]
        return [*pods, *([run] if self.cluster.get("job", run, self.namespace) else [])]

    def explain(self, run: str) -> str:
        return f"{super().explain(run)}\n{self.told(run)}"


class OfEngine(Moves, Laptop):
    """A user with a Docker engine, and Lambda beside it."""

    def __init__(
        self, path: Path, engine: Engine, image: str, url: str, witness: Witness, machines: FakeLambda
    ) -> None:
        self.path, self.engine, self.image, self.url = path, engine, image, url
        # its supervisor is told, and ends a container after that: only the steps say that none computes any more
        self.witness, self.machines = witness, machines
        self.store = open_store(url)
        self.state = StateDir(path / "queue")
        folders = {f"XDG_{name}_HOME": str(path / name.lower()) for name in ("CACHE", "STATE", "CONFIG")}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")},
            "DOCKER_HOST": engine.host,
            "LAMBDA_API_URL": machines.url,
            "LAMBDA_API_KEY": KEY,
            "AWS_ENDPOINT_URL_STS": witness.url,
            "SLIPWAY_TUNING": TUNING,
            "NO_COLOR": "1",
            **folders,
        }
        queue = {"state": str(self.state.path), "cpus": 1, "memory": "8Gi", "gpus": 0}
        profile = {"store": url, "local": queue, "docker": {"network": "host"}, "lambda": LAMBDA}
        (path / "slipway.yaml").write_text(yaml.safe_dump(profile))

    def use(self, engine: Engine) -> None:
        """Containers are that engine's from now on; it pulls the image."""
        self.engine, self.environment["DOCKER_HOST"] = engine, engine.host

    def moving(self, name: str, **changes: Any) -> dict[str, Any]:
        return moving(name, self.image, self.witness, ["docker", "lambda"], **changes)

    def containers(self, run: str) -> list[str]:
        """Those of the run, also such as have ended."""
        wanted = [f"--filter=label={MARK}", "--format={{.ID}} {{.Labels}}"]
        shown = self.engine.docker("ps", "-a", *wanted, check=False).stdout.splitlines()
        return [line.split()[0] for line in shown if run in line]

    def explain(self, run: str) -> str:
        log = self.state.log.read_text()[-3000:] if self.state.log.exists() else "no supervisor"
        return f"{super().explain(run)}\n{log}"

    def close(self) -> None:
        daemon.stop(self.state)
        if left := self.engine.docker("ps", "-aq", f"--filter=label={MARK}", check=False).stdout.split():
            self.engine.docker("rm", "-f", *left, check=False)


def moving(name: str, image: str, witness: Witness, order: list[str], **changes: Any) -> dict[str, Any]:
    """A job that goes on until its witness has seen enough."""
    limits = {"deadline": "1h", "grace": "2s", **changes.pop("limits", {})}
    return {
        "name": name,
        "image": image,
        "command": ["python", "-c", COMMAND],
        "outputs": {"ckpt": {"kind": "checkpoints", "match": "checkpoint-*"}},
        "resources": {"cpus": 0.1, "memory": "256Mi"},
        "limits": limits,
        "timing": {"beat": "0.5s", "stale": "12s", "fence": "6s"},
        "env": {"WITNESS": witness.url},
        "backend": order,
        **changes,
    }


@contextmanager
def machines_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLambda]:
    """Lambda, whose machines run this Python."""
    programs = path / "programs"
    programs.mkdir()
    shim = programs / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    with monkeypatch.context() as given:
        given.setenv("PATH", str(programs), prepend=":")
        given.setenv("PYTHONPATH", str(ROOT))
        given.setenv("SLIPWAY_TUNING", TUNING)
        machines = FakeLambda(path / "machines", speed=200.0, program=shim)
    try:
        machines.admin("settings", boot=10.0, lag=5.0)
        yield machines
    finally:
        machines.close()


@pytest.fixture
def here(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OfCluster]:
    for name, value in cluster.s3.environment.items():
        monkeypatch.setenv(name, value)
    with Witness(cluster.host).listening() as witness, machines_at(tmp_path, monkeypatch) as machines:
        yield OfCluster(cluster, tmp_path, witness, machines)


@pytest.fixture(scope="session")
def pulled(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with our runtime, by its digest: a registry has it, and the engine pulls it."""
    archive = tmp_path_factory.mktemp("image") / "lean.tar"
    engine.docker("save", "-o", str(archive), lean_image(engine))
    registry = Registry()
    digest = registry.saved(archive)
    archive.unlink()
    reference = f"{registry.host}/team/lean@{digest}"
    engine.docker("pull", "-q", reference)
    try:
        yield reference
    finally:
        engine.docker("rmi", reference, check=False)
        registry.close()


@pytest.fixture
def there(
    engine: Engine, pulled: str, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OfEngine]:
    with Witness("127.0.0.1").listening() as witness, machines_at(tmp_path, monkeypatch) as machines:
        made = OfEngine(tmp_path, engine, pulled, s3_url, witness, machines)
        try:
            yield made
        finally:
            made.close()
