"""Does linux-desktop do what it is for: a real desktop, acted on and judged, through the evaluation that jobs run.

Runs in the image, with a read-only root or not, as any user: `docker run --rm --entrypoint python linux-desktop:TAG -m
smoke [PICTURE]`. It says what keeps an agent in its desktop here, because that depends on the rights of the container.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from eval.desktops.isolation import isolation
from eval.environments.desktop import missing

# One character of each script that the fonts have to carry
SCRIPTS = {"Chinese": "字", "Japanese": "か", "Korean": "한", "emoji": "🦜"}


def fonts() -> None:
    for script, character in SCRIPTS.items():
        query = ["fc-list", f":charset={ord(character):x}", "family"]
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")[0]
        if not found:
            raise SystemExit(f"smoke: no font has {script}")
        print(f"smoke: {script}: {found}", flush=True)


def kept_apart() -> None:
    machine = isolation()
    for line in machine.missing:
        print(f"smoke: not here: {line}", flush=True)
    print(f"smoke: a terminal is offered: {'yes' if machine.complete else 'no'}", flush=True)


def episodes(out: Path) -> Path:
    """Two tasks by the scripted expert, both solved; gives an episode's folder."""
    config = {
        "benchmark": "smoke",
        "environment": "desktop",
        "tasks": {"count": 2, "seed": 1_000_000},
        "agent": {"kind": "scripted"},
        "limits": {"concurrency": 2},
    }
    (out / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "eval.run", "--config", str(out / "config.json"), "--out", str(out / "results")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "results" / "tasks.jsonl").read_text().splitlines()]
    if [row["success"] for row in rows] != [True, True]:
        raise SystemExit(f"smoke: the expert did not solve its tasks: {rows}")
    return next((out / "results" / "episodes").iterdir())


def main(argv: list[str]) -> int:
    if lines := missing():
        raise SystemExit("smoke: " + "; ".join(lines))
    fonts()
    kept_apart()
    with tempfile.TemporaryDirectory() as folder:
        episode = episodes(Path(folder))
        pictures = sorted(episode.rglob("*.png"))
        print(f"smoke: 2 episodes solved, {len(pictures)} pictures in the first", flush=True)
        if argv:
            shutil.copy(pictures[-1], argv[0])
    print("smoke: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
