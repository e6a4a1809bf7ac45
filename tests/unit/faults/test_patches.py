"""The seeded faults move with the code: each still applies, and the tests that it names exist."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.faults.patches import Wrong, _test_files, patched, read, read_all, resolved

ROOT: Final = Path(__file__).resolve().parents[3]
PATCH: Final = """\
What: it subtracts
Area: sums
Tests: tests/old/test_sums.py::test_sum
       tests/unit/test_sums.py
diff --git a/launcher/sums.py b/launcher/sums.py
--- a/launcher/sums.py
+++ b/launcher/sums.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a + b
+    return a - b
"""


def test_every_fault_applies_and_names_tests_that_exist() -> None:
    wrong = []
    for file in sorted((ROOT / "tests/faults").glob("*/*.patch")):
        try:
            fault = read(f"{file.parent.name}/{file.stem}", file)
            resolved(fault, ROOT)
            patched(fault, ROOT)
        except Wrong as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("launcher", "tests/unit", "tests/faults/launcher"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "launcher/sums.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "tests/unit/test_sums.py").write_text("def test_sum():\n    pass\n")
    (tmp_path / "tests/faults/launcher/minus.patch").write_text(PATCH)
    return tmp_path


def test_a_fault_is_read_and_a_test_that_was_moved_is_found(root: Path) -> None:
    [fault] = read_all(root / "tests/faults")
    assert (fault.name, fault.what, fault.area) == ("launcher/minus", "it subtracts", "sums")
    assert patched(fault, root) == {"launcher/sums.py": "def add(a, b):\n    return a - b\n"}
    assert resolved(fault, root) == ["tests/unit/test_sums.py::test_sum", "tests/unit/test_sums.py"]
    assert read_all(root / "tests/faults", ["minus"]) == read_all(root / "tests/faults", ["launcher"]) == [fault]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return a - b", "return a -", "launcher/sums.py is no Python"),
        ("return a + b", "return b + a", "does not apply to launcher/sums.py, line 1"),
        ("test_sum\n", "test_no_sum\n", "test_sums.py has no test test_no_sum"),
        ("test_sums.py", "test_none.py", "no test file tests/old/test_none.py"),
        ("launcher/sums.py", "tests/sums.py", "tests/sums.py is no file of the product"),
        ("Area: sums", "Areas: sums", "no line of a header"),
        ("Area: sums\n", "", "has to have"),
        ("@@ -1,2 +1,2 @@", "", "without a change"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(root: Path, old: str, new: str, words: str) -> None:
    file = root / "tests/faults/launcher/minus.patch"
    file.write_text(PATCH.replace(old, new))
    with pytest.raises(Wrong, match=words):
        _look(root)


def _look(root: Path) -> None:
    for fault in read_all(root / "tests/faults"):
        patched(fault, root)
        resolved(fault, root)


def test_of_several_moved_tests_the_one_in_a_folder_of_that_name_is_meant(root: Path) -> None:
    [fault] = read_all(root / "tests/faults")
    for folder in ("tests/integration/old", "tests/integration/new"):
        (root / folder).mkdir(parents=True)
        (root / folder / "test_sums.py").write_text("def test_sum():\n    pass\n")
    assert resolved(fault, root)[0] == "tests/integration/old/test_sums.py::test_sum"
    (root / "tests/integration/old/test_sums.py").unlink()
    _test_files.cache_clear()
    with pytest.raises(Wrong, match="of its name: "):
        resolved(fault, root)


def test_an_unknown_name_is_told(root: Path) -> None:
    with pytest.raises(Wrong, match="no fault is called plus"):
        read_all(root / "tests/faults", ["plus", "minus"])
