"""The contract on a stand-in for Lambda Cloud: a server in a process of its own, whose machines are process groups of
this machine that run the user data they were launched with. Its clock goes 200 times as fast as the wall clock."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from msgspec.structs import replace

from launcher.backends.base import Backend, backend
from launcher.backends.lambda_labs import names
from launcher.backends.lambda_labs.script import NO_LAUNCH, NO_PLACE, completed
from launcher.spec.model import Image, Limits, ResolvedJob
from launcher.store import open_store
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.backend.harness import Harness, sending
from tests.support.jobs import job

SPEED: Final = 200.0
TIMES: Final = {
    "interval": 1.2 / SPEED,
    "spacing": 13.0 / SPEED,
    "settle": 20.0 / SPEED,
    "timeout": 30.0 / SPEED,
    "between": 30.0 / SPEED,
}


class LambdaHarness:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.store = open_store((path / "store").as_uri())
        shim = sending(path)
        self.cloud = FakeLambda(path / "cloud", speed=SPEED, program=shim)
        monkeypatch.setenv("LAMBDA_API_URL", self.cloud.url)
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        self.block = {"instance_types": ["gpu_1x_a10", "gpu_1x_h100_pcie"], "ssh_key": "laptop"}
        self.options = {**self.block, **TIMES, "folders": [str(path)], "store": self.store.url}
        self.backend = self.again()

    def again(self) -> Backend:
        return backend("lambda", self.options)

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        limits = Limits(deadline=600.0, grace=2.0)
        given = {"store": self.store.url, "backend": "lambda", "options": self.block, "limits": limits, **changes}
        resolved = job(name, **given)
        image = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")
        return replace(resolved, roles={role: replace(each, image=image) for role, each in resolved.roles.items()})

    def starts(self, run: str) -> int:
        path = self.path / f"starts-{run}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def sent(self, run: str) -> bytes | None:
        """What Lambda got, without what is added at the launch: the place, the expiry, the credentials."""
        bodies = [each["body"] for each in self.cloud.bodies()]
        ours = [copy.deepcopy(body) for body in bodies if names.RUN in (tags := _tags(body)) and tags[names.RUN] == run]
        for body in ours:
            assert int(_tags(body)[names.EXPIRES]) > 0
            number = _tags(body)[names.LAUNCH]  # the machine has it, too; a folder needs no credentials
            assert body["user_data"].count(f"\n{number}\n") == 1
            body["user_data"] = body["user_data"].replace(f"\n{number}\n", f"\n{NO_LAUNCH}\n")
            assert completed(body["user_data"], "other", NO_LAUNCH) != body["user_data"]
            head, place, rest = re.split(r"(?<=/place\" <<'SLIPWAY_END'\n)(.+)", body["user_data"])
            assert place.startswith(str(self.path))  # where the machine says why it cannot start a runtime
            body["user_data"] = head + NO_PLACE + rest
            added = (names.LAUNCHED, names.EXPIRES, names.LAUNCH)
            body["tags"] = [tag for tag in body["tags"] if tag["key"] not in added]
            del body["region_name"], body["instance_type_name"]
        return _canonical(ours) if ours else None

    def wire(self, document: str) -> bytes:
        return _canonical([machine["request"] for machine in yaml.safe_load(document)["machines"]])

    def let_go(self, run: str | None = None) -> None:
        (self.path / f"go-{run or 'all'}").touch()

    def close(self) -> None:
        self.cloud.close()


def _tags(body: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in body["tags"]}


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


@contextmanager
def opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    harness = LambdaHarness(path, monkeypatch)
    try:
        yield harness
    finally:
        harness.close()
