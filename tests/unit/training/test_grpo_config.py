"""What a GRPO configuration may say, how it is refused, and what TRL gets of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from eval.config import ConfigError, convert
from tests.support.refusing import refused
from training.grpo.config import GrpoConfig, Loss
from training.grpo.train import main

GOOD: dict[str, Any] = {"model": ".", "data": ".", "rewards": [{"name": "format"}], "steps": 3}
HTTP = {"backend": "vllm", "mode": "http"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward": []}, "reward"),
        ({"rewards": [{"name": "format", "wieght": 2}]}, "wieght"),
        ({"rewards": []}, "rewards: name one at least"),
        ({"rewards": [{"name": "fromat"}]}, "rewards[0] (fromat): unknown; allowed: format"),
        ({"num_generations": 1}, "`int` >= 2 - at `$.num_generations`"),
        ({"batch_size": 12}, "12 x accumulate 1 x steps_per_generation 1 x 1 processes = 12 answers, no multiple of 8"),
        ({"num_iterations": 3, "save_every": 10}, "save_every must be a multiple of steps_per_generation x num_iter"),
        ({"loss": "ppo"}, "'ppo' - at `$.loss`"),
        ({"epsilon": 1.0}, "epsilon must be below 1"),
        ({"loss": "cispo"}, "epsilon_high: loss cispo needs the largest ratio itself, 1 or more, say 5; not None"),
        ({"loss": "cispo", "epsilon_high": 0.28}, "1 or more, say 5; not 0.28"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": 1e-300}, "`float` >= 0.01 - at `$.temperature`"),
        ({"generation": {**HTTP, "url": "nonsense", "adapters": "a"}}, "'nonsense' is no address"),
        ({"watch": {"entropy": {"for": 3}}}, "watch.entropy: give either below or above"),
        ({"watch": {"entropy": {"below": 1, "above": 0}}}, "watch.entropy: give either below or above"),
        ({"watch": {"kl": {"above": 1}}}, "watch.kl needs a beta"),
        ({"watch": {"entropy": {"below": 1, "steps": 3}}}, "steps"),
        ({"generation": {"backend": "vllm", "mode": "server"}}, "generation.mode: server is not offered: TRL's client"),
        ({"generation": {"backend": "vllm", "mode": "server", "url": "http://x"}}, "nothing proves that it is"),
        ({"generation": HTTP}, "generation.url: name the server"),
        ({"generation": {**HTTP, "url": "http://x", "context": 2048}}, "generation.context: only for mode colocate"),
        ({"generation": {"backend": "vllm", "context": 64}}, "generation.context: 64 leaves no room"),
        ({"generation": {**HTTP, "url": "http://x"}}, "generation.adapters"),
        ({"generation": {**HTTP, "url": "http://x", "adapters": "a"}}, "give a lora to train"),
        ({"steps": None}, "either steps or epochs"),
        ({"data": "nowhere"}, "no folder nowhere"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_78(
    change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(main, {**GOOD, **change}, tmp_path, capsys)


def test_groups_are_counted_over_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = convert({**GOOD, "batch_size": 4, "num_generations": 8}, GrpoConfig, "config")
    monkeypatch.setenv("WORLD_SIZE", "2")
    config.check()
    assert config.prompts_per_generation() == 1
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match="= 4 answers, no multiple of 8"):
        config.check()


@pytest.mark.ml
@pytest.mark.parametrize("loss", get_args(Loss))
def test_trl_takes_every_loss_and_counts_generations_in_forward_passes(loss: str, tmp_path: Path) -> None:
    from trl import GRPOConfig

    from training.grpo.train import arguments

    given = {"loss": loss, "batch_size": 8, "accumulate": 2, "steps_per_generation": 3, "num_iterations": 2}
    config = convert({**GOOD, **given, "importance": "sequence", "beta": 0.1}, GrpoConfig, "config")
    theirs = GRPOConfig(**arguments(config, tmp_path, [7]))
    assert theirs.loss_type == loss
    assert theirs.generation_batch_size == 8 * 2 * 3
    assert config.period == 6
    assert (theirs.importance_sampling_level, theirs.beta) == ("sequence", 0.1)
    assert theirs.gradient_checkpointing is False
    assert theirs.generation_kwargs == {"suppress_tokens": [7]}


@pytest.mark.ml
@pytest.mark.parametrize("loss", ["dapo", "vespo"])
@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_a_sampler_that_differs_is_corrected_token_by_token(loss: str, backend: str, tmp_path: Path) -> None:
    """TRL's own default drops whole answers: of noise of .02 a token, 11 % of those with 2,000 tokens."""
    from trl import GRPOConfig

    from training.grpo.train import arguments

    config = convert({**GOOD, "loss": loss, "generation": {"backend": backend}}, GrpoConfig, "config")
    theirs = GRPOConfig(**arguments(config, tmp_path, [7], 1024))
    assert theirs.vllm_importance_sampling_mode == "token_truncate"
    assert theirs.vllm_importance_sampling_clip_max == 2.0
    assert theirs.vllm_max_model_length == (1024 if backend == "vllm" else None)


@pytest.mark.ml
def test_vllm_in_the_trainer_is_refused_where_there_is_no_cuda() -> None:
    import torch

    from training.grpo.train import check_device

    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    with pytest.raises(ConfigError, match="mode colocate needs CUDA"):
        check_device(convert({**GOOD, "generation": {"backend": "vllm"}}, GrpoConfig, "config"))
