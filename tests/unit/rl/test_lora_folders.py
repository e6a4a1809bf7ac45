"""Published weights of a LoRA become folders that peft itself reads, one a version."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from eval.config import ConfigError
from training.rl.weights.lora_folders import LoraFolders
from training.rl.weights.published import PublishedWeights, check_room

pytestmark = pytest.mark.ml


class Layers(torch.nn.Module):
    """The names of Qwen-VL's modules, small."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = torch.nn.ModuleDict({"qkv": torch.nn.Linear(4, 4, bias=False)})
        self.language_model = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(4, 4, bias=False)})


def model_with_lora(**options: Any) -> Any:
    import peft

    torch.manual_seed(0)
    chosen: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["qkv", "q_proj"], "init_lora_weights": False}
    return peft.get_peft_model(Layers(), peft.LoraConfig(**{**chosen, **options}))


def published(folder: Path, versions: int, **options: Any) -> PublishedWeights:
    """Versions 0 to versions - 1, each with other weights."""
    folder.mkdir(parents=True, exist_ok=True)
    made = PublishedWeights(model_with_lora(**options), folder, kept=4)
    for version in range(versions):
        made.publish(version)
        with torch.no_grad():
            for weight in made.model.parameters():
                weight.add_(1.0)
    return made


def test_peft_reads_the_weights_of_each_version_from_its_folder(tmp_path: Path) -> None:
    import peft

    made = published(tmp_path / "w", 2)
    adapters = LoraFolders(tmp_path / "w")
    assert adapters.rank == 4
    sums = []
    for version in range(2):
        folder = adapters.make(version, made.file(version))
        read = peft.PeftModel.from_pretrained(Layers(), str(folder))
        want = model_with_lora()
        with torch.no_grad():
            for weight in want.parameters():
                weight.add_(float(version))
        for (name, one), (other_name, other) in zip(read.named_parameters(), want.named_parameters(), strict=True):
            assert name == other_name
            if "lora_" in name:
                assert torch.equal(one, other)
                sums.append(float(one.sum().detach()))
    assert len(set(sums)) == 8
    assert LoraFolders.touches_vision(folder)


def test_the_servers_of_many_workers_make_a_folder_at_once(tmp_path: Path) -> None:
    made = published(tmp_path / "w", 3)
    workers = [LoraFolders(tmp_path / "w") for _ in range(2)]
    ready = threading.Barrier(6)

    def make(worker: LoraFolders, version: int) -> Path:
        ready.wait()
        return worker.make(version, made.file(version))

    with ThreadPoolExecutor(6) as pool:
        for version in range(3):
            asked = [pool.submit(make, worker, version) for worker in workers * 3]
            (folder,) = {each.result() for each in asked}
            assert LoraFolders.touches_vision(folder)
    assert not list((tmp_path / "w").glob(".lora-*"))


def test_names_are_of_one_training_and_one_version(tmp_path: Path) -> None:
    published(tmp_path / "one", 1)
    published(tmp_path / "two", 1)
    one, two = LoraFolders(tmp_path / "one"), LoraFolders(tmp_path / "two")
    assert one.version(one.name(7)) == 7
    assert one.version(two.name(7)) is None
    assert one.version("one") is None


def test_a_lora_on_the_language_model_alone_leaves_the_tower_to_vllm(tmp_path: Path) -> None:
    made = published(tmp_path / "w", 1, target_modules=["q_proj"])
    assert not LoraFolders.touches_vision(LoraFolders(tmp_path / "w").make(0, made.file(0)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"use_dora": True}, "vLLM takes no DoRA"),
        ({"modules_to_save": ["language_model.q_proj"], "target_modules": ["qkv"]}, "no LoRA with modules_to_save"),
        ({"bias": "all"}, "no LoRA with a bias"),
    ],
)
def test_what_vllm_would_drop_without_a_word_is_refused(tmp_path: Path, options: dict[str, object], match: str) -> None:
    published(tmp_path / "w", 0, **options)
    with pytest.raises(ConfigError, match=match):
        LoraFolders(tmp_path / "w")


def test_a_rank_of_one_layer_counts(tmp_path: Path) -> None:
    published(tmp_path / "w", 0, rank_pattern={"qkv": 12})
    assert LoraFolders(tmp_path / "w").rank == 12


def test_a_disk_without_room_for_the_versions_is_told_before_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"5 versions of the trained weights take 5e?.* GB in .*lower staleness"):
        check_room(tmp_path, 10**18, 4)
    check_room(tmp_path, 10, 4)
