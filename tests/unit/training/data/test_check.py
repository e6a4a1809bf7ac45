"""The check finds what was put into two splits, names it, and lets pass what may be the same."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from eval.actions import Action, ActionType
from tests.support.cases import every_case
from tests.unit.training.data.material import Made, episode, png, write_folders, write_packed
from training.data.inspection.check import main
from training.data.inspection.dataset_reader import DatasetScan
from training.data.inspection.overlap import ContentKeys, contradictions, leaks, repeated


def renamed(made: Made, name: str) -> Made:
    return msgspec.structs.replace(made[0], episode_id=name, task_id=name), made[1]


def acting(made: Made, index: int, x: float) -> Made:
    """The same, but one step clicks elsewhere."""
    steps = list(made[0].steps)
    steps[index] = msgspec.structs.replace(steps[index], action=Action(ActionType.CLICK, x=x, y=0.5))
    return msgspec.structs.replace(made[0], steps=tuple(steps)), made[1]


CLEAN = {"train": [episode(0), episode(1)], "test": [episode(2)]}


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out + err


def test_folders_of_one_name_are_told_apart_by_what_is_above_them(tmp_path: Path) -> None:
    paths = [write_folders(tmp_path / name / "episodes", [episode(number)]) for number, name in enumerate("ab")]
    assert DatasetScan(paths).sides == ["a/episodes", "b/episodes"]
    assert DatasetScan(paths[:1]).sides == ["episodes"]


def test_clean_splits_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_packed(tmp_path / "out", CLEAN)
    code, text = run(capsys, tmp_path / "out", "--strict")
    assert (code, text) == (0, "3 episodes, 9 steps in 2 splits\nclean\n")


def test_a_copied_episode_is_a_leak_under_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_packed(tmp_path / "out", {**CLEAN, "test": [episode(2), renamed(episode(1), "other")]})
    code, text = run(capsys, tmp_path / "out")
    assert code == 1
    assert "LEAK: 1 of level episode" in text
    assert "LEAK: 3 of level step" in text
    assert "test/other = train/episode-1" in text
    assert "  test: 1 of 2 (50.0 %)" in text
    # whatever frames are common, an episode that is there twice is a leak
    assert run(capsys, tmp_path / "out", "--ignore-shared-frames", "2")[0] == 1


def test_a_single_copied_step_is_a_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two episodes of one goal that begin alike and then differ."""
    first = episode(1)
    second = renamed(acting(first, 1, 0.123), "other")
    second = (second[0], [*first[1][:2], png("a"), png("b")])
    write_packed(tmp_path / "out", {**CLEAN, "test": [second]})
    code, text = run(capsys, tmp_path / "out")
    assert code == 1
    assert "level episode" not in text
    assert "LEAK: 1 of level step" in text
    assert "test/other step 0 = train/episode-1 step 0" in text
    assert "warning: 2 of level goal and frame" in text


def touched(made: Made, name: str, *, frames: Sequence[int] | None = None) -> Made:
    """The same under another name, but for one pixel of each frame, or of some."""
    changed = []
    for number, data in enumerate(made[1]):
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
        if frames is None or number in frames:
            red, *rest = image.getpixel((3, 3))  # type: ignore[misc]
            image.putpixel((3, 3), (red ^ 128, *rest))
        changed.append(io.BytesIO())
        image.save(changed[-1], "PNG")
    return renamed(made, name)[0], [each.getvalue() for each in changed]


