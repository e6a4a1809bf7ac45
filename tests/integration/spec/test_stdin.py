"""`-` among job files and manifests: standard input, read by the verbs as a shell pipes into them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = "name: piped\ncommand: [bash, -c, 'echo $SLIPWAY_RUN']\n"


def launcher(*arguments: str, given: bytes, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "launcher.cli", *arguments], input=given, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done


def test_what_is_piped_renders_as_the_file_does(home: Path) -> None:
    (home / "job.yaml").write_text(JOB)
    (home / "data").mkdir()
    text = JOB + "inputs: {data: ./data}\n"  # a path is relative to the working folder
    (home / "with.yaml").write_text(text)
    for name, body in (("job.yaml", JOB), ("with.yaml", text)):
        assert launcher("render", "-", given=body.encode()).stdout == launcher("render", name, given=b"").stdout
    beside = launcher("render", "job.yaml", "-", given=b"name: other\ncommand: [x]\n").stdout
    assert beside.count(b"\nrun: ") + beside.startswith(b"run: ") == 2


def test_overrides_and_explain_know_where_a_value_stood(home: Path) -> None:
    out = launcher("render", "-", "--explain", "--set", "limits.deadline=1h", given=JOB.encode()).stdout.decode()
    assert "<stdin>:1" in out
    assert "--set limits.deadline" in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"name: x\ncommand: [a]\nlimts: {}\n", "<stdin>:3:1: limts: "),
        (b"name: x\ncommand: [a\n", "<stdin>:3:1: "),
        (b"name: x\ncommand: ['\xff']\n", "<stdin>:2:12: byte 0xff is not UTF-8"),
        (b"name: x\ncommand: [a]\n# " + b"x" * (1 << 20), "<stdin>: too large for a job"),
        (b"", "no job in -"),
        (b"just a text", "<stdin>:1:1: "),
    ],
)
def test_what_is_wrong_names_standard_input(home: Path, given: bytes, said: str) -> None:
    assert said in launcher("render", "-", given=given, code=2).stderr.decode()


def test_standard_input_is_read_once(home: Path) -> None:
    assert "<stdin>: named twice" in launcher("render", "-", "-", given=JOB.encode(), code=2).stderr.decode()


@pytest.mark.parametrize("given", ["<&-", "</dev/null"])
@pytest.mark.parametrize(
    ("verb", "said"),
    [("render", "no job in -"), ("lint", "<stdin>: is empty"), ("validate", "<stdin>: is empty")],
)
def test_nothing_on_standard_input_is_no_success(home: Path, verb: str, said: str, given: str) -> None:
    """What should have written there may have failed, and a pipe's exit code is only its last command's."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m launcher.cli {verb} - {given}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["lint", "validate"])
def test_manifests_on_standard_input_are_held_to_the_same(home: Path, verb: str) -> None:
    assert "<stdin>: byte 0xff at 10 is not UTF-8" in str(
        [done := launcher(verb, "-", given=b"kind: Job\n\xff", code=2), done.stdout, done.stderr]
    )


def test_push_and_submit_take_standard_input(home: Path) -> None:
    (home / "code").mkdir()
    (home / "code" / "tool.sh").write_text("echo tool")
    text = (JOB + "code: ./code\n").encode()
    store = (home / "store").as_uri()
    rows = json.loads(launcher("push", "-", "--store", store, "-o", "json", given=text).stdout)
    assert [row["state"] for row in rows] == ["put"]
    rows = json.loads(launcher("submit", "-", "--store", store, "--dry-run", "-o", "json", given=text).stdout)
    assert [row["state"] for row in rows] == ["would be submitted"]
