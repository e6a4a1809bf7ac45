"""What a runtime gets to see, and what the queue may keep of a submitter's environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.backends.local import daemon
from launcher.backends.local.state import StateDir
from launcher.errors import Unreachable
from tests.integration.local.machine import wait_for


def test_a_supervisor_ends_when_idle_and_says_why_it_can_not_start(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state").make()
    daemon.ensure(state, {"idle": 0.2, "cpus": 1, "memory": 1, "gpus": 0})
    living = daemon.living_supervisor(state)
    assert living is not None
    assert living.pid != os.getpid()
    daemon.ensure(state, {"idle": 0.2})  # a second one is not started
    assert daemon.living_supervisor(state) in (living, None)
    wait_for(lambda: not state.held() and "ends" in state.log.read_text())
    (tmp_path / "file").touch()
    with pytest.raises(Unreachable, match="cannot be written"):
        daemon.ensure(StateDir(tmp_path / "file" / "state").make(), {})
