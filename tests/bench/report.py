"""`launcher report` over 500 kept episodes: seconds, memory, the size of the page and of the folder of its pictures.

Frames are drawn: windows with lines of text, and every second answer changes one of them. DRAWN episodes are drawn; the
others have these frames with other bytes behind the picture, so that each is a file of its own.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw

from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run

EPISODES = int(os.environ.get("EPISODES", "500"))
STEPS = 12
DRAWN = 20
LIMIT = 20_000_000  # bytes of the page
WHY = {"kind": "loop", "rule": "The last answers before the end are the same.", "why": "the same answer 4 times"}


def frame(size: tuple[int, int], seed: int, changed: int) -> bytes:
    """A desktop: three windows with text; `changed` windows have more of it."""
    rng = random.Random(seed)
    image = Image.new("RGB", size, (30, 60, 90))
    pen = ImageDraw.Draw(image)
    wide, high = size
    for number in range(3):
        x, y = rng.randrange(wide // 2), rng.randrange(high // 2)
        pen.rectangle([x, y, x + wide // 2, y + high // 2], fill=(245, 245, 245), outline=(90, 90, 90))
        for line in range(min(12 + 2 * (number < changed), high // 2 // 14)):
            words = " ".join(rng.choice(("list", "of", "juice", "figs", "81", "note")) for _ in range(wide // 80))
            pen.text((x + 6, y + 6 + 14 * line), words, fill=(20, 20, 20))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def results(size: tuple[int, int]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    lines = []
    drawn = [[frame(size, index, step) for step in range(STEPS // 2)] for index in range(DRAWN)]
    for index in range(EPISODES):
        name, won = f"e-{index:04d}", index % 3 != 0
        shots = [body + b"%06d" % index for body in drawn[index % DRAWN]]
        steps = []
        for step in range(STEPS):
            action = {"type": "click", "x": 0.5, "y": 0.5} if step % 2 else {"type": "type", "text": f"a line {step}"}
            steps.append(
                {
                    "index": step,
                    "screenshot": f"{step:03d}.png",
                    "action": action,
                    "thought": f"I look for the button, answer {step}. " * 6,
                }
            )
            files[f"episodes/{name}/{step:03d}.png"] = shots[step // 2]
        head = {
            "schema_version": "1.1.0",
            "episode_id": name,
            "task_id": f"task-{index % 50}",
            "instruction": "Put the list in order.",
            "seed": index,
            "success": won,
            "score": float(won),
            "steps": STEPS,
            "screen": list(size),
        }
        files[f"episodes/{name}/episode.json"] = json.dumps(head).encode()
        files[f"episodes/{name}/steps.jsonl"] = "".join(json.dumps(one) + "\n" for one in steps).encode()
        record = {
            "benchmark": "bench",
            "agent": "one",
            "task_id": head["task_id"],
            "seed": index,
            "score": float(won),
            "success": won,
            "steps": STEPS,
            "duration_ms": 9000,
            "episode": f"episodes/{name}",
            "programs": [f"program-{index % 7}"],
            "difficulty": ("easy", "medium", "hard")[index % 3],
            "failure": None if won else WHY,
        }
        lines.append(json.dumps(record))
    files["tasks.jsonl"] = ("\n".join(lines) + "\n").encode()
    files["summary.json"] = b"[]"
    return files


def main() -> int:
    print(f"| {EPISODES} episodes of {STEPS} answers | pictures, MB | seconds | page, MB | folder, MB | memory, MB |")
    print("|---|---:|---:|---:|---:|---:|")
    most = 0
    for size in ((96, 96), (1280, 720)):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store = FileStore(root / "store", sync=False)
            files = results(size)
            whole = sum(len(body) for body in {b for name, b in files.items() if name.endswith(".png")})
            job = fake_job("bench", outputs={"results": Output()})
            run = write_run(store, job, [FakeAttempt(outputs={"results": files})])
            page = root / "report.html"
            command = [sys.executable, "-m", "launcher.cli", "report", run, "--file", str(page)]
            began = time.perf_counter()
            subprocess.run(command, env={**os.environ, "SLIPWAY_STORE": store.url, "HOME": folder}, check=True)
            took = time.perf_counter() - began
            beside = sum(path.stat().st_size for path in (root / "report-pictures").glob("*"))
            length = page.stat().st_size
            most = max(most, length)
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # the largest child so far
        name = f"{size[0]}x{size[1]}"
        figures = [whole / 1e6, took, length / 1e6, beside / 1e6, memory]
        print(f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)
    print(f"\nlimit: {LIMIT / 1e6:.0f} MB of the page")
    return 0 if most < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
