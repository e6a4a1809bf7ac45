"""The verbs that only look, called as a user calls them, on runs that lie in a store."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import BackendObservation, Handle
from launcher.cli import main
from launcher.cli.verbs.status import COLUMNS
from launcher.errors import Unreachable
from launcher.protocol.records import Beat, Result
from launcher.reasons import Reason
from launcher.spec.model import Output, Role
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import (
    START,
    FakeAttempt,
    Pipeline,
    eval_files,
    fake_job,
    login_pipeline,
    write_attempt,
    write_group,
    write_run,
)
from tests.support.waiting import HANGS

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store, the caches and the working folder of one user."""
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pipeline(file_store: Store) -> Pipeline:
    return login_pipeline(file_store, n=30)


def finish(store: Store, run: str, outcome: str = "succeeded") -> None:
    reason = Reason.SUCCEEDED if outcome == "succeeded" else Reason.USER_ERROR
    result = Result(outcome, 1, reason, "", START + 90, nonce="late")
    store.create(RunKeys(run).result, msgspec.json.encode(result))


def test_status_lists_and_filters(file_store: Store, pipeline: Pipeline, capsys: Capture) -> None:
    beat = Beat(
        seq=3, phase="running", step=141, total=300, checkpoint=100, running=60.0, message="loss 0.3", first_step=0
    )
    live = write_run(
        file_store, fake_job("live", labels={"team": "agents"}), [FakeAttempt(ended=None, beat=beat)], outcome=None
    )
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [name.upper() for name in COLUMNS]
    assert len(lines) == 6
    (line,) = [line for line in lines if line.startswith(live)]
    assert line.split()[1:10] == ["running", "1", "running", "141/300", "47", "%", "1m08s", "100", "-"]
    assert main(["status", "-l", "team=agents", "-o", "json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["run"], record["progress"], record["message"]) == (live, 0.47, "loss 0.3")
    assert main(["status", "--state", "succeeded", "-o", "yaml"]) == 0
    assert capsys.readouterr().out.count("state: succeeded") == 4
    assert main(["status", "-l", "team=others"]) == 0
    assert "no runs with these" in capsys.readouterr().err


def test_status_of_one_run_has_its_attempts(pipeline: Pipeline, capsys: Capture) -> None:
    assert main(["status", "sft-"]) == 0  # a unique beginning
    out = capsys.readouterr().out
    assert "the machine was reclaimed" in out
    assert "preempted" in out
    assert f"logs: launcher logs {pipeline.sft}" in out
    assert main(["status", pipeline.sft, "-o", "json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert [attempt["reason"] for attempt in record["attempt_list"]] == ["preempted", "succeeded"]
    assert [attempt["checkpoint"] for attempt in record["attempt_list"]] == [100, 300]


def test_names_that_mean_nothing_or_too_much(pipeline: Pipeline, capsys: Capture) -> None:
    assert main(["status", "nothing-here"]) == 3
    assert main(["status", "e"]) == 2
    err = capsys.readouterr().err
    assert "nothing-here" in err
    assert "Traceback" not in err
    assert main(["status", f"{pipeline.group}/nothing"]) == 3
    assert "it has episodes, eval-after, eval-before, sft" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-l", "=x"], ["--state", "asleep"]])
def test_bad_options_are_bad_input(arguments: list[str], pipeline: Pipeline) -> None:
    try:
        code = main(["status", *arguments])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2


def test_watch_follows_until_all_have_ended(file_store: Store, pipeline: Pipeline, capsys: Capture) -> None:
    assert main(["status", pipeline.group, "--watch"]) == 0
    assert capsys.readouterr().out.count("succeeded, after") == 4
    assert main(["status", "--watch"]) == 0
    assert "nothing to watch" in capsys.readouterr().err
    attempt = FakeAttempt(reason=Reason.USER_ERROR, logs={"main-0": {0: b"KeyError\n"}})
    bad = write_run(file_store, fake_job("bad"), [attempt], outcome="failed")
    assert main(["status", bad, "--watch"]) == 1
    assert "| KeyError" in capsys.readouterr().err


def test_wait_is_the_outcome(file_store: Store, pipeline: Pipeline, capsys: Capture) -> None:
    assert main(["wait", pipeline.group]) == 0
    bad = write_run(file_store, fake_job("bad"), [FakeAttempt(reason=Reason.USER_ERROR, code=3)], outcome="failed")
    assert main(["wait", bad, pipeline.data]) == 1
    assert f"{bad} failed (user_error) after 1m00s" in capsys.readouterr().out


def test_wait_gives_up_and_says_what_is_left(file_store: Store, capsys: Capture) -> None:
    live = write_run(file_store, fake_job("live"), [FakeAttempt(ended=None)], outcome=None)
    assert main(["wait", live, "--timeout", "0.2s"]) == 1
    assert f"still {live} starting" in capsys.readouterr().err


def test_wait_returns_when_the_run_ends(file_store: Store) -> None:
    live = write_run(file_store, fake_job("live"), [FakeAttempt(ended=None)], outcome=None)
    timer = threading.Timer(0.3, finish, (file_store, live))
    timer.start()
    assert main(["wait", live, "--timeout", "30s"]) == 0
    timer.join()


def test_results_show_before_after_and_the_difference(pipeline: Pipeline, capsys: Capture, tmp_path: Path) -> None:
    assert main(["results", pipeline.group]) == 0
    out = capsys.readouterr().out
    assert out.index("eval-before") < out.index("eval-after")
    assert "eval-after against eval-before: success +" in out
    assert "1 left out" in out
    for run in (pipeline.data, pipeline.before, pipeline.sft, pipeline.after):
        assert run in out
    assert main(["results", pipeline.group, "-o", "json", "--file", str(tmp_path / "deep" / "r.json")]) == 0
    rows = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert [row["run"] for row in rows] == [pipeline.before, pipeline.after]
    assert rows[1]["infra_failures"] == 1


def test_results_that_cannot_be_written_are_bad_input(pipeline: Pipeline, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main(["results", pipeline.group, "--file", str(tmp_path / "file" / "r.csv"), "-o", "csv"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_compare_two_runs_and_one_group(file_store: Store, pipeline: Pipeline, capsys: Capture) -> None:
    assert main(["compare", pipeline.before, pipeline.after]) == 0
    out = capsys.readouterr().out
    assert "exact McNemar p < 0.0001" in out
    assert "login / task-1 / seed 17" in out
    assert main(["compare", f"{pipeline.group}/eval-before", f"{pipeline.group}/eval-after", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["pairs"], found["left_out"]) == (29, 1)
    assert found["infra_b"] == [{"benchmark": "login", "task_id": "task-1", "seed": "17"}]
    assert main(["compare", pipeline.group]) == 0
    assert "success on 30 tasks of login 1" in capsys.readouterr().out
    assert main(["compare", pipeline.before, pipeline.sft]) == 3
    assert "it is not an evaluation" in capsys.readouterr().err


def test_a_failed_evaluation_is_not_left_out_of_a_comparison(file_store: Store, capsys: Capture) -> None:
    outputs = {"results": Output()}
    good = write_run(
        file_store, fake_job("good", outputs=outputs), [FakeAttempt(outputs={"results": eval_files([True])})]
    )
    bad = write_run(
        file_store, fake_job("bad", outputs=outputs), [FakeAttempt(reason=Reason.DEADLINE)], outcome="failed"
    )
    group = write_group(file_store, [good, bad])
    assert main(["compare", good, bad]) == 3
    assert f"{bad} has no results: it is failed (deadline)" in capsys.readouterr().err
    assert main(["compare", group]) == 3
    assert main(["results", group]) == 0
    assert f"{bad}: deadline" in capsys.readouterr().out


def test_logs_of_ranks_attempts_and_tails(file_store: Store, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    role = Role(command=("x",), replicas=2)
    job = fake_job("pair", roles={"main": role})
    first = FakeAttempt(reason=Reason.LOST, logs={"main-0": {0: b"old\n"}})
    logs = {"main-0": {0: b"one\ntwo\n", 8: b"three\n"}, "main-1": {0: b"other\n", 9: b"end"}}
    run = write_run(file_store, job, [first, FakeAttempt(logs=logs)])

    def shown(*arguments: str) -> bytes:
        assert main(["logs", *arguments]) == 0
        return capfdbinary.readouterr().out

    assert shown(run) == (
        b"main-0 | one\nmain-0 | two\nmain-0 | three\nmain-1 | other\nmain-1 | [3 bytes of this log are missing]\n"
        b"main-1 | end\n"
    )
    assert shown(run, "--rank", "0") == b"one\ntwo\nthree\n"
    assert shown(run, "--rank", "0", "--tail", "1") == b"three\n"
    assert shown(run, "--rank", "0", "-n", "1") == b"three\n"  # as of tail
    assert shown(run, "--previous") == b"main-0 | old\n"
    assert shown(run, "--attempt", "1", "--rank", "0") == b"old\n"
    assert main(["logs", run, "--attempt", "7"]) == 3
    assert main(["logs", run, "--role", "server"]) == 3
    assert b"it has main-0, main-1" in capfdbinary.readouterr().err


def test_logs_are_the_programs_bytes(file_store: Store, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    body = bytes(range(256)) * 40 + b"\n" + b"x" * 300_000  # binary, and a line longer than any buffer
    run = write_run(file_store, fake_job("binary"), [FakeAttempt(logs={"main-0": {0: body}})])
    assert main(["logs", run]) == 0
    assert capfdbinary.readouterr().out == body


def test_following_logs_sees_new_bytes_and_the_next_attempt(file_store: Store) -> None:
    job = fake_job("live")
    logs = {"main-0": {0: b"begin\n"}}
    run = write_run(file_store, job, [FakeAttempt(ended=None, logs=logs)], outcome=None)
    keys = RunKeys(run)

    command = [sys.executable, "-m", "launcher.cli", "logs", run, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out = b""

        def comes(text: bytes) -> None:
            nonlocal out
            assert process.stdout is not None
            while not out.endswith(text):
                if not select.select([process.stdout], [], [], HANGS)[0]:
                    process.kill()
                more = process.stdout.read(1)
                assert more, out
                out += more

        comes(b"begin\n")
        file_store.put(keys.attempt(1).log_piece("main-0", 6), b"on\ncut o")
        comes(b"on\n")
        write_attempt(file_store, job, run, 2, FakeAttempt(ended=None, logs={"main-0": {0: b"again\n"}}))
        comes(b"again\n")
        file_store.put(keys.attempt(2).log_piece("main-0", 6), b"done\n")
        comes(b"done\n")
        finish(file_store, run)
        assert process.stdout.read() == b""
        err = process.stderr.read()
    assert process.returncode == 0
    assert out in (b"begin\non\ncut oagain\ndone\n", b"begin\non\ncut o\nagain\ndone\n")
    assert b"attempt 2" in err


class LiveBackend:
    """A backend on which one run runs, whose output comes in parts."""

    def __init__(self, store: Store, run: str, chunks: list[bytes]) -> None:
        self.store, self.run, self.chunks = store, run, chunks
        self.active = True

    def look_up(self, run: str) -> BackendObservation | None:
        return BackendObservation(Handle(run, "local", run, ""), True) if self.active else None

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        assert (handle.run, role, rank, previous) == (self.run, "main", 0, False)
        yield from self.chunks
        finish(self.store, self.run)
        self.active = False


def test_a_run_on_this_machine_is_followed_live(
    file_store: Store, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has only the beginning yet; the offsets of both are the same."""
    monkeypatch.setattr("launcher.cli.printing.tailing.POLL", 0.02)
    attempt = FakeAttempt(ended=None, logs={"main-0": {0: b"one\ntwo\n"}})
    run = write_run(file_store, fake_job("live"), [attempt], outcome=None)
    backend = LiveBackend(file_store, run, [b"one\n", b"two\nth", b"ree\nfour"])
    monkeypatch.setattr(sys.modules["launcher.verbs.ask_backend"], "backends", lambda profile: lambda name: backend)
    assert main(["logs", run, "--follow", "--tail", "1"]) == 0
    assert capfdbinary.readouterr().out == b"two\nthree\nfour"


class BreakingBackend(LiveBackend):
    """A live stream that breaks off; the run goes on without it."""

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        yield from self.chunks
        key = RunKeys(self.run).attempt(1)
        self.store.put(key.log_piece("main-0", 8), b"three\nfour\n")
        finish(self.store, self.run)
        self.active = False
        raise Unreachable("the log broke off")


@pytest.mark.parametrize("chunks", [[], [b"one\n"], [b"one\ntwo\n", b"thr"]])
def test_a_live_stream_that_breaks_is_taken_up_from_the_store(
    chunks: list[bytes], file_store: Store, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.cli.printing.tailing.POLL", 0.02)
    attempt = FakeAttempt(ended=None, logs={"main-0": {0: b"one\ntwo\n"}})
    run = write_run(file_store, fake_job("live"), [attempt], outcome=None)
    backend = BreakingBackend(file_store, run, chunks)
    monkeypatch.setattr(sys.modules["launcher.verbs.ask_backend"], "backends", lambda profile: lambda name: backend)
    assert main(["logs", run, "--follow"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out.replace(b"thr\nee", b"three") == b"one\ntwo\nthree\nfour\n"
    assert b"continuing from the store" in captured.err


def test_report_writes_a_page(pipeline: Pipeline, capsys: Capture, tmp_path: Path) -> None:
    assert main(["report", pipeline.group, "--file", "out/page.html"]) == 0
    assert capsys.readouterr().out.strip() == "out/page.html"
    assert (tmp_path / "out" / "page.html").read_text("utf-8").startswith("<!doctype html>")
    assert main(["report", pipeline.group, "--file", "/dev/null/x.html"]) == 2


def test_every_verb_has_help_with_an_example(capsys: Capture) -> None:
    for verb in ("status", "wait", "logs", "results", "compare", "report"):
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert f"example:\n  launcher {verb}" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error(pipeline: Pipeline) -> None:
    command = f"{sys.executable} -m launcher.cli status -o json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, env=os.environ, timeout=60)
    assert done.stderr == b""
    assert done.returncode == 0
