"""Faults between us and a real S3 server: each is retried or reported, and no wrong file is ever taken."""

from __future__ import annotations

import hashlib
import os
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.errors import NotFound, Unreachable
from launcher.store.base import Store
from launcher.store.manifest import fetch_tree, read_manifest
from launcher.store.opening import open_store
from launcher.store.transfer import Damaged
from tests.support.broken_s3 import broken_s3
from tests.support.faultproxy import DRAWN, FaultProxy, Kind
from tests.support.needs import lacking
from tests.support.s3 import S3Server
from tests.support.trees import write_tree

MIB = 1 << 20


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def url(s3_server: S3Server, s3_url: str, proxy: FaultProxy) -> str:
    return s3_url.replace(s3_server.endpoint, proxy.endpoint)


@pytest.fixture
def store(url: str) -> Store:
    """Patient: of a storm, six faults in a row are drawn for someone, and each may ask for a second or two."""
    return open_store(url, deadline=120)


# a put that comes late would bring the deleted object back, a listing that lags would not show the new one
@pytest.mark.parametrize("kind", [*DRAWN, Kind.SLOW, Kind.CUT_BODY])
def test_small_objects_survive(proxy: FaultProxy, store: Store, kind: Kind) -> None:
    proxy.plan(kind, method="PUT", key="put", times=2)
    store.put("a/put", b"body")
    proxy.plan(kind, method="GET", key="put", times=2)
    assert store.get("a/put") == b"body"
    proxy.plan(kind, method="HEAD", times=2)
    assert (store.head("a/put") or pytest.fail("not there")).size == 4
    proxy.plan(kind, method="GET", times=2)
    assert [meta.key for meta in store.scan("")] == ["a/put"]
    proxy.plan(kind, method="GET", times=2)
    assert store.folders("") == ["a"]
    proxy.plan(kind, method="POST", times=2)
    store.delete(["a/put"])
    assert store.read("a/put") is None
    assert proxy.faults(kind) >= 6  # slow answers need no second request, and a cut one without a body is whole


def test_a_server_that_asks_for_a_second_gets_it(proxy: FaultProxy, store: Store, tmp_path: Path) -> None:
    """503 with Retry-After: 1. Four tries within half a second are no help to a server that has too much to do."""
    store.put("a/b", b"body")
    (tmp_path / "file").write_bytes(b"body")
    asks = {
        "PUT": (
            lambda: store.put("a/b", b"body"),
            lambda: store.create("a/c", b"body"),
            lambda: store.upload("a/d", tmp_path / "file"),
        ),
        "GET": (
            lambda: store.get("a/b"),
            lambda: store.get_range("a/b", 1, 2),
            lambda: list(store.scan("a/")),
            lambda: store.folders(""),
        ),
        "HEAD": (lambda: store.head("a/b"),),
        "POST": (lambda: store.delete(["a/b"]),),
    }
    for method, acts in asks.items():
        for act in acts:
            before = proxy.faults(Kind.SLOW_DOWN)
            proxy.plan(Kind.SLOW_DOWN, method=method, times=1, delay=1.0)
            act()
            assert proxy.faults(Kind.SLOW_DOWN) == before + 1
    assert not proxy.early


@pytest.mark.parametrize("kind", DRAWN)
def test_a_lost_answer_to_a_create_is_known_as_ours(proxy: FaultProxy, store: Store, kind: Kind) -> None:
    proxy.plan(kind, method="PUT", key="mine", times=2)
    assert store.create("claim/mine", b"nonce 1")
    assert not store.create("claim/mine", b"nonce 2")
    proxy.plan(kind, method="PUT", key="theirs", times=2)
    open_store(store.url).create("claim/theirs", b"nonce 2")
    assert not store.create("claim/theirs", b"nonce 1")
    assert store.get("claim/mine") == b"nonce 1"


