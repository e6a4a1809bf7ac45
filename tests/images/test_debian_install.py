"""waa-vm's `install` with a real guest: Debian onto an empty disk, cut off twice, and then at work from that disk.

It has what the README gives to Windows: UEFI with Secure Boot, a TPM, a SATA disk, answers on a removable drive. QEMU
is the machine's own, of the same Debian packages as in the image, so that no engine is needed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images.guest_programs import environment, free_ports
from tests.support.engine import ROOT, STATE
from tests.support.needs import marked

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.alone,
    pytest.mark.timeout(3 * 3600),
    marked("root", missing=os.geteuid() != 0),
    marked("qemu"),
]
HARDWARE = {"firmware": "secure", "tpm": True, "memory": "1G", "cpus": 1, "bus": "sata", "clock": "localtime"}


@pytest.fixture(scope="session")
def medium() -> Path:
    """The folder with the medium and its answers, made once for each version of what makes it."""
    maker = ROOT / "tests" / "images" / "debian_medium.py"
    folder = STATE / f"medium-{hashlib.sha256(maker.read_bytes()).hexdigest()[:12]}"
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "medium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "answers").exists():  # they are made last
            for old in STATE.glob("medium-*"):
                shutil.rmtree(old)
            subprocess.run([sys.executable, "-m", "tests.images.debian_medium", str(folder)], check=True, cwd=ROOT)
    return folder


class Role:
    """`python -m guest`, as a role of a run."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.log = folder / "log"
        (folder / "config.json").write_text(json.dumps(config))
        self.http, self.agent = free_ports(2)
        given = environment(folder) | {"SLIPWAY_PORT_HTTP": str(self.http), "SLIPWAY_PORT_AGENT": str(self.agent)}
        command = [sys.executable, "-m", "guest", "--config", str(folder / "config.json")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self, condition: Callable[[], object]) -> None:
        """Until it holds: pytest's own time limit ends what never comes."""
        while not condition():
            assert self.process.poll() is None, f"{self.log.read_text()}\n{self.get(self.http, '/console')[1]}"
            time.sleep(1)

    def get(self, port: int, path: str, method: str = "GET") -> tuple[int, str]:
        """(status, text); (0, "") without an answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                return int(response.status), response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def says(self, text: str) -> bool:
        """Is it in the guest's console?"""
        return text in self.get(self.http, "/console")[1]

    def end(self) -> int:
        """Ends it as the runtime does: the whole group at once. The exit code."""
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait()


@contextmanager
def role(folder: Path, config: dict[str, Any]) -> Iterator[Role]:
    running = Role(folder, config)
    begun = time.monotonic()
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end()
        print(f"{time.monotonic() - begun:.0f} s:\n{running.log.read_text()}")


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def test_debian_is_installed_through_two_cuts_and_works_from_its_disk(medium: Path, tmp_path: Path) -> None:
    answers, disk = tmp_path / "answers", tmp_path / "debian.qcow2"
    mark = tmp_path / "debian.qcow2.installing"
    shutil.copytree(medium / "answers", answers)
    (answers / "pause").touch()
    install = {"media": [str(medium / "debian.iso")], "answers": str(answers), "size": "3G"}
    golden = {**HARDWARE, "disk": str(disk), "health": {"path": "/probe"}, "boot": 3 * 3600, "reset": 3600}
    making = {**golden, "install": install, "boot": 0.001}

    with role(tmp_path, making) as first:
        first.wait(lambda: first.says("installer: pausing"))  # half of the system is on the disk
        assert first.end() == 1
    assert json.loads(mark.read_text())["restarted"] is False
    with role(tmp_path, golden) as refused:
        assert refused.process.wait() == 78
    assert "is not finished" in refused.log.read_text()

    (answers / "pause").unlink()
    with role(tmp_path, making) as second:
        second.wait(lambda: json.loads(mark.read_text())["restarted"])
        assert second.end() == 1
    assert "beginning anew" in second.log.read_text()

    with role(tmp_path, making) as third:
        assert third.process.wait() == 0, third.log.read_text()
    assert "going on with" in third.log.read_text()
    assert "its server answers: shutting it down" in third.log.read_text()
    assert not mark.exists()

    before = digest(disk)
    with role(tmp_path, golden) as work:
        work.wait(lambda: "snapshot kept" in work.log.read_text())
        assert work.get(work.http, "/ready")[0] == 200
        assert work.get(work.agent, "/files?new") == (200, "new")
        status, text = work.get(work.http, "/reset", "POST")
        assert status == 200, text
        assert work.get(work.agent, "/files") == (200, "")
        assert work.end() == 0
    assert digest(disk) == before
    disk.unlink()  # pytest keeps the folders of three runs
