"""The environment of these tests, in a folder of its own, and what it wrote down: every start of a task and every
judgement is a line of a file outside the results, so what was done twice is seen. While the file LOG.hold is there, no
task ends after the first four."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ENVIRONMENT = """
import asyncio
import os
from pathlib import Path

from PIL import Image

from eval.actions import ActionType
from eval.desktop import DesktopGone, Observation, Score, Task

LOG = Path(os.environ["LOG"])


def say(*words):
    with LOG.open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


class Desktop:
    async def reset(self, task, seed):
        self.task = task
        say("start", task.task_id, os.getpid())
        if task.task_id == "flaky" and not Path(f"{LOG}.mended").exists():
            raise DesktopGone("its server is not there yet")
        return self.look()

    def look(self):
        return Observation(Image.new("RGB", (32, 32)), (32, 32))

    async def step(self, action):
        await asyncio.sleep(self.task.options.get("slow", 0.1))
        while Path(f"{LOG}.hold").exists() and LOG.read_text().count("judge") >= 4:
            await asyncio.sleep(0.05)
        self.done = action.type is ActionType.DONE
        return self.look()

    async def score(self):
        say("judge", self.task.task_id, os.getpid())
        return Score(1.0, True) if self.task.options.get("easy") else Score(0.0, False)

    async def close(self):
        pass


class Slow:
    def tasks(self, count, seed, options):
        names = ["flaky", *(f"t{number}" for number in range(count - 1))]
        return [Task(name, "wait", number, options=dict(options)) for number, name in enumerate(names)]

    def desktop(self, options):
        return Desktop()
"""


def lines(log: Path, what: str) -> Counter[str]:
    """How often each task was started, or judged, by any process."""
    told = log.read_text().splitlines() if log.exists() else []
    return Counter(line.split()[1] for line in told if line.startswith(f"{what} "))
