"""Two users of one machine and one folder store, and the umask of whoever submits."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.spec.model import Output
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store, open_store
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.needs import need_root

ALICE, BOB, TEAM = 60001, 60002, 60100
LAUNCHER = Path(sys.executable).with_name("launcher")


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    need_root()
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "store"
        folder.mkdir()
        yield folder


def by(user: int, act: Callable[[], object], umask: int = 0o077) -> None:
    """Does something as another user, in a process of its own. All modules are loaded already: another user may not be
    able to read the interpreter's."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.umask(umask)
            os.setgroups([TEAM])
            os.setgid(user)
            os.setuid(user)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def status(url: str, folder: Path) -> dict[str, str]:
    """What `launcher status` says, by name."""
    out = io.StringIO()
    home = {f"XDG_{name}_HOME": str(folder / "none") for name in ("CACHE", "STATE", "CONFIG")}
    os.environ.update({"SLIPWAY_STORE": url, "HOME": str(folder / "none"), **home})
    with contextlib.redirect_stdout(out):
        assert main(["status", "-o", "json"]) == 0
    return {line["name"]: line["state"] for line in json.loads(out.getvalue())}


@pytest.mark.two_bodies  # its ledger is in a folder of pytest, which other users cannot reach
@pytest.mark.parametrize("mode", [0o2770, 0o755])
def test_objects_take_group_and_mode_from_the_root(root: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask of the writer is (a supervisor's is 077), whoever may read the root may read the runs."""
    for name in ("SLIPWAY_STORE", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.chdir(root.parent)
    os.chown(root, ALICE, TEAM)
    root.chmod(mode)
    url = root.as_uri()

    def write(name: str) -> str:
        store = open_store(url)
        make_store(store)
        job = fake_job(name, outputs={"out": Output()}, store=url)
        return write_run(store, job, [FakeAttempt(outputs={"out": {"a": b"1"}}, logs={"main-0": {0: b"hello\n"}})])

    with tempfile.TemporaryDirectory() as other:  # loads every module that the verb needs
        open_there = Path(other).as_uri()
        make_store(open_store(open_there))
        write_run(open_store(open_there), fake_job("loads", store=open_there))
        status(open_there, root.parent)
    by(ALICE, lambda: write("alice"))
    by(BOB, lambda: _same(status(url, root.parent), {"alice": "succeeded"}))
    for path in root.rglob("*"):
        found = path.stat()
        assert found.st_gid == TEAM
        assert stat.S_IMODE(found.st_mode) == (mode if path.is_dir() else mode & 0o666), path
    if mode == 0o2770:
        by(BOB, lambda: write("bob"), umask=0o022)
        by(ALICE, lambda: _same(status(url, root.parent), {"alice": "succeeded", "bob": "succeeded"}))
        with_out = RunKeys("any").job
        by(ALICE, lambda: open_store(url).create(with_out, b"{}"))


def _same(found: object, wanted: object) -> None:
    assert found == wanted


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_a_command_has_its_submitters_umask(tmp_path: Path, umask: int) -> None:
    """The supervisor's own is 077, whoever started it; its queue, state and secrets stay its user's."""
    environ = {**os.environ, "HOME": str(tmp_path), "SLIPWAY_STORE": str(tmp_path / "store")}
    for name in ("CACHE", "STATE", "CONFIG"):
        environ[f"XDG_{name}_HOME"] = str(tmp_path / name.lower())
    (tmp_path / "store").mkdir(mode=0o755)

    def said(*words: str, mask: int = umask) -> str:
        done = subprocess.run(
            [LAUNCHER, *words], capture_output=True, text=True, cwd=tmp_path, env=environ, umask=mask, check=False,
            timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        assert (
            f"{umask:04o}" in said("run", "--backend", "local", "--name", "masked", "--", "sh", "-c", "umask").split()
        )
        # the same supervisor, another shell
        again = ("run", "--backend", "local", "--name", "other", "--", "sh", "-c", "umask; true")
        assert "0077" in said(*again, mask=0o077).split()
        for path in (tmp_path / "store").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path
        state = tmp_path / "state/slipway/local"
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        for name in ("queue", "sites", "runs"):
            assert stat.S_IMODE((state / name).stat().st_mode) == 0o700
    finally:
        subprocess.run([LAUNCHER, "local", "stop"], env=environ, cwd=tmp_path, capture_output=True, check=False)