def test_racing_creators_on_a_bad_line_have_one_winner(proxy: FaultProxy, store: Store) -> None:
    proxy.seed = 3
    with proxy.storm(0.3):
        for round_ in range(4):
            barrier, won = threading.Barrier(8), []

            def create(number: int, key: str = f"race/{round_}", barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                if store.create(key, b"%d" % number):
                    won.append(number)  # noqa: B023

            threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert store.get(f"race/{round_}") == b"%d" % won[0]


@pytest.mark.parametrize("kind", DRAWN)
def test_large_files_survive(proxy: FaultProxy, store: Store, tmp_path: Path, kind: Kind) -> None:
    body = os.urandom(24 * MIB + 5)
    (tmp_path / "from").write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    proxy.plan(kind, method="PUT", key="big", times=2, least=MIB)
    proxy.plan(kind, method="POST", key="big", times=1)
    assert store.upload("big", tmp_path / "from") == digest
    proxy.plan(kind, method="GET", key="big", times=3)
    assert store.download("big", tmp_path / "to") == digest
    assert hashlib.sha256((tmp_path / "to").read_bytes()).hexdigest() == digest


def tree(root: Path, seed: int) -> dict[str, bytes]:
    """A folder with small, empty, nested and one larger file."""
    rng = random.Random(seed)
    files = {f"d{k % 3}/f{k}.bin": rng.randbytes(rng.randrange(2000)) for k in range(12)}
    files |= {"empty": b"", "big.bin": rng.randbytes(17 * MIB)}
    for name, body in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return files


@pytest.mark.parametrize("seed", range(3))
def test_folders_through_a_storm(proxy: FaultProxy, store: Store, tmp_path: Path, seed: int) -> None:
    files = tree(tmp_path / "from", seed)
    proxy.seed = seed
    with proxy.storm(0.15, [*DRAWN, Kind.SLOW]):
        write_tree(store, "out/", "out.manifest.json", tmp_path / "from")
        manifest = read_manifest(store, "out.manifest.json")
        assert manifest is not None
        fetch_tree(store, "out/", manifest, tmp_path / "to")
    assert {
        str(p.relative_to(tmp_path / "to")): p.read_bytes() for p in (tmp_path / "to").rglob("*") if p.is_file()
    } == files
    assert sum(kind is not None for _, kind in proxy.seen) > 0


def test_wrong_bytes_are_fetched_again_and_never_kept(proxy: FaultProxy, store: Store, tmp_path: Path) -> None:
    files = tree(tmp_path / "from", 1)
    manifest = write_tree(store, "out/", "out.manifest.json", tmp_path / "from")
    proxy.plan(Kind.WRONG_BYTES, method="GET", key="big.bin", times=1)
    proxy.plan(Kind.WRONG_BYTES, method="GET", key="f1.bin", times=2)
    fetch_tree(store, "out/", manifest, tmp_path / "to")
    assert (tmp_path / "to/big.bin").read_bytes() == files["big.bin"]
    assert (tmp_path / "to/d1/f1.bin").read_bytes() == files["d1/f1.bin"]
    assert proxy.faults(Kind.WRONG_BYTES) == 3


def test_bytes_that_stay_wrong_are_reported(proxy: FaultProxy, store: Store, tmp_path: Path) -> None:
    tree(tmp_path / "from", 1)
    manifest = write_tree(store, "out/", "out.manifest.json", tmp_path / "from")
    proxy.plan(Kind.WRONG_BYTES, method="GET", key="big.bin", times=100)
    with pytest.raises(Damaged, match=r"out/big\.bin: .* bytes with sha256"):
        fetch_tree(store, "out/", manifest, tmp_path / "to")
    assert not (tmp_path / "to/big.bin").exists()
    assert not [path for path in (tmp_path / "to").rglob(".*") if path.is_file()]


def test_a_broken_transfer_goes_on_where_it_was(proxy: FaultProxy, url: str, tmp_path: Path) -> None:
    tree(tmp_path / "from", 1)
    store = open_store(url, deadline=0.5)
    manifest = write_tree(store, "out/", "out.manifest.json", tmp_path / "from")
    proxy.plan(Kind.ERROR_500, method="GET", key="big.bin", times=100)
    with pytest.raises(Unreachable):
        fetch_tree(store, "out/", manifest, tmp_path / "to")
    proxy._planned.clear()
    before = set((tmp_path / "to").rglob("*.bin"))
    proxy.seen.clear()
    fetch_tree(store, "out/", manifest, tmp_path / "to")
    fetched = {request.path.rpartition("/out/")[2] for request, _ in proxy.seen}
    assert "big.bin" in fetched
    assert fetched.isdisjoint({str(path.relative_to(tmp_path / "to")) for path in before})


@pytest.mark.two_bodies
def test_a_store_that_goes_away_and_comes_back(proxy: FaultProxy, store: Store) -> None:
    store.put("a", b"1")
    back = threading.Timer(1.0, lambda: setattr(proxy, "away", False))
    with proxy.outage():
        back.start()
        store.put("a", b"2")
        assert store.create("b", b"3")
    assert store.get("a") == b"2"


def test_a_store_that_stays_away_is_unreachable(proxy: FaultProxy, url: str) -> None:
    store = open_store(url, deadline=0.6)
    with proxy.outage():
        for act in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: store.create("a", b"")):
            with pytest.raises(Unreachable):
                act()
        with pytest.raises(Unreachable):
            list(store.scan(""))
    assert store.read("a") is None


