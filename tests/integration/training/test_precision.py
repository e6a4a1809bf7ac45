"""`precision: bf16` loses no step: the trained weights are float32, in every trainer, with and without FSDP.

The reference is `precision: float32`. With bfloat16 weights a step of 1e-6 moved 0.9 % of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eval.config import ConfigError, load
from eval.prompts import PromptConfig
from tests.integration.training import preference
from tests.integration.training.test_two_processes import TORCHRUN, environment
from tests.support.made_once import made_once
from training.common.entry import check_resume
from training.dpo import train as dpo
from training.grpo import train as grpo
from training.grpo.config import GrpoConfig, Limit, WatchConfig
from training.options import LoraConfig, TrainerConfig, computed, loaded_dtype
from training.reward import train as reward
from training.rewards import RewardSpec
from training.sft import train as sft

pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
RATE = 1e-6
COMMON: dict[str, Any] = {
    "steps": 1, "batch_size": 2, "warmup_steps": 0, "learning_rate": RATE, "schedule": "constant",
    "log_every": 1, "save_every": 100,
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> dict[str, Path]:
    """episodes, pairs, model: its weights are bfloat16 numbers, as published models' are."""
    material = preference.material()
    model = made_once("preference-rounded", rounded, material / "model")
    return {"episodes": material / "episodes", "pairs": material / "pairs", "model": model}


def rounded(folder: Path, model: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder, dirs_exist_ok=True)
    file = folder / "model.safetensors"
    save_file({name: value.bfloat16().float() for name, value in load_file(file).items()}, file, {"format": "pt"})


def config(method: str, made: dict[str, Path], **changes: Any) -> Any:
    model, prompt = str(made["model"]), preference.PROMPT
    values: dict[str, Any] = {**COMMON, **changes}
    match method:
        case "sft":
            return sft.SftConfig(model=model, prompt=prompt, episodes=str(made["episodes"]), predictions=0, **values)
        case "dpo":
            return dpo.DpoConfig(model=model, prompt=prompt, pairs=str(made["pairs"]), answers=1, max_new_tokens=2,
                                 **values)  # fmt: skip
        case "reward":
            return reward.RewardConfig(model=model, pairs=str(made["pairs"]), **values)
        case _:
            rewards = [RewardSpec(name=f"{__name__}:variety")]
            return GrpoConfig(model=model, prompt=prompt, data=str(made["episodes"]), rewards=rewards, predictions=0,
                              num_generations=2, max_completion=6, **values)  # fmt: skip


TRAIN: dict[str, Any] = {"sft": sft.train, "dpo": dpo.train, "reward": reward.train, "grpo": grpo.train}


def variety(attempts: Any) -> list[float | None]:
    """How many different characters an answer has."""
    return [len(set(attempt.text)) / 20 for attempt in attempts]


def moved(before: Path, after: Path) -> float:
    """The share of the weights that differ; names of a reward model's body are those of the model."""
    from safetensors.torch import load_file

    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    renamed = {name.replace("body.", "model."): value.float() for name, value in new.items()}
    both = [name for name in old if name in renamed]
    assert len(both) >= len(old) - 1
    return float(sum(int((old[n].float() != renamed[n]).sum()) for n in both)) / sum(old[n].numel() for n in both)


@pytest.mark.nightly
@pytest.mark.parametrize("method", TRAIN)
def test_as_many_weights_move_as_in_float32(method: str, made: dict[str, Path], tmp_path: Path) -> None:
    shares = {}
    for precision in ("float32", "bf16"):
        out = tmp_path / precision
        assert TRAIN[method](config(method, made, precision=precision), out, None)
        shares[precision] = moved(made["model"], out / "model")
    print(method, shares)
    assert shares["float32"] > 0.5  # a weight without a gradient, a word that does not occur, does not move
    assert shares["bf16"] == pytest.approx(shares["float32"], abs=0.02)


