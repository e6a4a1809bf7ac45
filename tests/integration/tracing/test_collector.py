"""Traces of runs in a real OpenTelemetry collector (tools/otelcol, built from its Go modules)."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from launcher.reasons import Reason
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import START, FakeAttempt, fake_job, write_group, write_run
from tests.support.prometheus import built
from tests.support.s3 import free_port
from tests.support.waiting import until

SECRET = "the secret words of an answer"


def episode() -> dict[str, bytes]:
    """An evaluation's episode of two turns, the second of them not valid; times as eval/rollout writes them."""
    head = {
        "schema_version": "1", "episode_id": "login-7", "task_id": "login", "instruction": SECRET, "screen": [320, 200],
        "success": True, "outcome": "scored", "agent": "sft", "started": "2026-05-28T20:26:50+00:00",
        "duration_ms": 9000, "steps": 2,
    }  # fmt: skip
    began = 1_780_000_010.0  # 2026-05-28T20:26:50Z
    steps: list[dict[str, Any]] = [
        {"index": 0, "screenshot": "000.png", "response": SECRET, "time": began + 2.5,
         "usage": {"input_tokens": 900, "output_tokens": 40}},
        {"index": 1, "screenshot": "001.png", "response": SECRET, "time": began + 6.0, "parse_error": SECRET},
    ]  # fmt: skip
    return {
        "episodes/login-7/episode.json": json.dumps(head).encode(),
        "episodes/login-7/steps.jsonl": "".join(json.dumps(step) + "\n" for step in steps).encode(),
    }


def fill(store: FileStore) -> tuple[str, str, str]:
    """(a failed training of two attempts, the evaluation after it, their group)."""
    lost = FakeAttempt(started=START, ended=START + 30, reason=Reason.PREEMPTED, code=143)
    failed = FakeAttempt(started=START + 40, ended=START + 100, reason=Reason.USER_ERROR, message=SECRET, code=3)
    train = write_run(store, fake_job("train"), [lost, failed], outcome="failed")
    evaluation = FakeAttempt(started=START, ended=START + 60, outputs={"results": episode()})
    judged = write_run(store, fake_job("judge", outputs={"results": Output()}), [evaluation])
    group = write_group(store, [train, judged])
    root = Path(store.url.removeprefix("file://"))
    for path in root.rglob("*.json"):  # the store's times are those of its files
        os.utime(path, (START - 5, START - 5))
    for run, number, at in ((train, 1, START), (train, 2, START + 40), (judged, 1, START)):
        for path in (root / "runs" / run / "attempts" / str(number) / "claim").iterdir():
            os.utime(path, (at, at))
        for path in (root / "runs" / run / "attempts" / str(number) / "exit").iterdir():
            os.utime(path, (at + 60, at + 60))
    return train, judged, group


