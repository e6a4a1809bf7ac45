"""What only a folder can get wrong: half-written files, keys that leave it, rubbish of dead writers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from launcher.errors import BadInput, Conflict, Unreachable
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.opening import open_store


def test_readers_see_whole_objects_while_they_are_replaced(file_store: Store) -> None:
    bodies = [bytes([number]) * 200_000 for number in range(2)]
    file_store.put("a", bodies[0])
    done = threading.Event()

    def write() -> None:
        store = FileStore.at(file_store.url)
        for number in range(40):
            store.put("a", bodies[number % 2])
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert file_store.get("a") in bodies
    thread.join()


def test_an_object_with_two_keys_is_two_objects(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.create("a/one", b"body")
    store.create("b/there", b"other")
    store.create("b/x", b"")
    assert store.name_again("b/one", "a/one")
    assert not store.name_again("b/there", "a/one")
    assert not store.name_again("b/two", "a/gone")
    assert not store.name_again("c/one", "a/one")  # `create` makes folders
    store.put("a/one", b"another")
    assert (store.get("b/one"), store.get("b/there")) == (b"body", b"other")
    store.delete(["a/one"])
    assert store.get("b/one") == b"body"


def test_creating_and_deleting_the_same_folder_at_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path, sync=False)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(100):
                key = f"a/b/{number}-{step}"
                assert store.create(key, b"x")
                store.delete([key])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.folders("") == []


def test_what_a_dead_writer_left_is_invisible_and_swept_after_a_day(tmp_path: Path) -> None:
    rubbish = tmp_path / ".tmp" / "old"
    fresh = tmp_path / ".tmp" / "new"
    rubbish.parent.mkdir()
    for path in (rubbish, fresh):
        path.write_bytes(b"half")
    os.utime(rubbish, (time.time() - 2 * 86400,) * 2)
    store = FileStore(tmp_path)
    assert list(store.scan("")) == []
    assert store.folders("") == []
    store.put("a", b"")
    assert not rubbish.exists()
    assert fresh.exists()


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    store = open_store((tmp_path / "none").as_uri())
    assert store.read("a") is None
    assert list(store.scan("runs/")) == []
    store.delete(["a"])
    began = time.time()
    assert began <= store.now() <= time.time()
    assert not (tmp_path / "none").exists()


def test_the_clock_is_the_file_systems(file_store: Store) -> None:
    file_store.put("a", b"")
    meta = file_store.head("a")
    assert meta is not None
    assert 0 <= file_store.now() - meta.modified < 5


def test_a_store_without_permission_or_space(tmp_path: Path) -> None:
    full = FileStore(Path("/proc/nothing"))
    with pytest.raises(Unreachable, match="file:///proc/nothing"):
        full.put("a", b"")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((Conflict, Unreachable), match="in the way"):
        FileStore(tmp_path / "file").put("a", b"")


@pytest.mark.parametrize(
    "url", ["file://host/x", "file://relative", "file:///x?y=1", "ftp://x/y", "/plain", "s3:/x", "s3://", "s3://b?x=1"]
)
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(BadInput):
        open_store(url)


def test_odd_paths_in_urls(tmp_path: Path) -> None:
    folder = tmp_path / "with space & ünïcode %41"
    store = open_store(folder.as_uri())
    store.put("a", b"1")
    assert (folder / "a").read_bytes() == b"1"
    assert open_store(store.url).get("a") == b"1"
