from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.desktop import Observation, Task
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.waiting import HANGS
from tests.unit.eval.doubles import Counting, Saying
from tests.unit.eval.test_rollout import EXPERT, make


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Counting.started.clear()
    Counting.open = Counting.most_open = 0
    yield
    assert Counting.open == 0, "a desktop was not closed"


def test_slow_desktops_do_not_hold_up_the_others(tmp_path: Path) -> None:
    """A batch leaves as soon as someone waits; an episode that is busy for long joins a later one."""

    class Slow(Counting):
        async def step(self, action: object) -> Observation:
            assert self.task is not None
            if self.task.task_id == "t0":
                await asyncio.sleep(0.1)
            return await super().step(action)  # type: ignore[arg-type]

    agent = Saying(*EXPERT)
    limits = RolloutLimits(concurrency=2, backoff=0.0)
    asyncio.run(rollout(agent, Slow, make(2), out=tmp_path, benchmark="b", environment="e", limits=limits))
    assert agent.batches[0] == 2
    assert 1 in agent.batches
    assert sum(agent.batches) == 8


def test_a_spare_desktop_is_ready_before_the_one_in_use_has_ended(tmp_path: Path) -> None:
    """The first step of task 0 waits until desktop 1 is ready and task 2 has had every chance to begin."""
    ready = asyncio.Event()
    acting: set[str] = set()
    held, most = 0.0, 0

    class Prepared(Counting):
        async def reset(self, task: Task, seed: int) -> Observation:
            observation = await super().reset(task, seed)
            if task.task_id == "t1":
                ready.set()
            return observation

        async def step(self, action: object) -> Observation:
            nonlocal held, most
            assert self.task is not None
            acting.add(self.task.task_id)
            most = max(most, len(acting))
            if self.task.task_id == "t0" and not held:
                async with asyncio.timeout(HANGS):
                    await ready.wait()
                since = time.monotonic()
                await asyncio.sleep(0.2)
                assert set(Counting.started) == {"t0", "t1"}
                held = time.monotonic() - since
            return await super().step(action)  # type: ignore[arg-type]

        async def score(self) -> Any:
            assert self.task is not None
            acting.discard(self.task.task_id)
            return await super().score()

    began = time.monotonic()
    limits = RolloutLimits(concurrency=1, spares=1, backoff=0.0)
    rollouts = rollout(Saying(*EXPERT), Prepared, make(3), out=tmp_path, benchmark="b", environment="e", limits=limits)
    results = asyncio.run(rollouts)
    took = time.monotonic() - began
    assert [result.record.success for result in results] == [True] * 3
    assert (most, Counting.most_open) == (1, 2)
    assert results[1].record.duration_ms <= 1000 * (took - held) + 1  # the time for which it only waited is not its own
