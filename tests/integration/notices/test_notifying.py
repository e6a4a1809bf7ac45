"""What people are told, by which channel, and that it is told once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from eval.scores.stats import rate
from eval.scores.summary import row
from eval.scores.summary_file import draw
from launcher.errors import NotFound
from launcher.notices import ledger
from launcher.protocol.records import Beat, Deleted
from launcher.reasons import Reason
from launcher.spec.check.notify import NoticeChannel
from launcher.spec.model import Budget, Limits, Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import NoticeKeys, RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.notify import Notified, Notifier
from tests.support.crashing import CrashingStore
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run
from tests.support.receiver import SECRET_PATH, Receiver

URL = "TEAM_URL"
TEAM = {"team": NoticeChannel(webhook=URL)}


def just_now(**changes: Any) -> FakeAttempt:
    return FakeAttempt(**{"started": time.time() - 60, "ended": time.time() - 1, **changes})


def write_failed(store: Store, name: str = "train", **changes: Any) -> str:
    attempt = just_now(reason=Reason.USER_ERROR, message="exit code 3 <& done>", code=3)
    return write_run(store, fake_job(name, **changes), [attempt], outcome="failed")


def notifier(store: Store, slack: Receiver, by: Mapping[str, NoticeChannel] = TEAM) -> Notifier:
    return Notifier(store, by, {URL: slack.url}.__getitem__)


def test_an_end_is_told_once_however_often_it_is_looked_at(store: Store, slack: Receiver, cache: Cache) -> None:
    failed = write_failed(store)
    done = write_run(store, fake_job("eval", labels={"team": "x"}), [just_now()])
    write_run(store, fake_job("old"))  # ended months ago
    first = notifier(store, slack).once(cache)
    assert {(row.run, row.event, row.channel, row.did) for row in first} == {
        (failed, "ended", "team", "sent"),
        (done, "ended", "team", "sent"),
    }
    # Slack's three characters, and the reason of a failure but not of a success
    assert sorted(slack.texts()) == sorted(
        [f"{done} succeeded", f"{failed} failed (user_error: exit code 3 &lt;&amp; done&gt;)"]
    )
    assert notifier(store, slack).once(cache) == []
    assert len(slack.arrived) == 2


def test_a_run_whose_outputs_were_deleted_is_not_told_again(store: Store, slack: Receiver, cache: Cache) -> None:
    """`launcher rm` takes the records of what was told with it, and leaves result.json."""
    run = write_failed(store)
    assert len(notifier(store, slack).once(cache)) == 1
    store.create(RunKeys(run).deleted, msgspec.json.encode(Deleted("me", time.time(), "n", "rm")))
    store.delete([meta.key for meta in store.scan(RunKeys(run).notices)])
    assert notifier(store, slack).once(cache) == []
    assert len(slack.arrived) == 1


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (NoticeChannel(webhook=URL), {"train", "eval"}),
        (NoticeChannel(webhook=URL, on=("failed",)), {"train"}),
        (NoticeChannel(webhook=URL, on=("budget", "collapse")), set()),
        (NoticeChannel(webhook=URL, labels={"team": "x"}), {"eval"}),
        (NoticeChannel(webhook=URL, labels={"team": "y"}), set()),
    ],
)
def test_a_channel_says_what_it_wants(
    store: Store, slack: Receiver, cache: Cache, channel: NoticeChannel, told: set[str]
) -> None:
    write_failed(store)
    write_run(store, fake_job("eval", labels={"team": "x"}), [just_now()])
    notifier(store, slack, {"one": channel}).once(cache)
    assert {text.partition("-")[0] for text in slack.texts()} == told


def test_the_end_of_an_evaluation_tells_its_figure(store: Store, slack: Receiver, cache: Cache) -> None:
    files = eval_files([True] * 3 + [False] + [None])
    run = write_run(store, fake_job("eval", outputs={"results": Output()}), [just_now(outputs={"results": files})])
    notifier(store, slack).once(cache)
    assert slack.texts() == [f"{run} succeeded: login success 75.0 % (30.1 – 95.4 %) of 4, 1 infra"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'[{"benchmark": "b", "metric": "success", "value": null}]', b'[{"benchmark": 1}]', b"\xff"]
)
def test_an_end_is_told_without_a_figure(store: Store, slack: Receiver, cache: Cache, body: bytes) -> None:
    job = fake_job("eval", outputs={"results": Output()})
    run = write_run(store, job, [just_now(outputs={"results": {"summary.json": body}})])
    notifier(store, slack).once(cache)
    assert slack.texts() == [f"{run} succeeded"]


def test_a_collapse_is_told_beside_the_end(store: Store, slack: Receiver, cache: Cache) -> None:
    """The file is the one that the trainings write."""
    from training.common.collapse import write_collapse

    folder = Path(store.url.removeprefix("file://")).parent / "out"
    (folder / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    reason = {"measure": "kl", "step": 24, "generations": 3, "text": "kl was above 0.5 for 3 generations in a row"}
    assert write_collapse(reason, folder, good=12) == "checkpoints/checkpoint-10"
    body = (folder / "results" / "collapse.json").read_bytes()
    job = fake_job("grpo", outputs={"results": Output()})
    run = write_run(store, job, [just_now(outputs={"results": {"collapse.json": body}})])
    rows = notifier(store, slack).once(cache)
    assert [row.event for row in rows] == ["ended", "collapse"]
    assert slack.texts()[1] == (
        f"{run} collapsed in training: kl was above 0.5 for 3 generations in a row; "
        "the checkpoint before it: checkpoints/checkpoint-10"
    )


@pytest.mark.parametrize("body", [b"\xff", b"[1]", b'{"text": "\\u001b[31m" }', b"[" * 100_000])
def test_a_hostile_collapse_is_told_harmlessly(store: Store, slack: Receiver, cache: Cache, body: bytes) -> None:
    job = fake_job("grpo", outputs={"results": Output()})
    write_run(store, job, [just_now(outputs={"results": {"collapse.json": body}})])
    notifier(store, slack).once(cache)
    assert len(slack.texts()) == 2
    assert all(text.isprintable() for text in slack.texts())


@pytest.mark.parametrize("damaged", ["results/collapse.json", ".manifest.json"])
def test_an_end_is_told_although_its_results_are_damaged(
    store: Store, slack: Receiver, cache: Cache, damaged: str
) -> None:
    """A disk or a hand damages the results: what the final record says is told all the same, once."""
    job = fake_job("grpo", outputs={"results": Output()})
    run = write_run(store, job, [just_now(outputs={"results": {"collapse.json": b'{"text": "kl"}'}})])
    (key,) = [meta.key for meta in store.scan(RunKeys(run).prefix) if meta.key.endswith(damaged)]
    store.put(key, b"{")
    first = notifier(store, slack).once(cache)
    assert ("ended", "sent") in {(row.event, row.did) for row in first}
    assert f"{run} succeeded" in slack.texts()
    assert notifier(store, slack).once(cache) == []


def test_a_budget_is_told_at_80_percent(store: Store, slack: Receiver, cache: Cache) -> None:
    """20 an hour for one hour, 0.5 minutes of grace twice and a margin kept back: 3,520 s or a little less are paid."""
    limits = Limits(budget=Budget(amount=20.0, currency="USD", hourly=20.0))
    assert limits.paid_seconds is not None
    for share, name in ((0.7, "below"), (0.85, "above")):
        started = time.time() - share * limits.paid_seconds
        beat = Beat(seq=9, phase="running", held=share * limits.paid_seconds)
        attempt = FakeAttempt(started=started, ended=None, beat=beat)
        write_run(store, fake_job(name, limits=limits), [attempt], outcome=None)
    rows = notifier(store, slack).once(cache)
    assert [(row.run.partition("-")[0], row.event) for row in rows] == [("above", "budget")]
    assert slack.texts()[0].endswith("has spent 85 % of its budget and is running")


def test_two_senders_at_once_tell_it_once(store: Store, slack: Receiver, tmp_path: Path) -> None:
    runs = [write_failed(store, f"train{number}") for number in range(8)]
    start = threading.Barrier(4)

    def one(number: int) -> None:
        start.wait()
        with Cache(tmp_path / f"cache{number}.sqlite") as own:
            notifier(store, slack).once(own)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(slack.keys()) == len(set(slack.keys())) == len(runs)


def _killed_at(
    store: Store, slack: Receiver, run: str, at: int, when: Any, cache: Path
) -> tuple[bool, list[tuple[str, str]]]:
    """A pass in a process of its own that gets SIGKILL at its at-th request to the store. Returns (whether it was
    killed, what it had asked)."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:

            def die() -> NoReturn:
                os.write(write_end, json.dumps(crashing.operations).encode())
                os.kill(os.getpid(), signal.SIGKILL)
                raise AssertionError

            own_store = FileStore(Path(store.url.removeprefix("file://")), sync=False)  # as another process has it
            crashing = CrashingStore(own_store, at, when, die)
            with Cache(cache) as own:
                notifier(crashing, slack).once(own, [run])
            os.write(write_end, json.dumps(crashing.operations).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        asked, _ = json.JSONDecoder().raw_decode(pipe.read().decode())  # threads that also meet the end write again
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status), [(method, key) for method, key in asked]


