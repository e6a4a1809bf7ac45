"""How long 16 rollouts take at once, against one by itself: python -m tests.bench.rl_rollouts

Simulated desktops take STEP_S for each of STEPS actions and show a fixed picture; the model answers at once. So one
rollout takes STEPS x STEP_S at least. The smallest group has two.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Final

from PIL import Image

from eval.actions import Action
from eval.desktop import Observation, Score, Task
from tests.integration.rl.test_rollouts import Fixed, config
from training.rl.rollouts.play import generate

STEP_S: Final = 0.25
STEPS: Final = 20
COUNT: Final = 16
SHOWN: Final = Observation(Image.new("RGB", (96, 96)), (96, 96))


class Simulated:
    async def reset(self, task: Task, seed: int) -> Observation:
        return SHOWN

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(STEP_S)
        return SHOWN

    async def score(self) -> Score:
        return Score(0.0, False)

    async def close(self) -> None:
        pass


def took(count: int, batching: str) -> float:
    """Seconds of one generation of `count` rollouts, starting and closing included."""
    chosen = config(tasks_per_generation=1, group_size=count, batching=batching)
    begun = time.perf_counter()
    generate(Fixed(), Simulated, [Task("slow", "", max_steps=STEPS)], chosen, 0)
    return time.perf_counter() - begun


def main() -> int:
    print(f"desktops of {STEP_S:g} s a step, {STEPS} steps, load {os.getloadavg()[0]:.0f}\n")
    print(f"| batching | 2 rollouts | 16 rollouts | 16 rollouts / {STEPS * STEP_S:g} s |\n|---|---|---|---|")
    took(2, "ready")  # loads what the first one loads
    for batching in ("together", "ready"):
        few, many = took(2, batching), took(COUNT, batching)
        print(f"| {batching} | {few:.2f} s | {many:.2f} s | {many / (STEPS * STEP_S):.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
