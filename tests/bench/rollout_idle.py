"""How long desktops and one model stand idle: python -m tests.bench.rollout_idle [simulated|real [DESKTOPS...]]

The model answers after LATENCY_S, however many observations one call holds, up to its batch. Simulated desktops take
STEP_S for an action; real ones are of SCREEN, with a text editor, and a key is typed into it at each step. What counts
is the time from the moment in which every desktop is ready until the first episode ends, so neither start nor end.

    model idle     share of the time in which no call runs
    desktop idle   share of the time in which a desktop does nothing, over all desktops
    for nothing    share of the time in which no call runs although a desktop does nothing
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PIL import Image

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.desktop import Desktop, Observation, Score, Task
from eval.desktops.live import LiveDesktop
from eval.desktops.session import DesktopOptions
from eval.environments.desktop import NoteScene
from eval.rollout.loop import RolloutLimits, rollout

LATENCY_S: Final = 0.2
STEP_S: Final = 0.05
STEPS: Final = 20
SCREEN: Final = (640, 480)
SEED: Final = 1_000_000
DESKTOPS: Final = (1, 4, 8, 16)
BATCHES: Final = (1, 4, 8)


class Watch:
    """Adds up who is at work, from the moment in which `count` desktops are ready until one episode ends."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ready = self.busy = self.calls = self.steps = 0
        self.over = False
        self.last = 0.0
        self.took = self.model = self.desktops = self.wasted = 0.0

    def change(self, *, ready: int = 0, busy: int = 0, calls: int = 0) -> None:
        now = time.perf_counter()
        if self.ready == self.count and not self.over:
            span = now - self.last
            self.took += span
            self.desktops += span * self.busy / self.count
            self.model += span * bool(self.calls)
            self.wasted += span * (not self.calls and self.busy < self.count)
        self.last = now
        self.ready += ready
        self.busy += busy
        self.calls += calls


class Model:
    """An agent of a fixed latency. `batch_size`: observations that one call takes."""

    name = "fixed"
    parallel = 1

    def __init__(self, watch: Watch, batch_size: int) -> None:
        self.watch = watch
        self.batch_size = batch_size

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        for _ in range(0, len(observations), self.batch_size):
            self.watch.change(calls=1)
            await asyncio.sleep(LATENCY_S)
            self.watch.change(calls=-1)
        return [Decision("", Action(ActionType.KEY, keys=("x",))) for _ in observations]


class Watched:
    """A desktop whose time at work is added up."""

    def __init__(self, desktop: Desktop, watch: Watch) -> None:
        self.desktop = desktop
        self.watch = watch

    async def reset(self, task: Task, seed: int) -> Observation:
        seen = await self.desktop.reset(task, seed)
        self.watch.change(ready=1)
        return seen

    async def step(self, action: Action) -> Observation:
        self.watch.change(busy=1)
        try:
            return await self.desktop.step(action)
        finally:
            self.watch.change(busy=-1)
            self.watch.steps += self.watch.ready == self.watch.count and not self.watch.over

    async def score(self) -> Score:
        self.watch.change()
        self.watch.over = True
        return Score(0.0, False)

    async def close(self) -> None:
        await self.desktop.close()


class Simulated:
    """A desktop that takes STEP_S, and shows a plain window with a picture in a quarter of it."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", SCREEN, (240, 240, 240))
        self.image.paste(Image.effect_noise((SCREEN[0] // 2, SCREEN[1] // 2), 20), (20, 20))

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(self.image, self.image.size)

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(STEP_S)
        return Observation(self.image, self.image.size)

    async def score(self) -> Score:
        return Score(0.0, False)

    async def close(self) -> None:
        pass


def real() -> Desktop:
    return LiveDesktop(lambda task, seed: NoteScene(seed, "test"), DesktopOptions(screen=SCREEN))


async def measured(kind: str, count: int, batch: int) -> Watch:
    watch = Watch(count)
    with tempfile.TemporaryDirectory() as folder:
        await rollout(
            Model(watch, batch),
            lambda: Watched(Simulated() if kind == "simulated" else real(), watch),
            [Task(f"idle-{number}", "", SEED + number, max_steps=STEPS) for number in range(count)],
            out=Path(folder),
            benchmark="idle",
            environment=kind,
            limits=RolloutLimits(attempts=1, concurrency=count),
        )
    return watch


def main(argv: list[str]) -> int:
    kind = argv[0] if argv else "simulated"
    print(f"{kind} desktops, model of {LATENCY_S:g} s, load {os.getloadavg()[0]:.0f}\n")
    print(
        "| desktops | batch | model idle | desktop idle | for nothing | steps per second |\n|---|---|---|---|---|---|"
    )
    for count in map(int, argv[1:]) if argv[1:] else DESKTOPS:
        for batch in BATCHES:
            if batch > max(count, 1) and batch != BATCHES[0]:
                continue
            watch = asyncio.run(measured(kind, count, batch))
            shares = [1 - watch.model / watch.took, 1 - watch.desktops / watch.took, watch.wasted / watch.took]
            cells = " | ".join(f"{100 * share:.0f} %" for share in shares)
            print(f"| {count} | {batch} | {cells} | {watch.steps / watch.took:.1f} |", flush=True)
    print(f"\nload afterwards {os.getloadavg()[0]:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
