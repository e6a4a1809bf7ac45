"""Nothing of a real desktop is left of a client or a server that was killed."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.serve.test_http import gone, killed
from tests.support.desktops import KNOWN, left, need_desktops, segments
from tests.support.serving import served
from tests.support.waiting import until

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]
NOTES: Final[dict[str, Any]] = {
    "environment": "desktop",
    "options": {"tree": False, "screen": [640, 480]},
    "tasks": {"count": 2, "seed": 1000000},
    "limits": {"concurrency": 1},
}


@pytest.fixture
def desktops() -> Iterator[Path]:
    """Where the desktops have their folders; its path is short, as Unix sockets need it."""
    need_desktops()
    folder = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    folder.chmod(0o711)
    KNOWN[folder] = segments()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def others(folder: Path, server: int) -> list[str]:
    """What is left but the server, which names the folder itself."""
    return [thing for thing in left(folder) if not thing.startswith(f"process {server} ")]


def test_a_client_that_is_killed_leaves_no_desktop(tmp_path: Path, desktops: Path) -> None:
    with served("openenv", tmp_path, NOTES, desktops=desktops) as server:
        killed(server.url)
        gone(server, 1)
        until(lambda: not others(desktops, server.process.pid), lambda: left(desktops))
    assert left(desktops) == []


def test_a_server_that_is_killed_leaves_no_desktop(tmp_path: Path, desktops: Path) -> None:
    with served("openenv", tmp_path, NOTES, desktops=desktops) as server:
        begun: list[str] = []

        def kill() -> None:
            begun.extend(others(desktops, server.process.pid))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()

        killed(server.url, after=kill)
    assert any("process" in thing for thing in begun)
    until(lambda: not left(desktops), lambda: left(desktops))