@every_case("packed", [True, False])
def test_an_episode_that_differs_by_one_pixel_is_a_leak(
    packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = [episode(0), episode(1)], [episode(2), touched(episode(1), "touched")]
    where: list[Path] = [tmp_path / f"{packed}"]
    if packed:
        write_packed(where[0], {"train": train, "test": test})
    else:
        where = [write_folders(tmp_path / side, made) for side, made in (("train", train), ("test", test))]
    code, text = run(capsys, *where)
    assert code == 1
    assert "LEAK: 1 of level similar episode (the same goal and actions, and frames that look alike" in text
    assert "test/touched" in text
    assert "train/episode-1" in text
    assert "level step" not in text
    assert "LEAK: 3 of level similar step" in run(capsys, *where, "--strict")[1]


def test_a_step_that_differs_by_one_pixel_is_a_leak_if_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two episodes of one goal that begin alike and then differ."""
    first = episode(1)
    second = touched(renamed(acting(first, 1, 0.123), "other"), "other")
    second = (second[0], [*second[1][:1], *map(png, "abc")])
    write_packed(tmp_path / "out", {**CLEAN, "test": [second]})
    assert run(capsys, tmp_path / "out") == (0, "3 episodes, 9 steps in 2 splits\nclean\n")
    code, text = run(capsys, tmp_path / "out", "--strict")
    assert code == 1
    assert "LEAK: 1 of level similar step" in text


def test_other_pictures_or_other_actions_are_no_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Screens of one colour have one perceptual hash: their grey tells them apart."""
    first = episode(1)
    other = (renamed(first, "other")[0], [png(f"other {number}") for number in range(4)])
    elsewhere = touched(acting(first, 1, 0.9), "elsewhere")
    dark, light = ([flat(grey)] * 4 for grey in (10, 200))
    plain = episode(7, frames=dark)
    write_packed(
        tmp_path / "out",
        {"train": [first, plain], "test": [other, elsewhere, (renamed(plain, "light")[0], light)]},
    )
    assert run(capsys, tmp_path / "out") == (0, "5 episodes, 15 steps in 2 splits\nclean\n")


def flat(grey: int) -> bytes:
    data = io.BytesIO()
    Image.new("L", (24, 16), grey).convert("RGB").save(data, "PNG")
    return data.getvalue()


def test_shared_frames_alone_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop = png("desktop")
    made = [episode(number, frames=[desktop, png(number), png(-number)]) for number in range(1, 5)]
    write_packed(tmp_path / "out", {"train": made[:3], "test": made[3:]})
    code, text = run(capsys, tmp_path / "out")
    assert code == 0
    assert "warning: 1 of level frame" in text
    assert "  train: 3 of 9 (33.3 %)" in text
    assert text.endswith("clean\n")
    assert run(capsys, tmp_path / "out", "--strict")[0] == 1
    code, text = run(capsys, tmp_path / "out", "--strict", "--ignore-shared-frames", "3")
    assert code == 0
    assert "4 steps on frames of 3 episodes of a split or more do not count" in text
    assert run(capsys, tmp_path / "out", "--strict", "--ignore-shared-frames", "4")[0] == 1


def test_several_folders_are_splits_of_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write_folders(tmp_path / "train", [episode(0), episode(1)])
    test = write_folders(tmp_path / "test", [episode(2)])
    assert run(capsys, train, test)[0] == 0
    write_folders(test, [renamed(episode(0), "copy")])
    code, text = run(capsys, train, test)
    assert code == 1
    assert "train/episode-0 = test/copy" in text
    write_packed(tmp_path / "packed", {"train": [episode(5)], "test": [episode(2)]})
    code, text = run(capsys, train, tmp_path / "packed", test)
    assert code == 1
    assert "packed#test/episode-2 = test/episode-2" in text


def test_unreadable_episodes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write_folders(tmp_path / "train", [episode(0), episode(1)])
    test = write_folders(tmp_path / "test", [episode(2)])
    (train / "episode-0" / "000.png").unlink()
    assert "1 episodes could not be read and were not compared" in run(capsys, train, test)[1]


@pytest.mark.parametrize("what", ["one side", "no folder", "damaged", "twice", "too few"])
def test_bad_input_exits_78_with_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folders(tmp_path / "folders", [episode(0)])
    write_packed(tmp_path / "out", CLEAN)
    arguments: dict[str, list[str | Path]] = {
        "one side": [folder],
        "no folder": [folder, tmp_path / "nowhere"],
        "damaged": [tmp_path / "out"],
        "twice": [folder, folder],
        "too few": [tmp_path / "out", "--ignore-shared-frames", "1"],
    }
    data = bytearray((tmp_path / "out" / "images-00000.tar").read_bytes())
    data[600] ^= 1
    (tmp_path / "out" / "images-00000.tar").write_bytes(data)
    code, text = run(capsys, *arguments[what])
    assert code == 78
    assert text.count("\n") == 1


def looked(made: list[Made], tmp_path: Path) -> ContentKeys:
    look = DatasetScan([write_folders(tmp_path / "in", made)])
    keys = ContentKeys(look)
    for seen in look:
        keys.add(seen)
    return keys


def test_contradictions_need_the_same_history(tmp_path: Path) -> None:
    first = episode(0)
    other_click = renamed(acting(first, 1, 0.123), "episode-a")
    # differs at the first step, so at the second, which differs too, the history is another
    other_from_the_start = renamed(acting(acting(first, 0, 0.3), 1, 0.4), "episode-b")
    keys = looked([first, other_click, other_from_the_start], tmp_path)
    found = contradictions(keys)
    assert (found.things, found.surplus) == (2, 5)
    names = [[(place.episode, place.step) for place in places] for places in found.examples]
    assert names == [[(0, 0), (2, 0)], [(0, 1), (1, 1)]]
    assert contradictions(looked([episode(1)], tmp_path / "clean")).things == 0


def test_repeated_counts_what_is_too_many(tmp_path: Path) -> None:
    keys = looked([episode(0), renamed(episode(0), "a"), renamed(episode(0), "b"), episode(1)], tmp_path)
    assert (repeated(keys, "episode").things, repeated(keys, "episode").surplus) == (1, 2)
    assert (repeated(keys, "step").things, repeated(keys, "step").surplus) == (3, 6)
    assert len(repeated(keys, "episode").examples[0]) == 3


def test_leaks_are_those_of_comparing_each_pair(tmp_path: Path) -> None:
    rng = random.Random(3)
    made = [
        renamed(episode(rng.randrange(6), 2, frames=[png(rng.randrange(4)), png(rng.randrange(4))]), f"e{number}")
        for number in range(30)
    ]
    sides = {name: made[start::3] for start, name in enumerate(("a", "b", "c"))}
    write_packed(tmp_path / "out", sides)
    look = DatasetScan([tmp_path / "out"])
    keys = ContentKeys(look)
    for seen in look:
        keys.add(seen)
    found = {(one.level, one.first, one.second): one for one in leaks(keys)}

    def steps(side: str) -> list[tuple[object, ...]]:
        return [
            (one.instruction, frames[step.index], repr(step.action))
            for one, frames in sides[side]
            for step in one.steps
        ]

    for first, second in (("a", "b"), ("a", "c"), ("b", "c")):
        for level, take in (("step", 3), ("goal and frame", 2)):
            mine = [key[:take] for key in steps(first)]
            theirs = [key[:take] for key in steps(second)]
            both = set(mine) & set(theirs)
            one = found[level, first, second]
            assert (one.things, one.of_first, one.of_second) == (len(both), len(mine), len(theirs))
            assert (one.in_first, one.in_second) == (sum(k in both for k in mine), sum(k in both for k in theirs))
