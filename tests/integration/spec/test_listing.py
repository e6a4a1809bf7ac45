"""Which files of a folder belong to the project: with git, where git refuses, and without."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.errors import BadInput
from launcher.spec.code import listing as module
from launcher.spec.code.listing import Ignored, listing
from launcher.spec.code.overlay import Overlay
from tests.integration.spec.test_code import git, write
from tests.support.needs import need, need_root


@pytest.fixture
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)


def test_gitignore_counts_without_git(tmp_path: Path, no_git: None) -> None:
    folder = write(
        tmp_path,
        {
            ".gitignore": "*.log\ndata/\n!keep.log\n/top\n",
            "a.py": "",
            "b.log": "",
            "keep.log": "",
            "top": "",
            "sub/top": "",
            "data/x": "",
            "sub/.gitignore": "!b.log\n*.bin\n",
            "sub/b.log": "",
            "sub/c.log": "",
            "sub/d.bin": "",
            "sub/data/x": "",
        },
    )
    wanted = [".gitignore", "a.py", "keep.log", "sub/.gitignore", "sub/b.log", "sub/top"]
    assert sorted(listing(folder).names) == wanted


NAMES = st.sampled_from(["a", "b.log", "c.py", "data", "x y"])
LINES = st.sampled_from(
    [
        *("a", "/a", "a/", "*.log", "!b.log", "data/", "/data", "data/*", "!data/a", "**/c.py", "data/**"),
        *("x\\ y", "#a", "", "?", "[a-c]", "[!a]*", "a/**/c.py", "/*", "!/data/", "\\#a", "a ", "[", "**", "data/**/a"),
    ]
)


@given(
    files=st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8),
    top=st.lists(LINES, max_size=4),
    deep=st.lists(LINES, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_it_says_what_git_says(
    files: set[str], top: list[str], deep: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    need("git")
    names = {name for name in files if not any(other.startswith(f"{name}/") for other in files)}
    names = {name for name in names if name.rpartition("/")[2] != "data" or f"{name}/" not in "".join(files)}
    folder = write(tmp_path_factory.mktemp("project"), dict.fromkeys(sorted(names), ""))
    (folder / ".gitignore").write_text("\n".join(top) + "\n")
    if (folder / "data").is_dir():
        (folder / "data/.gitignore").write_text("\n".join(deep) + "\n")
    without = sorted(module._walk(folder, set()))
    git(folder, "init", "-q")
    assert without == listing(folder).names
    shutil.rmtree(folder)


ODD = [*("a", "b", "ab", "a/b", "a/b/a", "[", "]", "a]", "!a", "#a", "-", "a b", "a ", "\\", "*", "a*", "a.b", ".a")]
ODD += ["x/a/b", "x/y/a", "x/y/z/ab", "^", "a-b", "x/[", "d/[a]"]


def test_odd_lines_fit_what_git_lets_them_fit(tmp_path: Path) -> None:
    """Put together at random, with a fixed seed; more than a thousand were compared when this was written."""
    chance = random.Random(7)
    git(tmp_path, "init", "-q")
    for _ in range(50):
        line = "".join(chance.choice("aabbb///***??[]!\\-. #^xy") for _ in range(chance.randint(1, 7)))
        (tmp_path / ".gitignore").write_text(line + "\n")
        asked = ["git", "check-ignore", "--no-index", "--stdin", "-z"]
        told = subprocess.run(
            asked, input="\0".join((*ODD, "")).encode(), cwd=tmp_path, capture_output=True, check=False
        )
        ignored = Ignored()
        ignored.add("", tmp_path / ".gitignore")
        assert {name for name in ODD if ignored.above(name)} == set(told.stdout.decode().split("\0")) - {""}, line


@pytest.mark.parametrize("with_git", [True, False])
def test_slipwayignore_counts_in_both_cases(tmp_path: Path, with_git: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [".slipwayignore", "a.py", "big/x", "sub/.slipwayignore", "sub/b.txt", "sub/c.txt"]
    folder = write(tmp_path, dict.fromkeys(names, ""))
    write(folder, {".slipwayignore": "big/\n*.txt\n", "sub/.slipwayignore": "!c.txt\n"})
    if with_git:
        git(folder, "init", "-q")
        git(folder, "add", "big/x")
    else:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert sorted(listing(folder).names) == [".slipwayignore", "a.py", "sub/.slipwayignore", "sub/c.txt"]


def test_git_that_refuses_a_foreign_folder_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "src", {".gitignore": "secret\n", "a.py": "", "secret": ""})
    git(folder, "init", "-q")
    monkeypatch.setenv("HOME", str(tmp_path))  # no safe.directory
    need_root()  # who else can give a folder to another user?
    for here in (folder, *folder.rglob("*")):
        os.chown(here, 12345, 12345, follow_symlinks=False)
    with pytest.raises(BadInput, match=r"git refuses to list .*dubious ownership.*safe.directory"):
        Overlay(folder).digest()


def test_a_worktree_whose_repository_is_gone_is_refused(tmp_path: Path) -> None:
    main = write(tmp_path / "main", {"a.py": ""})
    git(main, "init", "-q")
    git(main, "add", "a.py")
    git(main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert Overlay(tmp_path / "tree").files == ["a.py"]
    shutil.rmtree(main)
    with pytest.raises(BadInput, match="git refuses to list"):
        Overlay(tmp_path / "tree").digest()


def test_submodules_and_clones_within_are_packed(tmp_path: Path) -> None:
    library = write(tmp_path / "library", {"lib.py": "1", ".gitignore": "*.log\n"})
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    folder = write(tmp_path / "src", {"a.py": ""})
    git(folder, "init", "-q")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    git(folder, "clone", "-q", str(library), "nested")
    write(folder, {"sub/x.log": "", "sub/new.py": "", "nested/x.log": ""})
    wanted = [".gitmodules", "a.py"]
    wanted += ["nested/.gitignore", "nested/lib.py", "sub/.gitignore", "sub/lib.py", "sub/new.py"]
    assert Overlay(folder).files == wanted
    git(folder, "submodule", "deinit", "-q", "-f", "sub")
    found = Overlay(folder)
    assert found.files == [".gitmodules", "a.py", "nested/.gitignore", "nested/lib.py"]
    assert "sub (a submodule that is not checked out: `git submodule update --init`)" in found.note()


def test_a_link_into_a_mounted_config_map_is_inside(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"..2026_11_29/job.py": "1"})
    (folder / "..data").symlink_to("..2026_11_29")
    (folder / "job.py").symlink_to("..data/job.py")
    assert Overlay(folder).files == ["..2026_11_29/job.py", "..data", "job.py"]
    Overlay(folder).digest()


def test_a_git_folder_that_is_empty_is_no_work_tree(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"a.py": ""})
    (folder / ".git").mkdir()
    assert Overlay(folder).files == ["a.py"]
