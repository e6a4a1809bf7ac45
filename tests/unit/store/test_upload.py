"""Folders on their way to the store: no key is given two bodies, whatever is tried again or comes late."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import Conflict, NotFound, Unreachable
from launcher.store.file import FileStore
from launcher.store.manifest import Manifest, StoredFile, fetch_tree, find_output, key_of, live_outputs, read_manifest
from launcher.store.transfer import in_parallel
from launcher.store.upload import Upload
from tests.support.trees import write_tree

OUT = "out/"


class OneBody(FileStore):
    """Counts what is sent and fails when a key is given a second body. `breaks` says, by key, which puts lose their
    answer: before anything took effect (`before`), or after."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, sync=False)
        self.bodies: dict[str, str] = {}
        self.sent: list[str] = []
        self.copied: list[str] = []
        self.breaks: dict[str, str] = {}
        self.meanwhile: Callable[[str], None] = lambda key: None

    def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
        how = self.breaks.pop(key, "")
        if how == "before":
            raise Unreachable("the connection broke")
        body = b"".join(bytes(piece) for piece in source())
        if known is not None:
            known(len(body), hashlib.sha256(body).hexdigest())
        self._holds(key, body)
        self.sent.append(key)
        if how:
            raise Unreachable("the answer is lost")
        self.meanwhile(key)
        return super().send(key, lambda: [body], size, sha256, known)

    def create(self, key: str, body: bytes) -> bool:
        self._holds(key, body)
        if self.breaks.pop(key, ""):
            raise Unreachable("the answer is lost")
        return super().create(key, body)

    def copy(self, source: str, target: str) -> None:
        body = self.get(source)
        self._holds(target, body)
        self.copied.append(target)
        if self.breaks.pop(target, ""):
            raise Unreachable("the answer is lost")
        super().copy(source, target)

    def _holds(self, key: str, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        assert self.bodies.setdefault(key, digest) == digest, f"{key} is given a second body"


@pytest.fixture
def store(tmp_path: Path) -> OneBody:
    return OneBody(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "from"
    for name, body in {"a": b"1", "d/b": b"22"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(body)
        os.utime(root / name, (time.time() - 60,) * 2)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fetched(store: OneBody, manifest: Manifest, into: Path) -> dict[str, bytes]:
    fetch_tree(store, OUT, manifest, into)
    return content(into)


def test_unchanged_files_are_not_sent_again(store: OneBody, root: Path) -> None:
    upload = Upload(store, OUT, root)
    first = upload.version(1)
    store.sent.clear()
    assert upload.version(2) == first
    assert store.sent == []
    (root / "a").write_bytes(b"2")  # the same size
    (root / "new").write_bytes(b"3")
    (root / "d/b").unlink()
    third = upload.version(3)
    assert sorted(store.sent) == ["out.live/00000003/a", "out.live/00000003/new"]
    assert sorted(third) == ["a", "new"]
    assert third["a"].sha256 != first["a"].sha256


def test_the_same_bytes_under_a_new_time_are_not_sent_again(store: OneBody, root: Path) -> None:
    upload = Upload(store, OUT, root)
    upload.version(1)
    os.utime(root / "a", (1000, 1000))
    store.sent.clear()
    assert upload.version(2)["a"].mtime == 1000 * 10**9
    assert store.sent == []


def test_a_change_within_the_clocks_grain_is_seen(store: OneBody, root: Path) -> None:
    (root / "a").write_bytes(b"old")
    status = (root / "a").stat()
    upload = Upload(store, OUT, root)
    upload.version(1)
    (root / "a").write_bytes(b"new")
    os.utime(root / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    second = upload.version(2)
    assert second["a"].sha256 == hashlib.sha256(b"new").hexdigest()
    assert store.get(key_of(OUT, "a", second["a"].at)) == b"new"


def test_the_final_files_are_copies_of_live_ones_where_they_are_the_same(
    store: OneBody, root: Path, tmp_path: Path
) -> None:
    upload = Upload(store, OUT, root)
    upload.version(1)
    (root / "a").write_bytes(b"last")
    store.sent.clear()
    manifest = upload.final("out.manifest.json")
    assert store.sent == ["out/a"]
    assert store.copied == ["out/d/b"]
    assert all(file.at == "" for file in manifest.files.values())
    store.delete(upload.keys)
    assert fetched(store, manifest, tmp_path / "to") == content(root)
    assert read_manifest(store, "out.manifest.json") == manifest


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("key", ["out/a", "out/d/b"])
@pytest.mark.parametrize("live", [False, True])
def test_a_file_that_changes_between_two_tries_has_a_key_of_its_own(
    store: OneBody, root: Path, tmp_path: Path, how: str, key: str, live: bool
) -> None:
    upload = Upload(store, OUT, root)
    if live:
        upload.version(1)
    store.breaks[key] = how
    with pytest.raises(Unreachable):
        upload.final("out.manifest.json")
    (root / key.removeprefix(OUT)).write_bytes(b"written by what outlived the command")
    manifest = upload.final("out.manifest.json")
    assert fetched(store, manifest, tmp_path / "to") == content(root)
    assert upload.final("out.manifest.json") == manifest


def test_a_manifest_is_made_once(store: OneBody, root: Path) -> None:
    upload = Upload(store, OUT, root)
    store.breaks["out.manifest.json"] = "after"
    with pytest.raises(Unreachable):
        upload.final("out.manifest.json")
    (root / "a").write_bytes(b"too late")
    store.sent.clear()
    manifest = upload.final("out.manifest.json")
    assert store.sent == []
    assert manifest.files["a"].size == 1
    with pytest.raises(Conflict, match="another writer's manifest"):
        write_tree(FileStore(store.root, sync=False), OUT, "out.manifest.json", root)


def test_a_live_file_that_changes_while_it_is_sent_stays_at_its_last_version(store: OneBody, root: Path) -> None:
    """The store tries again by itself, within one call, with what the file has then."""

    class Again(OneBody):
        def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
            if key == "out.live/00000002/a":
                body = b"".join(source())
                known(len(body), hashlib.sha256(body).hexdigest())
                (root / "a").write_bytes(b"newer")
            return super().send(key, source, size, sha256, known)

    upload = Upload(again := Again(store.root), OUT, root)
    first = upload.version(1)["a"]
    (root / "a").write_bytes(b"new")
    assert upload.version(2)["a"] == first
    third = upload.version(3)["a"]
    assert again.get(key_of(OUT, "a", third.at)) == b"newer"


def test_a_round_that_broke_goes_on_under_another_number(store: OneBody, root: Path) -> None:
    upload = Upload(store, OUT, root)
    store.breaks["out.live/00000001/a"] = "after"
    with pytest.raises(Unreachable):
        upload.version(1)
    (root / "a").write_bytes(b"changed")
    files = upload.version(2)
    assert files["a"].at == ".live/00000002/a"
    assert {"out.live/00000001/a", "out.live/00000002/a"} <= upload.keys


def write_version(store: FileStore, number: int, body: bytes) -> None:
    file = StoredFile(len(body), hashlib.sha256(body).hexdigest(), at=f".live/{number:08d}/a")
    store.put(key_of(OUT, "a", file.at), body)
    import msgspec

    store.create(f"out.live/manifest/{number:08d}.json", msgspec.json.encode(Manifest({"a": file}, 1.0, "n")))


def sizes(found: object) -> list[int]:
    return [manifest.size for _, manifest in found]  # type: ignore[attr-defined]


def test_the_newest_version_is_found(store: OneBody, root: Path) -> None:
    assert find_output(store, OUT) is None
    for number in (1, 2, 3):
        write_version(store, number, b"x" * number)
    assert sizes(live_outputs(store, OUT, 0)) == []  # whoever told of none had none
    assert sizes(live_outputs(store, OUT, 2)) == [2, 3, 1]
    assert sizes(live_outputs(store, OUT)) == [3, 2, 1]
    assert sizes(live_outputs(store, OUT, 2, newer=True)) == [3, 2, 1]
    store.delete(["out.live/manifest/00000002.json"])
    assert sizes(live_outputs(store, OUT, 2)) == [3, 1]
    found = find_output(store, OUT, 3)
    assert found is not None
    assert found[0] == "out.live/manifest/00000003.json"
    write_tree(store, OUT, "out.manifest.json", root)
    found = find_output(store, OUT, 3)
    assert found is not None
    assert found[0] == "out.manifest.json"


def test_no_listing_where_the_version_is_told(store: OneBody) -> None:
    class Unlisted(OneBody):
        def scan(self, prefix: str, after: str = ""):  # type: ignore[no-untyped-def]
            raise AssertionError("nobody lists")

    write_version(store, 4, b"xxxx")
    found = find_output(Unlisted(store.root), OUT, 4)
    assert found is not None
    assert found[1].size == 4


def test_a_copy_is_the_same_bytes_under_another_key(store: OneBody) -> None:
    plain = FileStore(store.root, sync=False)
    plain.put("a", b"one")
    plain.copy("a", "d/b")
    plain.copy("a", "d/b")
    plain.put("a", b"two")
    assert plain.get("d/b") == b"one"
    assert [meta.key for meta in plain.scan("")] == ["a", "d/b"]
    assert list((store.root / ".tmp").iterdir()) == []
    with pytest.raises(NotFound):
        plain.copy("nothing", "c")


def test_each_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice it was: by who sends it, and by the store."""
    root, store = tmp_path / "from", FileStore(tmp_path / "to", sync=False)
    root.mkdir()
    for number in range(20):
        (root / f"{number}").write_bytes(b"%d" % number)
    made: list[object] = []
    sha256 = hashlib.sha256

    def counted(*data: bytes) -> Any:
        made.append(data)
        return sha256(*data)

    monkeypatch.setattr(hashlib, "sha256", counted)
    manifest = write_tree(store, OUT, "out.manifest.json", root)
    assert len(made) == 20
    assert manifest.files["7"].sha256 == sha256(b"7").hexdigest()


def test_after_an_error_no_further_file_begins(tmp_path: Path) -> None:
    """Threads take several of very many small files at once."""
    begun: list[int] = []
    lock = threading.Lock()

    def task(number: int) -> None:
        with lock:
            begun.append(number)
        if number == 100:
            raise RuntimeError("this one")

    with pytest.raises(RuntimeError, match="this one"):
        in_parallel((10, partial(task, number)) for number in range(20_000))
    assert len(begun) < 10_000
    begun.clear()
    in_parallel((10, partial(task, number)) for number in range(200, 5_000))
    assert sorted(begun) == list(range(200, 5_000))
