"""Process identity and the end of whole trees, on real processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from uuid import uuid4

from launcher.runtime.process import procs
from tests.support.waiting import until

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
FORKS_AWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
print('up', flush=True)
time.sleep(60)
"""


def start(code: str, mark: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, procs.MARK: mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    return child


def test_a_process_that_becomes_another_program_carries_its_mark_at_every_moment(tmp_path: Path) -> None:
    """For a moment of execve it has no environment: who looked then, left it running."""
    script = tmp_path / "again"
    script.write_text("#!/bin/sh\nexec $0\n")
    script.chmod(0o755)
    mark = uuid.uuid4().hex
    with subprocess.Popen([script], env={**os.environ, procs.MARK: mark}) as process:
        try:
            # before the first of them it is this process's copy, without the mark
            until(lambda: procs.carries(process.pid, mark))
            missed = [number for number in range(5000) if not procs.carries(process.pid, mark)]
        finally:
            process.kill()
    assert missed == []


def test_identity() -> None:
    me = os.getpid()
    began = procs.start_time(me)
    assert began is not None
    assert procs.alive(me, began, procs.boot_id())
    assert not procs.alive(me, began + 1, procs.boot_id())
    assert not procs.alive(me, began, "another boot")
    assert procs.start_time(2**22 + 1) is None


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    began = procs.start_time(child.pid)
    assert began is not None
    child.kill()
    until(lambda: not procs.alive(child.pid, began, procs.boot_id()))
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()


def test_kill_tree_ends_a_child_that_forked_away() -> None:
    mark = uuid.uuid4().hex
    with start(FORKS_AWAY, mark) as child:
        assert len(procs.descendants_with_mark(mark)) == 2
        assert procs.kill_tree(child.pid, mark=mark, grace=5, tick=child.poll) == set()
        assert not procs.descendants_with_mark(mark)
        assert child.wait() == -signal.SIGTERM


def test_kill_tree_kills_what_ignores_sigterm() -> None:
    mark = uuid.uuid4().hex
    with start(IGNORES, mark) as child:
        assert procs.kill_tree(mark=mark, grace=0.1, tick=child.poll) == set()
        assert child.wait() == -signal.SIGKILL


def test_spared_processes_live() -> None:
    mark = uuid.uuid4().hex
    with start("import time; print('up', flush=True); time.sleep(60)", mark) as child:
        assert procs.kill_tree(mark=mark, grace=1, spare=[child.pid]) == set()
        assert child.poll() is None
        child.kill()


def test_send_never_reaches_a_later_process() -> None:
    with start("import time; print('up', flush=True); time.sleep(60)", uuid.uuid4().hex) as child:
        began = procs.start_time(child.pid)
        assert began is not None
        assert not procs.send(procs.Process(child.pid, began - 1), signal.SIGKILL)
        assert child.poll() is None
        assert procs.send(procs.Process(child.pid, began), signal.SIGKILL)


def test_adopted_children_are_reaped() -> None:
    code = """
import os, time
from pathlib import Path
from launcher.runtime.process import procs
procs.become_subreaper()
first = os.fork()
if first == 0:
    if os.fork() == 0:
        os._exit(7)
    os._exit(0)
time.sleep(0.2)
procs.reap_adopted(keep=[first])
children = Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()
assert children == [str(first)], children
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_runtime_that_nobody_can_read_is_found_by_its_arguments() -> None:
    """Both without capabilities, as a user's processes are: root's reads every environment."""

    def no_capabilities() -> None:
        libc = ctypes.CDLL(None)
        for one in range(41):
            libc.prctl(24, one, 0, 0, 0)

    mark = f"test:{uuid4().hex}:main-0"
    hidden = "from launcher.runtime.secrets import credentials\n"
    hidden += "credentials.cannot_be_read()\nprint(flush=True)\ninput()\n"
    look = (
        f"from launcher.runtime.process import procs\nprint([one.pid for one in procs.descendants_with_mark({mark!r})])"
    )
    command = [sys.executable, "-c", hidden, f"--mark={mark}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=no_capabilities
    ) as runtime:
        assert runtime.stdout is not None
        runtime.stdout.readline()
        found = subprocess.run(
            [sys.executable, "-c", look], capture_output=True, text=True, check=True, preexec_fn=no_capabilities
        )
        environ = subprocess.run(
            ["cat", f"/proc/{runtime.pid}/environ"], capture_output=True, check=False, preexec_fn=no_capabilities
        )
        runtime.kill()
    assert found.stdout.strip() == f"[{runtime.pid}]"
    assert environ.returncode != 0