def test_what_can_not_be_reached_says_why(s3_url: str, s3_server: S3Server) -> None:
    with pytest.raises(Unreachable, match="no connection: Connection refused"):
        open_store(s3_server.url("bucket", endpoint="http://127.0.0.1:1"), deadline=0.3).get("a")
    with pytest.raises(Unreachable, match=r"no connection: .*(not known|resol|name)"):
        open_store(s3_server.url("bucket", endpoint="http://nowhere.invalid"), deadline=0.3).get("a")


def test_a_server_that_is_killed_keeps_what_it_took(s3_server: S3Server, s3_store: Store) -> None:
    s3_store.put("a", b"1")
    if not s3_server.real:
        lacking("versitygw", "moto keeps its objects in memory")
    s3_server.stop()
    threading.Timer(0.5, s3_server.start).start()
    assert s3_store.get("a") == b"1"


def test_a_listing_goes_on_behind_the_page_that_broke(proxy: FaultProxy, store: Store) -> None:
    names = [f"l/{number:04d}" for number in range(1050)]
    threads = [threading.Thread(target=lambda k=k: [store.put(n, b"") for n in names[k::8]]) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    for meta in store.scan("l/"):
        found.append(meta.key)
        if len(found) == 10:
            proxy.plan(Kind.TRUNCATE, method="GET", times=2)
            proxy.plan(Kind.ERROR_500, method="GET", times=6)
    assert found == names


def test_refusals_say_what_to_do(
    s3_server: S3Server, s3_url: str, url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreachable, match=r"s3://nothing-here.*the bucket does not exist"):
        open_store(s3_server.url("nothing-here")).get("a")
    with pytest.raises(Unreachable, match="the bucket does not exist"):
        list(open_store(s3_server.url("nothing-here")).scan(""))
    with pytest.raises(Unreachable, match="the bucket does not exist"):
        open_store(s3_server.url("nothing-here")).create("a", b"")
    with pytest.raises(NotFound):
        open_store(s3_url).get("a")
    if not s3_server.real:
        return
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    with pytest.raises(Unreachable, match=r"check the credentials.*SignatureDoesNotMatch") as caught:
        open_store(url).get("a")
    assert "wrong-secret-value" not in str(caught.value)
    with pytest.raises(Unreachable, match="check the credentials"):
        open_store(url).head("a")
    assert [request.method for request, _ in proxy.seen] == ["GET", "HEAD"]  # a refusal is not retried


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (400, "ExpiredToken", "the credentials have expired"),
        (403, "ExpiredToken", "the credentials have expired"),
        (400, "InvalidToken", "check the credentials"),
        (301, "PermanentRedirect", r"the bucket is in another region; add \?region="),
        (501, "NotImplemented", "the server does not know this request"),
        (505, "", "the server does not know this request"),
    ],
)
def test_what_waiting_does_not_mend_is_asked_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    code: str,
    says: str,
) -> None:
    """At a submit. Expired credentials are tried again for seconds, here none: something may renew them."""
    monkeypatch.setattr("launcher.store.retrying.SHORT", 0.0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE0")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-key-of-nobody")
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("name: x\ncommand: ['true']\n")
    with answering(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>") as (endpoint, asked):
        store = f"s3://bucket/x?endpoint={endpoint}&region=us-east-1"
        assert main(["submit", "job.yaml", "--backend", "local", "--store", store]) == 4
    assert re.search(says, capsys.readouterr().err)
    assert len(asked) == 1


@contextmanager
def answering(status: int, body: str) -> Iterator[tuple[str, list[str]]]:
    """A server that gives one answer to every request: its endpoint, and the requests that came."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


@pytest.mark.two_bodies
@pytest.mark.parametrize(("how", "seen"), [("ignores", "replaced the first"), ("looks", "were told that they won")])
def test_a_store_with_broken_create_only_puts_is_refused(s3_server: S3Server, s3_url: str, how: str, seen: str) -> None:
    from launcher.store.opening import Unfit, conditional_puts_hold

    with broken_s3(how) as endpoint:
        store = open_store(s3_server.url("any-bucket", endpoint=endpoint))
        with pytest.raises(Unfit, match=seen) as caught:
            conditional_puts_hold(store)
    assert caught.value.exit_code == 4
    assert "If-None-Match" in str(caught.value)
