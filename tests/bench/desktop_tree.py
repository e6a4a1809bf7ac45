"""What reading an accessibility tree costs, beside pyatspi: python -m tests.bench.desktop_tree [TIMES]

A text editor, its settings and a calculator are open. pyatspi walks in a process of its own on the same desktop, after
its imports; it reads what the whole tree holds but actions.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path

from eval.accessibility.prompt_text import tell
from eval.accessibility.tree import Tree
from eval.desktops.computer import LocalComputer
from eval.desktops.session import DesktopOptions, DesktopSession

TIMES = 15
WALK = Path(__file__).parents[1] / "support/pyatspi_tree.py"


async def measure(times: int) -> None:
    async with await DesktopSession.start(DesktopOptions(screen=(1920, 1080))) as session:
        for number, command in enumerate((["mousepad"], ["galculator"], ["mousepad", "--preferences"]), start=1):
            await session.run(command)
            await session.windows(number)
        computer = await LocalComputer.open(session)
        await asyncio.sleep(2)
        print(f"load {os.getloadavg()[0]:.1f}; medians of {times}, in ms\n")
        print("| | objects | time (longest) | CPU of the reader |\n|---|---|---|---|")
        tree = Tree()
        for name, whole in (("what is shown", False), ("whole", True)):
            walls, cpu = [], []
            for _ in range(times):
                began, used = time.perf_counter(), time.process_time()
                tree = await computer.accessibility(whole=whole)
                walls.append((time.perf_counter() - began) * 1e3)
                cpu.append((time.process_time() - used) * 1e3)
            row(name, len(list(tree.nodes())), walls, statistics.median(cpu))
        await pyatspi(session, times)
        text = tell(await computer.accessibility(), 2000, lambda point: f"{point[0]:.4f}, {point[1]:.4f}")
        print(f"\ncut to 2,000 tokens: {len(text.splitlines())} lines, {len(text)} characters")
        await computer.close()


async def pyatspi(session: DesktopSession, times: int) -> None:
    home = session.place.home
    body = WALK.read_text(encoding="utf-8").replace("print(", "def once():\n    return (")
    loop = (
        f"import time\nout = []\nfor _ in range({times}):\n"
        "    began, used = time.perf_counter(), time.process_time()\n    text = once()\n"
        "    out.append([(time.perf_counter() - began) * 1e3, (time.process_time() - used) * 1e3])\n"
        'open("times.json", "w").write(json.dumps([out, text.count(\'"role"\')]))\n'
    )
    (home / "walk.py").write_text(f"{body}\n{loop}", encoding="utf-8")
    (home / "walk.py").chmod(0o644)
    await (await session.run(["/usr/bin/python3", "walk.py"])).wait()
    out, objects = json.loads((home / "times.json").read_text())
    row("pyatspi, whole", objects, [wall for wall, _ in out], statistics.median(cpu for _, cpu in out))


def row(name: str, objects: int, walls: list[float], cpu: float) -> None:
    print(f"| {name} | {objects} | {statistics.median(walls):.0f} ({max(walls):.0f}) | {cpu:.0f} |")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else TIMES))
