"""Who may ask the monitor, and what hostile runs, agents and pages get out of it: nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from eval.desktops.viewing import listening
from launcher.protocol.records import Beat
from launcher.spec.code.own_files import own_files
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.conftest import Watched
from tests.integration.monitor.served import Monitor
from tests.support.fakerun import FakeAttempt, episode_files, fake_job, png, write_run
from tests.support.waiting import until

PATHS = ("/", "/now/runs", "/evaluations", "/search?q=x", "/stream", "/static/monitor.js", "/runs/1", "/nothing")


def links(text: str, folder: str) -> list[str]:
    return re.findall(rf'href="(/{folder}/[0-9]+)"', text)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_told(watched: Watched, path: str) -> None:
    for cookie in ("", "slipway-monitor=x", f"slipway-monitor-{watched.monitor.port}=wrong", '"; a=b'):
        answer = watched.monitor.ask(path, known=False, Cookie=cookie)
        assert answer.status == 401
        assert "launcher monitor" in answer.text
        assert watched.pipeline.sft not in answer.text


def test_a_code_gives_the_token_as_a_cookie_and_leaves_the_address(watched: Watched) -> None:
    monitor = watched.monitor
    assert len(monitor.code) >= 32
    assert monitor.code != monitor.token
    answer = monitor.ask(f"/enter?code={monitor.code}", known=False)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    for wrong in ("", "x", monitor.code[:-1], monitor.code + "x", monitor.token, "%00", "%C3%A9"):
        path = f"/enter?code={wrong}&token={monitor.token}"
        refused = monitor.ask(path, known=False)
        assert refused.status == 401
        assert "set-cookie" not in refused.headers
    assert monitor.token not in monitor.ask("/").text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8640",
        "",
        "0.0.0.0",
        "[::1",
        "a@127.0.0.1",
    ],
)
def test_a_foreign_name_that_resolves_to_this_machine(watched: Watched, host: str) -> None:
    answer = watched.monitor.ask("/", host=host)
    assert answer.status in (400, 421)
    assert watched.pipeline.sft not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:9000"])
def test_names_of_this_machine(watched: Watched, host: str) -> None:
    """Another port as well: the page may be seen through `ssh -L`."""
    assert watched.monitor.ask("/", host=host).status == 200


def test_other_sites(watched: Watched) -> None:
    monitor = watched.monitor
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{monitor.port}",
        f"https://127.0.0.1:{monitor.port}",
    ):
        assert monitor.ask("/", Origin=origin).status == 403
    assert monitor.ask("/", Origin=monitor.base).status == 200
    assert monitor.ask("/static/icon.svg", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert monitor.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200


def test_it_only_reads(watched: Watched) -> None:
    run = links(watched.monitor.ask("/").text, "runs")[0]
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert watched.monitor.ask(f"{run}/cancel", method, Origin=watched.monitor.base).status == 405
    assert "Cancel" not in watched.monitor.ask(run).text


def test_a_change_is_only_taken_from_the_page_itself(apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    run = write_run(store, fake_job("waits"), [], outcome=None)
    until(lambda: run in monitor.ask("/").text)
    page = next(link for link in links(monitor.ask("/").text, "runs") if run in monitor.ask(link).text)
    assert "Cancel" in monitor.ask(page).text
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert monitor.ask(f"{page}/cancel", "POST", **headers).status == 403
    assert monitor.ask(f"{page}/cancel", "POST", known=False, Origin=monitor.base).status == 401
    assert monitor.ask(f"{page}/nothing", "POST", Origin=monitor.base).status == 404
    assert monitor.ask(f"{page}/cancel").status == 405
    assert store.head(RunKeys(run).cancel) is None
    done = monitor.ask(f"{page}/cancel", "POST", Origin=monitor.base)
    assert (done.status, done.text.strip()) == (200, "cancelled")
    assert store.head(RunKeys(run).cancel) is not None
    until(lambda: "cancelled" in monitor.ask(page).text)


def test_the_headers_of_every_answer(watched: Watched) -> None:
    for path in (*PATHS[:4], *PATHS[5:], "/enter?code=x"):
        headers = watched.monitor.ask(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../serve.py", "/static/..%2fserve.py", "/static/%2e%2e/%2e%2e/app.py", "/static/vendor/../../serve.py",
        "/static//etc/passwd", "/static/vendor", "/static/", "/runs/..%2f..%2fetc", "/runs/99999999999999999999",
        "/runs/-1", "/runs/1/log?attempt=../../x", "/rollouts/1/../../x.picture",
        "/rollouts/1/99999999999999999999.picture", "/rollouts/%00", "/runs/%E2%80%AE", "/runs/٣",
        "/evaluations/x", "/%ff",
    ],
)  # fmt: skip
def test_paths_that_lead_elsewhere(watched: Watched, path: str) -> None:
    answer = watched.monitor.ask(path.replace("٣", "%D9%A3"))
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "import " not in answer.text


def test_paths_in_parameters(watched: Watched) -> None:
    """A member or an attempt that the run does not have is nobody's log, whatever is in the store."""
    page = next(
        link for link in links(watched.monitor.ask("/").text, "runs") if watched.live in watched.monitor.ask(link).text
    )
    for query in ("member=../../../job.json", "member=main-0/../main-0", "attempt=2", "attempt=1&member=main-1"):
        answer = watched.monitor.ask(f"{page}/log?{query}")
        assert "No process of this run has begun" in answer.text
    assert "step 1" in watched.monitor.ask(f"{page}/log?attempt=1&member=main-0").text