@contextmanager
def collector(folder: Path) -> Iterator[tuple[str, Path]]:
    """The address of a collector, and the file into which it writes what it gets."""
    program = built("otelcol")
    port, out = free_port(), folder / "spans.jsonl"
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"file": {"path": str(out), "flush_interval": "100ms"}},
        "service": {"pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}}},
    }
    (folder / "collector.yaml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "--config", folder / "collector.yaml"], stdout=log, stderr=log)

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    try:
        until(ready, (folder / "log").read_text)
        yield f"http://127.0.0.1:{port}", out
    finally:
        process.terminate()
        process.wait(60)


def launcher(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "SLIPWAY_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-m", "launcher.cli", *words],
        cwd=folder, env={**kept, "HOME": str(folder), **more}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def received(out: Path) -> list[dict[str, Any]]:
    """The spans, by the names of OTLP's JSON."""
    found = []
    for line in out.read_text().splitlines() if out.exists() else ():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                found += scope["spans"]
    return found


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def seconds(span: dict[str, Any]) -> tuple[float, float]:
    """When it began and ended, in seconds after START."""
    return tuple(int(span[name]) / 1e9 - START for name in ("startTimeUnixNano", "endTimeUnixNano"))  # type: ignore[return-value]


def shown(span: dict[str, Any]) -> str:
    """Its name, and which of them it is: that is an attribute, since backends group spans by their names."""
    which = {"submit": "group", "run": "job", "attempt": "attempt", "episode": "task", "turn": "turn"}
    told = attributes(span).get(f"slipway.{which.get(span['name'])}")
    return span["name"] if told is None else f"{span['name']} {told}"


@pytest.mark.nightly
def test_a_submit_its_runs_attempts_episodes_and_turns_arrive(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    _, judged, group = fill(store)
    with collector(tmp_path) as (address, out):
        told = {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
        done = launcher(tmp_path, "trace", group, "--store", store.url, **told)
        assert (done.returncode, done.stdout) == (0, "11 spans sent\n"), done.stderr
        until(lambda: len(received(out)) == 11)
        spans = received(out)
        again = launcher(tmp_path, "trace", group, "--store", store.url, **told)
        assert again.returncode == 0
        until(lambda: len(received(out)) == 22)
        ids = [span["spanId"] for span in received(out)]
        assert sorted(ids[:11]) == sorted(ids[11:])  # the same spans, not others
    assert len({span["traceId"] for span in spans}) == 1
    by_id = {span["spanId"]: span for span in spans}

    def path(span: dict[str, Any]) -> str:
        above = span.get("parentSpanId")
        return f"{path(by_id[above])} > {shown(span)}" if above else shown(span)

    top = f"submit {group}"
    times = {path(span): seconds(span) for span in spans}
    assert times == {
        top: (-5, 101),
        f"{top} > run train": (-5, 101),
        f"{top} > run train > waiting": (-5, 0),
        f"{top} > run train > attempt 1": (0, 30),
        f"{top} > run train > attempt 2": (40, 100),
        f"{top} > run judge": (-5, 61),
        f"{top} > run judge > waiting": (-5, 0),
        f"{top} > run judge > attempt 1": (0, 60),
        f"{top} > run judge > attempt 1 > episode login": (10, 19),
        f"{top} > run judge > attempt 1 > episode login > turn 0": (10, 12.5),
        f"{top} > run judge > attempt 1 > episode login > turn 1": (12.5, 16),
    }
    status = {path(span).rpartition(" > ")[2]: span["status"] for span in spans}
    assert status["run train"] == {"code": 2, "message": "user_error"}
    assert status["turn 1"] == {"code": 2, "message": "answer not valid"}
    assert status["episode login"] == {"code": 1}
    first = next(attributes(span) for span in spans if shown(span) == "turn 0")
    assert first["slipway.run"] == judged
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == ("900", "40")
    assert SECRET not in out.read_text()


def test_without_a_collectors_address_nothing_is_sent(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    fill(store)
    done = launcher(tmp_path, "trace", "--store", store.url)
    assert done.returncode == 2
    assert done.stderr == (
        "launcher trace: OTEL_EXPORTER_OTLP_ENDPOINT is not set; allowed: a collector's address, as "
        "http://127.0.0.1:4318\n"
    )


def test_a_collector_that_is_away_is_one_line(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    fill(store)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    done = launcher(tmp_path, "trace", "--store", store.url, **away)
    assert done.returncode == 4
    lines = done.stderr.splitlines()
    assert lines[-1] == ("launcher trace: the collector that OTEL_EXPORTER_OTLP_ENDPOINT names does not take the spans")
    assert not [line for line in lines if "Traceback" in line]


PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=11, error_message="quota")
).SerializeToString()


@contextmanager
def answering(body: bytes, kind: str) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers everything with 200 and this body, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize(
    ("body", "kind", "code", "out", "said"),
    [
        (b"", "application/x-protobuf", 0, "11 spans sent\n", ""),
        (PARTIAL, "application/x-protobuf", 4, "0 spans sent\n", "the collector rejected 11 spans: quota"),
        (b"<!doctype html><p>Log in", "text/html; charset=utf-8", 4, "", "no collector: it answered with text/html"),
        (b"ok\n", "text/plain", 4, "", "no collector: it answered with text/plain"),
    ],
    ids=["taken", "rejected", "a page", "another server"],
)
def test_what_a_server_did_with_the_spans(
    tmp_path: Path, body: bytes, kind: str, code: int, out: str, said: str
) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    *_, group = fill(store)
    with answering(body, kind) as (address, asked):
        done = launcher(tmp_path, "trace", group, "--store", store.url, OTEL_EXPORTER_OTLP_ENDPOINT=address)
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert said in done.stderr
    assert "/v1/traces" in asked


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")])
def test_opentelemetrys_own_switches_are_obeyed(tmp_path: Path, name: str, value: str) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    fill(store)
    with answering(b"", "application/x-protobuf") as (address, asked):
        told = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, name: value}
        done = launcher(tmp_path, "trace", "--follow", "--store", store.url, **told)
    assert (done.returncode, done.stdout, asked) == (0, f"0 spans sent: {name}={value}\n", [])
