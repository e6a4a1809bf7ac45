"""The collator gives TRL's batches, bit for bit; bad samples are told, and replaced the same way everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.config import ConfigError
from eval.prompts import PromptConfig
from tests.unit.training.material import PROMPT, episodes, model
from training.common.model.loading import load_processor
from training.data import samples
from training.data.faults import Faults
from training.data.samples import Sample
from training.sft.collate import Collator, Kept, reported

pytestmark = pytest.mark.ml
ROOM = {"all-kept": {}, "few-kept": {"texts": 2_000, "pictures": 100_000}, "none-kept": {"texts": 0, "pictures": 0}}


class Drawn:
    """A picture that is made when it is opened."""

    def __init__(self, width: int, height: int, shade: int) -> None:
        self.size, self.shade = (width, height), shade

    def open(self) -> Image.Image:
        return Image.new("RGB", self.size, (self.shade, 255 - self.shade, 40))


def turn(role: str, *content: str | None) -> dict[str, Any]:
    """A message; None stands for an image."""
    parts = [{"type": "image"} if part is None else {"type": "text", "text": part} for part in content]
    return {"role": role, "content": parts}


CHATS = [
    Sample([turn("user", "Click the red button.", None), turn("assistant", "Action: CLICK(x=0.1, y=0.2)")],
           [Drawn(64, 64, 10)]),
    Sample([turn("system", "Be brief."), turn("user", "No picture."), turn("assistant", "Action: DONE()")], []),
    Sample(
        [
            turn("user", "First", None, "then", None),
            turn("assistant", "Action: WAIT()"),
            turn("user", None, "and now?"),
            turn("assistant", "Thought: naïve — 你好 🎈\nAction: TYPE(text=\"ünïcode\")"),
            turn("user", "Again."),
            turn("assistant", "Action: DONE()"),
        ],
        [Drawn(96, 64, 50), Drawn(64, 128, 90), Drawn(40, 40, 200)],
    ),
    Sample([turn("user", "Say nothing."), turn("assistant", "")], []),
    Sample([turn("user", None, None), turn("assistant", "two "), turn("assistant", " answers")],
           [Drawn(64, 64, 1), Drawn(128, 64, 2)]),
]  # fmt: skip
BATCHES = ([0, 1, 2, 3, 4], [1, 3], [2], [3], [4, 0, 2, 0], [1, 2])


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(episodes, model)"""
    root = tmp_path_factory.mktemp("collate")
    folder = episodes(root)
    return folder, model(root / "model", folder)


def trl(processor: Any) -> Any:
    from trl.chat_template_utils import get_training_chat_template
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    return DataCollatorForVisionLanguageModeling(
        processor, assistant_only_loss=True, chat_template=get_training_chat_template(processor)
    )


def assert_equal(ours: dict[str, Any], theirs: Any) -> None:
    import torch

    assert set(ours) == set(theirs)
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert torch.equal(value, theirs[name]), name


def rows(indices: Sequence[int]) -> list[dict[str, int]]:
    return [{"index": index} for index in indices]


def compare(processor: Any, found: Sequence[Sample], batches: Sequence[Sequence[int]], **room: int) -> Any:
    theirs, ours = trl(processor), Collator(processor, found, **room)  # type: ignore[arg-type]
    for indices in batches:
        chats = [{"messages": found[i].messages, "images": samples.open_images(found[i])} for i in indices]
        batch = ours(rows(indices))
        assert_equal(batch, theirs(chats))
    return batch


@pytest.mark.parametrize("room", ROOM.values(), ids=ROOM.keys())
def test_chats_of_every_shape_become_trls_batches(material: tuple[Path, Path], room: dict[str, int]) -> None:
    compare(load_processor(str(material[1])), CHATS, BATCHES, **room)


@pytest.mark.parametrize("prompt", [PROMPT, PromptConfig(system="", history=0), PromptConfig(history=2, images=3)],
                         ids=["system", "no-system", "instructions"])  # fmt: skip
