from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from tests.unit.training.ingest.material import FRAME, snapshot
from tests.unit.training.ingest.test_folders import CLICK, DONE, episode


def test_a_disk_that_takes_no_more_is_one_line_and_leaves_nothing_torn(tmp_path: Path) -> None:
    episode(tmp_path / "in", "a")
    big = episode(tmp_path / "in", "b")
    Image.effect_noise(FRAME, 90).save(big / "001.png")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "episodes", "recording": str(tmp_path / "in")}))
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
    code = f"{limit} from training.data.ingest import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--config", str(config), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "looks"]
    assert [path.name for path in (tmp_path / "out" / "looks").iterdir()] == ["a.json"]


def test_a_run_that_is_killed_leaves_nothing_torn_and_the_next_one_finishes_it(tmp_path: Path) -> None:
    for number in range(40):
        episode(tmp_path / "in", f"episode-{number:02d}", (CLICK,) * 4 + (DONE,))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "episodes", "recording": str(tmp_path / "in")}))
    command = [sys.executable, "-m", "training.data", "ingest", "--config", str(config), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while len(list((tmp_path / "out").glob("episode-*"))) < 3:
        time.sleep(0.001)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    for folder in (tmp_path / "out").glob("episode-*"):
        assert snapshot(folder) == snapshot(tmp_path / "in" / folder.name)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = snapshot(tmp_path / "out")
    assert found.pop("report.json")
    assert all(found.pop(f"looks/episode-{number:02d}.json") for number in range(40))
    assert found == snapshot(tmp_path / "in")
