"""What a desktop costs: python -m tests.bench.desktops_small [--parts memory resets alive] [--price 0.20]

memory   16 desktops with a text editor, with Writer and with Chromium: the memory of each by process, shared pages by
         share (PSS); with the price of that memory for a day
resets   32 desktops in the midst of episodes: how long a clean desktop with its editor and its first picture takes
alive    64 desktops with an editor that act together: actions per second, how long one takes with its settled picture,
         and the memory of all and of the process that acts; with the price of the processors for a day, for a desktop
         that acts every 5 seconds

The machine of the price is Lambda's cpu_4x_general of launcher/spec/prices/table.yaml. Screens are of 1920x1080.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eval.actions import Action, ActionType
from eval.desktops.keeping import kernel
from eval.desktops.session import DesktopOptions, DesktopSession
from tests.bench.desktops_fleet import SCREEN, SEED, Worker, cpu, row
from tests.support.desktops import memory_mb

PROGRAMS: Final = {
    "mousepad": ["mousepad"],
    "Writer": ["soffice", "--writer", "--norestore", "--nologo"],
    "Chromium": ["chromium", "--no-sandbox", "--no-first-run", "about:blank"],
}
MANY, RESETTING, ALIVE = 16, 32, 64
AT_ONCE: Final = 4  # starts
STARTED_S, SETTLED_S = 600.0, 5.0
EPISODE_S: Final = 12.0  # an episode of these desktops, on average
RESETS: Final = 4  # of each desktop
RATE, ACTING_S = 150.0, 20.0
EVERY_S: Final = 5.0  # what a desktop's share of the processors is counted for: an action so often
USED: Final = 0.9  # of the machine's memory


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(1e6 * share * len(ordered)) // 1_000_000) - 1))]


def times(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.3f} s; {percentile(values, 0.99):.3f} s"


def load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


def below(session: DesktopSession) -> list[int]:
    """The processes of a desktop."""
    keeper = session.processes["keeper"]
    return [keeper, *kernel.children(keeper)]


def named(session: DesktopSession) -> dict[int, str]:
    """Their names: those of the session's parts, or of the program."""
    parts = {pid: name for name, pid in session.processes.items()}
    found = {}
    for pid in below(session):
        try:
            found[pid] = parts.get(pid) or Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
    return found


async def memory(args: argparse.Namespace) -> None:
    for name in args.programs:
        sessions: list[DesktopSession] = []
        try:
            for _ in range(args.desktops or MANY):
                session = await DesktopSession.start(DesktopOptions(screen=SCREEN, memory=3 << 30))
                sessions.append(session)
                await session.run(PROGRAMS[name])
                await session.windows(1, STARTED_S)
            await asyncio.sleep(SETTLED_S)
            each = [memory_mb(below(session)) for session in sessions]
            parts: dict[str, list[float]] = defaultdict(list)
            for session in sessions:
                for pid, part in named(session).items():
                    parts[part].append(memory_mb([pid]))
        finally:
            await asyncio.gather(*(session.stop() for session in sessions))
        middle = statistics.median(each)
        row(f"{len(each)} desktops with {name}: one, median (largest)", f"{middle:.0f} MiB ({max(each):.0f})")
        largest = sorted(parts.items(), key=lambda item: -sum(item[1]))
        row("by process", ", ".join(f"{part} {sum(sizes) / len(each):.1f}" for part, sizes in largest))
        fits = int(args.gib * 1024 * USED / middle)
        row(
            f"price of one for a day, where {fits} fill a machine of {args.gib:g} GiB at {args.price:g} USD an hour",
            f"{24 * args.price / fits:.4f} USD",
        )


async def start(workers: Sequence[Worker]) -> None:
    """Begins their desktops, AT_ONCE at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(worker: Worker) -> None:
        async with places:
            await worker.begin()

    await asyncio.gather(*(one(worker) for worker in workers))


async def resets(args: argparse.Namespace) -> None:
    workers = [Worker(SEED + number) for number in range(args.desktops or RESETTING)]
    took: list[float] = []
    rng = random.Random(0)

    async def episodes(worker: Worker) -> None:
        for _ in range(RESETS):
            await asyncio.sleep(rng.uniform(0, 2 * EPISODE_S))
            began = time.perf_counter()
            await worker.live.reset(worker.task, worker.task.seed)
            took.append(time.perf_counter() - began)

    try:
        await start(workers)
        await asyncio.gather(*(episodes(worker) for worker in workers))
    finally:
        await asyncio.gather(*(worker.live.close() for worker in workers))
    row(f"reset among {len(workers)} desktops, with the editor and the first picture: p50; p99", times(took))


async def alive(args: argparse.Namespace) -> None:
    workers = [Worker(SEED + number) for number in range(args.desktops or ALIVE)]
    try:
        began = time.perf_counter()
        await start(workers)
        row(f"{len(workers)} desktops ready, with their editor", f"{time.perf_counter() - began:.1f} s")
        pids = [pid for worker in workers for pid in worker.processes()]
        used, ours, began = cpu(pids), time.process_time(), time.perf_counter()
        until = began + ACTING_S
        await asyncio.gather(*(act(worker, number, len(workers), until) for number, worker in enumerate(workers)))
        took, ours, used = time.perf_counter() - began, time.process_time() - ours, cpu(pids) - used
        desktops, acting = sum(memory_mb(worker.processes()) for worker in workers), memory_mb([os.getpid()])
    finally:
        await asyncio.gather(*(worker.live.close() for worker in workers))
    steps = [step for worker in workers for step in worker.steps]
    row("actions per second, all together (asked for)", f"{len(steps) / took:.0f} ({RATE:.0f})")
    row("one action and its settled picture: p50; p99", times(steps))
    row(
        "CPU per action: desktops; the process that acts",
        f"{1000 * used / len(steps):.1f}; {1000 * ours / len(steps):.1f} ms",
    )
    row("memory: the desktops; the process that acts", f"{desktops:.0f}; {acting:.0f} MiB")
    share = (used + ours) / len(steps) / EVERY_S
    row(
        f"price of the processors for one that acts every {EVERY_S:g} s, for a day",
        f"{24 * args.price * share / args.cores:.4f} USD",
    )


async def act(worker: Worker, number: int, count: int, until: float) -> None:
    """Writes letters at this worker's share of RATE; who is late goes on at once, and makes no action up."""
    pause = count / RATE
    due = time.perf_counter() + pause * number / count
    letters = "abcdefghij"
    for turn in range(1_000_000):
        now = time.perf_counter()
        if now >= until:
            return
        await asyncio.sleep(max(0.0, due - now))
        began = time.perf_counter()
        await worker.live.step(Action(ActionType.TYPE, text=letters[turn % len(letters)]))
        worker.steps.append(time.perf_counter() - began)
        due = max(due + pause, time.perf_counter())


def main(argv: list[str]) -> int:
    parts = {"memory": memory, "resets": resets, "alive": alive}
    parser = argparse.ArgumentParser(prog="python -m tests.bench.desktops_small")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), help="of the part memory")
    parser.add_argument("--desktops", type=int, help="in place of each part's own number")
    parser.add_argument("--price", type=float, default=0.20, help="of the machine, USD an hour")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--gib", type=float, default=16.0)
    args = parser.parse_args(argv)
    print(f"| desktops of {SCREEN[0]}x{SCREEN[1]} on {os.cpu_count()} cores, load {load()} | |\n|---|---|")
    for part in args.parts:
        asyncio.run(parts[part](args))
        row("load afterwards", load())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
