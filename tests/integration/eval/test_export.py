"""Results in the formats of others: our importer reads them back, the published schema fits, videos show actions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from tests.support.documented import ROOT
from tests.support.needs import marked
from tests.unit.eval.test_export import DONE, WORK, keep, record, results, run, usual

# what Inspect's own reader makes of a folder of logs, before and after it wrote them in its own format
READ: Final = """
import base64, io, json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, write_eval_log
from PIL import Image

def told(log):
    return {
        "status": log.status,
        "metrics": {name: metric.value for name, metric in log.results.scores[0].metrics.items()},
        "samples": {
            f"{sample.id} {sample.epoch}": {
                "score": sample.scores["success"].value if sample.scores else None,
                "error": sample.error.message if sample.error else None,
                "roles": [message.role for message in sample.messages],
                "calls": [call.function for m in sample.messages for call in getattr(m, "tool_calls", None) or ()],
                "greens": [
                    Image.open(io.BytesIO(base64.b64decode(part.image.partition(",")[2]))).getpixel((0, 0))[1]
                    for message in sample.messages if not isinstance(message.content, str)
                    for part in message.content if part.type == "image"
                ],
            }
            for sample in log.samples
        },
    }

found = {}
for number, info in enumerate(list_eval_logs(sys.argv[1])):
    log = read_eval_log(info)
    write_eval_log(log, f"{sys.argv[2]}/{number}.eval")
    found[log.eval.model] = [told(log), told(read_eval_log(f"{sys.argv[2]}/{number}.eval", resolve_attachments=True))]
print(json.dumps(found))
"""


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


@pytest.mark.ci
@marked("clients")
def test_inspect_s_own_reader_opens_the_logs(tmp_path: Path) -> None:
    assert run("inspect", usual(tmp_path), tmp_path / "out") == 0
    again = tmp_path / "again"
    again.mkdir()
    command = [str(ROOT / ".venv-clients/bin/python"), "-c", READ, str(tmp_path / "out"), str(again)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    logs = json.loads(done.stdout)
    assert set(logs) == {"slipway/one", "slipway/two"}
    first, second = logs["slipway/one"]
    assert first == second
    assert first["status"] == "success"
    assert first["metrics"]["success"] == 0.25  # one of four: what the infrastructure failed counts as not solved
    samples = first["samples"]
    assert {name: (told["score"], told["error"]) for name, told in samples.items()} == {
        "solved/7 1": (1.0, None),
        "half/7 1": (0.0, None),
        "gone/7 1": (None, "the desktop is gone"),
        "not-kept/7 1": (0.0, None),
    }
    solved = samples["solved/7 1"]
    assert solved["roles"] == ["user", *["assistant", "tool"] * 8]
    assert solved["calls"] == [str(action.type) for action in [*WORK, DONE]]
    assert solved["greens"] == [10 + 20 * index for index in range(9)]
    assert samples["not-kept/7 1"]["roles"] == []
