"""A folder holds at most 14 modules, so that a stranger finds the one he looks for; and what documents
name for import exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
MOST: Final = 14  # modules side by side
# folders whose modules are of one kind and are found by a registry
ONE_KIND: Final = {
    "launcher/cli/verbs": "a verb of the command line each, found by its name",
    "eval/benchmarks/linux_desktop/templates": "a program's tasks each, put together by all_templates",
}
# what was larger when this test was written, and may only become smaller
LARGER: Final = {
    "launcher": 15,
    "launcher/backends/lambda_labs": 17,
    "launcher/store": 19,
    "launcher/verbs": 27,
}
PAGES: Final = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NAMED: Final = sorted(
    {
        name
        for page in PAGES
        if "project" not in page.parts  # dated tables name what there was
        for name in re.findall(r"(?:-m |`)(launcher(?:\.[a-z_]\w*)+)(?=[\s`:])", page.read_text(encoding="utf-8"))
    }
)


def side_by_side(folder: Path) -> int:
    return sum(1 for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def test_a_folder_holds_few_modules() -> None:
    folders = {
        str(path.parent.relative_to(ROOT)): path.parent
        for package in ("launcher", "training", "eval")
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert len(folders) > 60
    for name, folder in folders.items():
        if name not in ONE_KIND:
            assert side_by_side(folder) <= LARGER.get(name, MOST), f"{name}: give what belongs together a room"


def test_no_exception_outlives_its_reason() -> None:
    for name, count in LARGER.items():
        assert MOST < side_by_side(ROOT / name) <= count, f"{name}: take it out of LARGER"
    for name in ONE_KIND:
        assert side_by_side(ROOT / name) > MOST


@pytest.mark.parametrize("name", NAMED)
def test_what_documents_name_can_be_imported(name: str) -> None:
    owner = name
    while importlib.util.find_spec(owner.partition(".")[0]) is not None:
        try:
            if importlib.util.find_spec(owner) is not None:
                break
        except ModuleNotFoundError:
            pass
        owner = owner.rpartition(".")[0]
    rest = name.removeprefix(owner).lstrip(".")
    module = importlib.import_module(owner)
    assert not rest or hasattr(module, rest.partition(".")[0])


def test_documents_name_something() -> None:
    assert {"launcher.runtime", "launcher.spec.backends"} <= set(NAMED)
