"""A stand-in for Azure whose jobs run nothing, and a backend for it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.azureml.backend import AzureBackend
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Image, Limits, ResolvedJob, Role
from launcher.store import open_store
from launcher.store.layout import RunKeys
from tests.fakes.azureml import cloud
from tests.fakes.azureml.running import FakeAzure
from tests.support.jobs import job

PLACE = {"subscription": cloud.SUBSCRIPTION, "resource_group": cloud.GROUP, "workspace": cloud.WORKSPACE}
IMAGE = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")


class Tenant:
    """The stand-in, a store, and what a test does with both."""

    def __init__(self, azure: FakeAzure, path: Path) -> None:
        self.azure, self.path = azure, path
        self.store = open_store((path / "store").as_uri())

    def options(self, **changes: Any) -> dict[str, Any]:
        own = {"poll": 0.02, "patience": 0.0, "folders": [str(self.path)], "store": self.store.url}
        return {**PLACE, "compute": "gpu", **own, **changes}

    def backend(self, **changes: Any) -> AzureBackend:
        return AzureBackend(self.options(**changes))

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        roles = {"main": Role(("python", "-c", "pass"), image=IMAGE, leader=True)}
        given = {"store": self.store.url, "backend": "azureml", "options": {**PLACE, "compute": "gpu"}, "roles": roles}
        return job(name, **{**given, "limits": Limits(deadline=600.0, grace=2.0), **changes})

    def pooled(self, name: str, ranks: int = 2, **pool: Any) -> ResolvedJob:
        """A run of several ranks, each on a compute instance of its own."""
        chosen = {"size": "Standard_D8_v3", "instances": ranks, **pool}
        role = Role(("python", "-c", "pass"), image=IMAGE, leader=True, replicas=ranks)
        return self.job(name, options={**PLACE, "pool": chosen}, roles={"main": role})

    def instances(self) -> dict[str, str]:
        """Name -> state of every compute instance that somebody made."""
        return dict(self.azure.admin("made")["there"])

    def made(self) -> list[str]:
        """The names of those that were ever made."""
        return [entry["name"] for entry in self.azure.ledger("made")]

    def submit(self, one: ResolvedJob, backend: AzureBackend | None = None) -> str:
        """Its run."""
        chosen = backend or self.backend()
        self.store.create(RunKeys(run_id(one)).job, encode_job(one))
        return chosen.submit(chosen.render([one]), [one])[run_id(one)].run

    def created(self) -> list[str]:
        return [entry["name"] for entry in self.azure.ledger("created")]

    def fault(self, on: str, kind: str, times: int = 1) -> None:
        self.azure.admin("settings", faults=[{"on": on, "kind": kind, "times": times}])

    def status(self, run: str) -> str:
        return str(self.azure.admin("status")[run])


@pytest.fixture(scope="package")
def azure() -> Iterator[FakeAzure]:
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeAzure(Path(folder), speed=200.0)
        try:
            yield fake
        finally:
            fake.close()


@pytest.fixture(scope="module")
def nodes() -> Iterator[FakeAzure]:
    """A stand-in whose nodes run this environment's Python."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "python"  # a link to it would lose its environment
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        fake = FakeAzure(Path(folder) / "cloud", speed=20.0, program=python)
        try:
            yield fake
        finally:
            fake.close()


@pytest.fixture
def tenant(azure: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    azure.admin("reset")
    for name, value in azure.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("https_proxy", "no_proxy", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path / "az"))
    return Tenant(azure, tmp_path)
