"""Folders in a store: written whole, sent once, read back checked."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from launcher.errors import NotFound
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.manifest import Manifest, StoredFile, fetch_tree, read_manifest
from launcher.store.opening import open_store
from launcher.store.paths import walk
from launcher.store.transfer import PIECE, Damaged, ahead, checked
from tests.support.trees import write_tree


class Counting(FileStore):
    """Remembers what was sent and fetched."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, sync=False)
        self.sent: list[str] = []
        self.fetched: list[str] = []

    def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
        self.sent.append(key)
        return super().send(key, source, size, sha256, known)

    def stream(self, key):  # type: ignore[no-untyped-def]
        self.fetched.append(key)
        return super().stream(key)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "from"
    for name, body in {"a": b"1", "d/b": b"22", "d/e/ü ?#": b"", ".tmp/x": b"hidden"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(body)
        os.utime(root / name, (time.time() - 60,) * 2)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_there_and_back(store: Counting, root: Path, tmp_path: Path) -> None:
    written = write_tree(store, "out/", "out.manifest.json", root)
    read = read_manifest(store, "out.manifest.json")
    assert read == written
    assert read.files["d/b"].size == 2
    assert read.files["d/b"].sha256 == hashlib.sha256(b"22").hexdigest()
    assert list(read.files) == sorted(read.files)
    assert read.size == 9
    fetch_tree(store, "out/", read, tmp_path / "to")
    assert content(tmp_path / "to") == content(root)


def test_the_manifest_is_written_last(store: Counting, root: Path) -> None:
    class Broken(Counting):
        def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
            if key.endswith("d/b"):
                raise RuntimeError("the machine is gone")
            return super().send(key, source, size, sha256, known)

    with pytest.raises(RuntimeError):
        write_tree(Broken(store.root), "out/", "out.manifest.json", root)
    assert read_manifest(store, "out.manifest.json") is None


def test_a_file_that_vanishes_is_left_out(store: Counting, root: Path) -> None:
    class Rotating(Counting):
        def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
            if key.endswith("/a"):
                (root / "a").unlink()
            return super().send(key, source, size, sha256, known)

    assert "a" not in write_tree(Rotating(store.root), "out/", "m.json", root).files


def test_a_file_that_grows_is_recorded_as_it_was_sent(store: Counting, root: Path) -> None:
    class Growing(Counting):
        def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
            if key.endswith("/a"):
                with (root / "a").open("ab") as file:
                    file.write(b" and more")
            return super().send(key, source, size, sha256, known)

    manifest = write_tree(Growing(store.root), "out/", "m.json", root)
    assert manifest.files["a"].size == len(b"1 and more")
    assert manifest.files["a"].sha256 == hashlib.sha256(store.get("out/a")).hexdigest()


def test_links_are_followed_and_loops_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real/x").write_bytes(b"1")
    (root / "latest").symlink_to("real")
    (root / "real/up").symlink_to("..")
    (root / "file").symlink_to("real/x")
    (root / "dangling").symlink_to("nothing")
    os.mkfifo(root / "pipe")
    assert [name for name, _, _ in walk(root)] == ["file", "latest/x", "real/x"]


def test_what_is_there_is_not_fetched_again(store: Counting, root: Path, tmp_path: Path) -> None:
    manifest = write_tree(store, "out/", "m.json", root)
    (tmp_path / "to/d").mkdir(parents=True)
    (tmp_path / "to/a").write_bytes(b"1")
    (tmp_path / "to/d/b").write_bytes(b"2X")  # the right size, the wrong bytes
    fetch_tree(store, "out/", manifest, tmp_path / "to")
    assert sorted(store.fetched) == ["out/.tmp/x", "out/d/b", "out/d/e/ü ?#"]
    assert content(tmp_path / "to") == content(root)


def test_wrong_bytes_are_not_kept(store: Counting, root: Path, tmp_path: Path) -> None:
    manifest = write_tree(store, "out/", "m.json", root)
    store.put("out/d/b", b"2X")
    with pytest.raises(Damaged, match="out/d/b"):
        fetch_tree(store, "out/", manifest, tmp_path / "to")
    assert not (tmp_path / "to/d/b").exists()
    store.put("out/d/b", b"222")
    with pytest.raises(Damaged, match="3 bytes"):
        fetch_tree(store, "out/", manifest, tmp_path / "to")
    store.delete(["out/d/b"])
    with pytest.raises(NotFound):
        fetch_tree(store, "out/", manifest, tmp_path / "to")


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"files": {"../x": {"size": 1, "sha256": ""}}, "time": 0, "nonce": ""}']
)
def test_what_is_no_manifest(store: Counting, body: bytes) -> None:
    store.put("m.json", body)
    with pytest.raises(Damaged, match=r"m\.json: not a manifest"):
        read_manifest(store, "m.json")


