"""`group_by_length`: the order of samples, their lengths, and what each of several processes takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from eval.episodes.images import image_size, open_image
from eval.prompts import PromptConfig
from tests.unit.training.material import PROMPT, episodes, model
from training.common.model.loading import load_processor
from training.data import samples
from training.data.packed.pack import PackConfig, pack
from training.data.samples import open_images
from training.data.source import open_source

pytestmark = pytest.mark.ml


def lengths(count: int) -> list[int]:
    """Few long samples, many short ones, and several of the same length."""
    chance = random.Random(7)
    return [int(chance.lognormvariate(6, 0.7)) // 8 * 8 + 8 for _ in range(count)]


def order(values: Sequence[int], group: int, seed: int = 0, epoch: int = 0) -> list[int]:
    from training.common.lengths import GroupedByLength

    sampler = GroupedByLength(values.__getitem__, len(values), group, seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def padding(values: Sequence[int], indices: Sequence[int], batch: int) -> float:
    """Share of the batches' places that is padding."""
    batches = [[values[i] for i in indices[at : at + batch]] for at in range(0, len(indices), batch)]
    return 1 - sum(map(sum, batches)) / sum(max(batch) * len(batch) for batch in batches)


@pytest.mark.parametrize(("count", "group"), [(1000, 8), (1003, 8), (17, 4), (5, 8), (1, 1), (256, 8), (600, 1)])
def test_an_epoch_has_every_sample_once(count: int, group: int) -> None:
    values = lengths(count)
    assert sorted(order(values, group)) == list(range(count))


def test_seed_and_epoch_alone_decide_the_order() -> None:
    values = lengths(500)
    assert order(values, 8) == order(values, 8)
    orders = [order(values, 8, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({tuple(each) for each in orders}) == 6


def test_a_group_is_a_run_of_its_window_sorted_by_length() -> None:
    """Between the shortest and the longest of a group lies no sample of another group of the same window."""
    from training.common.lengths import WINDOW

    group = 8
    values = lengths(2 * group * WINDOW + 5)
    indices = order(values, group)
    for first in range(0, len(indices), group * WINDOW):
        window = indices[first : first + group * WINDOW]
        spans = sorted(
            (min(part), max(part))
            for at in range(0, len(window), group)
            for part in [[values[index] for index in window[at : at + group]]]
        )
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_batches_have_as_little_padding_as_transformers_own_grouping() -> None:
    """Its sampler sorts windows of at most 50 batches."""
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    values = lengths(4000)
    shuffled = list(range(4000))
    random.Random(1).shuffle(shuffled)
    theirs = padding(values, get_length_grouped_indices(values, 8, generator=torch.Generator().manual_seed(0)), 8)
    ours = padding(values, order(values, 8), 8)
    assert ours < 1.25 * theirs
    assert padding(values, shuffled, 8) > 5 * ours


def test_processes_take_like_lengths_at_each_step() -> None:
    """Through accelerate, which gives each process its batches."""
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import DataLoader

    from training.common.lengths import GroupedByLength

    values, batch, processes = lengths(803), 4, 2

    def taken(rank: int, epoch: int) -> list[list[int]]:
        sampler = GroupedByLength(values.__getitem__, len(values), batch * processes, 3)
        loader = DataLoader(range(len(values)), batch_size=batch, sampler=sampler)  # type: ignore[arg-type]
        prepared: Any = prepare_data_loader(
            loader, num_processes=processes, process_index=rank, put_on_device=False, rng_types=[]
        )
        prepared.set_epoch(epoch)
        return [list(map(int, each)) for each in prepared]

    first, second = taken(0, 1), taken(1, 1)
    assert len(first) == len(second) == -(-len(values) // (batch * processes))
    assert {*chain.from_iterable([*first, *second])} == set(range(len(values)))
    expected = order(values, batch * processes, 3, 1)
    for step, (ours, theirs) in enumerate(zip(first[:-1], second[:-1], strict=True)):
        assert [*ours, *theirs] == expected[step * batch * processes : (step + 1) * batch * processes]
    apart = [abs(max(values[i] for i in a) - max(values[i] for i in b)) for a, b in zip(first, second, strict=True)]
    random.Random(5).shuffle(shuffled := values.copy())
    by_chance = [abs(max(shuffled[at : at + 4]) - max(shuffled[at + 4 : at + 8])) for at in range(0, 800, 8)]
    assert sum(apart[:-1]) < 0.3 * sum(by_chance)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(episodes, model)"""
    root = tmp_path_factory.mktemp("lengths")
    folder = episodes(root)
    return folder, model(root / "model", folder)


def test_a_length_is_what_the_processor_makes_of_the_sample(
    material: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Image tokens included, and no image is decoded for it."""
    from training.common.chats import Chats
    from training.common.lengths import sample_lengths

    processor = load_processor(str(material[1]), max_pixels=40_000)
    loaded = samples.load(material[0], PROMPT.builder())
    expected = []
    for sample in loaded:
        chat = [dict(message) for message in sample.messages]
        text = processor.apply_chat_template(chat, tokenize=False)
        expected.append(len(processor(text=[text], images=open_images(sample))["input_ids"][0]))
    assert len(set(expected)) > 2
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("an image was decoded"))
    known = sample_lengths(Chats(processor), loaded)
    assert [known[index] for index in range(len(loaded))] == expected


def test_a_packed_data_set_and_marks_tell_the_sizes_of_their_images(
    material: tuple[Path, Path], tmp_path: Path
) -> None:
    prompt = PromptConfig(decimals=2, system="", history=1, marks=True)
    pack(PackConfig(episodes=[str(material[0])]), tmp_path / "packed")
    opened = open_source(str(tmp_path / "packed"), prompt.builder())
    plain = samples.load(material[0], prompt.builder())
    for sample in [*opened, *plain]:
        for image in sample.images:
            assert image_size(image) == open_image(image).size


def test_a_sample_that_cannot_be_used_is_left_to_the_collator(material: tuple[Path, Path]) -> None:
    from training.common.chats import Chats
    from training.common.lengths import sample_lengths

    sample = samples.load(material[0], PROMPT.builder())[0]
    missing = [material[0] / "nowhere.png"] * len(sample.images)
    known = sample_lengths(Chats(load_processor(str(material[1]))), [samples.Sample(sample.messages, missing), sample])
    assert known[0] == 0
    assert known[1] > 0