def test_a_sender_killed_anywhere_leaves_nothing_untold(
    store: Store, slack: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once, and twice only where the sender died after it had sent and before it could say so."""
    monkeypatch.setattr(ledger, "OVERTAKEN", -1.0)  # the time after which another sender takes over has passed
    twice = []
    for when in ("before", "after"):
        at = 0
        while True:
            slack.arrived.clear()
            run = write_failed(store, f"{when}{at}")
            killed, asked = _killed_at(store, slack, run, at, when, tmp_path / f"{when}{at}.sqlite")
            with Cache(tmp_path / f"{when}{at}-next.sqlite") as own:
                notifier(store, slack).once(own, [run])
            mine = [one for one in slack.arrived if run in one.body["text"]]
            assert mine, (when, at, asked)
            assert len({one.key for one in mine}) == 1
            if len(mine) > 1:
                twice.append((when, *asked[-1]))
                assert len(mine) == 2
            if not killed:
                break
            at += 1
    # only the request that would have said that it was sent, and before it took effect
    assert [(when, method, key.rpartition("/")[2]) for when, method, key in twice] == [
        ("before", "create", "ended.json")
    ]


def test_a_receiver_that_fails_is_asked_again_with_the_same_key_and_then_given_up(
    store: Store, slack: Receiver, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_failed(store)
    slack.answer = lambda number: 503
    one = notifier(store, slack)
    assert one.once(cache) == [Notified(run, "ended", "team", "unsent", "the receiver answered 503")]
    assert one.once(cache) == []  # its pause is not over
    monkeypatch.setattr(ledger, "PAUSE", -1.0)
    said = [row.did for _ in range(8) for row in one.once(cache)]
    assert said == ["unsent"] * 3 + ["given up"]
    assert len(slack.keys()) == ledger.TRIES
    assert len(set(slack.keys())) == 1
    # another process remembers nothing: what is over stands in the store
    assert notifier(store, slack).once(cache) == []
    assert len(slack.keys()) == ledger.TRIES


def test_a_receiver_that_recovers_gets_it(
    store: Store, slack: Receiver, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PAUSE", -1.0)
    write_failed(store)
    slack.answer = lambda number: 500 if number == 1 else 200
    one = notifier(store, slack)
    assert [row.did for _ in range(4) for row in one.once(cache)] == ["unsent", "sent"]


def test_a_sender_that_slept_sends_nothing(store: Store, slack: Receiver, cache: Cache) -> None:
    """A laptop that was shut between the record and the message: another sender has taken over by then."""
    run = write_failed(store)
    times = iter((0.0, ledger.PROMPT + 1))
    from launcher.notices.events import ended

    notice = ended(run, "failed", "user_error", "", store.url, {})
    sent: list[str] = []
    told = ledger.send_notice(
        store, notice, "team", lambda one: sent.append(one.key) or "", {}, clock=lambda: next(times)
    )
    assert (told[0], sent) == (ledger.BUSY, [])
    assert store.head(NoticeKeys(run, "ended", "team", 1).ended) is None


def test_no_record_and_no_row_holds_an_address(store: Store, slack: Receiver, cache: Cache) -> None:
    """The answers of a refused connection, a redirect, no name, no scheme: none quotes the address."""
    write_failed(store)
    slack.answer = lambda number: 302
    marker = "x9-secret-part"
    bad = {
        "redirect": slack.url,
        "closed": f"http://127.0.0.1:9/{marker}",
        "nowhere": f"https://{marker}.invalid/",
        "odd": f"ftp://127.0.0.1/{marker}",
        "broken": f"http://[{marker}/",
        "control": f"http://127.0.0.1/{marker}\n",
        "port": f"http://127.0.0.1:{marker}/",
    }
    by = {name: NoticeChannel(webhook=name.upper()) for name in bad}
    rows = Notifier(store, by, lambda name: bad[name.lower()]).once(cache)
    assert {row.channel for row in rows} == set(bad)
    assert {row.did for row in rows} == {"unsent"}
    kept = b"".join(store.get(meta.key) for meta in store.scan("runs/"))
    assert marker not in str(rows)
    assert marker.encode() not in kept


def test_a_receiver_that_answers_byte_by_byte_is_left(
    store: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part comes in time, and the whole never does: another sender would take over meanwhile."""
    monkeypatch.setattr("launcher.notices.channels.WHOLE", 0.5)
    write_failed(store)
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not over.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=drip, args=(listener,))
        receiver.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            rows = Notifier(store, TEAM, lambda name: url).once(cache)
        finally:
            over.set()
            receiver.join()
    assert [(row.did, row.detail) for row in rows] == [("unsent", "no whole answer within 0.5 s")]


