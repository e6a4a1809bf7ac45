"""What the contract suite needs of a backend: a way to run tiny scripts on it and to see from outside what happened.

A new backend adds a Harness and its name to HARNESSES; the suite itself knows no backend.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from msgspec.structs import replace

from launcher.backends.base import Backend, backend
from launcher.backends.docker.container import MARK, RUNTIME_LABEL
from launcher.backends.local import daemon, environment
from launcher.backends.local.backend import LocalBackend
from launcher.runtime.process import procs
from launcher.spec.backends import backends
from launcher.spec.model import Image, ResolvedJob
from launcher.store import Store, open_store
from tests.support import outside
from tests.support.engine import Engine
from tests.support.jobs import job
from tests.support.waiting import until as wait_for

__all__ = ["wait_for"]

# what stands in for the runtime: it notes its start, says a line, waits to be let go, writes the result
SHIM: Final = """#!/bin/sh
cd {folder}
echo start >> starts-$SLIPWAY_RUN
echo "hello from $SLIPWAY_ROLE-$SLIPWAY_RANK"
child=
trap 'echo asked >> asked-$SLIPWAY_RUN; [ -n "$child" ] && kill $child; exit 143' TERM
while [ ! -e go-$SLIPWAY_RUN ] && [ ! -e go-all ]; do sleep 0.02 & child=$!; wait $child; done
echo bye
result={store}/runs/$SLIPWAY_RUN/result.json
[ -e $result ] || echo '{{"outcome":"succeeded","attempt":1,"reason":"succeeded","message":"","time":0,"nonce":"n"}}' \\
  > $result
