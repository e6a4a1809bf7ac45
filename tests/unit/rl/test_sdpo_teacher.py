"""The self-teacher on the tiny model: it starts as the student, follows it, and leaves it untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from eval.config import ConfigError
from tests.unit.training import material
from training.rl.learning.sdpo.stage import SelfTeacher

# peft 0.21 asks transformers by an old name
pytestmark = [pytest.mark.ml, pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")]
IDS = torch.tensor([[5, 9, 30, 41, 7, 12]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("teacher")
    return material.model(base / "model", material.episodes(base, 1))


def tiny(folder: Path) -> Any:
    from transformers import Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)


def trained_lora(folder: Path, **options: Any) -> Any:
    """A LoRA that an SFT has left behind: B is not 0."""
    model = get_peft_model(tiny(folder), LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", **options))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.3)
    return model


def answers(model: Any) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=IDS).logits
    return out


def step(model: Any, seed: int) -> None:
    """Moves everything that is trained."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=draw) * 0.05)


def test_a_teacher_of_a_trained_lora_begins_as_the_student(folder: Path) -> None:
    """TRL's begins as the base model: red if the LoRA were left out."""
    model = trained_lora(folder).train()
    model.eval()
    student = answers(model)
    with model.disable_adapter():
        base = answers(model)
    assert (student - base).abs().max() > 0.1  # the LoRA matters
    model.train()
    teacher = SelfTeacher(model)
    with teacher.teaching() as teaching:
        torch.testing.assert_close(answers(teaching), student, rtol=1e-4, atol=1e-4)
        assert not teaching.training  # no dropout in what it says


@pytest.mark.parametrize("kind", ["lora", "lora and a whole layer", "full"])
def test_it_averages_what_the_student_computes_with(folder: Path, kind: str) -> None:
    """Its answers are those of a model whose merged weights are averaged by hand, which has no LoRA at all."""
    options = {"modules_to_save": ["norm"]} if kind == "lora and a whole layer" else {}
    model = tiny(folder) if kind == "full" else trained_lora(folder, **options)
    if kind == "full":
        step(model, 100)
    teacher = SelfTeacher(model, rate=0.25)
    average = merged(model, folder)
    for number in range(3):
        step(model, number)
        teacher.update()
        now = merged(model, folder)
        average = {name: 0.75 * average[name] + 0.25 * now[name] for name in average}
    plain = tiny(folder).eval()
    plain.load_state_dict(average)
    with teacher.teaching() as teaching:
        torch.testing.assert_close(answers(teaching), answers(plain), rtol=1e-3, atol=1e-3)
    model.eval()
    assert (answers(model) - answers(plain)).abs().max() > 0.02


def merged(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    """The weights of the student with its LoRA added in, by peft's own merging of a copy."""
    import copy

    whole = copy.deepcopy(model)
    if hasattr(whole, "merge_and_unload"):
        whole = whole.merge_and_unload()
    names = tiny(folder).state_dict()
    return {name: value.clone() for name, value in whole.state_dict().items() if name in names}


def test_the_student_comes_back_to_the_bit(folder: Path) -> None:
    model = trained_lora(folder, modules_to_save=["norm"]).train()
    teacher = SelfTeacher(model, rate=0.5)
    step(model, 7)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    needs = {name: weight.requires_grad for name, weight in model.named_parameters()}

    def interrupted() -> None:
        with teacher.teaching() as teaching:
            answers(teaching)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        interrupted()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: weight.requires_grad for name, weight in model.named_parameters()} == needs
    assert model.training
    loss = model(input_ids=IDS).logits.square().mean()
    loss.backward()
    assert any(
        weight.grad is not None and weight.grad.any() for name, weight in model.named_parameters() if "lora_B" in name
    )


def test_rate_0_is_the_start_and_a_resumed_teacher_is_the_same(folder: Path) -> None:
    model = trained_lora(folder)
    model.eval()
    start = answers(model)
    fixed, moving = SelfTeacher(model, rate=0), SelfTeacher(model, rate=0.5)
    step(model, 3)
    fixed.update()
    moving.update()
    with fixed.teaching() as teaching:
        torch.testing.assert_close(answers(teaching), start, rtol=1e-4, atol=1e-4)
    again = SelfTeacher(model, rate=0.5)
    again.restore({name: value.clone() for name, value in moving.state().items()})
    for number in range(2):
        step(model, number)
        moving.update()
        again.update()
    assert all(torch.equal(again.values[name], value) for name, value in moving.values.items())
    with pytest.raises(ConfigError, match="resume: the checkpoint's teacher"):
        again.restore({})


def test_what_cannot_be_averaged_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="without DoRA"):
        SelfTeacher(trained_lora(folder, use_dora=True))
    with pytest.raises(ConfigError, match="rate"):
        SelfTeacher(tiny(folder), rate=2)