def test_a_secret_that_is_not_here_is_said(store: Store, cache: Cache) -> None:
    run = write_failed(store)

    def missing(name: str) -> str:
        raise NotFound(f"secret {name}: is not set on this machine")

    rows = Notifier(store, TEAM, missing).once(cache)
    assert rows == [Notified(run, "ended", "team", "unsent", "secret TEAM_URL: is not set on this machine")]


def test_a_command_reads_the_event(store: Store, cache: Cache, tmp_path: Path) -> None:
    script = "import json,os,sys; json.dump([json.load(sys.stdin), os.environ['SLIPWAY_NOTICE_KEY']], open('got', 'w'))"
    argv = (sys.executable, "-c", script.replace("'got'", repr(str(tmp_path / "got"))))
    run = write_failed(store)
    rows = Notifier(store, {"own": NoticeChannel(command=argv)}, str).once(cache)
    assert [row.did for row in rows] == ["sent"]
    told, key = json.loads((tmp_path / "got").read_text())
    assert (told["run"], told["event"], told["state"], told["key"]) == (run, "ended", "failed", key)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("false",), "false ended with exit code 1"),
        (("/no/such",), "/no/such cannot be started: No such file or directory"),
    ],
)
def test_a_command_that_fails(store: Store, cache: Cache, argv: tuple[str, ...], why: str) -> None:
    write_failed(store)
    rows = Notifier(store, {"own": NoticeChannel(command=argv)}, str).once(cache)
    assert [(row.did, row.detail) for row in rows] == [("unsent", why)]


