"""A model's card says what it came from, the same bytes each time, and never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from training.common.model.card import LEFT_OUT, card, clean, digest, write_card

ROW = {"benchmark": "click", "split": "test", "metric": "success", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 99}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SLIPWAY_RUN", "GIT_COMMIT", "SOURCE_DATE_EPOCH", "SLIPWAY_INPUTS"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "model"
    made.mkdir()
    (made / "model.safetensors").write_bytes(b"weights")
    return made


def test_the_card_tells_run_data_metrics_and_settings(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "inputs" / "episodes"
    data.mkdir(parents=True)
    (data / "a.json").write_text("{}")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "summary.json").write_text(json.dumps([ROW]))
    monkeypatch.setenv("SLIPWAY_RUN", "sft-0123456789ab")
    monkeypatch.setenv("SLIPWAY_INPUTS", str(tmp_path / "inputs"))
    monkeypatch.setenv("GIT_COMMIT", "abc123")
    config = {"model": "hf://Qwen/Qwen3-VL-2B-Instruct@main", "episodes": str(data), "learning_rate": 1e-5}
    text = write_card(folder, config, method="sft", results=tmp_path / "results").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["base_model"] == "Qwen/Qwen3-VL-2B-Instruct"
    assert front["license"] == "unknown"
    assert "# sft-0123456789ab" in text
    assert "abc123" in text
    assert f"| episodes ($SLIPWAY_INPUTS/episodes) | {digest(data)} |" in text
    assert "| click | test | success | 0.5 | 0.4 to 0.6 | 99 |" in text
    assert "`launcher results sft-0123456789ab` shows it" in text
    assert '"learning_rate": 1e-05' in text
    assert str(tmp_path) not in text


def test_the_same_training_gives_the_same_bytes_and_a_date_only_on_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"model": "base", "steps": 3}
    first = card(folder, config, method="sft")
    assert card(folder, dict(reversed(config.items())), method="sft") == first
    assert "| date |" not in first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert "| date | 1970-01-01 00:00:00 UTC |" in card(folder, config, method="sft")


def test_a_digest_sees_names_and_contents_and_takes_the_word_of_a_packed_dataset(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = digest(tmp_path)
    (tmp_path / "b").write_text("y")
    assert len({first, second, digest(tmp_path)}) == 3
    (tmp_path / "dataset.json").write_text("{}")
    packed = digest(tmp_path)
    (tmp_path / "b").write_text("z")
    assert digest(tmp_path) == packed == digest(tmp_path / "dataset.json")
    assert digest(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "value",
    [
        "hf_" + "a" * 30,
        "sk-" + "a" * 24,
        "AKIA" + "A" * 16,
        "https://user:word@host/x",
        "https://host/x?sig=abc",
        "ghp_" + "a" * 36,
    ],
)
def test_values_that_look_like_secrets_are_left_out(folder: Path, value: str) -> None:
    text = card(folder, {"model": "base", "note": value, "rewards": [{"arguments": {"url": value}}]}, method="grpo")
    assert value not in text
    assert text.count(LEFT_OUT) == 2


@given(st.sampled_from(["api_key", "token", "password", "client_secret", "HF_TOKEN"]), st.text(min_size=1))
def test_values_of_secret_keys_are_left_out_whatever_they_are(key: str, value: str) -> None:
    assert clean({"a": [{key: value}]}) == {"a": [{key: LEFT_OUT}]}


def test_settings_about_tokens_are_no_secrets() -> None:
    config = {"max_new_tokens": 64, "importance": "token", "tokens": 3}
    assert clean(config) == config
