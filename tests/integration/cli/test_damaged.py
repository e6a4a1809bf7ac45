"""A store in which one record is damaged (cut off by a copy, edited by hand): no verb has a fault of its own, and what
it says of the other runs stays true."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from launcher.cli import main
from launcher.protocol.records import Beat, Claim, Exit, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id, work_hash
from launcher.spec.model import Output
from launcher.store import open_store
from launcher.store.find import GroupRecord
from launcher.store.layout import RunKeys, group, works
from launcher.verbs.submit import make_store
from tests.support.jobs import job

DAMAGE = {
    "empty": b"",
    "cut": b'{"outcome": "succe',
    "null": b"null",
    "list": b"[1]",
    "object": b"{}",
    "bytes": b'{"outcome": "\xff\xfe", "phase": "\xff"}',
    "number": b'{"seq": 1e999, "time": 1e999}',
    "deep": b"[" * 9000,
}
VERBS = (
    "status",
    "status -o json",
    "status bad",
    "status good -o json",
    "groups",
    "top",
    "cost",
    "wait good",
    "wait bad --timeout 0s",
    "logs good",
    "logs bad",
    "results good",
    "results bad",
    "gather good --to copies",
    "gather bad --to copies",
    "reap",
    "gc",
    "rm good",
    "cancel good",
    "cancel bad",
    "retry bad",
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "slipway.yaml").write_text("store: ./store\nlocal: {state: ./state, cpus: 0.5}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return tmp_path


def filled(work: Path, ended: bool) -> dict[str, str]:
    """Two runs: `good` has succeeded, `bad` too or (not `ended`) its process is silent. What to damage: name -> key."""
    store = open_store((work / "store").as_uri())
    make_store(store)
    for name in ("bad", "good"):
        one = job(name, store=store.url, outputs={"results": Output()})
        run = run_id(one)
        keys = RunKeys(run)
        attempt = keys.attempt(1)
        over = ended or name == "good"
        records: dict[str, object] = {
            attempt.claim("main-0"): Claim(Placement("local", "elsewhere", host="h", boot="b"), "n", 0.0),
            attempt.beat("main-0"): Beat(3, "running"),
            group(f"group-of-{name}"): GroupRecord(f"group-of-{name}", (run,), {run: name}),
        }
        if over:
            result = Result("succeeded", 1, Reason.SUCCEEDED, "", 1.0, "n", work_hash(one))
            records[attempt.exit("main-0")] = Exit("main-0", Reason.SUCCEEDED)
            records[keys.result] = result
            records[f"{works(work_hash(one))}{run}.json"] = result
        store.create(keys.job, encode_job(one))
        for key, record in records.items():
            store.create(key, msgspec.json.encode(record))
    keys = RunKeys(run_id(job("bad", store=store.url, outputs={"results": Output()})))
    attempt = keys.attempt(1)
    there = {
        "job": keys.job,
        "claim": attempt.claim("main-0"),
        "beat": attempt.beat("main-0"),
        "group": group("group-of-bad"),
    }
    return {**there, "exit": attempt.exit("main-0"), "result": keys.result} if ended else there


def said(words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    out.buffer = io.BytesIO()  # type: ignore[attr-defined]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words.split())
    except SystemExit as error:
        code = int(error.code or 0)
    return code, out.getvalue() + out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]


@pytest.mark.two_bodies
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("what", "ended"),
    [(each, True) for each in ("job", "claim", "beat", "group", "exit", "result")]
    + [(each, False) for each in ("job", "claim", "beat", "group")],
)
def test_one_damaged_record_is_no_fault_of_any_verb(work: Path, what: str, ended: bool, damage: str) -> None:
    key = filled(work, ended)[what]
    for words in VERBS:
        (work / "store" / key).write_bytes(DAMAGE[damage])
        code, out, err = said(words)
        assert code in range(6), f"{words}: {code}\n{out}{err}"
        assert "Traceback" not in err, f"{words}\n{err}"
        if words in ("status -o json", "status good -o json"):
            (good,) = [line for line in json.loads(out) if line["name"] == "good"]
            assert good["state"] == "succeeded", out
        if words in ("wait good", "results good", "gather good --to copies"):
            assert code == 0 or words == "results good", f"{words}\n{out}{err}"