exit 0
"""


# a runtime sends its output to the store before it writes the result; so does what stands in for it
SAY: Final = """
say() {{
  echo "$1"
  logs={store}/runs/$SLIPWAY_RUN/attempts/1/logs/$SLIPWAY_ROLE-$SLIPWAY_RANK
  mkdir -p $logs
  first=${{said:-0}}
  said=$((first + ${{#1}} + 1))
  echo "$1" > {folder}/$SLIPWAY_RUN-$SLIPWAY_ROLE-$SLIPWAY_RANK.part
  mv {folder}/$SLIPWAY_RUN-$SLIPWAY_ROLE-$SLIPWAY_RANK.part $logs/$(printf %020d-%020d $first $said).log
}}
"""


class Harness(Protocol):
    backend: Backend
    store: Store

    def again(self) -> Backend:
        """Another client of the same backend: a second laptop, or the same one after a crash."""
        ...

    def job(self, name: str, **changes: Any) -> ResolvedJob: ...

    def starts(self, run: str) -> int:
        """How often a process of the run was started."""
        ...

    def sent(self, run: str) -> bytes | None:
        """The object as the backend was given it, None when it has none."""
        ...

    def wire(self, document: str) -> bytes:
        """A rendered document as `sent` would have it."""
        ...

    def let_go(self, run: str | None = None) -> None:
        """Lets the run's process (every run's) end with success."""
        ...


class LocalHarness:
    kind = "local"

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.options: Mapping[str, object] = {
            "state": path / "state",
            "cpus": 64,
            "memory": 1 << 40,
            "gpus": 0,
            "idle": 20,
        }
        self.store = open_store((path / "store").as_uri())
        shim = path / "shim"
        shim.write_text(SHIM.format(folder=shlex.quote(str(path)), store=shlex.quote(str(path / "store"))))
        shim.chmod(0o755)
        monkeypatch.setattr("launcher.backends.local.environment.python", lambda: str(shim))
        self.backend = self.again()

    def again(self) -> Backend:
        return backend(self.kind, self.options)

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        return job(name, store=self.store.url, **changes)

    def starts(self, run: str) -> int:
        path = self.path / f"starts-{run}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def sent(self, run: str) -> bytes | None:
        path = self.path / "state" / "queue" / f"{run}.yaml"
        return path.read_bytes() if path.exists() else None

    def wire(self, document: str) -> bytes:
        return document.encode()

    def let_go(self, run: str | None = None) -> None:
        (self.path / f"go-{run or 'all'}").touch()

    def close(self) -> None:
        made = self.backend
        assert isinstance(made, LocalBackend)
        daemon.stop(made.state)
        for path in made.state.path.glob("runs/*/*"):
            procs.kill_tree(mark=environment.mark(made.state.id, path.parent.name, path.name), grace=0)


class OutsideHarness(LocalHarness):
    kind = outside.NAME

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        return super().job(name, backend=self.kind, **changes)


class DockerHarness(LocalHarness):
    """The same shim as an image's `python`; its folder and the store are seen inside under their own paths."""

    kind = "docker"

    def __init__(self, engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        self.engine = engine
        super().__init__(path, monkeypatch)
        # of this test alone: another one that runs beside it removes its own image at its end
        self.image = f"slipway-test.local/shim:{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
        (path / "Dockerfile").write_text(
            f"FROM {engine.base or 'debian:bookworm-slim'}\nCOPY shim /usr/local/bin/python\n"
            f'LABEL {RUNTIME_LABEL}="1"\n'
        )
        (path / ".dockerignore").write_text("*\n!shim\n")
        engine.docker("build", "-q", "-t", self.image, str(path))

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        options = {"network": "host", "volumes": [f"{self.path}:{self.path}"]}
        made = super().job(name, backend="docker", options=options, **changes)
        image = Image(reference=self.image)
        return replace(made, roles={role: replace(each, image=image) for role, each in made.roles.items()})

    def close(self) -> None:
        super().close()
        # until none is left: what a supervisor has begun to remove cannot be removed by others
        filters = [f"--filter={one}" for one in (f"label={MARK}", f"ancestor={self.image}")]
        wait_for(lambda: not (found := self.engine.docker("ps", "-aq", *filters).stdout.split()) or self._remove(found))
        self.engine.docker("rmi", "-f", self.image)

    def _remove(self, containers: list[str]) -> bool:
        return self.engine.docker("rm", "-f", *containers, check=False).returncode == 0


@contextmanager
def local(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with _opened(LocalHarness(path, monkeypatch)) as made:
        yield made


@contextmanager
def docker(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with _opened(DockerHarness(request.getfixturevalue("engine"), path, monkeypatch)) as made:
        yield made


@contextmanager
def _opened(made: LocalHarness) -> Iterator[LocalHarness]:
    (made.path / "state").mkdir(parents=True)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def kubernetes(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    from tests.integration.backend.kubernetes import opened

    with opened(request, path, monkeypatch) as made:
        yield made


@contextmanager
def lambda_labs(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    from tests.integration.backend.lambda_labs import opened

    with opened(path, monkeypatch) as made:
        yield made


@contextmanager
def azureml(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    from tests.integration.backend.azureml import opened

    with opened(path, monkeypatch) as made:
        yield made


@contextmanager
def elsewhere(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """A backend of another distribution: here, and in the supervisor's process, found by its entry point."""
    site = outside.install(path / "site")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    backends.cache_clear()
    try:
        with _opened(OutsideHarness(path, monkeypatch)) as made:
            yield made
    finally:
        sys.modules.pop("slipway_elsewhere", None)
        backends.cache_clear()


HARNESSES: Final = {
    "azureml": azureml,
    "docker": docker,
    "elsewhere": elsewhere,
    "kubernetes": kubernetes,
    "lambda": lambda_labs,
    "local": local,
}


def sending(path: Path) -> Path:
    """The stand-in for a runtime that sends its output to the store, as `path`/shim."""
    shim = path / "shim"
    first, _, rest = SHIM.replace('echo "hello', 'say "hello').replace("echo bye", "say bye").partition("\n")
    folder, store = shlex.quote(str(path)), shlex.quote(str(path / "store"))
    shim.write_text(f"{first}\n{SAY}{rest}".format(folder=folder, store=store))
    shim.chmod(0o755)
    return shim


def living(run: str) -> int:
    """How many processes of this machine name the run in their environment."""
    return sum(procs.carries(int(pid), run, "SLIPWAY_RUN") for pid in os.listdir("/proc") if pid.isdigit())  # noqa: PTH208
