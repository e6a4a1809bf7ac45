"""A stand-in for Lambda Cloud whose machines run nothing, and a backend for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Image, Limits, ResolvedJob, Role
from launcher.store import open_store
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.support.jobs import job

SPEED = 200.0
TIMES = {"interval": 0.006, "spacing": 0.065, "settle": 0.1, "timeout": 0.15, "between": 0.15}


class Account:
    """The stand-in, a store, and what a test does with both."""

    def __init__(self, cloud: FakeLambda, path: Path) -> None:
        self.cloud, self.path = cloud, path
        self.store = open_store((path / "store").as_uri())

    def backend(self, **changes: Any) -> LambdaBackend:
        return LambdaBackend({**TIMES, "folders": [str(self.path)], "store": self.store.url, **changes})

    def job(self, name: str, options: dict[str, Any] | None = None, **changes: Any) -> ResolvedJob:
        block = {"instance_types": ["gpu_1x_a10", "gpu_1x_h100_pcie"], "ssh_key": "laptop", **(options or {})}
        image = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")
        roles = {"main": Role(("python", "-c", "pass"), image=image, leader=True)}
        given = {"store": self.store.url, "backend": "lambda", "options": block, "roles": roles}
        return job(name, **{**given, "limits": Limits(deadline=600.0, grace=2.0), **changes})

    def nodes(self, name: str, count: int) -> ResolvedJob:
        """A job of several machines."""
        (role,) = self.job(name).roles.values()
        return self.job(name, roles={"main": replace(role, replicas=count)})

    def submit(self, one: ResolvedJob, backend: LambdaBackend | None = None) -> str:
        """The id of its machine."""
        chosen = backend or self.backend()
        self.store.create(RunKeys(run_id(one)).job, encode_job(one))
        return chosen.submit(chosen.render([one]), [one])[run_id(one)].place["main-0"]

    def launches(self) -> list[str]:
        return [entry["id"] for entry in self.cloud.ledger("launched")]


def at_laptop(account: Account, folder: Path, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder of a person who knows the store and the account, and has submitted nothing."""
    folder.mkdir()
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    make_store(account.store)
    monkeypatch.setenv("SLIPWAY_STORE", account.store.url)
    (folder / "slipway.yaml").write_text(profile)
    monkeypatch.chdir(folder)


@contextmanager
def account_of(cloud: FakeLambda, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account at this cloud, which ends with it."""
    monkeypatch.setenv("LAMBDA_API_URL", cloud.url)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    try:
        yield Account(cloud, folder)
    finally:
        cloud.close()


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with account_of(FakeLambda(tmp_path / "cloud", speed=SPEED), tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def account_with_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account whose machines run this Python, and boot quickly."""
    cloud = FakeLambda(folder / "cloud", speed=20.0, program=Path(sys.executable))
    cloud.admin("settings", boot=10.0, lag=5.0)
    with account_of(cloud, folder, monkeypatch) as made:
        yield made


@pytest.fixture
def settings(account: Account) -> Callable[..., object]:
    def change(**values: Any) -> object:
        return account.cloud.admin("settings", **values)

    return change
