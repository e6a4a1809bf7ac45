"""model/ answers as base and adapter do together, in every trainer; the embedding is tied to the head in these models.

The reference is transformers and peft: the base as it was, and the adapter on it, never merged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError
from eval.prompts import PromptConfig
from tests.integration.rl.conftest import PROMPT as RL_PROMPT
from tests.integration.rl.conftest import rl_config, taught
from tests.integration.training import preference
from tests.integration.training.test_precision import TRAIN
from tests.integration.training.test_precision import config as config_of
from training.common.model import comparison
from training.common.model.saving import check_shared_embeddings
from training.grpo.config import GenerationConfig
from training.options import LoraConfig
from training.reward.model import RewardModel
from training.rl.train import train as rl

pytestmark = [
    pytest.mark.ml,
    pytest.mark.filterwarnings(
        "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning",
        "ignore:Model (has|with) .tie_word:UserWarning",
        "ignore:Setting .save_embedding_layers.:UserWarning",
    ),
]
ON_TIED = LoraConfig(rank=4, alpha=32, targets=["embed_tokens", "q_proj"])
FAST: dict[str, Any] = {"lora": ON_TIED, "learning_rate": 0.1, "steps": 2}


@pytest.fixture(scope="module")
def made() -> dict[str, Path]:
    return {name: preference.material() / name for name in ("episodes", "pairs", "model")}


def inputs_of(folder: Path) -> list[Any]:
    from training.common.model.loading import load_processor

    return comparison.probes(load_processor(str(folder)), None, PromptConfig(), 1)


def logits(base: Path, adapter: Path | None = None) -> list[Any]:
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(base)
    return comparison.logits(
        model if adapter is None else PeftModel.from_pretrained(model, str(adapter)), inputs_of(base)
    )


@pytest.mark.ci
@pytest.mark.parametrize("method", ["sft", "dpo", "grpo", "rl"])
def test_model_answers_as_base_and_adapter(method: str, made: dict[str, Path], tmp_path: Path) -> None:
    base = taught("rl-start", RL_PROMPT) if method == "rl" else made["model"]
    if method == "rl":
        assert rl(rl_config(base, **FAST), tmp_path, None)
    else:
        assert TRAIN[method](config_of(method, made, **FAST), tmp_path, None)
    apart = logits(base, tmp_path / "adapter")
    effect = comparison.difference(apart, logits(base))[0]
    assert effect > 0.1
    assert comparison.difference(apart, logits(tmp_path / "model"))[0] < 1e-3 * effect


@pytest.mark.ci
def test_a_reward_model_rewards_as_its_last_checkpoint(made: dict[str, Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    from training.reward.network import RewardNetwork

    assert TRAIN["reward"](config_of("reward", made, **{**FAST, "save_every": 2}), tmp_path, None)
    model = AutoModelForImageTextToText.from_pretrained(made["model"])
    network = PeftModel.from_pretrained(
        RewardNetwork(model.config, model.model), str(tmp_path / "checkpoints" / "checkpoint-2")
    ).eval()
    (batch,) = inputs_of(made["model"])
    loaded = RewardModel.load(tmp_path / "model").network
    assert float(loaded(**batch).detach()) == pytest.approx(float(network(**batch).detach()), rel=1e-4)


def test_a_merge_that_answers_otherwise_ends_with_a_reason_and_without_model(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.common.model import merging

    monkeypatch.setattr(merging, "untie", lambda model: None)
    with pytest.raises(ConfigError, match=r"merged \(float32\): logits differ .* adapter/ has what was trained"):
        TRAIN["sft"](config_of("sft", made, **FAST), tmp_path, None)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "model").exists()


def test_where_vllm_samples_it_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    from peft import get_peft_model

    from training.common.model.adapter import lora
    from training.common.model.loading import load_model

    chosen = config_of("grpo", made, **FAST)
    model, _ = load_model(chosen)
    model = get_peft_model(model, lora(chosen, model))
    check_shared_embeddings(model, chosen)
    vllm = msgspec.structs.replace(chosen, generation=GenerationConfig(backend="vllm", mode="colocate"))
    with pytest.raises(ConfigError, match=r"lora.targets: the embedding and the head of this model share"):
        check_shared_embeddings(model, vllm)