def test_hostile_texts_are_shown_and_not_obeyed(watched: Watched) -> None:
    monitor = watched.monitor
    pages = [monitor.ask(path).text for path in ("/", "/search?q=" + "%3Cscript%3E", "/evaluations")]
    runs = links(pages[0], "runs")
    pages += [monitor.ask(f"{run}{part}").text for run in runs for part in ("", "/log", "/job")]
    for evaluation in links(pages[2], "evaluations"):
        table = monitor.ask(evaluation).text
        pages.append(table)
        pages += [monitor.ask(rollout).text for rollout in sorted(set(links(table, "rollouts")))[:4]]
    shown = "".join(pages)
    assert "&lt;script&gt;alert(2)&lt;/script&gt;" in shown
    assert "{{ 7*7 }}" in shown  # no template is made of a text
    assert "\\u202e" in shown
    for text in pages:
        assert "<script>" not in text
        assert "<img src=x" not in text
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert not re.search(r"\son[a-z]+=", re.sub(r"&[a-z#0-9]+;", "", re.sub(r">[^<]*<", "><", text)))
        assert 'style="' not in text
    log = next(text for text in pages if "\\x1b[31mred" in text or "over &lt;img" in text)
    assert "over &lt;img" in log
    assert "3,000 more characters" in log


