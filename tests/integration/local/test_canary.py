"""One secret by each way in; every byte that comes out is searched: real processes, a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import canary
from tests.support.canary import ID, SECRETS, no_capabilities
from tests.support.s3 import REGION, S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with canary.served(tmp_path) as made:
        yield made


class Shell:
    """A user's shell in the project; keeps all that it was shown."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = {
            name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")
        } | environ
        self.shown = b""

    def launcher(self, *words: str, text: str = "", code: int = 0) -> bytes:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("launcher")), *words],
            cwd=self.folder / "project",
            env=self.environ,
            input=text.encode(),
            capture_output=True,
            timeout=240,
            check=False,
        )
        self.shown += done.stdout + done.stderr
        assert done.returncode == code, (words, done.stdout.decode()[-3000:], done.stderr.decode()[-3000:])
        return done.stdout


def others_see(pid: int) -> bytes:
    """What another user of the machine sees of a process."""
    seen = b""
    for name in ("cmdline", "environ", "comm"):
        if os.getuid() == 0 and Path(f"/proc/{pid}").exists():
            done = subprocess.run(
                ["cat", f"/proc/{pid}/{name}"], capture_output=True, check=False, user=65534, group=65534
            )
            seen += done.stdout
    return seen


class Watcher(threading.Thread):
    """Looks at every process of the machine, again and again, as `ps` of any user does."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.seen = b""

    def run(self) -> None:
        while not self.stopped.wait(0.05):
            self.seen += subprocess.run(["ps", "axwwo", "args"], capture_output=True, check=False).stdout

    def stop(self) -> bytes:
        self.stopped.set()
        self.join()
        return self.seen


def test_no_secret_comes_out_anywhere(tmp_path: Path, server: S3Server) -> None:
    environ = canary.project(tmp_path)
    environ |= {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRETS["store-key"]}
    environ["AWS_DEFAULT_REGION"] = REGION
    environ |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    shell = Shell(tmp_path, environ)
    job = (
        "name: curious\ncommand: [python, curious.py]\ncode: .\nsecrets: [HF_TOKEN]\noutputs: {results: {sync: live}}\n"
    )
    (tmp_path / "project" / "job.yaml").write_text(job)
    (tmp_path / "project" / "slipway.yaml").write_text(
        f"store: s3://bucket/x?endpoint={server.endpoint}&region={REGION}\n"
    )
    shell.launcher("secrets", "set", "HF_TOKEN", text=SECRETS["job-secret"])
    shell.launcher("secrets", "list")
    watcher = Watcher()
    watcher.start()
    shell.launcher("submit", "job.yaml", "--follow")
    # the supervisor's process began with the submitter's environment: nobody without capabilities can read it. It goes
    # first: without runs it ends after a minute, and the look at every process takes longer on a busy machine
    (who,) = (tmp_path / "state").rglob("supervisor.json")
    supervisor = json.loads(who.read_text())["pid"]
    asked = ["cat", f"/proc/{supervisor}/environ"]
    told = subprocess.run(asked, capture_output=True, check=False, preexec_fn=no_capabilities)
    assert (told.stdout, b"Permission denied" in told.stderr) == (b"", True), told.stderr
    others = b"".join(others_see(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    seen = watcher.stop()
    assert canary.found_in(seen) == []
    assert canary.found_in(others) == []

    shell.launcher("logs", "curious")
    for words in (("status",), ("status", "curious"), ("status", "-o", "json"), ("results", "curious"), ("doctor",)):
        shell.launcher(*words)
    shell.launcher("render", "job.yaml")
    shell.launcher("render", "job.yaml", "--explain")
    shell.launcher("report", "curious", "--file", str(tmp_path / "report.html"))
    shell.launcher("gather", "curious", "--to", str(tmp_path / "gathered"), "--what", "results,logs,metrics")
    shell.launcher("status", "--store", f"s3://{ID}:{SECRETS['store-key']}@bucket/x", code=2)
    shell.launcher("render", "job.yaml", "--set", f"env.MY_PASSWORD={SECRETS['environment']}", code=2)
    shell.launcher("render", "job.yaml", "--set", f"+inputs.d=https://me:{SECRETS['url']}@h/x", code=2)
    log = shell.launcher("logs", "curious")
    assert b"raw *** url *** ***" in log
    assert b"env AWS_DEFAULT_REGION" in log
    assert b"env AWS_SECRET" not in log
    assert canary.found_in(shell.shown) == []

    shell.launcher("local", "stop")
    for path in (tmp_path / "served").rglob(".sgwtmp"):  # the server's own scratch
        shutil.rmtree(path, ignore_errors=True)
    secrets = next((tmp_path / "state").rglob("secrets.json"))  # the one place for them
    assert secrets.stat().st_mode & 0o077 == 0
    places = [tmp_path / name for name in ("served", "state", "cache", "report.html", "gathered", "s3.log")]
    assert list(canary.leaks(places, allowed=[secrets])) == []
    assert (tmp_path / "served" / "bucket" / "x").exists()


@pytest.mark.parametrize("way", SECRETS)
def test_the_search_finds_each_form_of_each(tmp_path: Path, way: str) -> None:
    for index, shape in enumerate(canary.forms(SECRETS[way])):
        file = tmp_path / str(index)
        file.write_bytes(b"\0before" + shape + b"after\xff")
        assert list(canary.leaks([file])) == [f"{file}: {way}"]
