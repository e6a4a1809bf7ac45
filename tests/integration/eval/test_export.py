"""Results in the formats of others: our importer reads them back, the published schema fits, videos show actions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from PIL import Image

from eval.actions import Action, ActionType
from tests.support.needs import marked
from tests.unit.eval.test_export import DONE, keep, record, results, run


@marked("ffmpeg")
def test_a_video_shows_each_frame_with_its_action(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    middle = Action(ActionType.CLICK, x=0.5, y=0.5)
    results(tmp_path, keep(folder, record("t"), [middle, DONE]), record("not-kept"))
    assert run("video", folder, tmp_path / "out", "--seconds", "0.5") == 0
    (film,) = (tmp_path / "out").rglob("*.mp4")
    assert film == tmp_path / "out" / "one" / "t.mp4"
    shots = tmp_path / "shots"
    shots.mkdir()
    command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-i", str(film), str(shots / "%03d.png")]
    subprocess.run(command, check=True, timeout=60)
    frames = [Image.open(path).convert("RGB") for path in sorted(shots.iterdir())]
    assert len(frames) == 15  # three frames of half a second, ten a second
    ring = [colour for x in range(90, 111) if (colour := frames[2].getpixel((x, 50)))[0] > 120]
    assert ring  # red around the click
    assert all(frames[7].getpixel((x, 50))[0] < 60 for x in range(90, 111))
