"""Sixteen desktops at work at once: python -m tests.bench.desktops_fleet [DESKTOPS [ROUNDS]]

Each has a text editor, and the scripted expert of the environment `desktop` acts in it: it goes to the end of the file,
writes a line, saves, and sees a settled picture after each action. At the end every file must hold every line. Then the
same number of episodes at once through the rollout, clean desktops before each one included.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.desktop import Task
from eval.desktops.keeping import kernel
from eval.desktops.live import LiveDesktop
from eval.desktops.session import DesktopOptions
from eval.environments import desktop
from eval.environments.desktop import FILE, NoteScene
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.desktops import memory_mb

DESKTOPS, ROUNDS, SEED = 16, 10, 1_000_000
SCREEN = (1920, 1080)
EPISODES = 2  # of each desktop, through the rollout


class Worker:
    """One desktop, and who acts on it."""

    def __init__(self, seed: int) -> None:
        self.scene = NoteScene(seed, "test")
        self.task = Task(f"note-{seed}", "", seed)
        self.live = LiveDesktop(lambda task, seed: self.scene, DesktopOptions(screen=SCREEN))
        self.steps: list[float] = []
        self.lines = list(self.scene.before)

    def processes(self) -> list[int]:
        session = self.live._session
        assert session is not None
        keeper = session.processes["keeper"]
        return [keeper, *kernel.children(keeper)]

    async def begin(self) -> None:
        await self.live.reset(self.task, self.task.seed)

    async def act(self, rounds: int) -> None:
        for number in range(rounds):
            line = f"{number} {self.scene.line}"
            for action in (
                Action(ActionType.HOTKEY, keys=("ctrl", "end")),
                Action(ActionType.TYPE, text=f"{line}\n"),
                Action(ActionType.HOTKEY, keys=("ctrl", "s")),
            ):
                began = time.perf_counter()
                await self.live.step(action)
                self.steps.append(time.perf_counter() - began)
            self.lines.append(line)

    def right(self) -> bool:
        session = self.live._session
        assert session is not None
        return (session.place.home / FILE).read_text() == "".join(f"{line}\n" for line in self.lines)


def cpu(pids: list[int]) -> float:
    """Seconds of CPU that processes have used."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def at_work(count: int, rounds: int) -> bool:
    workers = [Worker(SEED + number) for number in range(count)]
    try:
        began = time.perf_counter()
        await asyncio.gather(*(worker.begin() for worker in workers))
        started = time.perf_counter() - began
        pids = [os.getpid(), *(pid for worker in workers for pid in worker.processes())]
        used, began = cpu(pids), time.perf_counter()
        await asyncio.gather(*(worker.act(rounds) for worker in workers))
        took, used = time.perf_counter() - began, cpu(pids) - used
        each = [memory_mb(worker.processes()) for worker in workers]
        right = sum(worker.right() for worker in workers)
    finally:
        await asyncio.gather(*(worker.live.close() for worker in workers))
    steps = [step for worker in workers for step in worker.steps]
    row("all ready, with their editor", f"{started:.1f} s")
    row("steps per second, all together", f"{len(steps) / took:.0f} ({len(steps)} in {took:.1f} s)")
    row("one step, median (slowest)", f"{1000 * statistics.median(steps):.0f} ms ({1000 * max(steps):.0f})")
    row("CPU per step, desktops and evaluation", f"{1000 * used / len(steps):.0f} ms")
    row("memory of one, median (largest)", f"{statistics.median(each):.0f} MB ({max(each):.0f})")
    row("memory together", f"{sum(each):.0f} MB")
    row("files that hold every line", f"{right} of {count}")
    return right == count


async def episodes(count: int) -> bool:
    options = {"screen": list(SCREEN)}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        results = await rollout(
            ScriptedAgent(Dsl(4)),
            lambda: desktop.desktop(options),
            desktop.tasks(EPISODES * count, SEED, options),
            out=Path(folder),
            benchmark="desktop",
            environment="desktop",
            limits=RolloutLimits(attempts=1, concurrency=count),
        )
        took = time.perf_counter() - began
    solved = sum(bool(result.record.success) for result in results)
    row("episodes per minute through the rollout", f"{60 * len(results) / took:.0f} ({len(results)} in {took:.1f} s)")
    row("episodes solved, at the first try", f"{solved} of {len(results)}")
    return solved == len(results)


def row(name: str, value: str) -> None:
    print(f"| {name} | {value} |", flush=True)


def main(argv: list[str]) -> int:
    count, rounds = (int(argv[0]) if argv else DESKTOPS), (int(argv[1]) if len(argv) > 1 else ROUNDS)
    print(f"| {count} desktops of {SCREEN[0]}x{SCREEN[1]} at once, load {os.getloadavg()[0]:.0f} | |\n|---|---|")
    right = asyncio.run(at_work(count, rounds))
    right = asyncio.run(episodes(count)) and right
    row("load afterwards", f"{os.getloadavg()[0]:.0f}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
