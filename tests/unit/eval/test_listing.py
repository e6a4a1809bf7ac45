"""What lies in a home that an agent may have filled with traps: each entry is told, no link is followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.desktop import BrokenByAgent
from eval.desktops import reading
from eval.desktops.reading import DEPTH_LIMIT, LISTED_LIMIT, FileEntry, list_files


def test_entries_at_any_depth_with_kind_mode_and_size(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/note.txt").write_bytes(b"12345")
    (tmp_path / "a/b/note.txt").chmod(0o640)
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe", 0o600)
    found = list_files(tmp_path, "")
    assert {path: entry.kind for path, entry in found.items()} == {
        **{"a": "folder", "a/b": "folder", "a/b/note.txt": "file"},
        **{"link": "link", "pipe": "other"},
    }
    assert found["a/b/note.txt"] == FileEntry("file", 0o640, 5)
    assert set(list_files(tmp_path, "a")) == {"b", "b/note.txt"}
    assert list_files(tmp_path, "nowhere/at/all") == {}


@pytest.mark.parametrize("name", ["..", "a/../..", "/etc"])
def test_a_path_out_of_the_home_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a path below the home"):
        list_files(tmp_path, name)


def link_out(home: Path) -> None:
    (home / "folder").symlink_to("/etc")


def link_above(home: Path) -> None:
    (home / "folder").symlink_to(".")


def file(home: Path) -> None:
    (home / "folder").write_text("no folder")


def fifo(home: Path) -> None:
    os.mkfifo(home / "folder")


@pytest.mark.parametrize("trap", [link_out, link_above, file, fifo])
def test_what_stands_in_the_place_of_a_folder_is_the_agents_doing(tmp_path: Path, trap: Callable[[Path], None]) -> None:
    trap(tmp_path)
    with pytest.raises(BrokenByAgent, match="folder cannot be read"):
        list_files(tmp_path, "folder")


def test_too_many_and_too_deep_are_the_agents_doing(tmp_path: Path) -> None:
    deep = tmp_path / "deep" / "/".join(["d"] * DEPTH_LIMIT)
    deep.mkdir(parents=True)
    with pytest.raises(BrokenByAgent, match=f"more than {DEPTH_LIMIT} deep"):
        list_files(tmp_path, "deep")
    (tmp_path / "many").mkdir()
    for number in range(LISTED_LIMIT + 1):
        (tmp_path / "many" / str(number)).touch()
    with pytest.raises(BrokenByAgent, match=f"more than {LISTED_LIMIT} files"):
        list_files(tmp_path, "many")


def test_a_name_of_any_bytes_is_told_as_text(tmp_path: Path) -> None:
    """Such a name became half a surrogate pair, which no JSON holds: the server's answer failed, as infrastructure."""
    folder = tmp_path / os.fsdecode(b"caf\xe9\xff")
    folder.mkdir()
    (tmp_path / "a\nb").touch()
    (folder / "c").touch()
    found = list_files(tmp_path, "")
    assert set(found) == {"a\nb", "caf\\xe9\\xff", "caf\\xe9\\xff/c"}
    assert all(path.encode() for path in found)


def test_a_folder_that_goes_while_it_is_listed_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "c").touch()
    real = reading._open

    def gone(part: str, flags: int, folder: int, name: str) -> int:
        if part == "a":
            (tmp_path / "a").rmdir()
        return real(part, flags, folder, name)

    monkeypatch.setattr(reading, "_open", gone)
    assert {"b", "c"} <= set(list_files(tmp_path, ""))
