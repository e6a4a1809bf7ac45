"""What a video of a desktop costs: python -m tests.bench.desktops_video [SECONDS]

The scripted expert of the environment `desktop` writes a line and saves again and again, one action a second, while the
recorder (eval.desktops.video) works; and once nobody acts. The recorder's CPU time, and the bytes that it wrote.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from eval.actions import Action, ActionType
from eval.desktop import Task
from eval.desktops.keeping import kernel
from eval.desktops.live import LiveDesktop
from eval.desktops.session import DesktopOptions
from eval.desktops.video import FRAMES_PER_SECOND
from eval.environments.desktop import NoteScene
from tests.bench.desktops_fleet import cpu

SECONDS, SEED = 30.0, 1_000_000
SCREENS = ((1280, 720), (1920, 1080))


async def recorded(screen: tuple[int, int], seconds: float, acts: bool, folder: Path) -> tuple[float, float]:
    """(share of a core, bytes per minute)."""
    scene = NoteScene(SEED, "test")
    live = LiveDesktop(lambda *_: scene, DesktopOptions(screen=screen), tree=False, video=folder)
    await live.reset(Task("video", "", SEED), SEED)
    assert live._session is not None
    pids = [
        pid
        for pid in kernel.children(live._session.processes["keeper"])
        if b"x11grab" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    used, began, number = cpu(pids), time.monotonic(), 0
    while time.monotonic() - began < seconds:
        if acts:
            if number % 2:
                await live.step(Action(ActionType.HOTKEY, keys=("ctrl", "s")))
            else:
                await live.step(Action(ActionType.TYPE, text=f"{number} {scene.line}\n"))
            number += 1
        await asyncio.sleep(1.0)
    took, used = time.monotonic() - began, cpu(pids) - used
    await live.close()
    (file,) = folder.iterdir()
    return used / took, 60 * file.stat().st_size / took


def main(argv: list[str]) -> int:
    seconds = float(argv[0]) if argv else SECONDS
    print(f"load {os.getloadavg()[0]:.0f}, {FRAMES_PER_SECOND} pictures a second, {seconds:.0f} s each\n")
    print("| screen | desktop | CPU of the recorder | bytes per minute |\n|---|---|---|---|")
    for screen in SCREENS:
        for acts in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                share, size = asyncio.run(recorded(screen, seconds, acts, Path(folder)))
            kind = "an action a second" if acts else "still"
            print(
                f"| {screen[0]}x{screen[1]} | {kind} | {100 * share:.0f} % of a core | {size / 1000:.0f} kB |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
