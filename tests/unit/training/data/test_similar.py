"""What two sides have alike is what comparing each with each finds, by few comparisons."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from PIL import Image

from eval.episodes import Episode
from tests.unit.training.data.material import episode
from training.data import similar_images
from training.data.inspection import similar as module_of_similar
from training.data.inspection.dataset_reader import ScannedEpisode
from training.data.inspection.overlap import ContentKeys, Shared
from training.data.inspection.similar import similar
from training.data.similar_images import HASH, Thumbnails, thumbnail

CELL = 4
MADE: Episode = episode(0, 2)[0]
PLAIN = np.full((HASH, HASH + 1), 240, np.uint8)


@dataclass
class Scanned:
    """Episodes of one goal and the same two steps, with a final frame, as a scan gives them."""

    images: dict[str, Image.Image] = field(default_factory=dict)
    episodes: dict[int, ScannedEpisode] = field(default_factory=dict)

    def add(self, side: str, cells: list[np.ndarray]) -> ScannedEpisode:
        shas = []
        for each in cells:
            shas.append(hashlib.sha256(each.tobytes()).hexdigest())
            self.images[shas[-1]] = Image.fromarray(np.kron(each, np.ones((CELL, CELL), np.uint8)))
        number = len(self.episodes)
        self.episodes[number] = ScannedEpisode(side, number, f"{number}", MADE, shas)
        return self.episodes[number]

    def at(self, numbers: set[int]) -> dict[int, ScannedEpisode]:
        return {number: self.episodes[number] for number in numbers}

    def open(self, sha: str) -> Image.Image:
        return self.images[sha]


def screens(rng: np.random.Generator, origins: int) -> list[np.ndarray]:
    made = []
    for _ in range(origins):
        cells = PLAIN.copy()
        cells[:, :4] = rng.integers(0, 256, (HASH, 4))
        made.append(cells)
    return made


def touched(rng: np.random.Generator, cells: np.ndarray, noise: int) -> np.ndarray:
    changed = cells.astype(int)
    for _ in range(int(rng.integers(0, noise + 1))):
        changed[tuple(rng.integers(0, (HASH, HASH + 1)))] += int(rng.integers(-30, 31))
    return changed.clip(0, 255).astype(np.uint8)


def scanned(seed: int, count: int, *, origins: int, noise: int) -> tuple[Scanned, ContentKeys]:
    rng = np.random.default_rng(seed)
    scan = Scanned()
    keys = ContentKeys(type("Sides", (), {"sides": ["train", "test"]})())
    originals = [screens(rng, origins) for _ in (*MADE.steps, None)]
    for number in range(count):
        origin = number // 2 % origins
        keys.add(scan.add(("train", "test")[number % 2], [touched(rng, each[origin], noise) for each in originals]))
    return scan, keys


def by_all_pairs(scan: Scanned, step: int) -> tuple[int, int, int]:
    """(contents of the second side, things of the first, of the second)"""

    def look(one: ScannedEpisode) -> tuple[list[str], Thumbnails]:
        shas = one.images if step < 0 else one.images[step : step + 1]
        images = [scan.open(sha) for sha in shas]
        return shas[: len(MADE.steps)], Thumbnails(
            tuple(i.size for i in images), np.stack([thumbnail(i) for i in images])
        )

    sides = [
        [(one.number, *look(one)) for one in scan.episodes.values() if one.side == side] for side in ("train", "test")
    ]
    pairs = [(a, b) for a, b in product(*sides) if a[1] != b[1] and a[2].alike(b[2])]
    return len({tuple(b[1]) for _, b in pairs}), len({a[0] for a, _ in pairs}), len({b[0] for _, b in pairs})


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_comparing_each_with_each_finds(seed: int) -> None:
    rng = random.Random(seed)
    scan, keys = scanned(seed, 40, origins=rng.choice((1, 3, 20)), noise=rng.choice((0, 1, 3, 12)))
    found = {level.level: level for level in similar(keys, scan, steps=True)}  # type: ignore[arg-type]
    whole = by_all_pairs(scan, -1)
    steps = [by_all_pairs(scan, step) for step in range(len(MADE.steps))]
    for name, wanted in (("similar episode", whole), ("similar step", tuple(map(sum, zip(*steps, strict=True))))):
        shared = found.get(name)
        assert wanted == ((0, 0, 0) if shared is None else (shared.things, shared.in_first, shared.in_second))
        if shared is not None:
            assert (shared.of_first, shared.of_second) == ((20, 20) if name == "similar episode" else (40, 40))
            for left, right in shared.examples:
                assert (scan.episodes[left.episode].side, scan.episodes[right.episode].side) == ("train", "test")
                assert left.step == right.step


@pytest.mark.parametrize("origins", [1, 300], ids=["all alike", "all different"])
def test_each_is_compared_with_a_few(origins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    alike = similar_images.alike

    def counted(many: Any, one: Any) -> Any:
        nonlocal count
        count += len(many)
        return alike(many, one)

    scan, keys = scanned(0, 600, origins=origins, noise=3)
    for module in (similar_images, module_of_similar):
        monkeypatch.setattr(module, "alike", counted, raising=False)  # whoever compares
    found: list[Shared] = list(similar(keys, scan, steps=False))  # type: ignore[arg-type]
    assert found[0].in_second > 250
    assert count < 10 * 600  # each with each would be 300 * 300


def test_an_episode_without_frames_looks_like_another_of_that_kind_and_is_the_same() -> None:
    scan = Scanned()
    keys: Any = ContentKeys(type("Sides", (), {"sides": ["train", "test"]})())
    bare = Episode(episode_id="bare", task_id="bare", instruction="Do nothing", screen=(24, 16), steps=())
    for number, side in enumerate(("train", "test")):
        scan.episodes[number] = ScannedEpisode(side, number, f"{number}", bare, [])
        keys.add(scan.episodes[number])
    assert list(similar(keys, scan, steps=True)) == []  # type: ignore[arg-type]
