"""The collator gives TRL's batches, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.material import PROMPT, episodes, model
from training import collate, samples
from training.models import load_model
from training.sft import SftConfig

pytestmark = pytest.mark.ml


@pytest.mark.parametrize("room", [2**30, 100_000], ids=["all-pictures-kept", "few-pictures-kept"])
def test_batches_are_those_of_trl(tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from trl.chat_template_utils import get_training_chat_template
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    monkeypatch.setattr(collate, "PICTURES", room)
    folder = episodes(tmp_path)
    config = SftConfig(model=str(model(tmp_path / "model", folder)), episodes=str(folder), prompt=PROMPT, steps=1)
    found = samples.load(folder, PROMPT.builder())
    _, processor = load_model(config)
    trl = DataCollatorForVisionLanguageModeling(
        processor, assistant_only_loss=True, chat_template=get_training_chat_template(processor)
    )
    ours = collate.Collator(trl, found)
    for indices in ([0, 3, 1], [2, 3], [5, 0, 4, 1], [0]):
        theirs = trl([{"messages": found[i].messages, "images": samples.open_images(found[i])} for i in indices])
        batch = ours([{"index": i} for i in indices])
        assert set(batch) == set(theirs)
        for name, value in batch.items():
            assert value.dtype == theirs[name].dtype
            assert torch.equal(value, theirs[name]), name
    learnt = processor.tokenizer.decode(batch["labels"][0][batch["labels"][0] >= 0])
    assert learnt == f"{found[0].target}<|im_end|>\n"