def test_computing_is_bfloat16_and_the_optimiser_float32(made: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from transformers import TrainerCallback

    from training.common.entry import run_training

    chosen = config("sft", made, precision="bf16", accumulate=2)
    samples = sft.open_data(chosen, chosen.prompt.builder(), sft.Faults())
    trainer = sft.make_trainer(chosen, samples, tmp_path)
    layer = trainer.model.model.language_model.layers[0].mlp.down_proj
    kinds: dict[str, set[Any]] = {"output": set(), "state": set(), "gradient": set()}
    layer.register_forward_hook(lambda module, given, output: kinds["output"].add(output.dtype))

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
            kinds["gradient"] |= {p.grad.dtype for p in model.parameters() if p.grad is not None}

        def on_step_end(self, args: Any, state: Any, control: Any, *, optimizer: Any, **kwargs: Any) -> None:
            states = [value for entry in optimizer.state.values() for value in entry.values()]
            kinds["state"] |= {value.dtype for value in states if value.numel() > 1}

    trainer.add_callback(Look())
    assert run_training(trainer, chosen, tmp_path, None)
    assert kinds == {"output": {torch.bfloat16}, "state": {torch.float32}, "gradient": {torch.float32}}


def test_a_lora_is_float32_on_frozen_bfloat16(made: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    chosen = config("sft", made, precision="bf16", lora=LoraConfig(rank=2, alpha=4), learning_rate=1e-4)
    assert sft.train(chosen, tmp_path, None)
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {value.dtype for value in adapter.values()} == {torch.float32}
    assert all(bool(value.any()) for name, value in adapter.items() if "lora_B" in name and "language_model" in name)
    assert {value.dtype for value in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.parametrize("method", TRAIN)
def test_all_that_is_trained_is_made_float32(method: str, made: dict[str, Path]) -> None:
    """Also where TRL makes a LoRA bfloat16 (on quantised weights) and where an adapter was merged into bfloat16."""
    import torch

    from training.common.model.sharding import float32_masters

    chosen = config(method, made, precision="bf16")
    model = torch.nn.ModuleDict({"frozen": torch.nn.Linear(2, 2), "trained": torch.nn.Linear(2, 2)}).bfloat16()
    model["frozen"].requires_grad_(False)
    float32_masters(model, chosen)
    assert {p.dtype for p in model["trained"].parameters()} == {torch.float32}
    assert {p.dtype for p in model["frozen"].parameters()} == {torch.bfloat16}
    assert loaded_dtype(chosen) == "float32"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_fsdp_moves_as_many_and_keeps_log_probabilities_in_float32(made: dict[str, Path], tmp_path: Path) -> None:
    shares, losses = {}, {}
    for precision in ("float32", "bf16"):
        out = tmp_path / precision
        out.mkdir()
        file = out / "config.yaml"
        chosen = config("sft", made, precision=precision, fsdp=True)
        file.write_text(yaml.safe_dump(msgspec.to_builtins(chosen)))
        assert load(file, sft.SftConfig) == chosen
        done = subprocess.run(
            [*TORCHRUN, "-m", "training.sft", "--config", str(file)],
            env=environment(out), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        shares[precision] = moved(made["model"], out / "model")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses[precision] = next(line["value"] for line in lines if line["name"] == "train/loss")
    print(shares, losses)
    assert shares["bf16"] == pytest.approx(shares["float32"], abs=0.02)
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.02)


def test_the_former_name_is_refused_with_the_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("model: .\nepisodes: .\nsteps: 1\ndtype: bfloat16\n")
    assert sft.main(["--config", str(file), "--out", str(tmp_path / "out")]) == 78
    assert "unknown field `dtype`; it is 'precision: float32 or bf16' now" in capsys.readouterr().err


def test_a_checkpoint_from_before_goes_on_where_it_computes_the_same(tmp_path: Path) -> None:
    now = TrainerConfig(model=".", steps=1)
    saved = {name: value for name, value in computed(now).items() if name != "precision"} | {"dtype": "float32"}
    callback = {"args": {"config": saved}, "attributes": {}}
    state = {"global_step": 1, "stateful_callbacks": {"Reporting": callback}}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    check_resume(now, str(tmp_path))
    saved["dtype"] = "bfloat16"
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ConfigError, match="precision: 'bfloat16 weights' there, 'bf16' here"):
        check_resume(TrainerConfig(model=".", steps=1, precision="bf16"), str(tmp_path))


def checkpoint_without(folder: Path, config: TrainerConfig, name: str) -> str:
    """A checkpoint of this configuration, by a version that did not have this field (`rewards.0.weight`) yet."""
    saved = computed(config)
    *outer, last = name.split(".")
    section: Any = saved
    for part in outer:
        section = section[int(part) if isinstance(section, list) else part]
    del section[last]
    callback = {"args": {"config": saved}, "attributes": {}}
    state = {"global_step": 1, "stateful_callbacks": {"Reporting": callback}}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return str(folder)


SFT = sft.SftConfig(model=".", episodes=".", steps=2)
GRPO = GrpoConfig(model=".", data=".", rewards=[RewardSpec(name="format")], steps=2)


@pytest.mark.parametrize(
    ("plain", "name", "changes", "says"),
    [
        (SFT, "floor", {"schedule": "cosine", "floor": 0.1}, "floor: 0.0 there, 0.1 here"),
        (SFT, "adam_beta2", {"adam_beta2": 0.98}, "adam_beta2: 0.999 there, 0.98 here"),
        (SFT, "warmup_steps", {"warmup_steps": 0}, "warmup_steps: 1 there, 0 here"),
        (SFT, "trl", {"trl": {"neftune_noise_alpha": 5.0}}, "trl: {} there"),
        (SFT, "learning_rates", {"learning_rates": {"language": 1e-6}}, "learning_rates: {} there"),
        (SFT, "lora", {"lora": LoraConfig(rank=4)}, "lora: None there"),
        (
            msgspec.structs.replace(SFT, lora=LoraConfig()),
            "lora.dora",
            {"lora": LoraConfig(dora=True)},
            "lora: .*'dora': False.* there, .*'dora': True.* here",
        ),
        (SFT, "prompt.history", {"prompt": PromptConfig(history=1)}, "prompt: .*'history': 10.* there, .* here"),
        (
            msgspec.structs.replace(GRPO, watch=WatchConfig(zero_variance=Limit(above=0.9))),
            "watch.zero_variance.for",  # the attribute has another name, `steps`
            {"watch": WatchConfig(zero_variance=Limit(above=0.9, steps=3))},
            "watch: .*'for': 10.* there, .*'for': 3.* here",
        ),
        (GRPO, "rewards.0.weight", {"rewards": [RewardSpec(name="format", weight=2.0)]}, "rewards: .*1.0.* there"),
    ],
)
def test_a_field_that_a_checkpoint_does_not_have_yet_has_its_default_there(
    tmp_path: Path, plain: TrainerConfig, name: str, changes: dict[str, Any], says: str
) -> None:
    check_resume(plain, checkpoint_without(tmp_path, plain, name))
    config = msgspec.structs.replace(plain, **changes)
    with pytest.raises(ConfigError, match=f"another configuration: {says}"):
        check_resume(config, checkpoint_without(tmp_path, config, name))
