"""A submit says when only the code makes a run another one, and which files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.spec.code.overlay import Overlay
from launcher.spec.hashing import run_id
from launcher.spec.model import Code, Image, ResolvedJob, Role
from launcher.spec.profile import LocalSettings, Profile
from launcher.spec.resolve.group import Group
from launcher.store.layout import blob_note
from launcher.userdata.submits import newest, remember
from launcher.verbs.overlays import only_software_differs, upload_overlays
from tests.integration.spec.test_code import write
from tests.support.fakerun import fake_job
from tests.support.memory_store import MemoryStore
from tests.support.releases import NAME, install, reference


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Stored(MemoryStore):
    def send(self, key, source, size, sha256=None, known=None):  # type: ignore[no-untyped-def]
        self.put(key, b"".join(bytes(piece) for piece in source()))
        return sha256


def submitted(store: MemoryStore, folder: Path, **fields: object) -> tuple[ResolvedJob, list[str]]:
    """As a submit does it."""
    overlay = Overlay(folder)
    job = fake_job("train", code=Code(overlay.digest()), **fields)
    overlays = {overlay.digest(): overlay}
    group = Group("g-1", (job,), {}, {run_id(job): "train"})
    lines = list(only_software_differs(store, group, [job], overlays))
    upload_overlays(store, [job], overlays)
    remember(store.url, {"train": job})
    return job, lines


def test_the_files_that_differ_are_named(tmp_path: Path) -> None:
    store = Stored("memory:", lambda: 1000.0)
    folder = write(tmp_path / "src", {"a.py": "1", "b.py": "1", "c.py": "1"})
    first, said = submitted(store, folder)
    assert said == []
    write(folder, {"a.py": "2", "new/d.py": ""})
    (folder / "b.py").unlink()
    second, said = submitted(store, folder)
    told = f"{run_id(second)} is a new run: nothing differs from {run_id(first)} but the files of `code`"
    shows = f"; `launcher results {run_id(first)}` shows the earlier one"
    assert said == [f"{told} (changed a.py, gone b.py, new new/d.py){shows}"]
    write(folder, {f"{number}.py": "" for number in range(7)})
    _, said = submitted(store, folder)
    assert "`code` (new 0.py, new 1.py, new 2.py, new 3.py, new 4.py and 2 more);" in said[0]


def test_nothing_is_said_where_more_differs_or_nothing(tmp_path: Path) -> None:
    store = Stored("memory:", lambda: 1000.0)
    folder = write(tmp_path / "src", {"a.py": "1"})
    submitted(store, folder)
    assert submitted(store, folder)[1] == []
    write(folder, {"a.py": "2"})
    assert submitted(store, folder, config={"lr": 2})[1] == []


def test_of_an_older_overlay_only_that_it_differs(tmp_path: Path) -> None:
    store = Stored("memory:", lambda: 1000.0)
    folder = write(tmp_path / "src", {"a.py": "1"})
    first, _ = submitted(store, folder)
    assert first.code is not None
    store.put(blob_note(first.code.digest), b'{"user": "me", "time": 1.0, "commit": "", "dirty": false}')
    write(folder, {"a.py": "2"})
    second, said = submitted(store, folder)
    told = f"{run_id(second)} is a new run: nothing differs from {run_id(first)} but the files of `code`; "
    assert said[0].startswith(told)


def test_what_was_kept_may_be_lost_or_damaged(tmp_path: Path) -> None:
    assert newest("memory:", "train") is None
    job = fake_job("train")
    remember("memory:", {"train": job})
    kept = newest("memory:", "train")
    assert kept is not None
    assert run_id(kept) == run_id(job)
    (path,) = (tmp_path / "cache/slipway/newest").iterdir()
    path.write_bytes(b"{")
    assert newest("memory:", "train") is None
    assert newest("other:", "train") is None
    remember("memory:", {"train": msgspec.structs.replace(job, name="other")})
    assert newest("memory:", "train") is not None


def test_a_newer_image_is_said_with_what_keeps_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "packed", monkeypatch, "0.1.0", "0.2.0")
    store = MemoryStore("memory:", lambda: 1000.0)

    def submit(image: str, names: str, **fields: object) -> tuple[str, list[str]]:
        profile = Profile("memory:", LocalSettings(tmp_path), images={NAME: names})
        role = Role(command=("x",), image=Image(*image.split("@")))
        job = fake_job("train", roles={"main": role}, **fields)
        group = Group("g-1", (job,), {}, {run_id(job): "train"}, _profile=profile)
        lines = list(only_software_differs(store, group, [job], {}))
        remember(store.url, {"train": job})
        return run_id(job), lines

    first, said = submit(reference("0.1.0"), reference("0.1.0"))
    assert said == []
    second, said = submit(reference("0.2.0"), reference("0.2.0"))
    shows = f"`launcher results {first}` shows the earlier one"
    keeps = "`catalogue: 0.1.0` in slipway.yaml keeps the earlier image"
    told = f"{second} is a new run: nothing differs from {first} but the image of {NAME}; {shows}; {keeps}"
    assert said == [told]
    # of no release: one that somebody pushed
    submit(own := f"registry.example/mine/{NAME}@sha256:{'a' * 64}", own)
    _, said = submit(reference("0.2.0"), reference("0.2.0"))
    assert said[0].endswith(f"; `images: {{{NAME}: '{own}'}}` in slipway.yaml keeps the earlier image")
    assert submit(own, own, config={"lr": 2})[1] == []
    # an image that the job itself names is meant
    assert submit(reference("0.1.0"), reference("0.2.0"), config={"lr": 2})[1] == []
