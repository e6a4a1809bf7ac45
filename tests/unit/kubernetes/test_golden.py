"""The examples, rendered: byte for byte what is in golden/ (update: make golden)."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.backends.kubernetes.render.manifests import objects
from tests.unit.kubernetes.support import EXAMPLES, GOLDEN, example, parsed, written


def test_there_are_examples_and_no_golden_of_another() -> None:
    assert len(EXAMPLES) >= 7
    assert {path.stem for path in EXAMPLES} == {path.name for path in GOLDEN.iterdir()}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    rendered = written(path)
    assert rendered.documents == {
        file.name: file.read_text(encoding="utf-8") for file in (GOLDEN / path.stem).iterdir()
    }
    assert rendered.warnings == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_written_is_what_is_sent(path: Path) -> None:
    texts = written(path).documents
    assert {one.file: list(one.documents) for one in objects(example(path))} == {
        name: parsed(text) for name, text in texts.items()
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_order_of_the_runs_does_not_matter(path: Path) -> None:
    runs = example(path)
    assert {one.file: one for one in objects(runs)} == {one.file: one for one in objects(runs[::-1])}
