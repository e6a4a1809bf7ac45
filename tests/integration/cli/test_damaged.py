"""A store in which one record is damaged (cut off by a copy, edited by hand): no verb has a fault of its own, and what
it says of the other runs stays true."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
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
from launcher.store.layout import RunKeys, blob, group, works
from launcher.verbs.submit import make_store
from tests.support.jobs import job
from tests.support.needs import need_root

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
# what is no file that this user may read; each makes it at a path
OTHER = 65534


def _other(path: Path, mode: int) -> None:
    path.chmod(mode)
    os.chown(path, OTHER, OTHER)


def _instead(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "of another user": lambda path: _other(path, 0o600),
    "pipe": lambda path: _instead(path, os.mkfifo),
    "loop": lambda path: _instead(path, lambda path: path.symlink_to(path.name)),
    "device": lambda path: _instead(path, lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))),
    "closed folder": lambda path: _other(path.parent, 0o700),
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


def user_says(work: Path, words: str) -> tuple[int, str]:
    """A verb of a root that may not read everybody's files; a verb that hangs is killed."""
    less = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
    done = subprocess.run(
        [*less, Path(sys.executable).with_name("launcher"), *words.split()],
        capture_output=True, text=True, timeout=60, cwd=work, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


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


def unknown_end(work: Path) -> None:
    """A newer launcher's end of `bad`: an outcome and a reason that this one does not know."""
    key = filled(work, True)["result"]
    path = work / "store" / key
    record = json.loads(path.read_bytes()) | {"outcome": "archived", "reason": "moved_away", "new": [1]}
    path.write_text(json.dumps(record))


@pytest.mark.two_bodies
def test_an_outcome_that_this_version_does_not_know(work: Path) -> None:
    """`status`, `cost`, `top`, `groups` and `monitor` of the whole store ended with 70."""
    unknown_end(work)
    for words in (*VERBS, "cost -o json", "groups -o json", "status -o json"):
        code, out, err = said(words)
        assert code in range(6), f"{words}: {code}\n{out}{err}"
        if words == "status -o json":
            lines = {line["name"]: line for line in json.loads(out)}
            assert (lines["bad"]["state"], lines["bad"]["reason"]) == ("unknown", "unknown")
            assert "`archived`" in lines["bad"]["detail"]
            assert lines["good"]["state"] == "succeeded"
    assert said("wait bad --timeout 5s")[0] == 4
    assert said("status --state unknown -o json")[1].count("bad-") == 1


@pytest.mark.two_bodies
def test_a_damaged_run_is_told_as_damaged(work: Path) -> None:
    """By its name, its id and in the list: the state with the reason, and exit code 4 where it was named."""
    key = filled(work, True)["result"]
    run = key.split("/")[1]
    (work / "store" / key).write_bytes(b"{")
    for words in ("status bad", f"status {run}", f"status {run} good"):
        code, out, _ = said(words)
        assert (code, "damaged" in out) == (4, True), out
    for words in ("status bad -o json", f"status {run} -o json"):
        code, out, _ = said(words)
        (line,) = json.loads(out)
        assert (code, line["state"]) == (4, "damaged")
        assert "result.json is not a valid record" in line["detail"]
    code, out, _ = said("status -o json")
    assert (code, {line["name"]: line["state"] for line in json.loads(out)}) == (
        0, {"bad": "damaged", "good": "succeeded"},
    )  # fmt: skip
    code, _, err = said("wait bad")
    assert (code, "damaged" in err) == (4, True)
    code, _, err = said("wait bad good")
    assert code == 4
    assert "damaged" in said("groups -o json")[1]


@pytest.mark.two_bodies
@pytest.mark.parametrize("what", ["job", "result", "both"])
def test_rm_of_a_damaged_run_repairs_the_store(work: Path, what: str) -> None:
    """Beside it gc and rm keep what it may need, and say so; once it is gone, they work."""
    where = filled(work, True)
    run = where["job"].split("/")[1]
    for each in ("job", "result") if what == "both" else (what,):
        (work / "store" / where[each]).write_bytes(b"{")
    store = open_store((work / "store").as_uri())
    store.put(blob("ab" * 32), b"nobody's")
    code, out, err = said("gc --grace 0s --older-than 0s --state succeeded --yes")
    assert code == 0, out + err
    if what != "job":  # the result says that it needs nothing more
        assert "cannot be read" in out
        assert store.head(blob("ab" * 32)) is not None
        assert said("rm good --yes")[0] == 5
        assert said(f"rm {run} --yes")[0] == 0
        assert not list(store.scan(f"runs/{run}/"))
        assert not [meta for meta in store.scan("works/") if run in meta.key]
        assert said("rm good --yes")[0] == 0
        assert said("gc --grace 0s --yes")[0] == 0
    assert store.head(blob("ab" * 32)) is None


@pytest.mark.two_bodies
def test_a_run_of_a_newer_launcher_can_be_cancelled(work: Path) -> None:
    """Its job.json has a field that this version does not know; a runtime looks for cancel.json alone."""
    key = filled(work, False)["job"]
    path = work / "store" / key
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schema": 99, "newer": {"x": 1}}))
    code, out, err = said("cancel bad")
    assert (code, "stopping" in out) == (0, True), out + err
    assert "its backend was not asked" in err
    assert (path.parent / "cancel.json").exists()


@pytest.mark.two_bodies
@pytest.mark.parametrize(
    ("what", "damage"),
    [
        *(("job", "of another user"), ("job", "closed folder"), ("exit", "loop"), ("result", "pipe")),
        *(("claim", "device"), ("group", "pipe"), ("group", "of another user")),
    ],
)
def test_an_object_that_can_not_be_read_stops_its_own_run(work: Path, what: str, damage: str) -> None:
    """Another user's, a pipe (which kept its reader for ever), a loop of links: told for that run alone."""
    need_root()
    key = filled(work, True)[what]
    UNREADABLE[damage](work / "store" / key)
    code, out = user_says(work, "status -o json")
    assert code == 0, out
    states = {line["name"]: line["state"] for line in json.loads(out[: out.rindex("]") + 1])}
    assert states["good"] == "succeeded"
    assert states["bad"] == ("succeeded" if what == "group" else "damaged")
    for words in ("cost", "top", "groups", "reap", "wait good", "status good", "gc", "logs good", "cost --storage"):
        code, out = user_says(work, words)
        assert code == (4 if words == "reap" and what != "group" else 0), f"{words}: {code}\n{out}"
    code, out = user_says(work, "status bad")
    assert code == (0 if what == "group" else 4), out


@pytest.mark.two_bodies
def test_a_closed_root_is_an_outage_of_the_whole_store(work: Path) -> None:
    need_root()
    filled(work, True)
    for closed in (work / "store", work / "store/runs"):
        _other(closed, 0o700)
        code, out = user_says(work, "status")
        assert (code, "damaged" in out) == (4, False), out
        os.chown(closed, 0, 0)


@pytest.mark.two_bodies
def test_a_backend_that_this_version_does_not_know(work: Path) -> None:
    """A newer launcher's run elsewhere: every verb goes on, and cancel.json is written."""
    store = open_store((work / "store").as_uri())
    filled(work, True)
    newer = job("newer", store=store.url, backend="slurm")
    store.create(RunKeys(run_id(newer)).job, encode_job(newer))
    for words in (*VERBS, "status newer", "cancel newer", "cancel --all", "wait newer --timeout 0s"):
        code, out, err = said(words)
        assert code in range(6), f"{words}: {code}\n{out}{err}"
        assert "Traceback" not in err
    assert store.head(RunKeys(run_id(newer)).cancel) is not None
