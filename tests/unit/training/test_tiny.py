"""The tiny model: the same from the same configuration, and complete enough to load like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from training.tiny import SPECIAL, TinyConfig, action_texts, build, main, tokenizer

pytestmark = pytest.mark.ml
SIZES: dict[str, Any] = {"hidden": 48, "heads": 2, "layers": 1, "vision_hidden": 32, "vision_layers": 1}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_seed_gives_the_same_bytes_whatever_was_drawn_before(tmp_path: Path) -> None:
    import torch

    build(TinyConfig(seed=1, **SIZES), tmp_path / "a")
    torch.rand(3)
    before = torch.random.get_rng_state()
    build(TinyConfig(seed=1, **SIZES), tmp_path / "b")
    assert torch.equal(before, torch.random.get_rng_state())
    build(TinyConfig(seed=2, **SIZES), tmp_path / "c")
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} == {"model.safetensors"}


def test_text_comes_back_from_its_tokens_and_digits_stand_alone() -> None:
    tokens = tokenizer(action_texts(), 512)
    for text in ("Action: CLICK(x=0.42, y=0.73)", 'TYPE(text="žluťoučký \\"kůň\\"")', "a\n\tb  1234"):
        assert tokens.decode(tokens(text)["input_ids"]) == text
    pieces = [tokens.decode([i]) for i in tokens("Action: CLICK(x=0.42, y=0.73)")["input_ids"]]
    assert pieces == ["Action: ", "CLICK(x=", "0", ".", "4", "2", ", y=", "0", ".", "7", "3", ")"]
    assert len(tokens) <= 512
    assert all(len(tokens(token)["input_ids"]) == 1 for token in SPECIAL)


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="multiple"):
        build(TinyConfig(hidden=50, heads=4), tmp_path)


def test_the_entry_point_names_a_bad_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("hiden: 64\n")
    assert main(["--config", str(config), "--out", str(tmp_path / "model")]) == 78
    assert "hiden" in capsys.readouterr().err
