"""Every LIST of every verb is answered with something that is no true list. Nothing is deleted and no run is ended, and
no verb says that an empty answer is an empty store."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.protocol.finish import finish
from launcher.protocol.records import Beat, Result
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Code, Input, Output
from launcher.store import open_store, retrying
from launcher.store.base import Store
from launcher.store.layout import MARKER, RunKeys, blob, work_run
from launcher.store.opening import make_store
from launcher.store.proof import NOTHING
from tests.integration.deleting.stores import DIGEST, overlay
from tests.support.fakerun import FakeAttempt, fake_job, write_group, write_run
from tests.support.faultproxy import FaultProxy
from tests.support.s3 import S3Server
from tests.support.wrong_lists import KINDS

pytestmark = pytest.mark.s3

DELETING = (
    "gc --grace 0s --yes",
    "gc --grace 0s --older-than 0s --keep 0 --yes",
    "gc --checkpoints --keep 1 --grace 0s --yes",
    "rm {needed} --yes",
    "reap",
)
READING = (
    "status",
    "status -o json",
    "status {open}",
    "status open",
    "status ope",
    "groups",
    "top",
    "cost",
    "cost --storage",
    "results {needed}",
    "results needed",
    "logs {needed}",
    "wait {needed} --timeout 0s",
    "wait {open} --timeout 0s",
    "gather {needed} --to copies",
    "retry {needed} --dry-run",
    "diff {needed} {open}",
    "trace --dry-run",
    "cancel --label none=none",
)
# what a verb that lists all runs says of a list of the whole store that has none: not "no runs", exit 0
WHOLE = ("status", "status -o json", "cost", "status open", "results needed", "reap", "cancel --label none=none")


@pytest.fixture
def proxy(s3_server: S3Server, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr(retrying, "SHORT", 0.0)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.chdir(tmp_path)
    with FaultProxy(s3_server.port) as proxy:
        bucket = s3_url.removeprefix("s3://").partition("/")[0]
        monkeypatch.setenv("SLIPWAY_STORE", s3_server.url(bucket, endpoint=proxy.endpoint))
        yield proxy


@pytest.fixture
def store(proxy: FaultProxy, s3_server: S3Server, s3_url: str) -> Store:
    """The store behind the proxy's back, for looking; `filled` writes through the proxy, whose ledger knows its age."""
    return open_store(s3_url)


def filled(proxy: FaultProxy, s3_url: str, s3_server: S3Server) -> dict[str, str]:
    """`needed` has succeeded; `open` reads its output, has an overlay, and runs elsewhere."""
    bucket = s3_url.removeprefix("s3://").partition("/")[0]
    store = open_store(s3_server.url(bucket, endpoint=proxy.endpoint))
    make_store(store)
    overlay(store)
    outputs = {"out": Output(), "checkpoints": Output(kind="checkpoints")}
    done = fake_job("needed", outputs=outputs, store=store.url)
    needed = write_run(
        store, done, [FakeAttempt(outputs={"out": {"a": b"1"}}, checkpoints=[1, 2], logs={"main-0": {0: b"hello\n"}})]
    )
    store.create(work_run(work_hash(done), needed), store.get(RunKeys(needed).result))
    job = fake_job(
        "open",
        code=Code(f"sha256:{DIGEST}"),
        inputs={"x": Input(run=needed, output="out")},
        store=store.url,
    )
    beat = Beat(seq=3, phase="running", step=5, total=10, running=30.0)
    earlier = FakeAttempt(reason=Reason.PREEMPTED)
    unended = write_run(store, job, [earlier, FakeAttempt(ended=None, beat=beat)], outcome=None)
    write_group(store, [needed, unended])
    return {"needed": needed, "open": unended}


def said(words: str) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    out.buffer = io.BytesIO()  # type: ignore[attr-defined]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words.split())
    except SystemExit as error:
        code = int(error.code or 0)
    return code, out.getvalue() + out.buffer.getvalue().decode() + err.getvalue()  # type: ignore[attr-defined]


def everything(store: Store) -> set[str]:
    return {meta.key for meta in store.scan("")}


