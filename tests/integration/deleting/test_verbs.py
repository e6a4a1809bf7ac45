"""`launcher rm` and `launcher gc` as a user calls them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.cli import main
from launcher.deleting.guard import Intent
from launcher.protocol.deleted import read_deleted
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Code, Output
from launcher.store.base import Store
from launcher.store.layout import RunKeys, blob, blob_note, work_run
from tests.integration.deleting.stores import OVERLAY, Later, keys, made, overlay, reader
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_group, write_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


def rows(capsys: Capture, *arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments, "-o", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_rm_shows_first_and_leaves_a_tombstone(store: Store, capsys: Capture) -> None:
    job = made(store)
    run, before = run_id(job), keys(store)
    assert main(["rm", run]) == 0
    said = capsys.readouterr()
    assert f"{run}" in said.out
    assert "would be deleted" in said.out
    assert "--yes" in said.err
    assert keys(store) == before
    (row,) = rows(capsys, "rm", run)
    assert (row["what"], row["name"], row["state"]) == ("run", run, "would be deleted")
    assert row["objects"] == len(before) - 3  # job.json, result.json and the works/ record
    assert keys(store) == before
    (row,) = rows(capsys, "rm", run, "--yes")
    assert row["state"] == "deleted"
    assert keys(store) == {*RunKeys(run).tombstone}
    (row,) = rows(capsys, "rm", run, "--yes")
    assert (row["state"], row["why"]) == ("kept", "was deleted before")


def test_readers_say_that_it_was_deleted(store: Store, tmp_path: Path, capsys: Capture) -> None:
    job = fake_job("eval", outputs={"results": Output()})
    run = write_run(store, job, [FakeAttempt(outputs={"results": eval_files([True, False])})])
    assert main(["rm", run, "--yes"]) == 0
    capsys.readouterr()
    gone = "its outputs were deleted by launcher rm on "
    (row,) = rows(capsys, "results", run)
    assert gone in row["problem"]
    assert main(["gather", run, "--to", str(tmp_path / "to")]) == 3
    assert gone in capsys.readouterr().err
    other = write_run(store, fake_job("other", outputs={"results": Output()}), [FakeAttempt()])
    assert main(["rm", other, "--yes"]) == 0
    capsys.readouterr()
    for asked in ([run], [run, other]):
        assert main(["logs", *asked]) == 0
        said = capsys.readouterr().err.splitlines()
        assert [line.partition(gone)[0] for line in said] == [f"{one}: " for one in asked]
    assert main(["status", run]) == 0
    assert gone in capsys.readouterr().out
    (row,) = rows(capsys, "status", run)
    assert gone in row["deleted"]
    assert (row["state"], row["running_s"]) == ("succeeded", 60.0)
    assert main(["report", run, "--file", str(tmp_path / "report.html")]) == 0
    assert store.head(work_run(work_hash(job), run)) is None  # nobody that looked wrote it again


def test_what_is_needed_is_refused_by_name(store: Store, capsys: Capture) -> None:
    job = made(store)
    needing = reader(job)
    write_run(store, needing, [], outcome=None)
    before = keys(store)
    assert main(["rm", run_id(job), "--yes"]) == 5
    assert f"{run_id(needing)} reads it and has not ended" in capsys.readouterr().err
    assert main(["rm", run_id(needing), "--yes"]) == 5
    assert f"launcher cancel {run_id(needing)}" in capsys.readouterr().err
    (row,) = [row for row in rows(capsys, "gc", "--keep", "0", "--yes") if row["name"] == run_id(job)]
    assert row["state"] == "kept"
    assert keys(store) == before


def test_a_group_goes_whole(store: Store, capsys: Capture) -> None:
    first = made(store)
    second = run_id(reader(first))
    write_run(store, reader(first), [FakeAttempt()])
    group = write_group(store, [run_id(first), second], edges={second: [run_id(first)]})
    assert main(["rm", group, "--yes"]) == 0
    assert keys(store, "runs/") == {key for run in (run_id(first), second) for key in RunKeys(run).tombstone}
    assert main(["status", group]) == 0


@pytest.mark.two_bodies
def test_gc_takes_what_nobody_refers_to(store: Store, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = overlay(store), overlay(store, b"another")
    job = made(store, code=Code(f"sha256:{used}"))
    gone = made(store, "gone")
    assert rows(capsys, "gc", "--yes") == []  # too young
    assert main(["rm", run_id(gone), "--yes"]) == 0
    # late requests: a piece, a live file, and the works/ record that somebody was about to complete
    late = RunKeys(run_id(gone)).attempt(1)
    store.put(late.output("out") + "a", b"1")
    store.put(work_run(work_hash(gone), run_id(gone)), b"{}")
    capsys.readouterr()
    assert {row["what"] for row in rows(capsys, "gc", "--yes")} == {"leftover"}
    assert store.head(late.output("out") + "a") is None
    assert store.head(work_run(work_hash(gone), run_id(gone))) is None
    store.put("checks/cut-off/1", b"x")
    torn = RunKeys(run_id(job)).attempt(1).checkpoint_files(3, "main-0") + "w"
    store.put(torn, b"x")
    monkeypatch.setattr("launcher.store.opening.open_known", lambda url: Later(store, 8 * 86400.0))
    found = rows(capsys, "gc", "--yes")
    assert {(row["what"], row["name"]) for row in found} == {
        ("overlay", unused),
        ("leftover", f"of {run_id(job)}, ignored by readers"),
        ("leftover", "of checks of the store that were cut off"),
    }
    assert store.head(blob(unused)) is None
    assert store.head(blob_note(unused)) is None
    assert store.get(blob(used)) == OVERLAY
    assert store.head(torn) is None
    assert keys(store, "checks/") == set()
    assert rows(capsys, "gc", "--yes") == []


@pytest.mark.two_bodies
def test_gc_thins_checkpoints(store: Store, capsys: Capture) -> None:
    job = fake_job("train", outputs={"ckpt": Output(kind="checkpoints")})
    attempts = [FakeAttempt(checkpoints=(10, 20)), FakeAttempt(checkpoints=(20, 30, 40))]
    run = write_run(store, job, attempts)
    best = RunKeys(run).attempt(2).checkpoint_complete(40)
    store.put(best, msgspec.json.encode({"step": 40, "name": "c-40", "members": ["main-0"], "best": 10}))
    for number, step in ((1, 10), (1, 20), (2, 20), (2, 30), (2, 40)):
        store.put(RunKeys(run).attempt(number).checkpoint_files(step, "main-0") + "w", b"12345")
    assert {row["name"] for row in rows(capsys, "gc", "--checkpoints")} == {f"{run} step 20", f"{run} step 30"}
    assert len(rows(capsys, "gc", "--checkpoints", "--keep", "2", "--yes")) == 2  # both of step 20
    assert len(rows(capsys, "gc", "--checkpoints", "--yes")) == 1
    left = {key for key in keys(store, "runs/") if "/checkpoints/" in key}
    assert {key.split("/checkpoints/")[1].split("/")[0] for key in left} == {"10", "40"}
    assert read_deleted(store, run) is None
    assert main(["gc", "--checkpoints", "--keep", "0"]) == 2
    assert "launcher rm" in capsys.readouterr().err


def test_intents_of_the_dead_are_swept(store: Store, capsys: Capture) -> None:
    left = Intent(store, ["x-1"], [])
    dead = msgspec.structs.replace(left.record, nonce="dead", start=1)
    store.create("deleting/dead.json", msgspec.json.encode(dead))
    made(store)
    assert main(["gc", "--keep", "0", "--yes"]) == 0
    assert keys(store, "deleting/") == {f"deleting/{left.record.nonce}.json"}


@pytest.mark.parametrize(
    "arguments", [["--keep", "-1"], ["--older-than", "soon"], ["--state", "running"], ["-l", "=x"], ["--grace", "x"]]
)
def test_bad_options_are_bad_input(store: Store, arguments: list[str]) -> None:
    made(store)
    try:
        code = main(["gc", *arguments])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2


@pytest.mark.parametrize(("typed", "deleted"), [("yes", True), ("y", False), ("", False)])
def test_at_a_terminal_it_asks(store: Store, typed: str, deleted: bool) -> None:
    """A real terminal: what is printed there, and what is typed."""
    run = run_id(made(store))
    ours, theirs = pty.openpty()
    words = [Path(sys.executable).with_name("launcher"), "rm", run]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown, answers = b"", [typed]
        with suppress(OSError):  # the terminal is gone when its last process has ended
            while chunk := os.read(ours, 4096):
                shown += chunk
                if b"type yes to delete: " in shown and answers:
                    os.write(ours, answers.pop().encode() + b"\n")
    os.close(ours)
    assert process.returncode == 0, shown.decode()
    assert (read_deleted(store, run) is not None) == deleted
    assert (b"nothing was deleted" in shown) != deleted
