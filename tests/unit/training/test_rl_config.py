"""training.rl refuses what contradicts itself, in one line, before torch is loaded."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from PIL import Image

from eval.actions import Action, ActionType
from eval.config import ConfigError, convert
from eval.prompts import PastStep, PromptConfig
from eval.prompts.wording import Style
from tests.support.cases import every_case
from training.rl.config import RlConfig
from training.rl.train import main, one_device
from training.rl.vllm_config import SamplerConfig, lora_rank, visible

GOOD: dict[str, Any] = {
    "model": "hf://owner/name",
    "environment": "login",
    "options": {"split": "train"},
    "tasks": {"count": 8, "seed": 0},
    "steps": 4,
}
SERVER: dict[str, Any] = {"mode": "server", "servers": ["role:s"], "folder": "/w"}
JUDGED: dict[str, Any] = {
    "environment": "sources",
    "options": {
        "sources": [{"source": "demo_training", "environment": "login", "count": 8}],
        "vlm": {"model": "m", "base_url": "http://localhost:1/v1"},
    },
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"steps": None, "epochs": 1.0}, "steps: give the optimiser steps"),
    ({"accumulate": 2}, "accumulate: allowed: 1"),
    ({"fsdp": True}, "fsdp: needs asynchronous"),
    (
        {"fsdp": True, "asynchronous": {}, "evaluation": {"environment": "login", "every": 2}},
        "evaluation: success needs",
    ),
    ({"fsdp": True, "asynchronous": {}, "advantage": "gae", "critic": {}}, "advantage: gae: not in several processes"),
    ({"fsdp": True, "asynchronous": {}, "quantization": "4bit", "lora": {}}, "quantization: not in several processes"),
    ({"deepspeed": __file__}, "deepspeed"),
    ({"lora": {"dropout": 0.1}}, "lora.dropout: allowed: 0"),
    ({"num_iterations": 2, "save_every": 3}, "save_every must be a multiple of"),
    ({"num_iterations": 3, "save_every": 3}, "steps must be a multiple of"),
    ({"epsilon": 1.0}, "epsilon must be below 1"),
    ({"loss": "cispo"}, "epsilon_high: loss cispo needs the largest ratio itself, 1 or more, say 5; not None"),
    ({"loss": "cispo", "epsilon_high": 0.28}, "1 or more, say 5; not 0.28"),
    ({"average": "rollouts", "loss": "grpo"}, "average: rollouts needs loss dapo or cispo"),
    ({"average": "constant"}, "scale_rewards: none"),
    ({"gamma": 0.9}, "gamma: advantage grpo has no discount"),
    ({"batching": "together"}, "limits.concurrency: 16 desktops; batching: together needs 64"),
    ({"tasks": {"count": 7, "seed": 0}}, "tasks.count: 7 are fewer than tasks_per_generation"),
    ({"tasks": {"count": 8, "seed": 999_999}}, "tasks.seed: the train split has the seeds 0 to 999999"),
    (JUDGED, "vlm: no `measured`: nothing is known of the judge's false rewards"),
    ({"environment": "nowhere"}, "environment: 'nowhere' is unknown"),
    ({"rows": "trajectory"}, "rows: trajectory needs prompt.history_style chat, not list: only there does a prompt"),
    ({"rows": "trajectory", "prompt": {"history_style": "chat"}, "sdpo": {}}, "rows: trajectory: not with sdpo"),
    ({"prompt": {"history_style": "chat", "images": 3}}, "prompt.images: history_style chat tells every step"),
    ({"prompt": {"history_style": "chat", "history": 3}}, "prompt.history: history_style chat tells every step"),
    ({"prompt": {"history_style": "chat", "history_level": "l2"}}, "chat allows l1 only"),
    ({"advantage": "gae"}, "critic: goes with advantage: gae"),
    ({"critic": {}}, "critic: goes with advantage: gae"),
    ({"advantage": "gae", "critic": {}, "entropy_share": 0.8}, "entropy_share: not with advantage: gae"),
    ({"advantage": "gae", "critic": {}, "gamma": 0.9}, "gamma: advantage gae has no discount"),
    ({"asynchronous": {}, "sdpo": {}}, "asynchronous: not with sdpo"),
    ({"asynchronous": {}, "replay": {}}, "asynchronous: not with replay"),
    ({"asynchronous": {}, "ema": 0.9}, "asynchronous: not with ema"),
    ({"asynchronous": {"staleness": 0}}, "staleness"),
    ({"asynchronous": {"vllm": {"mode": "server"}}}, "asynchronous.vllm.servers: name the servers of mode server"),
    ({"asynchronous": {"vllm": {"mode": "server", "servers": ["host:1"]}}}, "'host:1' is no address; allowed: http://"),
    (
        {"asynchronous": {"vllm": {"mode": "server", "servers": ["role:s"]}}},
        "vllm.folder: name the folder in",
    ),
    ({"asynchronous": {"vllm": {"servers": ["http://x:1"]}}}, "asynchronous.vllm.servers: only for mode server"),
    ({"asynchronous": {"vllm": {"timeout": 3}}}, "asynchronous.vllm.timeout: not for mode process"),
    ({"asynchronous": {"vllm": {**SERVER, "gpus": 2}}, "lora": {}}, "asynchronous.vllm.gpus: not for mode server"),
    ({"asynchronous": {"vllm": SERVER, "device": "cuda:1"}, "lora": {}}, "asynchronous.device: not with vllm.mode"),
    ({"asynchronous": {"vllm": {}, "device": "cpu"}}, "asynchronous.device: 'cpu': with vllm allowed: cuda, or"),
    ({"asynchronous": {"vllm": {"context": 64}}}, "asynchronous.vllm.context: 64 leaves no room beside"),
    ({"asynchronous": {"vllm": {}}, "lora": {"dora": True}}, "lora.dora: vLLM takes none"),
    ({"asynchronous": {"vllm": {}}, "lora": {"rank": 1024}}, "lora.rank: 1024: vLLM takes 512 at most"),
    ({"asynchronous": {"vllm": {"memory": 1.5}}}, "memory"),
    ({"most_rollouts": 16}, "most_rollouts: needs task_order: curriculum"),
    ({"turn_slack": 1.5}, "turn_slack: needs task_order: curriculum"),
    ({"task_order": "curriculum", "most_rollouts": 8}, "most_rollouts: 8: allowed is more than group_size, 8"),
    ({"replay": {}, "sdpo": {}}, "replay: not with sdpo, which learns from failures"),
    ({"replay": {}, "most_groups": 9}, "replay: not with most_groups, which tries other tasks"),
    ({"replay": {}, "advantage": "gigpo"}, "replay: not with advantage: gigpo, which compares states"),
    ({"length_buffer": 65}, "length_buffer: 65 is longer than max_completion, 64"),
    ({"reward": "model"}, "reward_model: goes with reward: model"),
    ({"reward_model": "."}, "reward_model: goes with reward: model"),
    ({"reward": "model", "reward_model": "."}, "reward model: . holds none: reward.json is missing"),
    ({"most_groups": 8}, "most_groups: 8 leaves no room for further tasks"),
    ({"most_groups": 16, "sdpo": {}}, "most_groups: not with sdpo"),
    ({"sdpo": {}, "length_buffer": 8}, "length_buffer: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "advantage": "gigpo"}, "advantage: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "loss": "cispo"}, "loss: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "turn_cost": 0.02}, "turn_cost: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "trl": {"entropy_coef": 0.1}}, "trl.entropy_coef: does nothing where every turn learns from the"),
    ({"trl": {"router_aux_loss_coef": 0.1}}, "trl.router_aux_loss_coef: not offered"),
    ({"sdpo": {"solved": "grpo"}, "loss": "grpo"}, "sdpo.solved: grpo needs loss dapo or cispo"),
    ({"sdpo": {"solved": "grpo"}, "average": "rollouts"}, "sdpo.solved: grpo needs average: tokens"),
    ({"sdpo": {}, "lora": {"dora": True}}, "lora.dora: allowed with sdpo: false"),
    ({"sdpo": {"mix": 0.5}}, "sdpo.mix needs sdpo.rate: 0"),
    ({"sdpo": {"alpha": 1.5}}, "alpha"),
    ({"sdpo": {"rate": -0.1}}, "rate"),
    ({"sdpo": {"top": 0}}, "top"),
    ({"evaluation": {"episodes": ".", "metric": "loss"}}, "evaluation"),
    ({"evaluation": {"environment": "login", "every": 3}, "num_iterations": 2, "save_every": 2}, "evaluation.every"),
]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"sdpo": {}},
        {"loss": "cispo", "epsilon_high": 1.0},
        {**JUDGED, "unspecific_judge": True},
        {"sdpo": {"solved": "grpo"}, "advantage": "gigpo", "gamma": 0.95, "loss": "cispo", "epsilon_high": 5.0},
        {"asynchronous": {"device": "cuda:1", "vllm": {"gpus": 2, "memory": 0.9}}},
        {"asynchronous": {"vllm": SERVER}, "lora": {}},
    ],
)
def test_a_good_configuration_passes(change: dict[str, Any]) -> None:
    convert({**GOOD, **change}, RlConfig, "test").check()


@every_case(("change", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_contradiction_is_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        convert({**GOOD, **change}, RlConfig, "test").check()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("device", "gpus", "given", "seen"),
    [
        (None, 1, "", None),
        ("cuda", 1, "", "0"),
        ("cuda:1", 4, "", "1,2,3,4"),
        ("cuda:1", 2, "4,6,7", "6,7"),
        ("cuda:1", 1, "GPU-a,GPU-b", "GPU-b"),
    ],
)
def test_vllm_sees_the_gpus_from_its_device_on(device: str | None, gpus: int, given: str, seen: str | None) -> None:
    assert visible(device, gpus, {"CUDA_VISIBLE_DEVICES": given}) == seen


def test_more_gpus_than_there_are_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"cuda:1 and vllm\.gpus 2: only 2 GPUs are visible here"):
        visible("cuda:1", 2, {"CUDA_VISIBLE_DEVICES": "4,6"})


def test_servers_of_a_role_are_all_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_ENDPOINT_SAMPLER", "a:1,b:2")
    chosen = SamplerConfig(mode="server", servers=["role:sampler", "https://c/", "http://a:1"])
    assert chosen.urls() == ["http://a:1", "http://b:2", "https://c"]
    with pytest.raises(ConfigError, match=r"asynchronous\.vllm\.servers: other: no \$SLIPWAY_ENDPOINT_OTHER"):
        SamplerConfig(mode="server", servers=["role:other"]).urls()


def test_the_rank_that_vllm_is_told_is_one_that_it_takes() -> None:
    assert [lora_rank(rank) for rank in (1, 2, 8, 12, 64, 300)] == [1, 8, 8, 16, 64, 320]


def test_limits_of_the_gate_with_vllm_are_wider() -> None:
    made = [
        convert({**GOOD, "asynchronous": how, "precision": precision}, RlConfig, "test").tolerance
        for how in ({}, {"vllm": {}})
        for precision in ("float32", "bf16")
    ]
    assert made == [1e-3, 0.1, 1e-2, 0.2]


def test_a_training_takes_one_gpu_of_several() -> None:
    """transformers puts the model into DataParallel where its arguments have more (Trainer._wrap_model)."""

    class Arguments:
        _n_gpu = 8

        @property
        def n_gpu(self) -> int:
            return self._n_gpu

    assert one_device(Arguments()).n_gpu == 1


@pytest.mark.parametrize("style", get_args(Style))
def test_only_a_chat_continues_the_prompt_before_so_that_a_rollout_can_be_a_single_row(style: Any) -> None:
    """The others do not even with every action and picture in them."""
    window = {} if style == "chat" else {"history": 9, "images": 5}
    builder = PromptConfig(history_style=style, **window).builder()  # type: ignore[arg-type]
    screens = [Image.new("RGB", (64, 48), (shade, 0, 0)) for shade in range(20)]
    click = Action(ActionType.CLICK, x=0.5, y=0.25)
    answer = builder.dialect.format_response(click)
    past: list[PastStep] = []
    told = []
    for screen in screens:
        messages, images = builder.layout("Log in.", past, screen)
        shown = iter(images)
        parts = [(message["role"], part) for message in messages for part in message["content"]]
        told.append([(role, part.get("text") or next(shown)) for role, part in parts])
        past.append(PastStep(click, screen, response=answer))
    for before, after in itertools.pairwise(told):
        assert (after[: len(before) + 1] == [*before, ("assistant", answer)]) == (style == "chat")


def test_the_page_s_blocks_for_rollouts_beside_the_training_and_whole_ones_are_taken() -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "reinforcement-learning.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shown = [block for block in blocks if block.startswith("asynchronous:") or "rows: trajectory" in block]
    assert len(shown) == 4
    for block in shown:
        convert({**GOOD, "lora": {}, **yaml.safe_load(block)}, RlConfig, "the page").check()


def test_the_command_says_so_with_exit_code_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rl.yaml"
    file.write_text("{model: hf://owner/name, environment: login, tasks: {count: 8, seed: 0}, steps: 4, group_size: 1}")
    assert main(["--config", str(file), "--out", str(tmp_path)]) == 78
    assert "group_size" in capsys.readouterr().err