def test_progress_ends_at_all_of_it(store: Counting, root: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    manifest = write_tree(store, "out/", "m.json", root, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    fetch_tree(store, "out/", manifest, tmp_path / "to", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)


def test_the_digest_is_of_names_and_contents() -> None:
    one = Manifest({"a": StoredFile(1, "x", 5), "b": StoredFile(2, "y")}, 1.0, "n")
    other = Manifest({"b": StoredFile(2, "y", 7), "a": StoredFile(1, "x")}, 2.0, "m")
    assert one.digest == other.digest
    assert one.digest != Manifest({"a": StoredFile(1, "x")}, 1.0, "n").digest


def test_checked_holds_the_last_piece_back() -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"a", b"b")

    got: list[object] = []
    with pytest.raises(Damaged):
        got.extend(checked(pieces(), hashlib.sha256(), 2, "wrong", "x"))
    assert got == [b"a"]


def test_ranges_come_in_order_and_few_at_once() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def fetch(start: int, end: int) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002 * ((start // PIECE) % 3))
        with lock:
            running -= 1
        return f"{start}-{end};".encode()

    size = 10 * PIECE + 7
    text = b"".join(ahead(fetch, size, start=5)).decode()
    edges = [tuple(map(int, part.split("-"))) for part in text.strip(";").split(";")]
    assert edges[0][0] == 5
    assert edges[-1][1] == size
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    assert most <= 4


def test_a_reader_that_stops_early_is_no_problem(tmp_path: Path, store: Store) -> None:
    store.put("big", b"x" * (3 * PIECE))
    pieces = store.stream("big")
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert open_store(store.url).head("big") is not None


def test_modes_and_empty_folders_come_back_and_are_not_in_the_digest(
    store: Counting, root: Path, tmp_path: Path
) -> None:
    plain = write_tree(store, "plain/", "plain.manifest.json", root)
    (root / "run.sh").write_text("#!/bin/sh\n")
    before = write_tree(store, "before/", "before.manifest.json", root)
    (root / "run.sh").chmod(0o755)
    (root / "d/nothing/inside").mkdir(parents=True)
    (root / os.fsdecode(b"odd\x01")).mkdir()
    after = write_tree(store, "after/", "after.manifest.json", root)
    assert plain.digest != before.digest == after.digest
    found = read_manifest(store, "after.manifest.json")
    assert found is not None
    assert found.empty_folders == ("d/nothing/inside", "odd%01")
    assert [name for name, file in found.files.items() if file.executable] == ["run.sh"]
    fetch_tree(store, "after/", found, tmp_path / "to")
    assert content(tmp_path / "to") == content(root)
    assert os.access(tmp_path / "to/run.sh", os.X_OK)
    assert not (tmp_path / "to/a").stat().st_mode & 0o111
    assert (tmp_path / "to/d/nothing/inside").is_dir()
    assert (tmp_path / os.fsdecode(b"to/odd\x01")).is_dir()
    # as the launcher of 28 November 2026 wrote them: without either field
    assert b"executable" not in store.get("before.manifest.json")
    assert b"empty_folders" not in store.get("before.manifest.json")


def test_an_empty_folder_that_leads_out_of_its_own_is_damage(store: Counting) -> None:
    store.put("m.json", b'{"files": {}, "time": 1.0, "nonce": "n", "empty_folders": ["a/..%2f..%2fb"]}')
    with pytest.raises(Damaged, match="not a manifest"):
        read_manifest(store, "m.json")
