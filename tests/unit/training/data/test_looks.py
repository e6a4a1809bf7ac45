"""What `ingest` found of pictures as it decoded them is what `pack` would find, and hides nothing from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from eval.episodes.pictures import opened
from tests.unit.training.ingest.test_folders import episode, run
from training.data.faults import BadSample
from training.data.looks import LOOKS, place_of, read_looks, write_looks
from training.data.packed import writer
from training.data.packed.pack import PackConfig, pack
from training.data.similar_images import dhash


@pytest.fixture
def ingested(tmp_path: Path) -> Path:
    """Two episodes that `ingest` wrote, and how their pictures look beside each."""
    episode(tmp_path / "in", "one")
    episode(tmp_path / "in", "two")
    code, out = run(tmp_path, on_bad_sample="skip")
    assert code == 0
    return out


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pictures that `pack` decoded."""
    found: list[str] = []

    def counting(data: bytes, name: str) -> Image.Image:
        found.append(name)
        return opened(data, name)

    monkeypatch.setattr(writer, "opened", counting)
    return found


def index(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "images.parquet").to_pylist()
    return found


def test_pack_decodes_nothing_that_ingest_decoded_and_writes_the_same(
    ingested: Path, tmp_path: Path, decoded: list[str]
) -> None:
    pack(PackConfig(episodes=[str(ingested)]), tmp_path / "listed")
    assert decoded == []
    assert len(list((ingested / LOOKS).iterdir())) == 2
    for name in ("one", "two"):
        frames = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (ingested / name).glob("*.png")}
        assert read_looks(ingested / name).keys() == frames
        place_of(ingested / name).unlink()
    pack(PackConfig(episodes=[str(ingested)]), tmp_path / "decoded")
    assert len(decoded) == len(index(tmp_path / "decoded")) == 3
    assert index(tmp_path / "listed") == index(tmp_path / "decoded")


def test_a_changed_picture_is_decoded_anew(ingested: Path, tmp_path: Path, decoded: list[str]) -> None:
    other = Image.linear_gradient("L").convert("RGB")
    file = next(iter(ingested.glob("*/000.png")))
    other.save(file)
    pack(PackConfig(episodes=[str(ingested)]), tmp_path / "packed")
    assert decoded == [str(file)]
    (row,) = [row for row in index(tmp_path / "packed") if row["width"] == other.width]
    assert row["dhash"] == dhash(other).hex()


def flipped(place: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        at = 8 + int(place * (len(data) - 9))  # behind the signature
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]

    return flip


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [*map(flipped, (0.0, 0.2, 0.4, 0.6, 0.8)), halved])
def test_a_list_cannot_hide_a_damaged_picture(ingested: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Whoever writes the list gives the digest of the damaged file."""
    file = next(iter(ingested.glob("*/000.png")))
    data = damage(file.read_bytes())
    file.write_bytes(data)
    write_looks(place_of(file.parent), {hashlib.sha256(data).hexdigest(): "0" * 64})
    images = writer.ImageWriter(tmp_path)
    with pytest.raises(BadSample) as told:
        images.add(file, read_looks(file.parent))
    images.abandon()
    assert told.value.reason == "image_broken"


def test_a_picture_that_is_no_png_is_decoded(tmp_path: Path, decoded: list[str]) -> None:
    """PNG alone has checksums."""
    file = tmp_path / "a.jpg"
    Image.linear_gradient("L").convert("RGB").save(file, "JPEG")
    looks = {hashlib.sha256(file.read_bytes()).hexdigest(): "0" * 64}
    images = writer.ImageWriter(tmp_path)
    images.add(file, looks)
    images.close()
    assert decoded == [str(file)]
    assert [row["dhash"] for row in index(tmp_path)] == [dhash(opened(file)).hex()]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', json.dumps({"0" * 64: "f" * 63})])
def test_a_list_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "one"
    assert read_looks(folder) == {}
    place_of(folder).parent.mkdir()
    place_of(folder).write_text(text)
    assert read_looks(folder) == {}
