"""The verdict before a training: what is printed, what is refused, and that the advice holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.config import ConfigError
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from eval.rollout.limits import RolloutLimits
from training.memory import plan
from training.memory.estimate import GIB
from training.memory.workload import MemoryPlan, Shape, describe, how
from training.options import LoraConfig
from training.rl.config import RlConfig
from training.rl.sections import AsyncConfig, KlConfig, SdpoConfig
from training.rl.vllm_config import SamplerConfig
from training.sft.train import SftConfig
from training.sft.train import main as sft

BASE: dict[str, Any] = {
    "model": "hf://Qwen/Qwen3-VL-8B-Instruct",
    "episodes": "episodes",
    "steps": 10,
    "batch_size": 4,
    "precision": "bf16",
}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**BASE, **changes}))
    return str(path)


def config(**changes: Any) -> SftConfig:
    return plan.configuration.convert({**BASE, **changes}, SftConfig, "test")


def test_a_table_with_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, lora={"rank": 16}, activation_checkpointing=True)
    assert plan.main(["--config", file, "--gpu", "80GiB"]) == 0
    out = capsys.readouterr().out
    assert "8.77 billion parameters, 52.5 million trained" in out
    peak = float(re.search(r"^peak +([0-9.]+)$", out, re.MULTILINE).group(1))  # type: ignore[union-attr]
    parts = [float(v) for v in re.findall(r"^(?!peak|component).{44} +([0-9.]+)$", out, re.MULTILINE)]
    assert sum(parts) == pytest.approx(peak, abs=0.01 * len(parts))
    assert re.search(r"^fits: [0-9.]+ of 80.0 GiB$", out, re.MULTILINE)


def test_what_can_not_fit_is_refused_in_one_line_that_says_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan.main(["--config", written(tmp_path), "--gpu", "L4"]) == 78
    captured = capsys.readouterr()
    assert "does not fit" in captured.out
    (line,) = captured.err.strip().split("\n")
    assert line.startswith("config: memory: ")
    assert "it would with" in line


@pytest.mark.parametrize(
    ("image", "offered"),
    [
        ("trl-grpo", True),
        ("registry.example.com:5000/slipway/unsloth-sft:0.1.0@sha256:aa", True),
        ("slipway-cpu", False),
        ("me/own:1", False),
        (None, True),
    ],
)
def test_a_remedy_names_only_what_the_job_s_image_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], image: str | None, offered: bool
) -> None:
    job = {"command": ["python", "-m", "training.sft"], "config": {**BASE, "optimizer": "adamw_torch", "lora": {}}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job if image is None else {"image": image, **job}))
    assert plan.main(["--config", str(file), "--gpu", "14GiB"]) == 78
    said = capsys.readouterr().err
    assert ("quantization: 4bit" in said or "adamw_bnb_8bit" in said) == offered


def test_the_images_that_have_bitsandbytes_are_known() -> None:
    locks = Path(__file__).parents[3].joinpath("images").glob("*/requirements.lock")
    having = {lock.parent.name for lock in locks if "\nbitsandbytes==" in lock.read_text()}
    assert having == set(plan.WITH_BITSANDBYTES)


def test_a_remedy_is_none_that_the_trainer_refuses() -> None:
    """A quantised reward model, and one beside vLLM, are refused by their configurations."""
    from training.reward.train import RewardConfig

    values = {**{key: value for key, value in BASE.items() if key not in ("episodes", "predictions")}, "pairs": "pairs"}
    made = plan.configuration.convert({**values, "lora": {}}, RewardConfig, "test")
    assert "quantization" not in plan.remedies(made, "reward", Shape(), 1, 8 * GIB)


def test_a_judge_of_episodes_reads_one_chat_of_its_screens_where_a_pair_has_two() -> None:
    from training.reward.train import RewardConfig

    values = {key: value for key, value in BASE.items() if key not in ("episodes", "predictions", "prompt")}
    pairs = plan.configuration.convert({**values, "pairs": "pairs"}, RewardConfig, "test")
    shown = {"path": "episodes", "prompt": {"images": 3}}
    whole = plan.configuration.convert({**values, "episodes": shown}, RewardConfig, "test")
    one, other = describe(pairs, "reward", Shape(), 1), describe(whole, "reward", Shape(), 1)
    assert (one.sequences, other.sequences) == (2 * pairs.batch_size, whole.batch_size)
    assert other.image_tokens == 3 * one.image_tokens


def test_a_peak_that_only_lacks_the_reserve_is_warned_of_and_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made = describe(config(lora={}), "sft", Shape(), 1)
    size = made.estimate.total - plan.reserve(made.estimate) / 2
    plan.refuse(config(lora={}), "sft", Shape(), 1, size)
    assert "tight" in capsys.readouterr().err
    assert plan.table(config(lora={}), "sft", made, 1, size).splitlines()[-1].startswith("tight: ")
    with pytest.raises(ConfigError):
        plan.refuse(config(lora={}), "sft", Shape(), 1, made.estimate.total - 1.1 * plan.reserve(made.estimate))


@pytest.mark.parametrize("size", [12, 22, 40, 80])
@pytest.mark.parametrize("start", [{}, {"batch_size": 32, "precision": "float32"}, {"lora": {"rank": 8}}], ids=str)
def test_the_advice_holds(size: int, start: dict[str, Any]) -> None:
    given = config(**start)
    said = plan.remedies(given, "sft", Shape(), 1, size * GIB)
    if said.startswith("nor"):
        return
    choices = said.removeprefix("it would with ")
    together = choices.endswith(" together")
    names = choices.removesuffix(" together").split(", " if together else " or with ")
    changes = [yaml.safe_load(f"{{{name}}}" if "{" in name else name) for name in names]
    merged: list[dict[str, Any]] = [dict(p for c in changes for p in c.items())] if together else changes
    for change in merged:
        if change.get("quantization") and given.lora is None:
            change.setdefault("lora", {})
        plan.refuse(config(**{**start, **change}), "sft", Shape(), 1, size * GIB)


def test_every_trainer_prints_its_plan_without_loading_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft(["--config", written(tmp_path), "--plan"]) == 0
    assert "weights: text" in capsys.readouterr().out
    assert not list(tmp_path.glob("model*"))


def test_screens_of_the_episodes_and_bounds_of_the_processor_decide_the_image_tokens(tmp_path: Path) -> None:
    for name, screen in (("a", [640, 480]), ("b", [1280, 720])):
        (tmp_path / "episodes" / name).mkdir(parents=True)
        (tmp_path / "episodes" / name / "episode.json").write_text(json.dumps({"screen": screen}))
    made = describe(config(episodes=str(tmp_path / "episodes")), "sft", Shape(), 1)
    assert (made.screen, made.image_tokens) == ((1280, 720), 40 * 22)
    assert describe(config(max_pixels=640 * 480), "sft", Shape(), 1).image_tokens <= 300
    assert describe(config(), "sft", Shape(screen=(640, 480), text=100, answer=10), 1).tokens == 300 + 110


def test_a_batch_without_padding_needs_no_masks() -> None:
    padded, free, single = (
        describe(config(**change), "sft", Shape(), 1).estimate.total
        for change in ({}, {"padding_free": True}, {"batch_size": 1})
    )
    assert single < free < padded


def test_a_deepspeed_file_shards_what_its_stage_says(tmp_path: Path) -> None:
    sizes = []
    for stage in (0, 1, 2, 3):
        (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": stage}}))
        given = config(deepspeed=str(tmp_path / "zero.json"), accumulate=2)  # gradients stay between two passes
        made = describe(given, "sft", Shape(), 8)
        sizes.append(made.estimate.total)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_an_average_of_the_weights_takes_four_bytes_a_trained_weight_and_is_sharded_with_them() -> None:
    plain, kept = (describe(config(**changes), "sft", Shape(), 1).estimate for changes in ({}, {"ema": 0.99}))
    assert kept.components["average of the weights"] == 4 * plain.trained
    assert "average of the weights" not in plain.components
    sharded = describe(config(ema=0.99, fsdp=True), "sft", Shape(), 8).estimate
    assert sharded.components["average of the weights"] == 4 * plain.trained / 8
    small = describe(config(ema=0.99, lora={}), "sft", Shape(), 1).estimate
    assert small.components["average of the weights"] == 4 * small.trained


def test_sdpo_keeps_a_teacher_and_compares_logits() -> None:
    def estimate(**changes: Any) -> Any:
        tasks = TasksConfig(count=8, seed=0)
        given = RlConfig(model=BASE["model"], environment="login", tasks=tasks, steps=4, batch_size=8, **changes)
        return describe(given, "rl", Shape(), 1).estimate

    plain, taught = estimate(), estimate(sdpo=SdpoConfig())
    assert taught.components["self-teacher"] == 2 * 4 * plain.trained
    assert taught.moments["head"] - plain.moments["head"] >= 8 * 64 * 151936 * 4 * 5
    small = estimate(sdpo=SdpoConfig(), lora=LoraConfig(targets=["q_proj"])).components["self-teacher"]
    assert 0 < small < taught.components["self-teacher"] / 10


def test_a_chat_holds_every_screen_and_answer_of_the_longest_episode() -> None:
    """A screen of 1920x1080 has 60 x 34 tokens here; between two answers stand 16 of the template."""

    def made(steps: int | None, rows: str) -> MemoryPlan:
        return describe(
            RlConfig(
                model=BASE["model"],
                environment="login",
                tasks=TasksConfig(count=8, seed=0),
                steps=4,
                batch_size=2,
                max_completion=100,
                prompt=PromptConfig(system="", history_style="chat"),
                limits=RolloutLimits(max_steps=steps),
                rows=rows,  # type: ignore[arg-type]
            ),
            "rl",
            Shape(),
            1,
        )

    assert made(4, "turn").tokens == 4 * 60 * 34 + 128 + 3 * 116 + 100
    assert made(None, "turn").tokens == 15 * 60 * 34 + 128 + 14 * 116 + 100
    turns, whole = made(4, "turn").estimate, made(4, "trajectory").estimate
    # everything after the first screen goes through the head, in parts of a few hundred tokens
    assert turns.total <= whole.total < 1.5 * turns.total


def test_the_plan_tells_the_rates_of_the_parts() -> None:
    given = config(learning_rates={"vision": 1e-6, "projector": 2e-5}, learning_rate=1e-5)
    told = plan.table(given, "sft", describe(given, "sft", Shape(), 1), 1, None)
    assert "learning rates: vision 1e-06, projector 2e-05, the others 1e-05" in told
    assert "learning rates" not in plan.table(config(), "sft", describe(config(), "sft", Shape(), 1), 1, None)


def test_pairs_double_the_batch_and_a_reference_is_a_copy_unless_there_is_a_lora() -> None:
    from training.dpo.train import DpoConfig

    pairs = {key: value for key, value in BASE.items() if key != "episodes"} | {"pairs": "pairs"}
    full = plan.configuration.convert(pairs, DpoConfig, "test")
    lora = plan.configuration.convert({**pairs, "lora": {}}, DpoConfig, "test")
    assert describe(full, "dpo", Shape(), 1).sequences == 8
    assert "weights: reference" in describe(full, "dpo", Shape(), 1).estimate.components
    assert "weights: reference" not in describe(lora, "dpo", Shape(), 1).estimate.components


def test_a_learned_reward_and_vllm_beside_the_model_are_counted(tmp_path: Path) -> None:
    from training.grpo.config import GrpoConfig

    header = json.dumps({"weight": {"dtype": "BF16", "shape": [50, 5], "data_offsets": [0, 500]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(500))
    values = {key: value for key, value in BASE.items() if key != "episodes"}
    values |= {"data": "episodes", "num_generations": 2, "lora": {}}
    values["rewards"] = [{"name": "reward_model", "args": {"path": str(tmp_path)}}]
    made = plan.configuration.convert(values, GrpoConfig, "test")
    assert describe(made, "grpo", Shape(), 1).estimate.components["weights: other models"] == 4 * 250
    values["generation"] = {"backend": "vllm", "mode": "colocate", "memory": 0.5}
    beside = plan.configuration.convert(values, GrpoConfig, "test")
    alone = describe(beside, "grpo", Shape(), 1).estimate
    assert "generation" not in alone.moments
    assert plan.needed(beside, "grpo", Shape(), 1, 80 * GIB) == alone.total + 40 * GIB


GRPO_8B: dict[str, Any] = {
    **{key: value for key, value in BASE.items() if key != "episodes"},
    "data": "episodes",
    "num_generations": 2,
    "lora": {},
    "rewards": [{"name": "format"}],
    "max_pixels": 1280 * 720,
}


def test_the_cache_of_vllm_is_that_of_prompt_and_answer_and_not_of_the_model_s_longest_context() -> None:
    """Qwen3-VL-8B: 36 layers, 8 key heads of 128, 262,144 positions (its config.json): 36 GiB for one sequence."""
    from training.grpo.config import GrpoConfig

    def need(**generation: Any) -> Any:
        values = {**GRPO_8B, "generation": {"backend": "vllm", "mode": "colocate", "memory": 0.35, **generation}}
        vllm = describe(plan.configuration.convert(values, GrpoConfig, "test"), "grpo", Shape(), 1).vllm
        assert vllm is not None
        return vllm

    assert need(context=262_144).cache == 36 * GIB
    measured = need()
    assert 1000 < measured.context < 4096
    assert measured.cache == 36 * 2 * 8 * 128 * 2 * measured.context
    assert measured.weights == pytest.approx(2 * 8.77e9, rel=1e-3)
    halves = need(parallel=2)
    assert (halves.cache, halves.weights) == (measured.cache / 2, measured.weights / 2)


def test_a_share_in_which_vllm_cannot_start_is_refused_with_one_that_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(**generation: Any) -> tuple[int, str, str]:
        values = {**GRPO_8B, "activation_checkpointing": True, "batch_size": 2}
        values["generation"] = {"backend": "vllm", "mode": "colocate", **generation}
        file = tmp_path / "grpo.yaml"
        file.write_text(yaml.safe_dump(values))
        code = plan.main(["--config", str(file), "--method", "grpo", "--gpu", "H100"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, _ = planned(memory=0.35)
    assert code == 0
    assert re.search(r"its share holds [1-9]\d* such sequences at a time", out)
    code, out, err = planned(memory=0.35, context=262_144)
    assert code == 78
    assert "its share holds 0 such sequences" in out
    (line,) = err.strip().splitlines()
    assert "36.00 for the cache of one sequence of 262144 tokens" in line
    enough = float(re.search(r"raise it to ([0-9.]+) at least", line).group(1))  # type: ignore[union-attr]
    _, out, _ = planned(memory=enough, context=262_144)
    assert "its share holds 1 such sequences" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "big"], "is no size"),
        (["--screen", "wide"], "is no WIDTHxHEIGHT"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan.main(["--config", written(tmp_path), *arguments]) == 78
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("model", "said"), [("nowhere", "no config.json"), ("other", "'llama' is not known")])
def test_a_model_that_is_not_there_or_not_known(
    model: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "llama"}')
    assert plan.main(["--config", written(tmp_path, model=str(tmp_path / model))]) == 78
    assert said in capsys.readouterr().err


def test_a_model_too_large_for_the_device_that_is_there_is_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "device_size", lambda: 8 * GIB)
    with pytest.raises(ConfigError, match=r"do not fit a device of 8\.0 GiB"):
        plan.check(config(), "sft")


@pytest.mark.parametrize(
    ("torchrun", "expected"),
    [
        (["torchrun"], 8),
        (["torchrun", "--nproc-per-node", "4"], 4),
        (["torchrun", "--standalone", "--nproc_per_node=2"], 2),
        (["python"], 8),  # accelerate's number is in its file
    ],
)
def test_weights_are_divided_by_the_processes_that_the_command_names(
    tmp_path: Path, torchrun: list[str], expected: int
) -> None:
    job = {
        "command": [*torchrun, "-m", "training.rl", "--config", "$SLIPWAY_CONFIG"],
        "resources": {"gpus": 8, "gpu": "H100"},
        "config": {
            **{"model": BASE["model"], "environment": "login", "options": {"split": "train"}, "steps": 1, "fsdp": True},
            **{"tasks": {"count": 8, "seed": 0}, "asynchronous": {"device": "cuda:7"}},
        },
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    made, method, gpu, gpus = plan.load(file, None)
    assert (method, gpu, gpus) == ("rl", "H100", expected)
    here, alone = (describe(made, method, Shape(), each).estimate.components for each in (gpus, 1))
    assert here["optimiser state"] == pytest.approx(alone["optimiser state"] / expected)


def test_sdpo_s_teacher_has_longer_prompts_and_a_worker_a_model_of_its_own() -> None:
    """15 steps of 48 tokens and 1,024 of the failure, and six more pictures of 1080p, 34 x 60 tokens each."""

    def made(**changes: Any) -> Any:
        tasks = TasksConfig(count=8, seed=0)
        given = RlConfig(model=BASE["model"], environment="login", tasks=tasks, steps=4, batch_size=8, **changes)
        return describe(given, "rl", Shape(), 1).estimate

    plain, taught, beside, elsewhere = (
        made(),
        made(sdpo=SdpoConfig()),
        made(asynchronous=AsyncConfig()),
        made(asynchronous=AsyncConfig(device="cuda:1")),
    )
    longer = 8 * (15 * 48 + 1024 + 6 * 34 * 60)
    assert taught.moments["generation"] - plain.moments["generation"] > longer * 36 * 8 * 128 * 2 * 4  # keys and values
    both = sum(plain.parameters.values()) * 4 + plain.moments["generation"]
    assert beside.components["weights: other models"] == pytest.approx(both)
    assert "generation" not in beside.moments
    assert elsewhere.components == plain.components


def test_a_reference_is_a_copy_without_a_lora_and_a_filter_needs_the_logits_as_a_whole() -> None:
    tasks = TasksConfig(count=8, seed=0)
    usual: dict[str, Any] = {"model": BASE["model"], "environment": "login", "tasks": tasks, "steps": 4}
    kl = KlConfig(coefficient=0.1)
    assert how(RlConfig(**usual), "rl", 1).copies == 0
    assert how(RlConfig(**usual, kl=kl), "rl", 1).copies == 1
    assert how(RlConfig(**usual, kl=kl, lora=LoraConfig(rank=8)), "rl", 1).copies == 0
    assert (how(RlConfig(**usual), "rl", 1).head, how(RlConfig(**usual, top_p=0.9), "rl", 1).head) == (
        "chunked",
        "full",
    )


def test_vllm_beside_a_training_takes_its_share_and_is_refused_where_its_model_has_no_room() -> None:
    """8.77e9 weights in bfloat16 are 16.3 GiB; on two cards each has half of them and of the cache."""

    def made(card: float = 80.0, **vllm: Any) -> tuple[Any, float]:
        tasks = TasksConfig(count=8, seed=0)
        device = vllm.pop("device", None)
        given = RlConfig(
            model="hf://Qwen/Qwen3-VL-8B-Instruct",
            environment="login",
            tasks=tasks,
            steps=4,
            batch_size=1,
            precision="bf16",
            lora=LoraConfig(),
            freeze_vision=True,
            asynchronous=AsyncConfig(device=device, vllm=SamplerConfig(**vllm)),
        )
        need = describe(given, "rl", Shape(), 1).vllm
        plan.refuse_vllm(given, need, card * GIB)
        return need, plan.needed(given, "rl", Shape(), 1, card * GIB) / GIB

    need, shared = made(memory=0.4)
    assert need.weights / GIB == pytest.approx(16.33, abs=0.02)
    _, elsewhere = made(memory=0.9, device="cuda:1")
    _, served = made(mode="server", servers=["http://x:1"], folder="/w")
    assert shared - elsewhere == pytest.approx(0.4 * 80)
    assert served == elsewhere
    split, _ = made(memory=0.9, device="cuda:1", gpus=2)
    assert (split.weights, split.cache) == (need.weights / 2, need.cache / 2)
    longer, _ = made(memory=0.4, context=10 * need.context)
    assert longer.cache == pytest.approx(10 * need.cache)
    for refused in ({"memory": 0.2}, {"memory": 0.2, "device": "cuda:1"}):
        with pytest.raises(ConfigError, match=r"asynchronous\.vllm\.memory: vLLM's share of 16\.0 GiB is too small"):
            made(**refused)
    with pytest.raises(ConfigError, match=r"vllm\.servers: 14\.4 GiB of a card like this one are too little"):
        made(card=16.0, mode="server", servers=["http://x:1"], folder="/w")