@pytest.mark.parametrize("where", ["/", "/runs/", "/attempts/"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_wrong_list_deletes_or_ends(
    proxy: FaultProxy, store: Store, s3_url: str, s3_server: S3Server, kind: str, where: str
) -> None:
    names = filled(proxy, s3_url, s3_server)
    before = everything(store)
    for words in (*DELETING, *READING):
        proxy.lists = (kind, where)
        code, text = said(words.format(**names))
        proxy.lists = None
        told = f"{words} / {kind} / {where}: {code}\n{text}"
        assert code in range(6), told
        assert "Traceback" not in text, told
        assert before <= everything(store), f"{told}\ndeleted: {before - everything(store)}"
        new = everything(store) - before
        assert not {key for key in new if key.endswith("result.json")}, told
        assert not new or where == "/attempts/", f"{told}\nleft behind: {new}"
        before |= new
        if where != "/attempts/" and kind != "shorter":
            assert code == 4 or words not in (*DELETING[:4],), told
        if where == "/" and kind not in ("shorter", "old"):
            assert code == 4 or words not in WHOLE, told
        if where == "/runs/" and kind not in ("shorter", "old"):
            assert code == 4 or words not in WHOLE, told


def test_a_true_list_deletes_and_leaves_nothing(
    proxy: FaultProxy, store: Store, s3_url: str, s3_server: S3Server
) -> None:
    """At most four requests more than without proof, whatever the number of runs; none in a call that only shows."""
    names = filled(proxy, s3_url, s3_server)
    store.delete([RunKeys(names["open"]).job])
    began = len(proxy.seen)
    assert said("gc --grace 0s")[0] == 0
    assert not [request for request, _ in proxy.seen[began:] if request.writes and "/clock" not in request.path]
    assert said("gc --yes")[0] == 0  # this machine knows now that the store has its marker
    began = len(proxy.seen)
    assert said("gc --grace 0s --yes")[0] == 0
    assert not [request for request, _ in proxy.seen[began:] if request.path.endswith(MARKER)]
    # beside the puts of the intent and of the four keys: one request deletes the intent with the keys, one the overlay
    # and one its note
    deletions = [request for request, _ in proxy.seen[began:] if request.method in ("POST", "DELETE")]
    assert len(deletions) == 3
    puts = [request.path for request, _ in proxy.seen[began:] if "/runs/!" in request.path or "/runs/~" in request.path]
    assert len(puts) == 4
    assert store.head(blob(DIGEST)) is None
    assert not {key for key in everything(store) if key.startswith(("runs/!", "runs/~", "deleting/"))}


def test_a_store_without_a_run(proxy: FaultProxy, store: Store) -> None:
    """Before the first submit, after it, and when a page is answered for every list."""
    code, text = said("status")
    assert (code, NOTHING in text) == (0, True)
    assert said("gc --yes")[0] == 0
    assert store.head(MARKER) is not None
    code, text = said("status")
    assert (code, NOTHING in text, "no runs" in text) == (0, False, True)
    for kind in ("page", "buckets"):
        proxy.lists = (kind, "/")
        code, text = said("status")
        assert code == 4, text
        assert "lacks its own marker" in text


def test_keys_of_a_proof_are_no_runs(proxy: FaultProxy, store: Store, s3_url: str, s3_server: S3Server) -> None:
    """A launcher of 28 November asks for the folders in runs/, and takes from a list of all keys what has a job.json:
    both pass over these keys, and so does this one."""
    names = filled(proxy, s3_url, s3_server)
    for key in ("runs/!0123", "runs/~0123"):
        store.put(key, b"")
    assert store.folders("runs/") == sorted(names.values())
    for words in ("status", "groups", "cost", "gc", "reap --dry-run", f"logs {names['needed']}"):
        code, text = said(words)
        assert code == 0, text
        assert "0123" not in text.replace("0123456789ab", ""), text
    listed = [meta.key for meta in store.scan("runs/")]
    assert (listed[0], listed[-1]) == ("runs/!0123", "runs/~0123")


@pytest.mark.parametrize("kind", ["page", "shorter", "old"])
def test_no_run_ends_for_an_attempt_that_the_list_lacks(
    proxy: FaultProxy, store: Store, s3_url: str, s3_server: S3Server, kind: str
) -> None:
    """The backend says that its object is gone; the list of attempts says that the run never began, or that its last
    attempt was the first."""
    run = filled(proxy, s3_url, s3_server)["open"]
    through = open_store(s3_server.url(s3_url.removeprefix("s3://").partition("/")[0], endpoint=proxy.endpoint))

    def ended() -> Result | None:
        here = dict.fromkeys(("here", "dead"), lambda placement: True)
        return finish(through, run, backend_active=False, writer="test", evidence=Reason.CONFIG_ERROR, **here)

    proxy.lists = (kind, "/attempts/")
    assert ended() is None
    proxy.lists = None
    found = ended()
    assert found is not None
    assert found.attempt == 2
