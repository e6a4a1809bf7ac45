"""An object store that answers and takes nothing: no space, a quota, no permission any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.runtime import store_fault
from launcher.spec.model import Timing
from tests.integration.runtime.rig import Rig, until
from tests.support.faultproxy import FaultProxy
from tests.support.s3 import ENVIRONMENT, S3Server

WAITS = ("sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done")
PATIENT = Timing(beat=0.2, stale=240.0, fence=200.0)


@pytest.mark.s3
@pytest.mark.parametrize("refusal", [(507, "InsufficientStorage"), (403, "QuotaExceeded"), (403, "AccessDenied")])
def test_a_run_outlives_a_store_that_refuses_and_says_so_meanwhile(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with FaultProxy(s3_server.port) as proxy:
        rig = Rig.of(tmp_path, WAITS, store=s3_server.url(endpoint=proxy.endpoint), timing=PATIENT)
        process = rig.start()
        until(lambda: b"up\n" in rig.log())
        proxy.refuses = refusal
        work = tmp_path / "work" / "main-0"
        told = until(lambda: store_fault.read(work), 100)
        assert refusal[1] in told
        proxy.refuses = None
        until(lambda: not store_fault.read(work), 100)
        (work / "work" / "go").touch()
        assert process.wait(60) == 0
        assert len(rig.view().attempts) == 1
