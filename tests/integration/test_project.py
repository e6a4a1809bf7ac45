"""What a project promises beside its code: licence, version, types, hooks, hosted CI, the documents' site."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import launcher
from tests.support.documented import ROOT, tracked
from tests.support.needs import need
from tests.unit.test_project import PROJECT
from tools.docs_site import navigation
from tools.wheel import make


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it."""
    need("git")
    (file,) = (path for path in make(tmp_path_factory.mktemp("dist")) if path.suffix == ".whl")
    return file


def test_the_version_has_one_source(wheel: Path) -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", launcher.__version__)
    assert wheel.name == f"slipway_cua-{launcher.__version__}-py3-none-any.whl"
    printed = subprocess.run(
        [sys.executable, "-m", "launcher.cli", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert printed.stdout == f"slipway {launcher.__version__}\n"


def test_the_wheel_holds_types_licence_and_everything_the_packages_read(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for package in ("launcher", "training", "eval"):
        assert f"{package}/py.typed" in names
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    data = [str(path.relative_to(ROOT)) for path in tracked("launcher", "training", "eval")]
    assert not [name for name in data if name not in names and not name.endswith((".md", ".py"))]


def test_the_index_lists_every_page_once() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    rooms = navigation(index)
    listed = [page for room in rooms for pages in room.values() for entry in pages for page in entry.values()]
    assert len(listed) == len(set(listed))
    assert {*listed, "index.md"} == {str(path.relative_to(ROOT / "docs")) for path in tracked("docs/*.md")}
    assert [name for room in rooms for name in room] == ["Tutorials", "How-to", "Reference", "Explanation", "Project"]
