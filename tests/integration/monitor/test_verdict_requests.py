"""Who may judge: nobody without --allow-changes, no other site, and nothing but a verdict with a reason."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlencode

from launcher.store.file import FileStore
from tests.integration.monitor.served import Answer, Monitor
from tests.integration.monitor.test_security import links
from tests.support.waiting import until
from tests.unit.monitor.test_ingest import evaluation

GOOD = {"verdict": "failed", "reason": "It did not."}


def post(monitor: Monitor, path: str, body: bytes | dict[str, str], **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else urlencode(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", monitor.port, timeout=120)
    told = {"Cookie": monitor.cookie, "Content-Type": "application/x-www-form-urlencoded", **headers}
    connection.request("POST", path, data, told)
    answer = connection.getresponse()
    found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    connection.close()
    return found


def rollouts(monitor: Monitor) -> list[str]:
    until(lambda: links(monitor.ask("/search?q=task").text, "rollouts"))
    return links(monitor.ask("/search?q=task").text, "rollouts")


def test_a_verdict_is_only_taken_from_the_page_itself(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    evaluation(store)
    reading = Monitor(tmp_path / "reading", store.url)
    path = rollouts(reading)[0]
    assert post(reading, f"{path}/verdict", GOOD, Origin=reading.base).status == 405
    assert "form" not in reading.ask(path).text.partition("<main")[2]
    reading.stop()
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    path = rollouts(monitor)[0]
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert post(monitor, f"{path}/verdict", GOOD, **headers).status == 403
    assert post(monitor, f"{path}/verdict", GOOD, Origin=monitor.base, Cookie="").status == 401
    assert monitor.ask(f"{path}/verdict").status == 405
    bad = ({}, {"verdict": "maybe", "reason": "x"}, {"verdict": "failed"}, {"verdict": "failed", "reason": " "},
           {"verdict": "solved", "reason": "x" * 2001})  # fmt: skip
    for body in bad:
        answer = post(monitor, f"{path}/verdict", body, Origin=monitor.base)
        assert answer.status == 422
        assert "Traceback" not in answer.text
    assert post(monitor, f"{path}/verdict", b"x" * 100_000, Origin=monitor.base).status == 413
    assert post(monitor, f"{path}/verdict", b"\xff\xfe=%ff&verdict=%00", Origin=monitor.base).status == 422
    for missing in ("/rollouts/1/verdict", "/rollouts/..%2f/verdict", "/rollouts/99999999999999999999/verdict"):
        assert post(monitor, missing, GOOD, Origin=monitor.base).status == 404
    assert list(store.scan("verdicts/")) == []
    done = post(monitor, f"{path}/verdict", {**GOOD, "reason": "<script>alert(1)</script>"}, Origin=monitor.base)
    assert (done.status, done.headers["hx-refresh"]) == (200, "true")
    assert len(list(store.scan("verdicts/"))) == 1
    text = monitor.ask(path).text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert(1)" not in text + monitor.ask("/verdicts").text
    monitor.stop()


def test_behind_a_proxy_nobody_judges(tmp_path: Path) -> None:
    """The monitor knows the user whose process it is, and not the person in front of the proxy."""
    store = FileStore(tmp_path / "store", sync=False)
    evaluation(store)
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes", "--behind", "slipway.example.com")
    path = rollouts(monitor)[0]
    proxied = {"Host": "slipway.example.com", "X-Slipway-Token": monitor.token, "Origin": "https://slipway.example.com"}
    answer = post(monitor, f"{path}/verdict", GOOD, **proxied)
    assert (answer.status, "who judges" in answer.text) == (403, True)
    page = monitor.ask(path, known=False, host="slipway.example.com", X_Slipway_Token=monitor.token)
    assert page.status == 200
    assert "judge" not in page.text.partition("<main")[2]
    assert "Your verdict" in monitor.ask(path).text
    assert list(store.scan("verdicts/")) == []
    monitor.stop()


def test_retry_makes_a_new_run_and_says_what_stands_against_it(tmp_path: Path) -> None:
    from tests.support.fakerun import FakeAttempt, fake_job, write_run

    store = FileStore(tmp_path / "store", sync=False)
    from launcher.reasons import Reason

    failed = [FakeAttempt(reason=Reason.USER_ERROR, code=1)]
    run = write_run(store, fake_job("fails", store=store.url), failed, outcome="failed")
    write_run(store, fake_job("works", store=store.url))
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    until(lambda: run in monitor.ask("/").text and "works-" in monitor.ask("/").text)
    text = monitor.ask("/").text
    assert text.count("Retry</button>") == 1
    path = text.partition('/retry"')[0].rpartition('"')[2]
    answer = post(monitor, f"{path}/retry", b"", Origin=monitor.base)
    assert answer.status == 200
    assert "fails-" in answer.text
    assert run not in answer.text
    until(lambda: monitor.ask("/").text.count('data-run="fails-') == 2)
    monitor.stop()
