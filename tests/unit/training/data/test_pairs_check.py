"""What the gate keeps out, how splits are drawn, and what a reader of the folder refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eval.actions.dialects.dsl import Dsl
from eval.config import ConfigError
from tests.unit.training.data.tries import FAR, HIT, HIT_TOO, NEAR, NOTHING, PROMPT, episode
from training.data.faults import Faults
from training.data.pairs.check import Components, Gate, split_of
from training.data.pairs.maker import Maker, ObservedStep
from training.data.pairs.store import Pair, PictureStore, held_out, publish, read_pairs, refuse_leaks

BUTTON = [{"role": "user", "content": [{"type": "text", "text": "Goal: press\n"}, {"type": "image"}]}]


def pair(chosen: str, rejected: str, image: str = "images/a.png", task: str = "task", **changes: Any) -> Pair:
    values = {"prompt": BUTTON, "images": [image], "task_id": task, "source": "human", "screen": (16, 16), **changes}
    return Pair(chosen=chosen, rejected=rejected, **values)


def text_parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def gate(folder: Path, policy: str = "fail", test_share: float = 0.0) -> Gate:
    return Gate(folder, Dsl(2), Faults(policy), test_share)  # type: ignore[arg-type]


def lines(folder: Path) -> list[Pair]:
    return [msgspec.json.decode(line, type=Pair) for line in (folder / "pairs.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (HIT, HIT, "equal_sides"),
        (HIT, f" {HIT} ", "equal_sides"),
        (HIT, "Action: CLICK(y=0.5, x=0.5)", "equal_sides"),  # other words, the same action
        (NOTHING, HIT, "unparsable_chosen"),
        (f"{HIT} {HIT}", FAR, "unparsable_chosen"),
        (HIT, "<|image_pad|>", "special_token"),
        ('Action: TYPE(text="<|im_end|>")', FAR, "special_token"),
    ],
)
def test_what_is_no_preference_is_kept_out(tmp_path: Path, chosen: str, rejected: str, reason: str) -> None:
    with gate(tmp_path / "fail") as failing, pytest.raises(ConfigError, match=f"here: {reason}"):
        failing.add(pair(chosen, rejected), "here")
    skipping = gate(tmp_path / "skip", "skip")
    skipping.add(pair(chosen, rejected), "here")
    skipping.add(pair(HIT, FAR), "there")
    report = skipping.close()
    assert (report["pairs"], report["faults"]["by_reason"]) == (1, {reason: 1})


def test_another_thought_is_another_answer(tmp_path: Path) -> None:
    one = gate(tmp_path)
    one.add(pair(f"Thought: the red one\n{HIT}", f"Thought: whichever\n{HIT}"), "here")
    assert one.close()["pairs"] == 1


def test_a_pair_is_kept_once_and_never_both_ways(tmp_path: Path) -> None:
    one = gate(tmp_path)
    one.add(pair(HIT, FAR), "1")
    one.add(pair(HIT, FAR, source="agents"), "2")
    one.add(pair("Action: CLICK(x=0.5, y=0.5)", FAR), "3")  # the same in other words
    one.add(pair(HIT, NEAR), "4")
    one.add(pair(NEAR, HIT), "5")
    one.add(pair(NEAR, HIT, image="images/b.png"), "6")  # on another screen that is no contradiction
    one.add(pair(HIT_TOO, NOTHING), "7")
    report = one.close()
    assert [(p.chosen, p.rejected) for p in lines(tmp_path)] == [(HIT, FAR), (NEAR, HIT), (HIT_TOO, NOTHING)]
    assert report["dropped"] == {"contradiction": 2, "duplicate": 2}
    assert report["by_types"] == {"click > click": 2, "click > malformed": 1}


def test_the_report_shows_what_could_be_learnt_by_mistake(tmp_path: Path) -> None:
    one = gate(tmp_path)
    one.add(pair(HIT, NOTHING, note="chosen: first"), "1")
    one.add(pair(HIT_TOO, 'Action: TYPE(text="a long text that nobody asked for")', note="chosen: first"), "2")
    one.add(pair(FAR, NEAR, note="chosen: second"), "3")
    report = one.close()
    assert report["length"]["share_chosen_longer"] == pytest.approx(1 / 3)
    assert report["length"]["share_rejected_longer"] == pytest.approx(1 / 3)
    assert report["length"]["mean_difference"] == pytest.approx(
        (len(HIT) - len(NOTHING) + len(HIT_TOO) - len('Action: TYPE(text="a long text that nobody asked for")')) / 3
    )
    assert report["position"]["share_first_chosen"] == pytest.approx(2 / 3)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 40)), min_size=1, max_size=30, unique=True),
    st.randoms(use_true_random=False),
)
def test_no_split_shares_a_task_or_an_image(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, int]], rng: Any
) -> None:
    splits: dict[str, set[str]] = {}
    keys = []
    for order in (drawn, rng.sample(drawn, len(drawn))):
        folder = tmp_path_factory.mktemp("gate")
        one = gate(folder, test_share=0.5)
        for task, image, answer in order:
            wrong = f"Action: CLICK(x=0.{10 + answer}, y=0.10)"
            one.add(pair(HIT, wrong, image=f"images/{image}.png", task=str(task)), "here")
        one.close()
        found = lines(folder)
        for made in found:
            for name in (f"task {made.task_id}", f"image {made.images[0]}", f"key {made.split_key}"):
                splits.setdefault(name, set()).add(made.split)
        keys.append({p.images[0]: (p.split_key, p.split) for p in found})
    assert all(len(split) == 1 for split in splits.values())
    assert keys[0] == keys[1]  # whatever the order


def test_a_component_is_what_is_connected() -> None:
    one = Components()
    one.join("b", "c")
    one.join("d", "e")
    assert one.find("c") == "b"
    assert one.find("e") != one.find("c")
    one.join("c", "a", "e")
    assert {one.find(name) for name in "abcde"} == {"a"}
    shares = [split_of(str(number), 0.25) for number in range(2000)]
    assert 430 < shares.count("test") < 570


# --- the folder


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder of two pairs with the same picture."""
    folder = tmp_path / ".tmp"
    at = ObservedStep(*_read(episode(tmp_path / "seen", "one", [HIT])), 0)
    again = ObservedStep(*_read(episode(tmp_path / "seen", "two", [HIT], task="two")), 0)
    faults = Faults()
    one = Gate(folder, Dsl(2), faults)
    maker = Maker(PROMPT.builder(), PictureStore(folder), one, faults)
    maker.pair(at, HIT, FAR, "human")
    maker.pair(again, HIT, NOTHING, "human")
    publish(folder, tmp_path / "pairs", one.close())
    return tmp_path / "pairs"


