"""Tables on terminals of several widths, and elsewhere: real processes behind a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from launcher.cli.printing.output import fit, short_ids
from launcher.cli.verbs.status import STATES as OFFERED
from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.store.base import Store
from launcher.verbs.status import STATES
from tests.support.fakerun import FakeAttempt, fake_job, write_group, write_run

LAUNCHER = Path(sys.executable).with_name("launcher")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


def on_terminal(columns: int, *words: str) -> list[str]:
    """The lines that `launcher WORDS...` shows on a terminal so wide, without colours."""
    theirs, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    # an environment of its own: readline, where pytest loads it, puts COLUMNS into that of the C library
    with subprocess.Popen([LAUNCHER, *words], stdout=ours, stderr=subprocess.DEVNULL, env=dict(os.environ)) as done:
        os.close(ours)
        parts = []
        while True:
            try:
                part = os.read(theirs, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        os.close(theirs)
    assert done.returncode == 0
    return ANSI.sub("", b"".join(parts).decode()).replace("\r\n", "\n").splitlines()


def piped(*words: str) -> list[str]:
    done = subprocess.run([LAUNCHER, *words], capture_output=True, text=True, check=True, env=dict(os.environ))
    return done.stdout.splitlines()


@pytest.fixture
def runs(file_store: Store) -> list[str]:
    beat = Beat(3, "running", step=1410, total=3000, checkpoint=1400, running=60.0, message="loss 0.3 " * 20)
    job = fake_job("training-of-an-agent-login", labels={"team": "agents", "why": "x" * 60})
    made = [write_run(file_store, job, [FakeAttempt(ended=None, beat=beat)], outcome=None)]
    bad = FakeAttempt(reason=Reason.OUT_OF_MEMORY, message="killed: the container used 64 GiB and may use 64 GiB")
    made += [write_run(file_store, fake_job("eval-before", config={"k": k}), [bad], outcome="failed") for k in range(9)]
    write_group(file_store, made)
    return made


def test_elsewhere_nothing_is_cut(runs: list[str]) -> None:
    lines = piped("status", "-o", "wide")
    assert all(any(line.startswith(run) for line in lines) for run in runs)
    assert any("x" * 60 in line for line in lines)
    assert any(("loss 0.3 " * 20).strip() in line for line in lines)


@pytest.mark.parametrize("output", ["table", "wide"])
@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_the_table_of_runs_fits_and_keeps_what_matters(runs: list[str], columns: int, output: str) -> None:
    head, *lines = on_terminal(columns, "status", "-o", output)
    assert max(map(len, [head, *lines])) <= columns
    assert {"RUN", "STATE", "REASON"} <= set(head.split())
    assert len(lines) == len(runs)
    shown = {line.split()[0] for line in lines}
    assert len(shown) == len(runs)
    for begin in shown:  # whole, or a beginning that means that run and no other
        assert len([run for run in runs if run.startswith(begin)]) == 1, begin
    assert sum("out_of_memory" in line for line in lines) == 9
    assert sum(" running" in line for line in lines) == 1


def test_runs_of_a_matrix_are_told_apart_by_what_differs(file_store: Store) -> None:
    one = fake_job("sft", config={"lr": 1e-5}, variant={"config.lr": 1e-5, "config.seed": 0})
    two = fake_job("sft", config={"lr": 3e-5}, variant={"config.lr": 3e-5, "config.seed": 0})
    write_group(file_store, [write_run(file_store, job, [FakeAttempt()]) for job in (one, two)])
    head, *lines = piped("status")
    assert head.split()[:2] == ["RUN", "STATE"]  # the others are where scripts find them
    assert sorted(line.split()[-1] for line in lines) == ["lr=1e-05,seed=0", "lr=3e-05,seed=0"]


def test_a_shortened_id_can_be_typed(runs: list[str]) -> None:
    shown = [line.split()[0] for line in on_terminal(60, "status")[1:]]
    assert any(begin not in runs for begin in shown)
    for begin in shown:
        (line,) = [line for line in piped("status", begin) if line.startswith("run ")]
        assert line.split()[1] in runs


def test_a_wide_terminal_has_every_column_that_says_something(runs: list[str]) -> None:
    head, *lines = on_terminal(200, "status")
    whole = [re.split(r"\s{2,}", line.strip()) for line in piped("status")]
    assert head.split() == [name for name, *cells in zip(*whole, strict=True) if set(cells) != {"-"}]
    assert {line.split()[0] for line in lines} == set(runs)


def test_only_a_script_gets_the_columns_in_which_no_run_has_anything(file_store: Store) -> None:
    run = write_run(file_store, fake_job("waits"), [], outcome=None)
    head, line = on_terminal(200, "status")
    assert {"RUN", "STATE"} <= set(head.split())
    assert not {"STEP", "PROGRESS", "CHECKPOINT"} & set(head.split())
    assert line.startswith(run)
    assert " -" not in line
    assert {"STEP", "PROGRESS", "CHECKPOINT"} <= set(piped("status")[0].split())


@pytest.mark.parametrize(
    "words",
    [["groups"], ["status", "eval-before"], ["gather", "eval-before", "--to", "out"], ["gc", "--older-than", "0s"]],
)
def test_other_tables_fit(runs: list[str], words: list[str]) -> None:
    for columns in (60, 80):
        lines = on_terminal(columns, *words)
        begin = next(k for k, line in enumerate(lines) if line.startswith(("GROUP", "ATTEMPT", "RUN", "WHAT")))
        table = lines[begin : begin + 2]
        assert max(map(len, table)) <= columns


def test_what_doctor_says_is_wrapped_to_the_terminal(runs: list[str], tmp_path: Path) -> None:
    lines = on_terminal(70, "doctor")
    # a path or a command that is longer than a line stays whole: it is to be typed
    assert all(len(line) <= 70 or len(line.split()) <= 2 for line in lines), lines


def test_the_states_of_the_option_are_those_of_a_run() -> None:
    """Written twice, so that `launcher status --help` starts without the protocol."""
    assert OFFERED == STATES


def test_ids_are_shortened_only_where_they_stay_unique() -> None:
    runs = ["sft-aaaa11112222", "sft-aaaa11113333", "sft-bbbb00000000", "sft-login-aaaa11112222", "x-cccc00000000"]
    short = short_ids(runs, others=["x-cccc00001111", "sft-dddd00000000"])
    assert short == {
        "sft-aaaa11112222": "sft-aaaa11112",
        "sft-aaaa11113333": "sft-aaaa11113",
        "sft-bbbb00000000": "sft-bbbb",
        "sft-login-aaaa11112222": "sft-login-aaaa",
        "x-cccc00000000": "x-cccc00000",
    }
    assert short_ids(["sft-bbbb00000000"], others=["sft-bbbb-aaaa00000000"])["sft-bbbb00000000"] == "sft-bbbb0"
    assert short_ids(["odd"], others=[]) == {"odd": "odd"}


def test_on_a_narrow_terminal_a_beginning_is_never_a_jobs_name() -> None:
    """`sft-login` would mean the newest run of that job, not this one."""
    rows = [{"run": run, "state": "succeeded"} for run in ("sft-login-aaaa11112222", "sft-login-bbbb11112222")]
    for width in range(10, 40):
        shown = [row["run"] for row in fit(rows, ["run", "state"], width)[0]]
        assert "sft-login" not in shown
        assert len(set(shown)) == 2
