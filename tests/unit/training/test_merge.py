"""A LoRA in the weights answers as base and adapter together; what can not be merged is refused; exports reload."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError, convert
from tests.unit.training.material import PROMPT, episodes, model
from training.common.model.card import weights_digest
from training.common.model.folder import NEEDED
from training.export import ExportConfig, export
from training.merge import MergeConfig, main, merge

pytestmark = [
    pytest.mark.ml,
    # peft asks transformers by a name that is on its way out
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def adapter(base: Path, folder: Path, scale: float = 0.05) -> Path:
    """A LoRA of `base` that changes its answers."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    made = AutoModelForImageTextToText.from_pretrained(base, local_files_only=True)
    made = get_peft_model(made, LoraConfig(r=4, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=scale)
    made.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(base, adapter, episodes)"""
    root = tmp_path_factory.mktemp("merge")
    made = episodes(root)
    base = model(root / "base", made)
    return base, adapter(base, root / "adapter"), made


def test_merged_weights_answer_as_base_and_adapter_did(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    base, lora, made = material
    told = merge(
        MergeConfig(model=str(base), adapter=str(lora), episodes=str(made), prompt=PROMPT, max_shard_size="100KB"),
        tmp_path,
    )
    assert "100.0% of the tokens are the same" in told[0]
    folder = tmp_path / "model"
    assert len(list(folder.glob("*.safetensors"))) > 1
    for names in NEEDED:
        assert any((folder / name).is_file() for name in names), names
    card = (folder / "README.md").read_text()
    assert "made by `training.merge`" in card
    assert f"| adapter's weights | {weights_digest(lora)} |" in card
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1  # a server of another user reads them all
    assert not list(tmp_path.glob(".*"))


def test_the_adapter_changes_what_the_base_says(material: tuple[Path, Path, Path]) -> None:
    from training.common.model import comparison
    from training.common.model.adapter import with_adapter
    from training.common.model.folder import load_base

    loaded, processor = load_base(str(material[0]), None)
    inputs = comparison.probes(processor, str(material[2]), PROMPT, 2)
    before = comparison.logits(loaded, inputs)
    after = comparison.logits(with_adapter(loaded, str(material[1]), base=str(material[0]), trainable=False), inputs)
    with pytest.raises(ConfigError, match="Nothing was written"):
        comparison.require_same(before, after, comparison.TOLERANCE["bfloat16"], "base")


def test_bfloat16_weights_stay_within_their_rounding(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    told = merge(MergeConfig(model=str(material[0]), adapter=str(material[1]), dtype="bfloat16"), tmp_path)
    assert told[0].startswith("merged (bfloat16)")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_difference_above_the_tolerance_writes_nothing(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    config = MergeConfig(model=str(material[0]), adapter=str(material[1]), dtype="bfloat16", tolerance=1e-9)
    with pytest.raises(ConfigError, match="Nothing was written"):
        merge(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_adapter_of_another_base_is_refused(
    material: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.tiny import TinyConfig, build

    build(TinyConfig(hidden=64, heads=2, layers=1, vision_hidden=32, vision_layers=1), tmp_path / "other")
    (tmp_path / "config.json").write_text(
        json.dumps({"model": str(tmp_path / "other"), "adapter": str(material[1])}), encoding="utf-8"
    )
    assert main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 78
    assert "another base model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_quantised_weights_take_no_adapter(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    base = shutil.copytree(material[0], tmp_path / "base")
    about = json.loads((base / "config.json").read_text())
    about["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (base / "config.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(ConfigError, match="quantised"):
        merge(MergeConfig(model=str(base), adapter=str(material[1])), tmp_path)


def test_an_export_holds_what_a_server_needs_and_loads_again(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, AutoProcessor

    told = export(ExportConfig(model=str(material[0]), episodes=str(material[2]), prompt=PROMPT), tmp_path)
    assert "differ by at most 0 " in told[0]
    folder = tmp_path / "model"
    processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    assert processor.chat_template == AutoProcessor.from_pretrained(material[0], local_files_only=True).chat_template
    alone = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
    assert alone.size == processor.image_processor.size
    assert alone.patch_size == processor.image_processor.patch_size


def test_an_adapter_is_exported_alone(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    config = ExportConfig(model=str(material[0]), adapter=str(material[1]), adapter_only=True)
    assert export(config, tmp_path) == [f"adapter: rank 4 on {material[0]}"]
    written = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert written == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    assert "library_name: peft" in (tmp_path / "adapter" / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "gguf"}, "GGUF is not made here"),
        ({"format": "onnx"}, "allowed: safetensors"),
        ({"adapter": "x"}, "adapter goes with adapter_only"),
        ({"adapter_only": True}, "adapter goes with adapter_only"),
    ],
)
def test_what_can_not_be_exported_is_said_at_once(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        export(convert({"model": "nowhere", **changes}, ExportConfig, "test"), tmp_path)


def tied_adapter(base: Path, folder: Path, **settings: Any) -> Path:
    """An adapter of a model whose head is tied to its embedding, as peft writes one."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    made = AutoModelForImageTextToText.from_pretrained(base, local_files_only=True)
    assert made.lm_head.weight is made.get_input_embeddings().weight
    made = get_peft_model(
        made, LoraConfig(**{"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **settings})
    )
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    made.save_pretrained(folder)
    return folder


ON_TIED: dict[str, tuple[dict[str, Any], bool]] = {  # the settings, and whether the merged model is still tied
    "LoRA on the embedding": ({"target_modules": ["embed_tokens", "q_proj"]}, False),
    "LoRA on the head": ({"target_modules": ["lm_head"]}, False),
    "LoRA on both, tied": ({"target_modules": ["embed_tokens"], "ensure_weight_tying": True}, False),
    "a head of its own": ({"modules_to_save": ["lm_head"]}, False),
    "both of its own, tied": ({"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, True),
    "rows of the embedding": ({"trainable_token_indices": [1, 2, 3]}, False),
}


@pytest.mark.filterwarnings(
    "ignore:Model (has|with) .tie_word:UserWarning",
    "ignore:Setting `save_embedding_layers`:UserWarning",
    "ignore:.*ensure_weight_tying:UserWarning",
)
@pytest.mark.parametrize("name", ON_TIED)
def test_an_adapter_on_an_embedding_that_the_head_is_tied_to_is_merged_whole(
    name: str, material: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """The reference is transformers' and peft's own: base and adapter, never merged."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from training.common.model import comparison

    settings, tied = ON_TIED[name]
    lora = tied_adapter(material[0], tmp_path / "adapter", **settings)
    merge(MergeConfig(model=str(material[0]), adapter=str(lora)), tmp_path)
    processor = AutoProcessor.from_pretrained(material[0])
    inputs = comparison.probes(processor, str(material[2]), PROMPT, 2)
    base = AutoModelForImageTextToText.from_pretrained(material[0])
    apart = comparison.logits(PeftModel.from_pretrained(base, str(lora)), inputs)
    whole = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")
    effect = comparison.difference(
        apart, comparison.logits(AutoModelForImageTextToText.from_pretrained(material[0]), inputs)
    )[0]
    assert effect > 0.5
    assert comparison.difference(apart, comparison.logits(whole, inputs))[0] < 1e-4 * effect
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tie_word_embeddings"] == tied


@pytest.mark.filterwarnings("ignore::UserWarning:peft")  # it warns of all that follows
def test_what_peft_cannot_merge_is_refused_in_words(material: tuple[Path, Path, Path], tmp_path: Path) -> None:
    lora = tied_adapter(material[0], tmp_path / "adapter", lora_bias=True)
    with pytest.raises(ConfigError, match=r"adapter: peft cannot merge it: .*lora_bias.* Nothing was written"):
        merge(MergeConfig(model=str(material[0]), adapter=str(lora)), tmp_path)
    assert not (tmp_path / "model").exists()
