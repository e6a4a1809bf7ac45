"""Commands that are ended: by a signal, with their runtime, by a cancel; and what they leave behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.model import Input, Limits
from tests.integration.runtime.rig import SLOW, Rig, command_of, no_process_left, python, started, terminate, until


@pytest.mark.parametrize(
    ("handler", "code", "reason"),
    [
        ("sys.exit(0)", 143, Reason.PREEMPTED),  # it stopped with half of its work
        ("(out / '.done').touch(); sys.exit(0)", 0, Reason.SUCCEEDED),
        ("(out / '.done').touch(); sys.exit(1)", 143, Reason.PREEMPTED),
        ("sys.exit(7)", 143, Reason.PREEMPTED),
    ],
)
def test_sigterm(tmp_path: Path, handler: str, code: int, reason: Reason) -> None:
    rig = Rig.of(tmp_path, python(SLOW.format(handler=handler)))
    assert terminate(started(rig)) == code
    assert rig.exit().reason is reason
    assert (rig.result() is None) == (code != 0)


def test_sigterm_to_everybody_at_once_is_no_users_error(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; exec sleep 60"))
    process = started(rig)
    for each in procs.descendants(process.pid) | {procs.Process(process.pid, procs.start_time(process.pid) or 0)}:
        procs.send(each, signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    assert rig.exit().reason is Reason.PREEMPTED


def test_sigterm_that_reaches_the_command_first_is_no_users_error(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; exec sleep 60"))
    process = started(rig)
    for each in command_of(process.pid):
        procs.send(each, signal.SIGTERM)
    until(lambda: not command_of(process.pid))
    assert terminate(process) == 143
    assert rig.exit().reason is Reason.PREEMPTED


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, python(SLOW.format(handler="print('no', flush=True)")), limits=Limits(grace=0.3))
    assert terminate(started(rig)) == 143
    assert (rig.exit().reason, rig.exit().code) == (Reason.PREEMPTED, -signal.SIGKILL)
    assert rig.log().count(b"no\n") == 1
    assert no_process_left(rig)


def test_sigterm_reaches_what_a_shell_started(tmp_path: Path) -> None:
    inner = SLOW.format(handler="time.sleep(0.3); print('saved', flush=True); sys.exit(0)")
    (tmp_path / "inner.py").write_text(inner)
    rig = Rig.of(tmp_path, ("sh", "-c", f"python {tmp_path}/inner.py; echo after"))
    assert terminate(started(rig)) == 143
    assert b"saved\n" in rig.log()
    assert no_process_left(rig)


def test_sigterm_before_the_command(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo ran"), inputs={"a": Input(work="0" * 64, output="x")})
    rig.tuning["upstream"] = 60
    process = rig.start()
    until(lambda: "attempts/1/claim/main-0.json" in rig.objects())
    until(lambda: b"attempt 1" in rig.log())
    assert terminate(process) == 143
    assert rig.exit().reason is Reason.PREEMPTED
    assert b"ran\n" not in rig.log()


def test_children_that_forked_away_end_with_the_command(tmp_path: Path) -> None:
    code = """
import os, time
heard, said = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("away", flush=True)
        os.write(said, b"x")
        time.sleep(60)
    os._exit(0)
os.wait()
os.read(heard, 1)
"""
    rig = Rig.of(tmp_path, python(code))
    assert rig.go() == 0
    assert b"away\n" in rig.log()
    assert no_process_left(rig)


def test_the_command_dies_with_a_killed_runtime(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; exec sleep 60"))
    process = started(rig)
    process.kill()
    process.wait()
    until(lambda: no_process_left(rig))


def test_leftovers_of_an_earlier_attempt_end_before_the_next_command(tmp_path: Path) -> None:
    code = """
import os, sys, time
if os.environ["SLIPWAY_ATTEMPT"] == "1":
    if os.fork() == 0:
        os.setsid()
        print("away", flush=True)
        time.sleep(60)
    time.sleep(60)
from launcher.runtime.process import procs
mark = os.environ["SLIPWAY_SELF"]
print("left:", len(procs.descendants_with_mark(mark[:-1] + "1", "SLIPWAY_SELF")), mark[-1], flush=True)
"""
    rig = Rig.of(tmp_path, python(code))
    process = started(rig, b"away\n")
    process.kill()
    process.wait()
    assert rig.go() == 0
    assert b"left: 0 2\n" in rig.log(2)


def test_cancel(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; exec sleep 60"))
    process = started(rig)
    rig.store.create(rig.keys.cancel, json.dumps({"by": "test", "time": 0, "nonce": "n"}).encode())
    assert process.wait(timeout=30) == 78
    result = rig.result()
    assert result is not None
    assert (result.outcome, rig.exit().reason) == ("cancelled", Reason.CANCELLED)
