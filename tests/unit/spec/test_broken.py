"""Every rule, by a file that breaks it and the message it gives."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import every_case
from tests.unit.spec import corpus


@every_case("path", corpus.files(), ids=lambda path: path.stem)
def test_message(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / path.stem
    folder.mkdir()
    said = corpus.said(path, folder)
    assert said == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert not any(token in said for token in corpus.TOKENS.values())


def test_the_corpus_is_there_and_breaks_something() -> None:
    assert len(corpus.files()) > 80
    assert not [path for path in corpus.files() if path.with_suffix(".txt").read_text() == "accepted\n"]
