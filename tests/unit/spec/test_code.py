"""The code overlay: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec import code


def write(folder: Path, names: dict[str, str]) -> Path:
    for name, text in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_pack_is_what_digest_says(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"b.py": "2", "a/c.py": "3", "a.py": "1"})
    out = tmp_path / "code.tar"
    assert code.pack(folder, out) == code.digest(folder) == hashlib.sha256(out.read_bytes()).hexdigest()
    assert names(out) == ["a.py", "a/c.py", "b.py"]


def test_golden_digest(tmp_path: Path) -> None:
    """Other machines, Python versions and years pack the same bytes."""
    folder = write(tmp_path / "src", {"train.py": "print('hi')\n", "däta/x": "", "deep/" * 30 + "f": "long name"})
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    assert code.digest(folder) == "72d0beaf8cc03989b9afbc1f048797a489855f5b3d407a24388c5b5fe586d901"


def test_times_owners_and_umask_do_not_count_but_content_and_the_x_bit_do(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"a.py": "1"})
    before = code.digest(folder)
    os.utime(folder / "a.py", (1, 1))
    (folder / "a.py").chmod(0o600)
    assert code.digest(folder) == before
    (folder / "a.py").chmod(0o700)
    executable = code.digest(folder)
    (folder / "a.py").write_text("2")
    assert len({before, executable, code.digest(folder)}) == 3


def test_clutter_stays_out_without_git(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "a.py": "",
            ".venv/x": "",
            "p/__pycache__/a.pyc": "",
            "p/b.py": "",
            ".slipway/store/x": "",
            "x.egg-info/y": "",
        },
    )
    assert sorted(code.files(folder)) == ["a.py", "p/b.py"]


def test_git_says_what_is_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path, {".gitignore": "data/\n*.log\n", "a.py": "", "data/x": "", "b.log": "", "sub/new.py": ""})
    git(folder, "init", "-q")
    git(folder, "add", ".gitignore", "a.py")
    assert sorted(code.files(folder)) == [".gitignore", "a.py", "sub/new.py"]
    # a folder within the work tree is packed by its own names
    assert code.files(folder / "sub") == ["new.py"]
    (folder / "a.py").unlink()
    assert sorted(code.files(folder)) == [".gitignore", "sub/new.py"]


def test_another_trees_git_variables_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, {"a.py": "", "x.log": "", ".gitignore": "*.log\n"})
    git(folder, "init", "-q")
    monkeypatch.setenv("GIT_DIR", "/nonexistent/.git")
    assert sorted(code.files(folder)) == [".gitignore", "a.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    folder = write(tmp_path / "src", {"a.py": ""})
    (folder / "link").symlink_to(target)
    with pytest.raises(BadInput, match=f"link links to {target}"):
        code.digest(folder)


def test_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_BYTES", 20_000)
    folder = write(tmp_path / "src", {"weights": "x" * 30_000})
    with pytest.raises(BadInput, match="data belongs into `inputs`"):
        code.digest(folder)
