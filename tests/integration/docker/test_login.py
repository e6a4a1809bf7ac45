"""examples/login in containers of slipway-cpu, against both kinds of store: the table, and the weights, of `local`.

What is compared: every value, interval and count of both results, and model.safetensors bit by bit. What is not: names
of runs and images, times (episodes carry when they were recorded, so their digests differ), durations.
`pytest -m nightly -s tests/integration/docker/test_login.py` prints the tables of the whole example.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.docker.container import RUN
from tests.integration.docker.conftest import TUNING
from tests.support.engine import ROOT, Engine
from tests.support.s3 import KEY, SECRET, S3Server, s3_server, s3_url
from tests.support.verbs import launcher

__all__ = ["s3_server", "s3_url"]
LOGIN = str(ROOT / "examples" / "login")
JOBS = ("login-episodes", "login-model", "login-before", "login-sft", "login-after")
SHORT = (
    "login-episodes:config.tasks.count=24",
    "login-sft:config.steps=4",
    "login-sft:config.save_every=2",
    "login-sft:config.warmup_steps=2",
    "login-before:config.tasks.count=4",
    "login-after:config.tasks.count=4",
)
# The example gives its training half an hour, which is plenty on a quiet machine. Beside other tests it gets a fraction
# of a core, and took longer than that once: here its end is waited for, and no figure depends on the time it takes.
WHOLE = ("login-sft:limits.deadline=90m",)
CHANCE, GOAL = 0.10, 0.60  # success before and after: the promise of the demo


class Here:
    """A project in a folder. Containers are in the host's network: the store's server is on loopback, and the tests'
    engine has no bridge."""

    def __init__(self, folder: Path, store: str) -> None:
        folder.mkdir()
        self.folder = folder
        slots = f"{{state: {folder / 'state'}, cpus: 2}}"
        (folder / "slipway.yaml").write_text(f"store: {store}\nlocal: {slots}\ndocker: {{network: host}}\n")

    def run(self, backend: str, settings: tuple[str, ...], limit: float) -> None:
        changes = [f"--set={one}" for one in settings]
        try:
            print(launcher(self.folder, "submit", LOGIN, "--backend", backend, "--follow", *changes, timeout=limit))
        finally:
            launcher(self.folder, "local", "stop", "--runs")

    def table(self) -> list[dict[str, Any]]:
        kept = ("benchmark", "split", "agent", "metric", "value", "ci_low", "ci_high", "n", "infra_failures", "seeds")
        rows = json.loads(launcher(self.folder, "results", "login-before", "login-after", "-o", "json"))
        return [{name: row[name] for name in kept} for row in rows]

    def weights(self) -> str:
        """The trained model's hash."""
        launcher(self.folder, "gather", "login-sft", "--to", "gathered")
        (file,) = (self.folder / "gathered").glob("**/model/model.safetensors")
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def show(self, title: str) -> None:
        print(f"== {title}")
        print(launcher(self.folder, "results", "login-before", "login-after"))


class Seen:
    """What anybody may see of a project's containers while they live: `docker inspect` and `docker logs`."""

    def __init__(self, engine: Engine, project: Here) -> None:
        self._engine, self._state = engine, str(project.folder / "state")
        self.inspected: dict[str, str] = {}  # container -> its newest description
        self.logs: dict[str, str] = {}
        self.runs: set[str] = set()

    def look(self) -> None:
        for known in self._engine.docker("ps", "-aq", f"--filter=label={RUN}").stdout.split():
            shown = self._engine.docker("inspect", known, check=False).stdout
            if self._state in shown:
                self.inspected[known] = shown
                self.runs.add(json.loads(shown)[0]["Config"]["Labels"][RUN].rpartition("-")[0])
                said = self._engine.docker("logs", known, check=False)
                self.logs[known] = said.stdout + said.stderr


@contextmanager
def watched(engine: Engine, project: Here) -> Iterator[Seen]:
    seen, done = Seen(engine, project), threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            seen.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def holds(folder: Path, text: str) -> list[str]:
    """The files below a folder that have a text in them."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def everywhere(path: Path, engine: Engine, server: S3Server, url: str, settings: tuple[str, ...], limit: float) -> Here:
    """Runs the example on local, and in containers against both stores; holds them against each other."""
    local = Here(path / "local", "store")
    local.run("local", settings, limit)
    table, weights = local.table(), local.weights()
    local.show("local, file://")

    files = Here(path / "files", "store")
    files.run("docker", settings, limit)
    files.show("docker, file://")
    assert files.table() == table
    assert files.weights() == weights

    objects = Here(path / "objects", url)
    with watched(engine, objects) as seen:
        objects.run("docker", settings, limit)
    objects.show("docker, s3://")
    assert objects.table() == table
    assert objects.weights() == weights
    assert seen.runs == set(JOBS)
    assert all(url in shown for shown in seen.inspected.values())  # what is no secret is to be seen
    assert not [known for known, shown in seen.inspected.items() if SECRET in shown or KEY in shown]
    assert not [known for known, shown in seen.logs.items() if SECRET in shown]
    assert not holds(objects.folder, SECRET)  # the queue's own files included
    assert not holds(Path(server.command[-1]), SECRET)
    return local


@pytest.mark.nightly
@pytest.mark.ml
@pytest.mark.s3
def test_a_short_login_gives_the_same_everywhere(
    tmp_path: Path,
    engine: Engine,
    cpu_image: str,
    s3_server: S3Server,
    s3_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.setenv("SLIPWAY_TUNING", json.dumps(TUNING))
    everywhere(tmp_path, engine, s3_server, s3_url, SHORT, limit=500)


@pytest.mark.ml
@pytest.mark.s3
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(18000)  # three runs; a quiet machine needs a quarter of an hour for all
def test_the_whole_login_gives_the_same_everywhere(
    tmp_path: Path,
    engine: Engine,
    cpu_image: str,
    s3_server: S3Server,
    s3_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    local = everywhere(tmp_path, engine, s3_server, s3_url, WHOLE, limit=5900)
    success = {row["agent"]: row["value"] for row in local.table() if row["metric"] == "success"}
    assert success["trained"] >= GOAL
    assert max(success[agent] for agent in ("untrained", "commonest", "nearest")) < CHANCE
