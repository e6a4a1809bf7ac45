"""What readers of a run that has ended pass over, written by the runtime's own code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.deleting.unreferenced import unreferenced
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.store.manifest import Manifest, StoredFile, fetch_tree, find_output, key_of
from tests.support.trees import write_tree

RUN = "r-0123456789ab"
FIRST = RunKeys(RUN).attempt(1)
FOLDER = FIRST.output("out")


def live(store: Store, version: int, *names: str, done: bool = True) -> None:
    """A version of a live output as the runtime leaves it."""
    files = {}
    for name in names:
        at = f".live/{version:08d}/{name}"
        digest = store.send(key_of(FOLDER, name, at), lambda: [b"%d" % version], 1)
        files[name] = StoredFile(1, digest, at=at)
    if done:
        store.create(FIRST.live_manifest("out", version), msgspec.json.encode(Manifest(files, 0.0, str(version))))


def unused(store: Store) -> set[str]:
    return {meta.key for meta in unreferenced(store, RUN, list(store.scan(RunKeys(RUN).prefix)))}


def delete(store: Store) -> None:
    store.delete(unused(store))


def read(store: Store, to: Path) -> dict[str, bytes]:
    found = find_output(store, FOLDER)
    assert found is not None
    fetch_tree(store, FOLDER, found[1], to)
    return {path.relative_to(to).as_posix(): path.read_bytes() for path in to.rglob("*") if path.is_file()}


def test_only_the_newest_complete_version_stays(store: Store, tmp_path: Path) -> None:
    live(store, 1, "a", "b")
    live(store, 2, "a")
    live(store, 3, "a", "c", done=False)  # a killed runtime's last
    before = read(store, tmp_path / "before")
    delete(store)
    assert read(store, tmp_path / "after") == before == {"a": b"2"}
    assert unused(store) == set()
    assert len(list(store.scan(FIRST.prefix))) == 2


def test_beside_the_final_manifest_no_version_stays(store: Store, tmp_path: Path) -> None:
    live(store, 1, "a")
    live(store, 2, "a", "b")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("final")
    write_tree(store, FOLDER, FIRST.output_manifest("out"), tmp_path / "root")
    delete(store)
    assert read(store, tmp_path / "after") == {"a": b"final"}
    assert {meta.key for meta in store.scan(FIRST.prefix)} == {FOLDER + "a", FIRST.output_manifest("out")}


def test_a_final_manifest_may_name_files_elsewhere(store: Store, tmp_path: Path) -> None:
    digest = store.send(f"{FOLDER[:-1]}.again/00000002/a", lambda: [b"2"], 1)
    store.put(f"{FOLDER[:-1]}.again/00000001/a", b"1")
    manifest = Manifest({"a": StoredFile(1, digest, at=".again/00000002/a")}, 0.0, "n")
    store.create(FIRST.output_manifest("out"), msgspec.json.encode(manifest))
    delete(store)
    assert read(store, tmp_path / "after") == {"a": b"2"}
    assert len(list(store.scan(FIRST.prefix))) == 2


def test_files_without_any_manifest_are_read_by_nobody(store: Store) -> None:
    store.put(FOLDER + "a", b"1")
    store.put(FIRST.output("other") + "a", b"1")
    store.create(FIRST.output_manifest("other"), b"not looked at: everything lies under its own name")
    assert unused(store) == {FOLDER + "a"}


@pytest.mark.parametrize("kind", ["logs", "metrics"])
def test_pieces_that_another_covers(store: Store, kind: str) -> None:
    piece = FIRST.log_piece if kind == "logs" else FIRST.metrics_piece
    whole = {piece("main-0", 0, 6): b"abcdef"}
    late = {piece("main-0", 0): b"ab", piece("main-0", 2, 4): b"cd", piece("main-0", 4, 6): b"ef"}
    apart = {piece("main-1", 0, 2): b"gh", piece("main-1", 2, 4): b"ij"}
    for key, body in {**whole, **late, **apart}.items():
        store.put(key, body)
    assert unused(store) == set(late)
    delete(store)
    if kind == "logs":
        for member, text in (("main-0", b"abcdef"), ("main-1", b"ghij")):
            assert b"".join(one.body for one in Log(store, FIRST, member).more()) == text


def test_a_checkpoint_without_its_marker(store: Store) -> None:
    whole = [FIRST.checkpoint_complete(1), FIRST.checkpoint_files(1, "main-0") + "a"]
    part = [FIRST.checkpoint_files(2, "main-0") + "complete.json", FIRST.checkpoint_manifest(2, "main-0")]
    for key in [*whole, *part, FIRST.exit("main-0"), RunKeys(RUN).job]:
        store.put(key, b"{}")
    assert unused(store) == set(part)
