"""The desktops of the cluster tests' evaluation (tests/cluster/jobs/evaluation), without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.desktop import ActionRefused
from tests.support.documented import ROOT

FOLDER = ROOT / "tests/cluster/jobs/evaluation"
PORT = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"
Ask = Callable[[str, Any], Any]


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Asks a desktop that runs as the job runs it."""
    port = subprocess.run([sys.executable, "-c", PORT], capture_output=True, text=True, check=True).stdout.strip()
    environ = {**os.environ, "BOOT": "0", "SLIPWAY_PORT_HTTP": port, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "desktop.py"]
    monkeypatch.syspath_prepend(str(FOLDER))
    from served import ask  # type: ignore[import-not-found,unused-ignore]

    with subprocess.Popen(command, cwd=FOLDER, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"
            yield lambda what, body: ask(f"127.0.0.1:{port}", what, body)
        finally:
            process.kill()


def test_an_action_that_the_desktop_cannot_do_is_refused_and_the_episode_goes_on(desktop: Ask) -> None:
    expected = desktop("reset", {"id": "login", "seed": 1_000_000})["expected"]
    with pytest.raises(ActionRefused, match="there are no other programs"):
        desktop("step", Action(ActionType.OPEN_APP, app_name="mail").to_json())
    assert desktop("step", expected)["expected"] != expected