@pytest.mark.ci
def test_a_log_line_of_100_megabytes(apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    body = b"first\n" + b"y" * 100_000_000 + b"\x1b]0;title\x07<b>\nlast\n"
    attempt = FakeAttempt(ended=None, beat=Beat(1, "running"), logs={"main-0": {0: body}})
    run = write_run(store, fake_job("talks"), [attempt], outcome=None)
    until(lambda: run in monitor.ask("/").text)
    page = next(link for link in links(monitor.ask("/").text, "runs") if run in monitor.ask(link).text)
    answer = monitor.ask(f"{page}/log")
    assert len(answer.body) < 200_000
    assert "more characters" in answer.text
    assert re.search(r"last\n</span></pre>\s*</div>\s*$", answer.text)
    resident = Path(f"/proc/{monitor.process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", resident)[1])  # type: ignore[index]
    assert peak < 500_000  # of the process as a whole: the line was not read


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that decodes to width * height pixels."""
    small = png(1, 1, [])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return small[:8] + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + small[33:]


PICTURES = {
    "000.png": bomb(60_000, 60_000),
    "001.png": b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc2\x00\x11\x08\xff\xff\xff\xff\x03" + b"\0" * 20,
    "002.png": b"GIF89a\xff\xff\xff\xff" + b"\0" * 20,
    "003.png": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
}


def test_pictures_that_are_bombs_or_none(apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    files = episode_files("e-0", True)
    files |= {f"episodes/e-0/{name}": body for name, body in PICTURES.items()}
    files["tasks.jsonl"] = json.dumps(
        {
            "benchmark": "b",
            "task_id": "bombs",
            "seed": 0,
            "success": True,
            "outcome": "scored",
            "episode": "episodes/e-0",
        }
    ).encode()
    run = write_run(store, fake_job("bombs", outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])
    until(
        lambda: (
            "bombs" in monitor.ask("/search?q=bombs").text and links(monitor.ask("/search?q=bombs").text, "rollouts")
        )
    )
    rollout = links(monitor.ask("/search?q=bombs").text, "rollouts")[0]
    for turn in range(4):
        answer = monitor.ask(f"{rollout}/{turn}.picture")
        assert answer.status == 415, turn
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"<svg" not in answer.body
    good = monitor.ask(f"{rollout}/4.picture")
    assert (good.status, good.headers["content-type"]) == (200, "image/png")
    assert good.body == files["episodes/e-0/004.png"]
    key = RunKeys(run).attempt(1).output("results") + "episodes/e-0/004.png"
    store.put(key, png(1, 1, []))
    assert "damaged" in monitor.ask(f"{rollout}/4.picture").text
    store.delete([key])
    assert monitor.ask(f"{rollout}/4.picture").status == 404


def test_the_browser_gets_a_file_with_a_code_that_is_good_once(tmp_path: Path) -> None:
    """The arguments of a program can be read by every user of the machine."""
    store = FileStore(tmp_path / "store", sync=False)
    write_run(store, fake_job("one"))
    downloads = tmp_path / "home" / "Downloads"
    downloads.mkdir(parents=True)
    (left := downloads / "slipway-monitor-0.html").write_text("of a monitor that was killed")
    os.utime(left, (0, 0))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$*" > {tmp_path}/asked\nmv {tmp_path}/asked {tmp_path}/arguments\n')
    browser.chmod(0o755)
    monitor = Monitor(tmp_path / "home", store.url, variables={"BROWSER": f"{browser} %s"})
    try:
        until((tmp_path / "arguments").exists)
        (page,) = downloads.iterdir()
        assert (tmp_path / "arguments").read_text() == page.as_uri()
        assert page.stat().st_mode & 0o777 == 0o600
        text = page.read_text()
        assert [*own_files(downloads, [page.name])] == [(page.name, page.name)]  # enters no overlay
        assert monitor.token not in text
        assert monitor.code not in text
        (path,) = set(re.findall(rf"{monitor.base}(/enter\?code=[\w-]+)", text))
        assert [monitor.ask(path, known=False).status for _ in range(2)] == [303, 401]
        assert [monitor.ask(f"/enter?code={monitor.code}", known=False).status for _ in range(2)] == [303, 303]
    finally:
        monitor.stop()
    assert not list(downloads.iterdir())


def test_the_token_is_in_no_log(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    write_run(store, fake_job("one"))
    (bad := RunKeys("bad-000000000000"))
    store.create(bad.job, b"{")
    monitor = Monitor(tmp_path / "home", store.url)
    until(lambda: "one-" in monitor.ask("/").text)
    monitor.ask(f"/enter?code={monitor.code}", known=False)
    monitor.ask(f"/nothing?code={monitor.code}")
    until(lambda: "bad-000000000000" in monitor.err.read_text())
    monitor.stop()
    assert monitor.token not in monitor.err.read_text()
    assert monitor.code not in monitor.err.read_text()
    assert monitor.out.read_text().count(monitor.code) == 1  # the address, for the user
    kept = {
        path
        for path in (tmp_path / "home").rglob("*")
        if path.is_file() and monitor.token.encode() in path.read_bytes()
    }
    assert kept == {tmp_path / "home" / "state" / "slipway" / "monitor" / "token"}
    private = tmp_path / "home" / "state" / "slipway" / "monitor"
    assert {path.stat().st_mode & 0o777 for path in private.iterdir()} == {0o600}
    assert (private / "monitor.sqlite").exists()
    assert private.stat().st_mode & 0o077 == 0


def test_it_listens_on_this_machine_only(watched: Watched) -> None:
    assert listening([watched.monitor.process.pid]) == {f"127.0.0.1:{watched.monitor.port}"}


def test_a_port_in_use_is_one_line(watched: Watched, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "launcher.cli", "monitor", "--no-browser", "--store", watched.store.url]
    done = subprocess.run(
        [*argv, "--port", str(watched.monitor.port)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert f"--port {watched.monitor.port}" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_a_stream_open(tmp_path: Path, sign: signal.Signals) -> None:
    import http.client

    store = FileStore(tmp_path / "store", sync=False)
    write_run(store, fake_job("one"))
    monitor = Monitor(tmp_path / "home", store.url)
    connection = http.client.HTTPConnection("127.0.0.1", monitor.port, timeout=60)
    connection.request("GET", "/stream", headers={"Cookie": monitor.cookie})
    stream = connection.getresponse()
    assert stream.status == 200
    assert stream.readline() == b"retry: 1000\n"
    monitor.stop(sign)
    assert "Traceback" not in monitor.err.read_text()
    connection.close()


def test_vendored_files_are_what_their_page_says() -> None:
    folder = Path(__file__).parents[3] / "launcher" / "monitor" / "server" / "static" / "vendor"
    told = dict(re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.M))
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in (".js", ".css")
    }
    assert told == found
    assert {path.name for path in folder.glob("*.LICENSE")} == {"htmx.LICENSE", "uPlot.LICENSE"}
