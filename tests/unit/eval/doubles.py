"""A desktop that counts, and one that breaks as told; both real Desktops, without pixels that matter."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Decision, History, decide
from eval.config import Config, convert
from eval.desktop import BrokenByAgent, DesktopGone, Expected, NotRunHere, Observation, Score, SetupFailed, Task

SIZE = 20
BOX = (0.4, 0.4, 0.2, 0.2)
CLICK = Action(ActionType.CLICK, x=0.5, y=0.5)
DONE = Action(ActionType.DONE)


class Counting:
    """Three clicks into the box, then done. The red of a frame is the number of clicks times 50."""

    started: ClassVar[Counter[str]] = Counter()  # task -> resets, over all instances of a test
    open = 0
    most_open = 0

    def __init__(self) -> None:
        self.hits = self.steps = 0
        self.ended = False
        self.task: Task | None = None

    async def reset(self, task: Task, seed: int) -> Observation:
        Counting.started[task.task_id] += 1
        Counting.open += 1
        Counting.most_open = max(Counting.most_open, Counting.open)
        self.task = task
        await self._fault("reset")
        return self.look()

    async def _fault(self, where: str) -> None:
        """`options` {fault: reset|step|score|hang|setup, times: N}: the first N starts of the task fail there."""
        assert self.task is not None
        options = self.task.options
        if Counting.started[self.task.task_id] > options.get("times", 99):
            return
        if options.get("fault") == where:
            raise DesktopGone(f"{where} failed")
        if options.get("fault") == "setup" and where == "reset":
            raise SetupFailed("no start state")
        if options.get("fault") == "not here" and where == "reset":
            raise NotRunHere("no program here")
        if options.get("fault") == f"agent {where}":
            raise BrokenByAgent(f"the agent broke the {where}")
        if options.get("fault") == f"code {where}":
            print(1 // 0)
        if options.get("fault") == "hang" and where == "step":
            await asyncio.Event().wait()

    def look(self) -> Observation:
        image = Image.new("RGB", (SIZE, SIZE), (min(self.hits, 5) * 50, 0, 0))
        expected = Expected(CLICK, BOX) if self.hits < 3 else Expected(DONE)
        assert self.task is not None
        return Observation(image, (SIZE, SIZE), expected=expected, done=self.hits >= self.task.options.get("ends", 99))

    async def step(self, action: Action) -> Observation:
        self.steps += 1
        if self.steps > 1:
            await self._fault("step")
        self.ended = action.type is ActionType.DONE
        self.hits += Expected(CLICK, BOX).matches(action)
        return self.look()

    async def score(self) -> Score:
        await self._fault("score")
        assert self.task is not None
        ended = self.ended or self.task.options.get("judged") == "state"
        return Score(min(self.hits, 3) / 3, self.hits >= 3 and ended)

    async def close(self) -> None:
        Counting.open -= 1
        await self._fault("close")


class Options(Config, frozen=True):
    hard: bool = False


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    convert(options, Options, "options")
    return [Task(f"count-{i}", "Click three times", seed + i) for i in range(count)]


def desktop(options: Mapping[str, Any]) -> Counting:
    return Counting()


class WithoutExpert(Counting):
    """The same tasks, where nobody says what an expert would do."""

    tasks = staticmethod(tasks)

    @staticmethod
    def desktop(options: Mapping[str, Any]) -> Counting:
        return WithoutExpert()

    def look(self) -> Observation:
        return replace(super().look(), expected=None)


class Saying:
    """Answers each step of an episode with the next of the given texts, the last one again and again."""

    name = "saying"
    parallel = 1

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.batches: list[int] = []

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        self.batches.append(len(observations))
        await asyncio.sleep(0)
        parse = Dsl(2).parse_response
        return [decide(parse, self.texts[min(len(h.past), len(self.texts) - 1)]) for h in histories]
