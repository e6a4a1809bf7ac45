"""Large libraries are imported without garbage collections, which go on afterwards."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.config.importing import large_imports


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported and has not been."""
    (tmp_path / "large_library.py").write_text(
        "import gc\nCOLLECTS = gc.isenabled()\nKEPT = [[n] for n in range(5000)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "large_library"
    sys.modules.pop("large_library")
    gc.unfreeze()


def test_no_collection_looks_at_what_an_import_makes_and_others_go_on(library: str) -> None:
    with large_imports():
        module = __import__(library)
    assert not module.COLLECTS
    assert gc.isenabled()
    assert gc.get_freeze_count() >= 5000


def test_what_was_imported_before_freezes_nothing() -> None:
    before = gc.get_freeze_count()
    with large_imports():
        import json  # noqa: F401
    assert gc.get_freeze_count() == before
    assert gc.isenabled()


def test_collections_go_on_after_an_import_that_fails() -> None:
    with pytest.raises(ModuleNotFoundError), large_imports():
        __import__("there_is_no_such_module")
    assert gc.isenabled()


def test_who_turned_collections_off_keeps_them_off() -> None:
    gc.disable()
    try:
        with large_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
