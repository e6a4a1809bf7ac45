"""Opening data: packed or not, the samples are the same; what is damaged is one clear error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.prompts import PromptConfig
from eval.prompts.demonstrations import DemonstrationConfig
from tests.unit.training.data.material import episode, png, write_packed
from tests.unit.training.material import PROMPT
from training.data import samples
from training.data.faults import BadSample, Faults
from training.data.packed.pack import PackConfig, pack
from training.data.packed.store import read_manifest
from training.data.packed.stream import PackedImages
from training.data.samples import Sample, open_images
from training.data.similar_images import dhash
from training.data.source import SourceConfig, open_source


@pytest.fixture(scope="module")
def packed(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "dataset"
    pack(PackConfig(episodes=[str(folders)]), out)
    return out


@pytest.mark.parametrize(
    "prompt",
    [
        PROMPT,
        PromptConfig(history_style="turns", images=3),
        PromptConfig(history_style="chat"),
        PromptConfig(demonstration=DemonstrationConfig(share=0.7)),
        PromptConfig(dialect="pyautogui", history=0),
    ],
)
def test_packed_samples_equal_those_of_the_folders(packed: Path, folders: Path, prompt: PromptConfig) -> None:
    builder = prompt.builder()
    wanted = samples.load(folders, builder)
    found = open_source(str(packed), builder)
    assert len(found) == len(wanted) > 30
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.messages == theirs.messages
        assert (mine.episode, mine.step, mine.target) == (theirs.episode, theirs.step, theirs.target)
        assert [i.tobytes() for i in open_images(mine)] == [i.tobytes() for i in open_images(theirs)]
    asked, wanted_asked = found[-2].asked(), wanted[-2].asked()
    assert asked[0].image.tobytes() == wanted_asked[0].image.tobytes()
    assert [past.action for past in asked[1].past] == [past.action for past in wanted_asked[1].past]


def test_a_sequence_is_sent_to_another_process_without_its_data(packed: Path) -> None:
    found = open_source(str(packed), PROMPT.builder())
    open_images(found[0])
    sent = ForkingPickler.dumps(found)  # what a spawned worker gets
    assert len(sent) < 40_000
    there = ForkingPickler.loads(sent)
    assert there[5].messages == found[5].messages
    assert open_images(there[5])[0].tobytes() == open_images(found[5])[0].tobytes()
    assert [sample.target for sample in there[2:5]] == [found[i].target for i in (2, 3, 4)]


def test_steps_that_can_not_be_learned_are_counted_before_anything_is_trained(tmp_path: Path) -> None:
    made, frames = episode(0, 4)
    steps = list(made.steps)
    steps[1] = msgspec.structs.replace(steps[1], action=Action(ActionType.CLICK, element=3))  # no coordinate form
    steps[2] = msgspec.structs.replace(steps[2], action=None, parse_error="nothing")
    write_packed(tmp_path / "out", {"train": [(msgspec.structs.replace(made, steps=tuple(steps)), frames)]})
    faults = Faults("skip")
    found = open_source(tmp_path / "out", PROMPT.builder(), faults)
    assert [sample.step.index for sample in found if sample.step] == [0, 3]
    assert faults.counts == {"unrepresentable": 1}
    told = "".join(part.get("text", "") for part in found[1].messages[1]["content"])
    assert "2. (click)" in told
    assert "3. Not done: nothing" in told
    with pytest.raises(ConfigError, match="episode episode-0: step 1: unrepresentable"):
        open_source(tmp_path / "out", PROMPT.builder(), Faults("fail"))


def test_splits_are_asked_for_by_name(tmp_path: Path, folders: Path) -> None:
    write_packed(tmp_path / "out", {"train": [episode(0), episode(1)], "test": [episode(2)]})
    builder = PROMPT.builder()
    assert len(open_source(SourceConfig(path=str(tmp_path / "out")), builder)) == 6
    assert len(open_source(SourceConfig(path=str(tmp_path / "out"), split="test"), builder)) == 3
    with pytest.raises(ConfigError, match="there is no split 'validation'; allowed: test, train"):
        open_source(SourceConfig(path=str(tmp_path / "out"), split="validation"), builder)
    with pytest.raises(ConfigError, match="is not packed and so has no split 'test'"):
        open_source(SourceConfig(path=str(folders), split="test"), builder)
    with pytest.raises(ConfigError, match="there is no folder"):
        open_source("nowhere", builder)
    write_packed(tmp_path / "idle", {"train": [(actionless(), [png(0)])]})
    with pytest.raises(ConfigError, match="has no step to learn"):
        open_source(tmp_path / "idle", builder)


def actionless() -> Any:
    made, _ = episode(0, 1)
    return msgspec.structs.replace(made, steps=(msgspec.structs.replace(made.steps[0], action=None),))


def test_a_dataset_that_is_packed_anew_is_not_read_from_the_cache(tmp_path: Path) -> None:
    import shutil

    texts = []
    for goal in ("First", "Other"):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        write_packed(tmp_path / "out", {"train": [episode(0, goal=goal)]})
        found = open_source(tmp_path / "out", PROMPT.builder())[0]
        assert found.episode is not None
        texts.append(found.episode.instruction)
    assert texts == ["First", "Other"]


def test_a_cache_that_can_not_be_written_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    write_packed(tmp_path / "out", {"train": [episode(0)]})
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigError, match=r"\$HF_DATASETS_CACHE, .*: .*Not a directory"):
        open_source(tmp_path / "out", PROMPT.builder())


def newer(out: Path) -> None:
    data = json.loads((out / "dataset.json").read_text())
    (out / "dataset.json").write_text(json.dumps(data | {"version": 2}))


def flipped(name: str) -> Callable[[Path], None]:
    def flip(out: Path) -> None:
        data = bytearray((out / name).read_bytes())
        data[len(data) // 2] ^= 1
        (out / name).write_bytes(data)

    return flip


def cut(name: str) -> Callable[[Path], None]:
    def shorten(out: Path) -> None:
        (out / name).write_bytes((out / name).read_bytes()[:-10])

    return shorten


def marker(text: str) -> Callable[[Path], None]:
    def write(out: Path) -> None:
        (out / "dataset.json").write_text(text)

    return write


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (newer, "version 2 of the format; this program reads 1"),
        (flipped("train-00000.parquet"), "train-00000.parquet: damaged"),
        (flipped("images.parquet"), "images.parquet: damaged"),
        (cut("train-00000.parquet"), "bytes; dataset.json says"),
        (cut("images-00000.tar"), "bytes; dataset.json says"),
        (lambda out: (out / "images-00000.tar").unlink(), "images-00000.tar: No such file"),
        (marker("{"), "dataset.json: Expecting property name"),
        (marker("{}"), "not a packed dataset"),
        (marker('{"format": "slipway-dataset", "version": 1}'), "missing required field `splits`"),
    ],
)
def test_damage_is_one_clear_error(harm: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    write_packed(tmp_path / "out", {"train": [episode(0)]})
    harm(tmp_path / "out")
    with pytest.raises(ConfigError, match=message) as caught:
        open_source(tmp_path / "out", PROMPT.builder())
    assert "\n" not in str(caught.value)


def test_a_damaged_image_is_found_when_it_is_read(tmp_path: Path) -> None:
    write_packed(tmp_path / "out", {"train": [episode(0, 1, frames=[png(0)])]})
    found = open_source(tmp_path / "out", PROMPT.builder())
    tar = tmp_path / "out" / "images-00000.tar"
    data = bytearray(tar.read_bytes())
    data[512 + 100] ^= 1
    tar.write_bytes(data)
    with pytest.raises(BadSample, match=r"images-00000\.tar: damaged: image [0-9a-f]{64}") as caught:
        open_images(found[0])
    assert caught.value.reason == "image_broken"


def test_an_image_is_hashed_when_it_is_first_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of reading a picture of 1280x720 an eighth went into its hash, at each epoch."""
    manifest = write_packed(tmp_path / "out", {"train": [episode(0, 2, frames=[png(0), png(1)])]})
    images = PackedImages(tmp_path / "out", manifest.packs, manifest.index)
    files = {hashlib.sha256(png(number)).hexdigest(): png(number) for number in range(2)}
    hashed: list[int] = []
    sha256 = hashlib.sha256

    def counted(data: bytes) -> Any:
        hashed.append(len(data))
        return sha256(data)

    monkeypatch.setattr("training.data.packed.stream.hashlib.sha256", counted)
    for _ in range(3):
        assert {sha: images.read(sha) for sha in files} == files
    assert sorted(hashed) == sorted(map(len, files.values()))
    tar = tmp_path / "out" / "images-00000.tar"
    tar.write_bytes(tar.read_bytes()[:600])  # what is cut off later is noticed all the same
    with pytest.raises(BadFrame, match="damaged"):
        [images.read(sha) for sha in files]


