"""The contract on a stand-in for Azure: a server in a process of its own, to which the unmodified SDK talks by TLS and
whose nodes are process groups of this machine. Its clock goes 200 times as fast as the wall clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from msgspec.structs import replace

from launcher.backends.azureml import names, rest
from launcher.backends.base import Backend, backend
from launcher.spec.model import Image, Limits, ResolvedJob
from launcher.store import open_store
from tests.fakes.azureml import cloud
from tests.fakes.azureml.running import FakeAzure
from tests.integration.backend.harness import Harness, sending
from tests.support.jobs import job

SPEED: Final = 200.0


class AzureHarness:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.store = open_store((path / "store").as_uri())
        self.cloud = FakeAzure(path / "cloud", speed=SPEED, program=sending(path))
        # long enough that no job of a submit ends before the submit has: a stand-in writes no works/ record
        self.cloud.admin("settings", queue=150.0)
        for name, value in self.cloud.environ.items():
            monkeypatch.setenv(name, value)
        for name in ("https_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        place = {"subscription": cloud.SUBSCRIPTION, "resource_group": cloud.GROUP, "workspace": cloud.WORKSPACE}
        self.block = {**place, "compute": "gpu"}
        self.options = {**self.block, "poll": 0.05, "folders": [str(path)], "store": self.store.url}
        self.backend = self.again()

    def again(self) -> Backend:
        return backend("azureml", self.options)

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        limits = Limits(deadline=600.0, grace=2.0)
        given = {"store": self.store.url, "backend": "azureml", "options": self.block, "limits": limits, **changes}
        resolved = job(name, **given)
        image = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")
        return replace(resolved, roles={role: replace(each, image=image) for role, each in resolved.roles.items()})

    def starts(self, run: str) -> int:
        path = self.path / f"starts-{run}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def sent(self, run: str) -> bytes | None:
        bodies = [body for body in self.cloud.bodies().values() if body["properties"]["properties"][names.RUN] == run]
        return _canonical(bodies) if bodies else None

    def wire(self, document: str) -> bytes:
        bodies = [rest.body(each, cloud.ID) for each in yaml.safe_load_all(document)]
        return _canonical([{"properties": each["properties"]} for each in bodies])  # the name is in the address

    def let_go(self, run: str | None = None) -> None:
        (self.path / f"go-{run or 'all'}").touch()

    def close(self) -> None:
        self.cloud.close()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


@contextmanager
def opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    harness = AzureHarness(path, monkeypatch)
    try:
        yield harness
    finally:
        harness.close()
