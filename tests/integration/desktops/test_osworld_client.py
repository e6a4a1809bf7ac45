"""OSWorld's published client, unchanged, against our desktop server, started as docs/howto/desktop.md says."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.desktops import need_isolation
from tests.support.documented import ROOT, blocks
from tests.support.needs import need

PYTHON = ROOT / ".venv-osworld/bin/python"
PAGE = ROOT / "docs/howto/desktop.md"

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.nightly]


def test_osworld_s_own_controllers_work(tmp_path: Path) -> None:
    need_isolation()
    need("osworld")

    (line,) = [each.line for block in blocks(PAGE) for each in block if "--open-port" in each.line]
    port = line.split()[-1]
    server = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        assert server.stdout.readline() == f"listening on http://127.0.0.1:{port} without a token\n"
        command = [str(PYTHON), str(ROOT / "tests/support/osworld_client.py"), port, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
    finally:
        server.kill()
        server.communicate()
    out = json.loads(done.stdout)
    assert out.pop("screenshot") > 1000
    assert {".config", "note.txt", "until"} <= set(out.pop("folder"))
    ran = {"status": "success", "message": "42\n", "need_more": False, "output": "42\n", "error": "", "return_code": 0}
    assert out == {
        "set up": True,
        "printed": "out\n",
        "several": {"status": "success", "output": "", "error": "", "returncode": 0},
        "file": 'It\'s \\ "fast"\n\t',
        "no file": None,
        "tree": True,
        "terminal": None,
        "platform": "Linux",
        "screen": {"width": 1920, "height": 1080},
        "window": ["height", "width"],
        "python": ran,
        "recording": True,
        "bash": {"status": "error", "output": "42\n", "error": "", "returncode": 3},
    }