def test_episodes_become_trls_batches(material: tuple[Path, Path], prompt: PromptConfig) -> None:
    found = samples.load(material[0], prompt.builder())
    processor = load_processor(str(material[1]))
    batch = compare(processor, found, ([0, 3, 1], [2, 3], [5, 0, 4, 1], [0]))
    learnt = processor.tokenizer.decode(batch["labels"][0][batch["labels"][0] >= 0])
    assert learnt == f"{found[0].target}<|im_end|>\n"


def test_images_are_scaled_down_as_the_processor_says(material: tuple[Path, Path]) -> None:
    processor = load_processor(str(material[1]), max_pixels=48 * 48)
    batch = compare(processor, CHATS, [[0, 2]])
    assert int(batch["image_grid_thw"].prod(-1).max()) <= (48 // 8) ** 2


def test_the_mask_is_that_of_a_qwen25_template_too(material: tuple[Path, Path]) -> None:
    import importlib.util

    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    processor = load_processor(str(material[1]))
    template = Path(spec.origin).parent / "chat_templates" / "qwen2_5_vl.jinja"
    processor.chat_template = template.read_text(encoding="utf-8")
    compare(processor, CHATS, BATCHES)


def test_what_is_kept_stays_within_its_bytes() -> None:
    kept: Kept[str] = Kept(100)
    for number in range(10):
        kept.put(number, str(number), 30)
        kept.get(0)
    assert kept.used == 90
    assert sorted(kept.values) == [0, 8, 9]  # 0 was used, the others are the newest
    kept.put(11, "too large", 101)
    assert kept.get(11) is None


BAD = [
    (Sample([turn("user", None), turn("assistant", "a")], []), "images_do_not_fit"),
    (Sample([turn("assistant", "I begin"), turn("user", "a"), turn("assistant", "a")], []), "no_question"),
    (Sample([turn("user", "half a \ud83d"), turn("assistant", "a")], []), "surrogate"),
    (Sample([turn("user", None), turn("assistant", "a")], [Drawn(8, 1800, 0)]), "image_shape"),
    (Sample([turn("user", "nobody answers")], []), "no_answer"),
    (Sample([turn("user", None), turn("assistant", "a")], [Path("nowhere.png")]), "image_broken"),
    (Sample([turn("user", None), turn("assistant", "a")], [Drawn(512, 512, 0)]), "too_long"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_sample_ends_the_training_or_the_next_takes_its_place(
    material: tuple[Path, Path], tmp_path: Path, bad: Sample, reason: str
) -> None:
    processor = load_processor(str(material[1]))
    found = [CHATS[0], bad, CHATS[1]]
    with pytest.raises(ConfigError, match=f"sample 1: {reason}"):
        Collator(processor, found, max_length=200)(rows([1]))
    report = tmp_path / "bad.jsonl"
    for _ in range(2):  # two processes, or two tries
        ours = Collator(processor, found, max_length=200, faults=Faults("skip"), report=report)
        assert_equal(ours(rows([0, 1, 1])), Collator(processor, found)(rows([0, 2, 2])))
    assert reported(report).report()["by_reason"] == {reason: 1}
    with pytest.raises(ConfigError, match="not one of 1 samples"):
        Collator(processor, [bad], max_length=200, faults=Faults("skip"))(rows([0]))


def test_the_longest_allowed_sample_is_whole(material: tuple[Path, Path]) -> None:
    collate = Collator(load_processor(str(material[1])), CHATS)
    length = int(collate(rows([2]))["attention_mask"].sum())
    collate.max_length, collate.texts = length, None
    assert collate(rows([2]))["input_ids"].shape == (1, length)
    collate.max_length, collate.texts = length - 1, None
    with pytest.raises(ConfigError, match=f"too_long: {length} tokens"):
        collate(rows([2]))
