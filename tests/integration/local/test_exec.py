"""`launcher exec` on the local backend: the command's folder and environment, until the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.desktops.viewing import listening
from launcher.backends.local import entering, environment
from launcher.backends.local.state import StartRecord, read
from launcher.cli import main
from launcher.errors import NotFound
from launcher.protocol.read import read_run
from launcher.runtime.member.command import SELF
from launcher.runtime.process import procs
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from launcher.userdata import secrets
from tests.integration.local.machine import Machine, wait_for
from tests.support.needs import need_root

HELD = """
print("begun", flush=True)
(here / "begun").touch()
while not (here / "go").exists(): time.sleep(0.02)
"""
LAUNCHER = Path(sys.executable).with_name("launcher")


@pytest.fixture
def held(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResolvedJob]:
    """A run whose command waits, submitted with credentials of a store at hand."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE0")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-store-key")
    monkeypatch.setenv("SLIPWAY_STORE", here.store.url)
    for name in ("CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "slipway.yaml").write_text(f"local: {{state: {here.state.path}}}\n")
    monkeypatch.chdir(tmp_path)
    here.state.make()
    secrets.put(here.state.secrets, "GREETING", "canary-job-secret")
    job = here.job("held", HELD, secrets={"GREETING": "local"}, store_access=True, role={"env": {"WORD": "hello"}})
    here.submit(job)
    wait_for(lambda: (here.path / "begun").exists(), explain=here.explain)
    yield job
    (here.path / "go").touch()
    here.wait(job)


def enter(held: ResolvedJob, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAUNCHER, "exec", run_id(held), "--", *command], capture_output=True, text=True, timeout=60, check=False
    )


def test_it_has_the_folder_and_the_environment(here: Machine, held: ResolvedJob) -> None:
    done = enter(held, "bash", "-c", "pwd; env; exit 7")
    assert done.returncode == 7, done.stderr
    folder, *lines = done.stdout.splitlines()
    environ = dict(line.partition("=")[::2] for line in lines)
    assert folder.startswith(str(here.state.run(run_id(held))))
    assert (environ["SLIPWAY_RUN"], environ["SLIPWAY_ATTEMPT"], environ["WORD"]) == (run_id(held), "1", "hello")
    assert Path(environ["SLIPWAY_OUTPUTS"]).is_dir()
    assert environ["GREETING"] == "canary-job-secret"
    assert "canary-store-key" not in done.stdout
    assert not {SELF, "AWS_ACCESS_KEY_ID"} & set(environ)
    assert "python" in enter(held, "python", "-c", "import sys; print(sys.executable)").stdout
    words = [LAUNCHER, "exec", run_id(held), "--", "cat"]
    assert subprocess.run(words, input=b"in", capture_output=True, check=True).stdout == b"in"


def test_what_cannot_run_is_said(held: ResolvedJob) -> None:
    done = enter(held, "no-such-program")
    assert (done.returncode, done.stderr) == (127, "launcher exec: `no-such-program` is not on the PATH of the run\n")
    done = enter(held, "/etc/hostname")
    assert done.returncode == 126
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("ending", ["by itself", "cancelled"])
def test_the_run_does_not_wait_for_it_and_it_ends_with_the_run(here: Machine, held: ResolvedJob, ending: str) -> None:
    """With its children: what stays would use the GPU that the queue gives to the next run."""
    script = "sleep 600 & echo $!; while true; do wait; sleep 0.05; done"
    words = [LAUNCHER, "exec", run_id(held), "--", "bash", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        child = int(second.stdout.readline())
        start = procs.start_time(child)
        if ending == "cancelled":
            assert main(["cancel", run_id(held)]) == 0
        else:
            (here.path / "go").touch()
        (result,) = here.wait(held)
        assert result.outcome == ("succeeded" if ending == "by itself" else "cancelled")
        (attempt,) = read_run(here.store, run_id(held)).attempts
        assert attempt.exits["main-0"].reason == result.outcome  # of a cancelled run it was `preempted`
        assert second.wait(30) == 128 + signal.SIGKILL
    wait_for(lambda: procs.start_time(child) != start or not procs.alive(child, start or 0, procs.boot_id()))


def test_one_that_enters_while_the_run_ends_is_found(here: Machine, held: ResolvedJob) -> None:
    """Before it has read the run's environment, its arguments hold the mark."""
    record = read(here.state.record(run_id(held), "main-0"), StartRecord)
    assert record is not None
    mark = environment.mark(here.state.id, run_id(held), "main-0")
    words = entering.argv(procs.Process(record.pid, record.start), held, mark, "held", ["true"])
    slow = [words[0], "-c", "import time; time.sleep(600)", *words[3:]]  # begun, and nothing read
    with subprocess.Popen(slow) as begun:
        wait_for(lambda: procs.carries(begun.pid, mark))
        (here.path / "go").touch()
        here.wait(held)
        assert begun.wait(30) == -signal.SIGKILL


def test_nothing_of_a_local_run_listens(here: Machine, held: ResolvedJob) -> None:
    need_root()  # a runtime hides what it has open from its own user
    supervisor, record = here.supervisor(), read(here.state.record(run_id(held), "main-0"), StartRecord)
    assert supervisor is not None
    assert record is not None
    assert listening([supervisor, record.pid, *(one.pid for one in procs.descendants(record.pid))]) == set()


def test_a_run_without_a_process_is_not_found(
    here: Machine, held: ResolvedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    (here.path / "go").touch()
    here.wait(held)
    assert main(["exec", run_id(held), "--", "true"]) == NotFound.exit_code
    assert "no process of main-0 runs on this machine" in capsys.readouterr().err
    assert os.environ["SLIPWAY_STORE"] == here.store.url
