"""`group_by_length` of DPO and of the reward model: batches of preference pairs of like length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.training.preference import PROMPT, pairs_and_model, same
from training.data.pairs.store import read_pairs
from training.dpo import train as dpo
from training.reward import train as reward

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
BATCH = 2
KINDS: dict[str, tuple[Any, Any]] = {"dpo": (dpo.DpoConfig, dpo), "reward": (reward.RewardConfig, reward)}


@pytest.fixture(scope="module")
def made() -> tuple[Path, Path]:
    """(a folder of pairs with a test split, a tiny model)"""
    return pairs_and_model()


def config(kind: str, made: tuple[Path, Path], **changes: Any) -> Any:
    values: dict[str, Any] = {"pairs": str(made[0]), "model": str(made[1]), "group_by_length": True, "seed": 3}
    values |= {"batch_size": BATCH, "learning_rate": 3e-3, "warmup_steps": 2}
    if kind == "dpo":
        values |= {"prompt": PROMPT, "answers": 2, "max_new_tokens": 4}
    return KINDS[kind][0](**{**values, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_the_batches_are_those_of_transformers_own_sampler(kind: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    """Its function, with the lengths that the trainer's own collator gives to pairs that stand alone, and our seed. The
    order of a window's batches is by chance here; there the longest come first, and so does the longest pair of all,
    which changes places with the first one."""
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    pairs = read_pairs(made[0], "train")
    module = KINDS[kind][1]
    trainer = module.make_trainer(config(kind, made, steps=4), pairs, tmp_path)
    lengths = [int(trainer.data_collator([{"index": i}])["input_ids"].shape[1]) for i in range(len(pairs))]
    assert len(set(lengths)) > 4
    for epoch in (0, 1):
        loader = trainer.get_train_dataloader()
        loader.set_epoch(epoch)
        ours = [list(batch) for batch in loader.batch_sampler]
        chance = torch.Generator().manual_seed(3 * 1_000_003 + epoch)
        flat = get_length_grouped_indices(lengths, BATCH, mega_batch_mult=50, generator=chance)
        theirs = [flat[at : at + BATCH] for at in range(0, len(flat), BATCH)]
        assert len(ours) == len(theirs)
        assert sorted(index for batch in ours for index in batch) == list(range(len(pairs)))
        different = {tuple(sorted(batch)) for batch in ours} ^ {tuple(sorted(batch)) for batch in theirs}
        assert len(different) <= 4  # the two batches of that change of places, on both sides


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_goes_on_in_the_same_order_to_the_same_bits(
    kind: str, made: tuple[Path, Path], tmp_path: Path
) -> None:
    """In the second epoch."""
    train = KINDS[kind][1].train
    count = len(read_pairs(made[0], "train"))
    chosen = {"steps": count // BATCH + 4, "save_every": count // BATCH + 2}
    assert train(config(kind, made, **chosen), tmp_path / "whole", None)
    saved = tmp_path / "whole" / "checkpoints" / f"checkpoint-{chosen['save_every']}"
    assert train(config(kind, made, **chosen), tmp_path / "again", str(saved))
    assert same(tmp_path / "whole" / "model", tmp_path / "again" / "model")
    assert train(config(kind, made, **chosen, group_by_length=False), tmp_path / "chance", None)
    assert not same(tmp_path / "whole" / "model", tmp_path / "chance" / "model")