def test_mail_goes_through_the_systems_sendmail(
    store: Store, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    run = write_failed(store)
    rows = Notifier(store, {"own": NoticeChannel(mail=("a@example.com", "b@example.com"))}, str).once(cache)
    assert [row.did for row in rows] == ["sent"]
    mail = message_from_bytes((tmp_path / "mail").read_bytes(), policy=policy.default)
    assert (tmp_path / "words").read_text().split() == ["-i", "-t"]
    assert mail["To"] == "a@example.com, b@example.com"
    assert mail["Subject"] == f"{run} failed (user_error: exit code 3 <& done>)"
    assert mail["Message-ID"].endswith("@slipway>")
    assert f"launcher status {run}" in mail.get_content()


TOKEN = "xoxb-not-a-real-token"
BOT = {"team": NoticeChannel(slack="C0123456789", token="BOT_TOKEN")}


@pytest.fixture
def api(slack: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Slack's Web API, as https://docs.slack.dev/reference/methods describes the three methods."""
    base = slack.url.removesuffix(SECRET_PATH)
    upload = {"ok": True, "upload_url": f"{base}/upload/v1/ABC", "file_id": "F044GKUHN9Z"}
    answers: dict[str, Any] = {"/api/files.getUploadURLExternal": upload}
    slack.says = lambda path: json.dumps(answers.get(path, {"ok": True})).encode()
    monkeypatch.setattr("launcher.notices.channels.SLACK", f"{base}/api/")
    return slack


def measured(store: Store, picture: bytes | None = None) -> tuple[str, bytes]:
    """A run that has evaluated, and the picture that it kept: one that `eval` draws."""
    files = eval_files([True] * 3 + [False] + [None])
    if picture is None:
        picture = draw(
            [row("success", rate([3], [4]), benchmark="login", version="1", split="test", infra=1, seed=0, agent="a")]
        )
        assert picture is not None
    files["summary.png"] = picture
    job = fake_job("eval", outputs={"results": Output()})
    return write_run(store, job, [just_now(outputs={"results": files})]), picture


def test_a_slack_bot_posts_the_figure_with_its_picture(store: Store, api: Receiver, cache: Cache) -> None:
    run, picture = measured(store)
    rows = Notifier(store, BOT, {"BOT_TOKEN": TOKEN}.__getitem__).once(cache)
    assert [(row.did, row.channel) for row in rows] == [("sent", "team")]
    asked, uploaded, posted = api.arrived
    assert (asked.path, asked.body["length"]) == ("/api/files.getUploadURLExternal", str(len(picture)))
    assert (uploaded.path, uploaded.body, uploaded.authorization) == ("/upload/v1/ABC", picture, None)
    assert posted.path == "/api/files.completeUploadExternal"
    assert json.loads(posted.body["files"]) == [{"id": "F044GKUHN9Z", "title": run}]
    assert posted.body["channel_id"] == "C0123456789"
    assert posted.body["initial_comment"] == f"{run} succeeded: login success 75.0 % (30.1 – 95.4 %) of 4, 1 infra"
    assert [one.authorization for one in (asked, posted)] == [f"Bearer {TOKEN}"] * 2
    kept = b"".join(store.get(meta.key) for meta in store.scan("runs/"))
    assert TOKEN.encode() not in kept
    assert TOKEN not in str(rows)


@pytest.mark.parametrize("picture", [b"<svg>", b"\x89PNG\r\n\x1a\n" + bytes(1_000_000)], ids=["no PNG", "too large"])
def test_a_picture_that_is_none_is_not_sent(store: Store, api: Receiver, cache: Cache, picture: bytes) -> None:
    run, _ = measured(store, picture=picture)
    Notifier(store, BOT, {"BOT_TOKEN": TOKEN}.__getitem__).once(cache)
    text = f"{run} succeeded: login success 75.0 % (30.1 – 95.4 %) of 4, 1 infra"
    sent = [("/api/chat.postMessage", {"channel": "C0123456789", "text": text})]
    assert [(one.path, one.body) for one in api.arrived] == sent


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b'{"ok": false, "error": "not_in_channel"}', "files.getUploadURLExternal: not_in_channel"),
        (b"<html>sign in", "files.getUploadURLExternal: the answer is no JSON object"),
        (b'{"ok": true}', "no connection: ValueError"),
    ],
)
def test_what_slack_refuses_is_said(store: Store, api: Receiver, cache: Cache, says: bytes, why: str) -> None:
    """Slack answers 200 to what it refuses."""
    measured(store)
    api.says = lambda path: says
    rows = Notifier(store, BOT, {"BOT_TOKEN": TOKEN}.__getitem__).once(cache)
    assert [(row.did, row.detail) for row in rows] == [("unsent", why)]


def test_a_mail_has_the_picture(store: Store, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/mail\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    _, picture = measured(store)
    Notifier(store, {"own": NoticeChannel(mail=("a@example.com",))}, str).once(cache)
    mail = message_from_bytes((tmp_path / "mail").read_bytes(), policy=policy.default)
    assert [(part.get_content_type(), part.get_content()) for part in mail.iter_attachments()] == [
        ("image/png", picture)
    ]


def test_a_dry_run_sends_and_writes_nothing(store: Store, slack: Receiver, cache: Cache) -> None:
    run = write_failed(store)
    before = [meta.key for meta in store.scan("runs/")]
    rows = notifier(store, slack).once(cache, plan=True)
    assert [(row.run, row.did) for row in rows] == [(run, "would be sent")]
    assert (slack.arrived, [meta.key for meta in store.scan("runs/")]) == ([], before)