def test_images_that_are_not_there(tmp_path: Path) -> None:
    manifest = write_packed(tmp_path / "out", {"train": [episode(0, 1, frames=[png(0)])]})
    images = PackedImages(tmp_path / "out", manifest.packs, manifest.index)
    assert "0" * 64 not in images
    assert len(images) == 1
    for sha in ("0" * 64, "f" * 64):
        with pytest.raises(BadFrame, match="there is no image"):
            images.read(sha)


def test_near_pictures_have_near_hashes() -> None:
    from io import BytesIO

    from PIL import Image

    image = Image.open(BytesIO(png("a", (90, 80)))).convert("RGB")
    touched = image.copy()
    touched.putpixel((3, 3), (0, 0, 0))
    other = Image.open(BytesIO(png("b", (90, 80)))).convert("RGB")
    assert distance(dhash(image), dhash(touched)) <= 2
    assert distance(dhash(image), dhash(other)) > 50
    assert dhash(Image.new("RGB", (5, 5))) == bytes(32)


def distance(a: bytes, b: bytes) -> int:
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is it?"},
            {"role": "assistant", "content": [{"type": "text", "text": "A form."}]},
        ],
        "images": ["pictures/a.png"],
        "id": "ignored",
    },
    {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Is "}, {"type": "image"}, {"type": "image"}]},
            {"role": "assistant", "content": "the same?"},
        ],
        "images": ["pictures/a.png", "pictures/b.png"],
    },
]


