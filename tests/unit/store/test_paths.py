"""Names of files in a store: every name has one, no two share it, and the true one comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import BadInput
from launcher.store.base import Store, check_key
from launcher.store.file import FileStore
from launcher.store.paths import LISTED, LeftOutFiles, escaped, stored_name, unescaped
from launcher.verbs.gather import gather
from tests.support.fakerun import FakeAttempt, fake_job, write_run

PART = st.binary(min_size=1, max_size=12).filter(lambda part: b"/" not in part and b"\0" not in part)
NAMES = st.lists(PART.filter(lambda part: part not in (b".", b"..")), min_size=1, max_size=3).map(b"/".join)


@given(raw=NAMES)
def test_every_name_is_stored_and_comes_back(raw: bytes) -> None:
    name = os.fsdecode(raw)
    stored = stored_name(name)
    check_key(f"-/{stored}")
    assert len(stored.encode()) <= 700
    assert os.fsencode(unescaped(escaped(name))) == raw
    assert escaped(name).isascii()
    assert escaped(name).isprintable()
    if stored != name:
        assert stored.startswith("%odd/")
        assert stored.count("/") == 1


@given(names=st.sets(NAMES, min_size=2, max_size=6))
def test_no_two_names_are_stored_as_one(names: set[bytes]) -> None:
    assert len({stored_name(os.fsdecode(raw)) for raw in names}) == len(names)


@pytest.mark.parametrize("name", ["a", "a b", "\u00fc\u65e5", "%41", "a%0Ab", "~x", "x" * 255, ".tmp/x", "odd/%odd"])
def test_plain_names_stay(name: str) -> None:
    assert stored_name(name) == name


@pytest.mark.parametrize("text", ["..", "a/..", "/etc", "a//b", "%2E%2E/x", "a%00", "", "%2Fetc"])
def test_no_true_name_leaves_its_folder(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        unescaped(text)


def test_what_is_left_out_is_bounded() -> None:
    left = LeftOutFiles()
    for number in range(1000):
        left(f"link {number}\n", "a link to nothing")
    assert (len(left.listed), left.count) == (LISTED, 1000)
    assert left.listed[0].name == "link 0%0A"
    lines = list(left.lines("output x"))
    assert len(lines) == 11
    assert lines[-1] == "output x: left out 990 more"


def test_a_folder_that_takes_no_such_name_gets_the_stored_one(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may refuse what another took."""
    import msgspec

    from launcher.store.layout import RunKeys
    from tests.support.trees import write_tree

    run = write_run(file_store, fake_job("odd"), [FakeAttempt()])
    keys = RunKeys(run).attempt(1)
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a\nb").write_bytes(b"1")
    manifest = write_tree(file_store, keys.output("m"), keys.output_manifest("m"), tmp_path / "from")
    (stored,) = manifest.files
    plain = FileStore._path

    def path(self: FileStore, key: str) -> Path:
        if "\n" in key:
            raise BadInput("this file system takes no such name")
        return plain(self, key)

    monkeypatch.setattr(FileStore, "_path", path)
    (done,) = gather(file_store, [run], str(tmp_path / "to"))
    assert done.error is None
    assert (tmp_path / "to" / run / "outputs" / "m" / stored).read_bytes() == b"1"
    assert msgspec.json.decode((tmp_path / "to" / run / "gathered.json").read_bytes())["files"]
