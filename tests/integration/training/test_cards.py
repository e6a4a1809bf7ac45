"""After a training: its model and adapter carry cards, and merging the adapter gives that model again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.training.preference import weights
from tests.unit.training.material import PROMPT, episodes, model
from training.common.model.card import digest
from training.merge import MergeConfig, merge
from training.sft.train import main

pytestmark = [
    pytest.mark.ml,
    # peft asks transformers by a name that is on its way out
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def test_a_lora_trained_carded_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("SLIPWAY_RUN", "cards-0123456789ab")
    made = episodes(tmp_path)
    base = model(tmp_path / "base", made)
    prompt = {name: getattr(PROMPT, name) for name in ("decimals", "system", "history", "images")}
    config = {"model": str(base), "episodes": str(made), "prompt": prompt, "steps": 2, "batch_size": 2}
    config |= {"lora": {"rank": 4}, "learning_rate": 1e-2, "predictions": 2, "warmup_steps": 0}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    out = tmp_path / "out"
    assert main(["--config", str(tmp_path / "config.json"), "--out", str(out)]) == 0
    for name in ("model", "adapter"):
        text = (out / name / "README.md").read_text()
        assert "# cards-0123456789ab" in text
        assert f"| episodes (episodes) | {digest(made)} |" in text
        assert "| memorisation | training data | exact_answers |" in text
        assert str(tmp_path) not in text
    merge(MergeConfig(model=str(base), adapter=str(out / "adapter")), tmp_path / "merged")
    trained, again = weights(out / "model"), weights(tmp_path / "merged" / "model")
    assert trained.keys() == again.keys()
    assert all(torch.equal(trained[name], again[name]) for name in trained)
