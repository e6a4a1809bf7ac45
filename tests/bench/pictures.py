"""What a screenshot of 1280x720 costs until it can be learnt from: CPU of `ingest` and of `pack` for each picture, and
of decoding it once.

    PICTURES=200 OLD=<another checkout> python -m tests.bench.pictures
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from PIL import Image, ImageDraw

from eval.actions import Action, ActionType
from eval.episodes import Episode, Step, frame_name, write_episode
from training.data.__main__ import main as data

PICTURES = int(os.environ.get("PICTURES", "200"))
STEPS = 10  # of an episode
SIZE = (1280, 720)


def screen(seed: int) -> Image.Image:
    """Windows, lines and words in many colours; 260 kB as a PNG."""
    drawn = random.Random(seed)
    image = Image.new("RGB", SIZE, "#eeeeee")
    draw = ImageDraw.Draw(image)
    for _ in range(400):
        x, y = drawn.randrange(SIZE[0]), drawn.randrange(SIZE[1])
        colour = (drawn.randrange(256), drawn.randrange(256), drawn.randrange(256))
        draw.rectangle((x, y, x + drawn.randrange(200), y + drawn.randrange(80)), fill=colour)
        draw.text((x, y), "some words of a window", fill="black")
    return image


def write(folder: Path) -> None:
    click = Action(ActionType.CLICK, x=0.5, y=0.5)
    for number in range(PICTURES // STEPS):
        steps = tuple(Step(index=at, screenshot=frame_name(at), action=click) for at in range(STEPS))
        made = Episode(episode_id=f"e{number}", task_id=f"t{number}", instruction="Click", screen=SIZE, steps=steps)
        frames = [screen(number * STEPS + at) for at in range(STEPS)]
        write_episode(folder / made.episode_id, made, frames)


def per_picture(act: Callable[[], object]) -> float:
    """CPU ms of this process."""
    began = time.process_time()
    act()
    return 1000 * (time.process_time() - began) / PICTURES


def run(folder: Path, verb: str, **config: object) -> None:
    path = folder / f"{verb}.json"
    path.write_text(json.dumps(config))
    with redirect_stdout(sys.stderr):
        assert data([verb, "--config", str(path), "--out", str(folder / verb)]) == 0


def measure() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "in")
        files = sorted((folder / "in").glob("*/*.png"))
        took = [
            per_picture(lambda: [Image.open(file).load() for file in files]),
            per_picture(lambda: run(folder, "ingest", format="episodes", recording=str(folder / "in"))),
            per_picture(lambda: run(folder, "pack", episodes=[str(folder / "ingest")])),
        ]
    print(" | ".join(f"{each:.1f}" for each in took))


def main() -> int:
    if sys.argv[1:] == ["one"]:
        measure()
        return 0
    from tests.bench.checkouts import checkouts, measured  # the other checkout may lack it

    print("| CPU ms of a picture | decoded once | ingest | pack |")
    print("|---|---:|---:|---:|")
    for code, checkout in checkouts().items():
        print(f"| {code} | {measured(__file__, checkout)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