def _read(folder: Path) -> tuple[Path, Any]:
    from eval.episodes import read_episode

    return folder, read_episode(folder)


def test_equal_pictures_in_other_files_are_one(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 4), (1, 2, 3))
    image.save(tmp_path / "a.png", compress_level=1)
    image.save(tmp_path / "b.png", compress_level=9)
    image.save(tmp_path / "c.bmp")
    pictures = PictureStore(tmp_path / "out")
    assert len({pictures.add(tmp_path / name) for name in ("a.png", "b.png", "c.bmp")} | {pictures.add(image)}) == 1


def spoil(made: Path, number: int, **changes: Any) -> None:
    rows = [json.loads(line) for line in (made / "pairs.jsonl").read_text().splitlines()]
    rows[number].update(changes)
    (made / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# what a model's chat template would refuse, or read as something else, when the training is under way
NO_PROMPTS: list[Any] = [
    [],
    [{"content": text_parts("a")}],
    [{"role": ["user"], "content": text_parts("a")}],
    [{"role": "tool", "content": text_parts("a")}],
    [{"role": "system", "content": text_parts("a")}],
    [{"role": "assistant", "content": text_parts("a")}, {"role": "user", "content": text_parts("a")}],
    [{"role": "user", "content": text_parts("a")}, {"role": "assistant", "content": text_parts("a")}],
    [{"role": "user", "content": text_parts("a"), "tool_calls": [{}]}],
    [{"role": "system", "content": [{"type": "image"}]}, {"role": "user", "content": text_parts("a")}],
    *(
        [{"role": "user", "content": [part]}]
        for part in (
            {"text": "a"},
            {"type": "text"},
            {"type": ["text"], "text": "a"},
            {"type": "video"},
            {"type": "image_url", "image_url": {"url": "a.png"}},
            {"type": "image", "image": "a.png"},
            {"type": "text", "text": "a", "video": "a.mp4"},
        )
    ),
]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"images": ["images/other.png"]}, "image_missing"),
        ({"images": []}, "image_count"),
        ({"rejected": HIT}, "equal_sides"),
        ({"chosen": None}, "broken_line"),
        ({"winner": "chosen"}, "broken_line"),
        ({"prompt": [{"role": "user", "content": "Go on."}]}, "broken_line"),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": None}]}]}, "broken_line"),
        ({"prompt": [{"role": "user"}]}, "broken_line"),
        ({"images": ["x" * 300]}, "image_missing"),
        *(({"prompt": prompt, "images": []}, "broken_line") for prompt in NO_PROMPTS),
        # two texts spell a token together
        ({"prompt": [{"role": "user", "content": text_parts("a<|im_", "end|>b")}], "images": []}, "special_token"),
    ],
)
def test_a_reader_refuses_or_skips_a_bad_line(made: Path, changes: dict[str, Any], reason: str) -> None:
    spoil(made, 0, **changes)
    with pytest.raises(ConfigError, match=f"pairs.jsonl:1: {reason}"):
        read_pairs(made)
    faults = Faults("skip")
    assert [p.task_id for p in read_pairs(made, None, faults)] == ["two"]
    assert faults.counts == {reason: 1}


