from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from eval.actions import ActionType
from tests.unit.training.ingest.material import FPS, scene, video
from training.data.faults import BadSample
from training.data.ingest.openadapt.events import Derived
from training.data.ingest.openadapt.importer import before
from training.data.ingest.openadapt.video import Video, distinct


class Shown:
    """Frames from a list of (time, shade)."""

    size = (2, 2)

    def __init__(self, frames: list[tuple[float, int]], broken: str | None) -> None:
        self.frames, self.broken, self.until = frames, broken, frames[-1][0] if frames else 0.0

    def __iter__(self) -> Iterator[tuple[float, Image.Image]]:
        for time, shade in self.frames:
            yield time, Image.new("RGB", (2, 2), (shade, 0, 0))


TIMES = st.lists(st.integers(0, 30).map(float), max_size=8, unique=True).map(sorted)


@given(
    times=TIMES,
    shades=st.lists(st.sampled_from([0, 100, 200]), min_size=8, max_size=8),
    begins=TIMES,
    broken=st.booleans(),
)
def test_each_action_gets_the_last_distinct_frame_strictly_before_it(
    times: list[float], shades: list[int], begins: list[float], broken: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frames = list(zip(times, shades, strict=False))
    actions = [Derived(ActionType.CLICK, begin, begin) for begin in begins]
    shown = Shown(frames, "cut" if broken else None)
    found, final = before(shown, actions, tmp_path_factory.mktemp("frames"))
    expected = [next((shade for time, shade in reversed(frames) if time < begin), None) for begin in begins]
    if broken:
        expected = [None if begin > shown.until else shade for begin, shade in zip(begins, expected, strict=True)]
    assert [shade_of(path) for path in found] == expected
    fresh = [shade for time, shade in frames if begins and time > begins[-1]]
    known = [shade for time, shade in frames if begins and time <= begins[-1]]
    if broken or not fresh or (known and set(fresh) == {known[-1]}):
        assert final is None
    else:
        assert shade_of(final) == fresh[-1]


def shade_of(path: Path | None) -> int | None:
    if path is None:
        return None
    with Image.open(path) as image:
        shade = image.getpixel((0, 0))
    assert isinstance(shade, tuple)
    return int(shade[0])


def test_what_compression_does_is_no_difference_and_a_caret_is(tmp_path: Path) -> None:
    random = Random(1)
    grain = bytes(min(255, max(0, round(random.gauss(128, 40)))) for _ in range(320 * 200))
    noise = Image.frombytes("L", (320, 200), grain).convert("RGB")
    typed = noise.copy()
    typed.paste((0, 0, 0), (100, 100, 102, 112))
    path = tmp_path / "video.mp4"
    video(path, [(0.0, noise), (3.0, typed)], 6.0)
    frames = list(Video(path, 0.0))
    assert len(frames) > 2  # compressed anew at times
    changes = [time for (_, one), (time, other) in itertools.pairwise(frames) if distinct(one, other)]
    assert changes == [3.0]


def test_times_are_those_of_the_video_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    video(path, [(0.0, scene(1)), (1.0, scene(2))], 2.0)
    frames = Video(path, 1000.0)
    assert [time for time, _ in frames] == [1000.0, 1001.0]
    assert (frames.broken, frames.until) == (None, pytest.approx(1002.0 - 1 / FPS))


@pytest.mark.parametrize("place", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_damage_in_the_middle_ends_the_frames_before_it(place: float, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    random = Random(place)
    noise = [(float(second), Image.frombytes("RGB", (160, 96), random.randbytes(160 * 96 * 3))) for second in range(3)]
    video(path, noise, 3.0)
    whole = [image.tobytes() for _, image in Video(path, 0.0)]
    data = bytearray(path.read_bytes())
    middle = int(len(data) * place)
    data[middle : middle + 1000] = bytes(1000)
    path.write_bytes(data)
    frames = Video(path, 0.0)
    left = [image.tobytes() for _, image in frames]
    assert frames.broken is not None
    assert left == whole[: len(left)]
    assert frames.until < 3


@pytest.mark.parametrize("data", [b"", b"no video at all", b"\x00\x00\x00\x18ftypmp42" + bytes(100)])
def test_what_is_no_video_is_damage(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(data)
    with pytest.raises(BadSample, match="video_unreadable"):
        Video(tmp_path / "video.mp4", 0.0)
