"""The section `trl:` of the trainers: what it takes, what it refuses, and that nothing of TRL is overlooked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError, convert
from tests.support.refusing import refused
from training.dpo.train import DpoConfig
from training.dpo.train import main as dpo
from training.grpo.config import GenerationConfig, GrpoConfig
from training.grpo.train import main as grpo
from training.options import TrainerConfig
from training.reward.train import RewardConfig
from training.reward.train import main as reward
from training.rl.config import RlConfig
from training.rl.train import main as rl
from training.sft.train import SftConfig
from training.sft.train import main as sft
from training.trl_arguments import CHOICES, NAMED, REFUSED, check_arguments, check_names, with_trl

Main = Callable[[Sequence[str]], int]
BASE: dict[str, Any] = {"model": ".", "steps": 3}
TRAINERS: dict[str, tuple[Main, type[TrainerConfig], dict[str, Any]]] = {
    "sft": (sft, SftConfig, {**BASE, "data": "."}),
    "dpo": (dpo, DpoConfig, {**BASE, "pairs": "."}),
    "grpo": (grpo, GrpoConfig, {**BASE, "data": ".", "rewards": [{"name": "format"}]}),
    "reward": (reward, RewardConfig, {**BASE, "pairs": "."}),
    "rl": (rl, RlConfig, {**BASE, "environment": "login", "tasks": {"count": 8, "seed": 0}}),
}


def kinds() -> dict[str, Any]:
    from transformers import TrainingArguments
    from trl import DPOConfig, GRPOConfig, SFTConfig

    return {"sft": SFTConfig, "dpo": DPOConfig, "grpo": GRPOConfig, "reward": TrainingArguments, "rl": GRPOConfig}


@pytest.mark.parametrize("method", TRAINERS)
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("learning_rate", 1e-5, "trl.learning_rate: the field learning_rate sets it"),
        ("optim", "sgd", "trl.optim: the field optimizer sets it"),
        ("bf16", True, "trl.bf16: the field precision sets it"),
        ("save_only_model", True, "trl.save_only_model: not offered: a checkpoint is whole"),
        ("auto_find_batch_size", True, "trl.auto_find_batch_size: not offered: a step's batch"),
        ("use_liger_kernel", True, "trl.use_liger_kernel: not offered: Liger's kernels cannot be loaded"),
        ("push_to_hub", True, "results go to $SLIPWAY_OUTPUTS"),
    ],
)
def test_what_has_a_field_or_breaks_a_promise_is_one_line(
    method: str, name: str, value: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, _, good = TRAINERS[method]
    assert says in refused(main, {**good, "trl": {name: value}}, tmp_path, capsys)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"loss": "vespo", "trl": {"vllm_importance_sampling_mode": "sequence_mask"}},
            "loss vespo takes token_truncate",
        ),
        ({"trl": {"trust_remote_code": True}}, "code in a model's folder is not run"),
        ({"trl": {"generation_kwargs": {}}}, "tokens that stand for images are never sampled"),
        ({"trl": {"beta": 0.1}}, "trl.beta: the field beta sets it"),
    ],
)
def test_what_grpo_promises_is_held(
    change: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, _, good = TRAINERS["grpo"]
    assert says in refused(main, {**good, **change}, tmp_path, capsys)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("beta", 0.1, "the reference is the model of the start; take kl"),
        ("use_vllm", True, "vLLM samples the rollouts with asynchronous.vllm"),
        ("vllm_mode", "colocate", "vLLM samples the rollouts with asynchronous.vllm"),
        ("num_generations", 4, "a group has group_size rollouts"),
    ],
)
def test_rl_names_what_to_use_in_place_of_what_it_does_not_read(
    name: str, value: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, _, good = TRAINERS["rl"]
    said = refused(main, {**good, "trl": {name: value}}, tmp_path, capsys)
    assert f"trl.{name}: nothing reads it here: " in said
    assert says in said


def test_rl_refuses_what_would_part_the_loss_from_the_policy_that_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, _, good = TRAINERS["rl"]
    for name, value in (("neftune_noise_alpha", 5.0), ("disable_dropout", False)):
        said = refused(main, {**good, "trl": {name: value}}, tmp_path, capsys)
        assert f"trl.{name}: not offered here: " in said
        assert "the policy that sampled" in said


def answered(method: str, name: str) -> str:
    """What the configuration alone says of an argument: refused, the field that sets it, or nothing."""
    kind = TRAINERS[method][1]
    try:
        check_names({name: None}, kind.__struct_fields__, kind.unread)
    except ConfigError as error:
        said = str(error)
        return f"field: {NAMED[name]}" if ": the field " in said else "refused"
    return "taken"


@pytest.mark.ml
@pytest.mark.parametrize("method", TRAINERS)
def test_every_argument_of_trl_has_one_of_four_answers(method: str) -> None:
    """The table is made of trainings, at night (tests/integration/training/test_trl_answers.py). An argument that a
    newer TRL adds has none: decide it, and write the table again."""
    table = json.loads((Path(__file__).parents[2] / "data" / "trl_answers.json").read_text(encoding="utf-8"))[method]
    known = {field.name for field in dataclasses.fields(kinds()[method]) if field.init}
    assert {*table} == known
    for name, answer in table.items():
        said = answered(method, name)
        if said == "taken":
            assert answer == "obeyed" or answer.startswith("not run here: "), (name, answer)
        else:
            assert answer == said, name


def test_every_field_that_a_refusal_names_is_there() -> None:
    """A field that is renamed leaves its argument unguarded."""
    fields = {name for _, kind, _ in TRAINERS.values() for name in kind.__struct_fields__}
    fields |= {f"generation.{name}" for name in GenerationConfig.__struct_fields__}
    named = {word for text in NAMED.values() for word in text.replace(",", "").split() if not word.startswith("(")}
    assert named <= fields


@pytest.mark.ml
@pytest.mark.parametrize("method", TRAINERS)
def test_an_unknown_name_and_a_wrong_type_are_refused_by_the_trainer_s_class(method: str) -> None:
    kind = kinds()[method]
    with pytest.raises(
        ConfigError, match=r"trl\.neftune_noise_alfa: .* has no such argument; near is neftune_noise_alpha"
    ):
        check_arguments({"neftune_noise_alfa": 5}, kind)
    with pytest.raises(ConfigError, match=r"trl\.neftune_noise_alpha: Expected `float \| null`, got `str`"):
        check_arguments({"neftune_noise_alpha": "much"}, kind)
    check_arguments({"neftune_noise_alpha": 5, "tf32": None, "adam_epsilon": 1e-6, "debug": "underflow_overflow"}, kind)


@pytest.mark.ml
def test_an_argument_of_one_trainer_is_unknown_to_another() -> None:
    check_arguments({"delta": 1.5}, kinds()["grpo"])
    with pytest.raises(ConfigError, match=r"trl\.delta: SFTConfig has no such argument"):
        check_arguments({"delta": 1.5}, kinds()["sft"])


@pytest.mark.ml
def test_what_asks_otherwise_wins_over_our_own_choice(tmp_path: Path) -> None:
    from training.grpo.train import arguments

    asked = {"vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0, "delta": 1.5}
    config = convert({**TRAINERS["grpo"][2], "trl": asked}, GrpoConfig, "test")
    config.check()
    theirs = with_trl(arguments(config, tmp_path, [7]), config.trl, kinds()["grpo"])
    assert {name: getattr(theirs, name) for name in asked} == asked


@pytest.mark.ml
def test_what_the_class_itself_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trl: TrainingArguments refuses debug: "):
        with_trl({"output_dir": str(tmp_path)}, {"debug": "nonsense"}, kinds()["reward"])


@pytest.mark.ml
def test_every_name_in_the_tables_is_one_of_trl_s(tmp_path: Path) -> None:
    """And no argument that a trainer of ours sets can be set otherwise, but for those that say so."""
    from training.grpo.train import arguments
    from training.options import training_arguments

    known = {field.name for kind in kinds().values() for field in dataclasses.fields(kind)}
    # the names differ between versions of transformers
    assert {*NAMED, *REFUSED} - known <= {"gradient_checkpointing", "activation_checkpointing"}
    assert not {*NAMED} & {*REFUSED}
    config = convert(TRAINERS["grpo"][2], GrpoConfig, "test")
    ours = {**training_arguments(config, tmp_path), **arguments(config, tmp_path, [7], 512)}
    assert {*ours} >= CHOICES
    for name in {*ours} - CHOICES:
        if name in NAMED or name in REFUSED:
            with pytest.raises(ConfigError, match=rf"trl\.{name}: "):
                check_names({name: ours[name]}, GrpoConfig.__struct_fields__)
        else:
            with pytest.raises(ConfigError, match=rf"trl\.{name}: "):
                with_trl(ours, {name: ours[name]}, kinds()["grpo"])


def test_a_training_resumes_only_with_the_same_section() -> None:
    from training.options import computed

    first, second = (
        computed(convert({**TRAINERS["sft"][2], "trl": trl}, SftConfig, "test")) for trl in ({}, {"adam_beta1": 0.8})
    )
    assert {name for name in first if first[name] != second[name]} == {"trl"}
