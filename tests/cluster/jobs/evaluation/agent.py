"""The evaluation itself: desktops and the model are elsewhere."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image
from served import ask

from eval.actions import Action
from eval.agents.base import Decision, History, decide
from eval.desktop import Expected, Observation, Score, Task
from eval.environments import login
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from eval.scores.summary import summarise
from eval.scores.summary_file import write_summary


class Remote:
    """eval.desktop.Desktop at an address, which goes back to `free` at the end of the episode."""

    def __init__(self, free: asyncio.Queue[str]) -> None:
        self.free, self.address = free, ""

    async def ask(self, what: str, body: Any) -> Any:
        return await asyncio.to_thread(ask, self.address, what, body)

    async def reset(self, task: Task, seed: int) -> Observation:
        self.address = await self.free.get()
        return seen(await self.ask("reset", {"id": task.task_id, "seed": seed}))

    async def step(self, action: Action) -> Observation:
        return seen(await self.ask("step", action.to_json()))

    async def score(self) -> Score:
        return Score(**await self.ask("score", {}))

    async def close(self) -> None:
        self.free.put_nowait(self.address)


def seen(answer: Any) -> Observation:
    image = Image.open(io.BytesIO(base64.b64decode(answer["image"])))
    expected = Expected(Action.from_json(answer["expected"]))
    return Observation(image, (login.SIZE, login.SIZE), expected=expected, done=answer["done"])


class ServedAgent:
    name, parallel = "served", 4

    def __init__(self, address: str) -> None:
        self.address = address
        self.parse = PromptConfig().builder().dialect.parse_response

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        bodies = [{"expected": one.expected.action.to_json()} for one in observations if one.expected]
        answers = await asyncio.gather(*(asyncio.to_thread(ask, self.address, "act", body) for body in bodies))
        return [decide(self.parse, answer["text"]) for answer in answers]


async def main(count: int, out: Path) -> None:
    server = os.environ["SLIPWAY_ENDPOINT_SERVER"]
    desktops = os.environ["SLIPWAY_ENDPOINT_DESKTOP"].split(",")
    print("server", server, "desktops", *desktops, flush=True)
    free: asyncio.Queue[str] = asyncio.Queue()
    for address in desktops:
        free.put_nowait(address)
    tasks = [replace(task, options={}) for task in login.tasks(count, SPLIT_SEED, {})]
    # every failure of a desktop or of the model is one too many: they were ready
    limits = RolloutLimits(concurrency=len(desktops), attempts=1)
    told = {"benchmark": "login", "environment": "login"}
    results = await rollout(ServedAgent(server), lambda: Remote(free), tasks, out=out, limits=limits, **told)
    rows = summarise([one.record for one in results], version="1", split="test", seed=SPLIT_SEED)
    write_summary(out / "summary.json", rows)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(os.environ["SLIPWAY_OUTPUTS"], "results")))
