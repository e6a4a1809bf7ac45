"""A machine whose runs are containers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.docker import container
from launcher.backends.docker.backend import DockerBackend
from launcher.spec.model import Image, ResolvedJob
from tests.integration.local.machine import Machine
from tests.support.cpu_image import cpu_image
from tests.support.engine import Engine, engine
from tests.support.lean_image import lean_image

__all__ = ["cpu_image", "engine", "here"]
TUNING = {"poll": 0.05, "quiet": 0.5, "live": 0.2, "upstream": 2.0, "leftovers": 0.5}


class Containers(Machine):
    """As `Machine`, but jobs run in `image`, in the host's network, and see this machine's folder."""

    def __init__(self, path: Path, engine: Engine, image: str, store: str | None = None, **slots: Any) -> None:
        super().__init__(path, store, **slots)
        self.backend = DockerBackend(self.backend.options)
        self.state = self.backend.state
        self.engine = engine
        self.image = image

    def job(self, name: str, script: str, **changes: Any) -> ResolvedJob:
        options = {"network": "host", "volumes": [f"{self.path}:{self.path}"], **changes.pop("options", {})}
        image = Image(reference=changes.pop("image", self.image))
        made = super().job(name, script, backend="docker", options=options, **changes)
        roles = {
            role: replace(one, image=image, command=("python", *one.command[1:])) for role, one in made.roles.items()
        }
        return replace(made, roles=roles)

    def containers(self, *flags: str) -> list[dict[str, Any]]:
        """What `docker inspect` says of this machine's containers; with "-a" also of those that have ended. One that a
        supervisor removes meanwhile is none."""
        wanted = [f"--filter=label={container.MARK}", f"--filter=volume={self.path}"]
        found = self.engine.docker("ps", "-q", *flags, *wanted).stdout.split()
        if not found:
            return []
        shown: list[dict[str, Any]] = json.loads(self.engine.docker("inspect", *found, check=False).stdout)
        return shown

    def close(self) -> None:
        super().close()
        if left := [one["Id"] for one in self.containers("-a")]:
            self.engine.docker("rm", "-f", *left, check=False)


@pytest.fixture
def here(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containers]:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.setenv("SLIPWAY_TUNING", json.dumps(TUNING))
    made = Containers(tmp_path, engine, lean_image(engine))
    try:
        yield made
    finally:
        made.close()
