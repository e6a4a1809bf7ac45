"""Packed datasets of Slipway: Parquet with a row per episode, pictures in tar files, opened as trainers open them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.bench.libraries import EPISODE, HISTORY, SIZE, IndexedLoader, Item, Loader, Place, fields, picture

PROMPT: dict[str, Any] = {"decimals": 2, "system": "", "history": HISTORY}


def write(folder: Path, steps: int, start: int = 0) -> None:
    from eval.actions import Action
    from eval.episodes import Episode, Step
    from training.data.packed.writer import DatasetWriter

    with DatasetWriter(folder, pack_bytes=2**28) as writer:
        for first in range(start, start + steps, EPISODE):
            numbers = range(first, min(first + EPISODE, start + steps))
            parts = [fields(number) for number in numbers]
            made = tuple(
                Step(index=i, screenshot=f"{i:03d}.png", action=Action(**part["action"]), thought=part["thought"])
                for i, part in enumerate(parts)
            )
            episode = Episode(
                episode_id=parts[0]["episode"],
                task_id=parts[0]["instruction"],
                instruction=parts[0]["instruction"],
                screen=(SIZE, SIZE),
                steps=made,
            )
            writer.add(episode, [picture(number) for number in numbers])


class Steps:
    """A packed dataset by the number of a sample: its step's fields, and the picture's bytes, whose hash is checked."""

    def __init__(self, folder: Path) -> None:
        from eval.prompts import PromptConfig
        from training.data.source import open_source

        self.samples: Any = open_source(str(folder), PromptConfig(**PROMPT).builder())

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, at: int) -> Item:
        samples = self.samples
        episode, frame = samples.episodes.episode(int(samples.numbers[at]))
        step = episode.steps[int(samples.steps[at])]
        number = int(episode.episode_id.partition("-")[2]) * EPISODE + step.index
        earlier = episode.steps[max(0, step.index - HISTORY) : step.index]
        told = {"instruction": episode.instruction, "action": step.action, "thought": step.thought, "history": earlier}
        return number, told, frame(step.screenshot).read()


def fetch(place: Place) -> Path:
    """Copies the dataset out of the store, as the runtime copies an input before the command starts."""
    from launcher.runtime.inputs import Fetch, remote
    from launcher.spec.model import Input

    given = place.options or {}
    query = urlencode({"endpoint": given["endpoint"], "region": given["region"]}, safe=":/")
    spec = Input(url=f"s3://{given['bucket']}/{given['prefix']}?{query}")
    nobody: Any = None  # the context of a run, of which this fetch needs nothing
    remote.fetch(Fetch(nobody, "data", spec, place.local, None, lambda done, total: None, lambda: None))
    return place.local


def open_loader(place: Place, *, shuffled: bool, workers: int, state: Any = None) -> Loader:
    folder = fetch(place) if place.options else place.folder
    return IndexedLoader(Steps(folder), shuffled=shuffled, workers=workers, state=state)


def mix(folders: list[Path], weights: list[float]) -> Iterator[int]:
    """By random access in any order; here as the trainer's sampler without shuffling gives them."""
    from training.data.mixture import Mixture

    steps: list[Any] = [Steps(folder) for folder in folders]
    for item in Mixture(steps, weights, seed=1):
        yield item[0]
