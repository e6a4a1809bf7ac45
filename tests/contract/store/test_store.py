"""What every store must do, here a folder; tests/integration/store/test_contract.py asks the same of the servers."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from launcher.errors import BadInput, Conflict, NotFound
from launcher.store.base import Store
from launcher.store.opening import conditional_puts_hold
from tests.support.needs import lacking

ODD = [
    "sp ace",
    "ü+%&=?#'\"é",
    "a%2Fb",
    "a%20b",
    "st*r",
    "x~y",
    "b\\c",
    "q|w",
    "[z]",
    "{a}",
    "^`<>",
    "..x",
    "x..",
    "日本",
]


@pytest.fixture(params=["file"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


def keys(store: Store, prefix: str = "", after: str = "") -> list[str]:
    return [meta.key for meta in store.scan(prefix, after)]


def test_an_empty_store_answers(store: Store) -> None:
    assert keys(store) == []
    assert store.folders("") == []
    assert store.read("a/b") is None
    assert store.head("a/b") is None
    store.delete(["a/b"])
    with pytest.raises(NotFound):
        store.get("a/b")
    with pytest.raises(NotFound):
        store.get_range("a/b", 0, 1)
    with pytest.raises(NotFound):
        list(store.stream("a/b"))


@pytest.mark.two_bodies
def test_put_overwrites_and_create_does_not(store: Store) -> None:
    store.put("a/b", b"1")
    store.put("a/b", b"22")
    assert store.get("a/b") == b"22"
    assert not store.create("a/b", b"3")
    assert store.create("a/c", b"mine")
    assert store.create("a/c", b"mine")  # the same bytes: ours, whoever was answered
    assert not store.create("a/c", b"theirs")
    assert store.get("a/c") == b"mine"
    store.delete(["a/c"])
    assert store.create("a/c", b"theirs")


def test_read_head_and_scan_agree(store: Store) -> None:
    before = store.now()
    store.put("a/b", b"12345")
    body, meta = store.read("a/b") or pytest.fail("not there")
    assert body == b"12345"
    assert meta == store.head("a/b")
    (listed,) = store.scan("a/")
    assert (listed.key, listed.size, listed.etag) == ("a/b", 5, meta.etag)
    assert int(listed.modified) == int(meta.modified)
    assert before - 1.5 <= meta.modified <= store.now() + 1.5


@pytest.mark.two_bodies
def test_the_etag_changes_with_the_body(store: Store) -> None:
    store.put("a", b"1")
    first = store.head("a")
    store.put("a", b"2")
    second = store.head("a")
    assert first is not None
    assert second is not None
    assert first.etag != second.etag


def test_ranges(store: Store) -> None:
    store.put("r", b"0123456789")
    assert store.get_range("r", 2, 5) == b"234"
    assert store.get_range("r", 5, 100) == b"56789"
    assert store.get_range("r", 7) == b"789"
    assert store.get_range("r", 5, 5) == b""
    assert store.get_range("r", 10) == b""
    assert store.get_range("r", 50, 60) == b""


def test_scan_is_in_key_order_and_by_prefix(store: Store) -> None:
    odd = [key for key in ODD if "\\" not in key or not store.url.startswith("az:")]  # there it is a slash
    names = ["a-/x", "a.txt", "a/b", "a/b-c", "a/b.d/e", "a0", "b/1", "b/10", "b/2", "ab/c", *(f"u/{k}" for k in odd)]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    assert keys(store, "a/") == ["a/b", "a/b-c", "a/b.d/e"]
    assert keys(store, "a/b") == ["a/b", "a/b-c", "a/b.d/e"]
    assert keys(store, "b/1") == ["b/1", "b/10"]
    assert keys(store, "b/", after="b/1") == ["b/10", "b/2"]
    assert keys(store, "", after="a/b.d/e") == [name for name in sorted(names) if name > "a/b.d/e"]
    assert keys(store, "b/1", after="b/1") == ["b/10"]
    assert keys(store, "nothing") == []
    assert all(store.get(name) == name.encode() for name in names)


def test_folders_have_objects_below_them(store: Store) -> None:
    for key in ("runs-/x", "runs/b/job.json", "runs/a/attempts/1/x", "runs/a/job.json", "runs/loose"):
        store.put(key, b"")
    assert store.folders("runs/") == ["a", "b"]
    assert store.folders("") == ["runs", "runs-"]
    assert store.folders("runs/a/") == ["attempts"]
    assert store.folders("nothing/") == []
    metas, names = store.level("runs/")
    assert ([meta.key for meta in metas], names) == (["runs/loose"], ["a", "b"])
    metas, names = store.level("runs/a/")
    assert ([meta.key for meta in metas], names) == (["runs/a/job.json"], ["attempts"])
    assert metas[0] == store.head("runs/a/job.json")
    assert store.level("nothing/") == ([], [])
    store.delete(["runs/b/job.json"])
    assert store.folders("runs/") == ["a"]


def test_a_long_listing_goes_over_pages(store: Store) -> None:
    names = [f"l/{number:04d}" for number in range(1100)]
    threads = [
        threading.Thread(target=lambda part: [store.put(name, b"") for name in part], args=(names[k::8],))
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keys(store, "l/") == names
    assert keys(store, "l/", after="l/0999") == names[1000:]
    store.delete(names)
    assert keys(store, "l/") == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", ".tmp/x", "a\nb", "a\0b", "x" * 1025])
def test_keys_that_no_store_can_hold_are_refused(store: Store, key: str) -> None:
    for act in (store.read, store.head, store.get, lambda k: store.put(k, b""), lambda k: store.create(k, b"")):
        with pytest.raises(BadInput):
            act(key)


def test_an_object_is_no_folder(store: Store, request: pytest.FixtureRequest) -> None:
    if store.url.startswith("s3") and not getattr(request.getfixturevalue("s3_server"), "real", True):
        lacking("versitygw", "moto holds both")
    if store.url.startswith("az:"):
        pytest.skip("Azure holds both")
    store.put("n", b"")
    with pytest.raises(Conflict):
        store.put("n/m", b"")
    store.put("d/m", b"")
    with pytest.raises(Conflict):
        store.put("d", b"")


def test_one_of_many_creators_wins(store: Store) -> None:
    for round_ in range(5):
        key, barrier, won = f"race/{round_}", threading.Barrier(20), []

        def create(number: int, key: str = key, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            if store.create(key, b"%d" % number):
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.get(key) == b"%d" % won[0]


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_003])
def test_files_travel_whole(store: Store, tmp_path: Path, size: int) -> None:
    body = os.urandom(size)
    (tmp_path / "from").write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    assert store.upload("dir/file", tmp_path / "from") == digest
    assert store.download("dir/file", tmp_path / "new" / "to") == digest
    assert (tmp_path / "new" / "to").read_bytes() == body
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["to"]
    assert b"".join(store.stream("dir/file")) == body
    assert keys(store) == ["dir/file"]


@pytest.mark.parametrize("size", [10, 20_000_003])
def test_a_source_that_fails_leaves_no_object(store: Store, size: int) -> None:
    def source() -> Iterator[bytes]:
        yield os.urandom(size - 1)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        store.send("broken", source, size)
    assert store.head("broken") is None


@pytest.mark.parametrize("size", [0, 10, 20_000_003])
def test_who_knows_what_is_sent_can_refuse_it(store: Store, size: int) -> None:
    body, told = os.urandom(size), list[tuple[int, str]]()

    def refuses(size: int, digest: str) -> None:
        told.append((size, digest))
        raise ValueError("not this")

    with pytest.raises(ValueError, match="not this"):
        store.send("refused", lambda: [body], size, known=refuses)
    assert store.head("refused") is None
    digest = hashlib.sha256(body).hexdigest()
    assert store.send("taken", lambda: [body], size, known=lambda *each: told.append(each)) == digest
    assert told == [(size, digest)] * 2


def test_send_takes_pieces_of_any_size(store: Store) -> None:
    body = os.urandom(9_000_000)

    def source() -> Iterable[bytes | memoryview]:
        return [body[:1], memoryview(body)[1:8_500_000], b"", body[8_500_000:]]

    assert store.send("pieces", source, len(body)) == hashlib.sha256(body).hexdigest()
    assert store.get("pieces") == body


def test_a_missing_local_file_is_no_fault_of_the_store(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.upload("x", tmp_path / "nothing")
    with pytest.raises(NotFound):
        store.download("nothing", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_the_clock_is_that_of_the_objects_and_here_ours(store: Store) -> None:
    """To the second: a store may tell whole ones, and a file system lags behind by a tick of the kernel's clock."""
    began, before = time.time(), store.now()
    store.put("a", b"")
    meta = store.head("a")
    after, ended = store.now(), time.time()
    assert meta is not None
    assert began - 1 < before <= after < ended + 1
    assert before - 1 < meta.modified < after + 1


def test_threads_may_share_it(store: Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                body = uuid4().bytes
                store.put(f"t/{number}/{step}", body)
                assert store.get(f"t/{number}/{step}") == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(keys(store, "t/")) == 80


def test_its_create_only_puts_hold(store: Store) -> None:
    conditional_puts_hold(store)
    assert keys(store) == []