def chats(root: Path, *lines: Any) -> Path:
    (root / "pictures").mkdir(parents=True)
    for name in ("a", "b"):
        (root / "pictures" / f"{name}.png").write_bytes(png(name))
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (root / "chats.jsonl").write_text(text, encoding="utf-8")
    return root


def test_general_data_is_read_line_by_line(tmp_path: Path) -> None:
    root = chats(tmp_path / "general", CHATS[0], "", *CHATS[1:])
    (root / "more.jsonl").write_text(json.dumps(CHATS[0]))  # without an end of line
    found = open_source(str(root), PROMPT.builder())
    assert [sample.target for sample in found] == ["4", "A form.", "the same?", "4"]
    assert found[1].messages[1]["content"] == [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    assert [len(open_images(sample)) for sample in found] == [0, 1, 2, 0]
    assert found[0].episode is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "broken_chat"),
        ({"messages": [{"role": "user", "content": "?"}]}, "broken_chat"),
        ({"messages": CHATS[0]["messages"][::-1]}, "broken_chat"),
        ({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}]}, "broken_chat"),
        ({"messages": [{"role": "tool", "content": "?"}, {"role": "assistant", "content": "!"}]}, "unknown_role"),
        ({**CHATS[2], "images": ["pictures/a.png"]}, "images_do_not_fit"),
        ({**CHATS[1], "images": ["pictures/c.png"]}, "image_missing"),
        ({**CHATS[1], "images": ["chats.jsonl"]}, "image_broken"),
    ],
)
def test_a_broken_chat_is_counted_or_ends_it(line: Any, reason: str, tmp_path: Path) -> None:
    root = chats(tmp_path / "general", CHATS[0], line)
    faults = Faults("skip")
    assert len(open_source(str(root), PROMPT.builder(), faults)) == 1
    assert faults.counts == {reason: 1}
    with pytest.raises(ConfigError, match=r"chats\.jsonl:2: " + reason):
        open_source(str(root), PROMPT.builder(), Faults("fail"))


def test_a_mixture_takes_from_all_by_weight(packed: Path, tmp_path: Path) -> None:
    root = chats(tmp_path / "general", *CHATS)
    spec = [SourceConfig(path=str(packed), weight=3), SourceConfig(path=str(root), weight=1, kind="chat")]
    found = open_source(spec, PROMPT.builder(), seed=4)
    alone = len(open_source(str(packed), PROMPT.builder()))
    assert len(found) == round(alone * 4 / 3)
    assert sum(sample.episode is not None for sample in found) == alone
    assert {_key(sample) for sample in found if sample.episode} == {
        _key(sample) for sample in open_source(str(packed), PROMPT.builder())
    }
    assert len(open_source(spec, PROMPT.builder(), length=8)) == 8
    with pytest.raises(ConfigError, match="a mixture needs a source"):
        open_source([], PROMPT.builder())
    with pytest.raises(ConfigError, match="holds no chat"):
        open_source([SourceConfig(path=str(packed), kind="chat")], PROMPT.builder())


def _key(sample: Sample) -> tuple[str, int]:
    assert sample.episode is not None
    assert sample.step is not None
    return sample.episode.episode_id, sample.step.index


def test_the_manifest_counts_what_is_there(packed: Path, folders: Path) -> None:
    counts = read_manifest(packed).splits["train"]
    assert counts.episodes == 12
    assert counts.steps == sum(len((f / "steps.jsonl").read_text().splitlines()) for f in folders.iterdir())
