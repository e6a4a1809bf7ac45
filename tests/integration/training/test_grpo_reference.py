"""GRPO's reference model (`beta`) is the model that the training starts from; its summary knows the groups' prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config.models import source
from tests.integration.training.test_grpo import config, material, trainer  # noqa: F401 (material is a fixture)
from training.common.model.adapter import lora
from training.common.model.loading import load_model, start_model
from training.common.model.saving import whole
from training.options import LoraConfig

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
FIRST, NEWEST = "1" * 40, "2" * 40  # commits


@pytest.fixture
def hub(material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """A model of a hub with two commits, in the cache as huggingface_hub lays it out; the hub is not asked."""
    from huggingface_hub import constants
    from safetensors.torch import load_file, save_file

    repository = tmp_path / "hub" / "models--team--tiny"
    for commit in (FIRST, NEWEST):
        shutil.copytree(material[1], repository / "snapshots" / commit)
    file = repository / "snapshots" / NEWEST / "model.safetensors"
    save_file({name: tensor + 0.5 for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    (repository / "refs").mkdir()
    for name, commit in (("main", NEWEST), ("v1", FIRST)):
        (repository / "refs" / name).write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return "hf://team/tiny@v1"


def test_the_reference_is_of_the_same_revision_and_attention(
    material: tuple[Path, Path],  # noqa: F811
    hub: str,
    tmp_path: Path,
) -> None:
    import torch

    chosen = config(material, model=hub, beta=0.1, attention="eager", steps=2)
    started = trainer(chosen, tmp_path / "out")
    policy, reference = started.model, started.accelerator.unwrap_model(started.ref_model)
    weights = reference.state_dict()
    assert weights.keys() == policy.state_dict().keys()
    for name, value in policy.state_dict().items():
        assert value.dtype == weights[name].dtype
        assert torch.equal(value, weights[name]), name
    parts: list[Any] = [reference.config, reference.config.text_config, reference.config.vision_config]
    assert {part._attn_implementation for part in parts} == {"eager"}
    assert not any(module.training for module in reference.modules())


def test_each_group_of_the_summary_is_known_by_its_prompt(material: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    started = trainer(config(material, steps=2), tmp_path / "out")
    started.train()
    (groups,) = started.tally.groups
    numbers = [number for number, _ in groups]
    sampled = [number for number, _ in started.tally.attempts]
    assert [number for number in numbers for _ in range(started.num_generations)] == sampled
    for number, (mean,) in groups:
        values = [len(set(attempt.text)) / 20 for at, attempt in started.tally.attempts if at == number]
        assert mean == pytest.approx(sum(values) / len(values), rel=1e-5)


@pytest.mark.filterwarnings(  # peft asks the hub whether the vocabulary grew, and warns when it is not there
    "ignore:Unable to fetch remote file:UserWarning", "ignore:Could not find a config file in team/tiny:UserWarning"
)
@pytest.mark.parametrize("way", ["new", "continued", "unsloth"])
def test_a_lora_that_was_trained_in_shards_is_merged_into_its_own_revision(
    way: str,
    material: tuple[Path, Path],  # noqa: F811
    hub: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new LoRA adds nothing, so that the merged model is the one that was loaded."""
    import torch
    from peft import get_peft_model

    chosen = config(material, model=hub, lora=LoraConfig(rank=2, alpha=4), steps=2)
    base = start_model(chosen)
    loaded = {name: value.clone() for name, value in base.state_dict().items()}
    match way:
        case "new":
            model = get_peft_model(base, lora(chosen, base))
        case "continued":  # an adapter that was made on a copy of the model, which is gone
            get_peft_model(base, lora(chosen, base)).save_pretrained(tmp_path / "first")
            file = tmp_path / "first" / "adapter_config.json"
            about = {"base_model_name_or_path": str(tmp_path / "gone"), "revision": None}
            file.write_text(json.dumps(json.loads(file.read_text()) | about))
            going_on = msgspec.structs.replace(chosen, lora=None, adapter=str(tmp_path / "first"))
            model, _ = load_model(going_on)
        case "unsloth":  # its LoRA has no revision
            made = lora(chosen, base)
            made.revision = None
            first = get_peft_model(base, made)
            monkeypatch.setattr("training.common.model.unsloth.load", lambda *given: first)
            model, _ = load_model(msgspec.structs.replace(chosen, loader="unsloth"))
    model.save_pretrained(tmp_path / "adapter")
    saved = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    name, where = source(hub)
    assert (saved["base_model_name_or_path"], saved["revision"]) == (name, where["revision"])
    merged = whole(model, tmp_path / "adapter").merge_and_unload().state_dict()
    assert merged.keys() == loaded.keys()
    assert all(torch.equal(value, loaded[name]) for name, value in merged.items())
