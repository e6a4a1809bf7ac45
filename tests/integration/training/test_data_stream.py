"""Packed data under real loaders and a real training: the same at any number of workers, and after a resume."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.unit.training.material import episodes, model
from training.data.packed.pack import PackConfig, pack
from training.data.packed.stream import PackedSamples
from training.data.source import SourceConfig, Spec, open_source
from training.sft.train import SftConfig, train

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", history=2, images=2)
STEPS = 10
BATCH = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with episodes/, packed/, general/ and model/."""
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield made_once("data-stream", fill)


def fill(made: Path) -> None:
    model(made / "model", episodes(made, 8, PROMPT), PROMPT)
    pack(PackConfig(episodes=[str(made / "episodes")]), made / "packed")
    (made / "general").mkdir()
    lines = [
        {"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"{i}"}]}
        for i in range(20)
    ]
    (made / "general" / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def mixture(root: Path) -> Spec:
    return [SourceConfig(path=str(root / "packed"), weight=3), SourceConfig(path=str(root / "general"), weight=1)]


def config(root: Path, **changes: Any) -> SftConfig:
    values: dict[str, Any] = {
        "data": str(root / "packed"),
        "model": str(root / "model"),
        "prompt": PROMPT,
        "steps": STEPS,
        "batch_size": BATCH,
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "save_every": 4,
        "keep_checkpoints": 9,
        "predictions": 0,
        "cache_mb": 0,
    }
    return SftConfig(**{**values, **changes})


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def straight(root: Path) -> Path:
    return made_once("data-stream-straight", undisturbed, root)


def undisturbed(out: Path, root: Path) -> None:
    assert train(config(root), out, None)


def test_packed_data_trains_to_the_weights_of_the_folders(root: Path, straight: Path, tmp_path: Path) -> None:
    assert train(config(root, data=None, episodes=str(root / "episodes")), tmp_path, None)
    assert weights(tmp_path) == weights(straight)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_what_is_learned(root: Path, straight: Path, tmp_path: Path, workers: int) -> None:
    assert train(config(root, workers=workers), tmp_path, None)
    assert weights(tmp_path) == weights(straight)


def test_a_resume_in_the_middle_of_an_epoch_reads_only_what_is_left(
    root: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits, with the samples that the run before had not reached, and no other one read."""
    found = open_source(str(root / "packed"), PROMPT.builder())
    assert len(found) > (STEPS + 1) * BATCH  # all of it lies within the first epoch
    read: list[int] = []
    real = PackedSamples.__getitem__

    def counting(self: PackedSamples, at: Any) -> Any:
        read.append(at)
        return real(self, at)

    monkeypatch.setattr(PackedSamples, "__getitem__", counting)
    assert train(config(root), tmp_path / "whole", None)
    whole, read[:] = list(read), []
    assert len(whole) == (STEPS + 1) * BATCH  # accelerate fetches one batch ahead
    assert len(set(whole)) == len(whole)
    assert train(config(root), tmp_path / "rest", str(straight / "checkpoints" / "checkpoint-4"))
    assert read == whole[4 * BATCH :]
    assert weights(tmp_path / "rest") == weights(tmp_path / "whole") == weights(straight)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_mixture_goes_on_in_its_larger_source_and_resumes_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    """Three epochs of three chats and three of the steps; resumed in the second of them, with a worker."""
    (tmp_path / "few").mkdir()
    rows = (root / "general" / "chats.jsonl").read_text().splitlines(keepends=True)[:3]
    (tmp_path / "few" / "chats.jsonl").write_text("".join(rows))
    data = [SourceConfig(path=str(tmp_path / "few")), SourceConfig(path=str(root / "packed"))]
    read: set[int] = set()
    real = PackedSamples.__getitem__
    monkeypatch.setattr(PackedSamples, "__getitem__", lambda self, at: read.add(at) or real(self, at))  # type: ignore[func-returns-value]
    given: dict[str, Any] = {"data": data, "steps": 6, "save_every": 3, "group_by_length": grouped}
    assert train(config(root, **given), tmp_path / "whole", None)
    assert len(read) == 9
    other = config(root, **given, workers=1)
    assert train(other, tmp_path / "rest", str(tmp_path / "whole" / "checkpoints" / "checkpoint-3"))
    assert weights(tmp_path / "rest") == weights(tmp_path / "whole")


class Targets:
    """Rows of indices -> what would be learned, with the pictures' sizes: small enough to compare."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __call__(self, rows: Any) -> list[tuple[int, str, list[tuple[int, int]]]]:
        from training.data.samples import open_images

        found = [(index, self.samples[index]) for index in rows]
        return [(index, sample.target, [image.size for image in open_images(sample)]) for index, sample in found]


def loader(samples: Any, seed: int, **more: Any) -> Any:
    import torch
    from torch.utils.data import DataLoader

    dice = torch.Generator().manual_seed(seed)
    rows: Any = range(len(samples))
    return DataLoader(rows, batch_size=4, shuffle=True, generator=dice, collate_fn=Targets(samples), **more)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_order_is_the_same_at_any_number_of_workers(root: Path, context: str) -> None:
    for spec in (str(root / "packed"), mixture(root)) if context == "fork" else (mixture(root),):
        samples = open_source(spec, PROMPT.builder(), seed=2)
        wanted = list(loader(samples, 7))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # more workers than cores
            for workers in (1, 4) if context == "fork" else (1,):
                assert list(loader(samples, 7, num_workers=workers, multiprocessing_context=context)) == wanted
        assert [index for batch in wanted for index, _, _ in batch] != list(range(len(samples)))
        assert list(loader(samples, 8)) != wanted


def test_ranks_get_disjoint_parts_and_skipping_skips(root: Path) -> None:
    """Through accelerate, as the trainers do it."""
    from accelerate.data_loader import prepare_data_loader, skip_first_batches

    samples = open_source(str(root / "packed"), PROMPT.builder())
    whole = list(loader(samples, 1))
    shares = []
    for rank in (0, 1):
        share = prepare_data_loader(
            loader(samples, 1),
            num_processes=2,
            process_index=rank,
            split_batches=False,
            put_on_device=False,
            even_batches=False,
        )
        shares.append([[index for index, _, _ in batch] for batch in share])
    indices = [[index for index, _, _ in batch] for batch in whole]
    full = len(indices) // 2 * 2
    assert shares[0][: full // 2] == indices[0:full:2]
    assert shares[1][: full // 2] == indices[1:full:2]
    both = [index for share in shares for batch in share for index in batch]
    assert sorted(both) == list(range(len(samples)))
    assert list(skip_first_batches(loader(samples, 1), 3)) == whole[3:]