def test_a_picture_that_is_cut_off_is_found_when_the_folder_is_read(made: Path) -> None:
    (image,) = (made / "images").iterdir()
    image.write_bytes(image.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="image_broken"):
        read_pairs(made)


def test_an_unfinished_folder_or_an_empty_split_is_refused(made: Path) -> None:
    with pytest.raises(ConfigError, match="no pair of the split test"):
        read_pairs(made, "test")
    (made / "report.json").unlink()
    with pytest.raises(ConfigError, match="no finished folder"):
        read_pairs(made)
    with pytest.raises(ConfigError, match="no folder"):
        read_pairs(made / "nowhere")


def test_a_file_that_changes_in_use_is_named(made: Path) -> None:
    found = read_pairs(made)
    spoil(made, 0, note="x" * 999)
    with pytest.raises(ConfigError, match="the file changed while it was in use"):
        found[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task_id": "task", "images": ["images/b.png"], "split_key": "b"}, "the same task: task step 0"),
        (
            {"task_id": "other", "images": ["images/a.png"], "split_key": "b"},
            "the same prompt and images: other step 0",
        ),
        ({"task_id": "other", "images": ["images/b.png"], "split_key": "a"}, "the same split_key: other step 0"),
    ],
)
def test_leaks_are_refused_with_examples(changes: dict[str, Any], says: str) -> None:
    train = [pair(HIT, FAR, split_key="a"), pair(HIT, FAR, task="one more", image="images/c.png", split_key="c")]
    with pytest.raises(ConfigError, match=says):
        refuse_leaks(train, [msgspec.structs.replace(pair(HIT, NEAR), **changes)])
    refuse_leaks(train, [pair(HIT, NEAR, image="images/d.png", task="new", split_key="d")])


def frames(folder: Path) -> tuple[str, str, str]:
    """Names of a screen, of the same but for one pixel, and of another."""
    store = PictureStore(folder)
    screen = Image.linear_gradient("L").convert("RGB")
    touched = screen.copy()
    touched.putpixel((3, 3), (255, 0, 0))
    return store.add(screen), store.add(touched), store.add(screen.transpose(Image.Transpose.ROTATE_90))


def published(folder: Path, *given: Pair) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    frames(folder)
    (folder / "pairs.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in given))
    (folder / "report.json").write_text("{}")
    return folder


def test_held_out_pairs_that_are_the_training_s_but_for_a_pixel_are_refused(tmp_path: Path) -> None:
    screen, touched, other = frames(tmp_path / "frames")
    train = published(tmp_path / "train", pair(HIT, FAR, image=screen, task="a"))
    copy = published(tmp_path / "copy", pair(HIT, NEAR, image=touched, task="b", step=3))
    with pytest.raises(ConfigError, match="same prompt and better answer, with images that look alike: b step 3"):
        held_out(str(train), str(copy), Faults())
    apart = published(
        tmp_path / "apart",
        pair(HIT, NEAR, image=other, task="b"),
        pair(HIT_TOO, NEAR, image=touched, task="c"),  # another answer
        pair(HIT, NEAR, image=touched, task="d", prompt=[*BUTTON, *BUTTON], images=[touched, touched]),
    )
    assert len(held_out(str(train), str(apart), Faults())[1]) == 3


def test_pairs_that_teach_the_same_on_images_that_look_alike_have_one_split(tmp_path: Path) -> None:
    screen, touched, other = frames(tmp_path)
    one = gate(tmp_path, test_share=0.5)
    for number, (image, answer) in enumerate([(screen, HIT), (other, HIT), (touched, HIT_TOO), (touched, HIT)]):
        one.add(pair(answer, FAR, image=image, task=str(number)), "here")
    one.close()
    first, second, third, fourth = (made.split_key for made in lines(tmp_path))
    assert first == third == fourth  # the third has the fourth's image
    assert second != first
