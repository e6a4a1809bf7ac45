"""Rollouts that take turns with updates, against rollouts beside them: python -m tests.bench.rl_async [--step 0.25]
[--updates 24] [--staleness 1 2 4]

A model of fixed latency: each call of it takes MODEL_S, however many questions it has, one call after the other, as
transformers in the worker; or each question for itself, as vLLM. Simulated desktops take so many seconds for each of
some steps, 4 to 12 by the task, and an update takes TRAIN_S. All three only sleep, so a busy machine matters little. As
many desktops in both.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import Final

from eval.desktop import Task
from eval.rollout.loop import RolloutLimits
from tests.integration.rl.simulated import (
    Clicking,
    Endless,
    FaultyDesktop,
    Ledger,
    NoWeights,
    ThreadWorker,
    simulated_config,
)
from training.rl.asynchronous.rollout_queue import ages
from training.rl.asynchronous.rollouts import RolloutCollector
from training.rl.rollouts.play import generate
from training.rl.rollouts.waiting_times import WaitingTimes
from training.rl.sections import AsyncConfig

MODEL_S: Final = 0.5
TRAIN_S: Final = 4.0
GROUPS: Final = 4
SIZE: Final = 4


class Apart(Clicking):
    """Answers each question for itself, all of them at once."""

    parallel = GROUPS * SIZE
    batch_size = 1


class Mixed(Endless):
    """Tasks of 4 to 12 steps."""

    def further(self, count: int) -> list[Task]:
        found = super().further(count)
        lengths = [random.Random(f"steps {task.seed}").randint(4, 12) for task in found]
        return [
            Task(task.task_id, task.instruction, task.seed, max_steps=long)
            for task, long in zip(found, lengths, strict=True)
        ]


def row(updates: int, name: str, took: float, trained: float, told: dict[str, float], staleness: str) -> str:
    count = updates * GROUPS * SIZE
    idle = 1 - trained / took
    shares = " | ".join(f"{100 * each:.0f} %" for each in (idle, told["model_idle"], told["desktop_idle"]))
    return f"| {name} | {took:.1f} s | {count / took:.2f} | {shares} | {staleness} |"


def desktops(ledger: Ledger, step: float) -> FaultyDesktop:
    return FaultyDesktop(ledger, random.Random(0), 0.0, step)


def in_turns(policy: Clicking, step: float, updates: int) -> str:
    chosen = simulated_config(
        tasks_per_generation=GROUPS, group_size=SIZE, limits=RolloutLimits(concurrency=GROUPS * SIZE)
    )
    tasks, ledger = Mixed(SIZE), Ledger()
    begun, asked, rollouts, waiting = time.perf_counter(), 0.0, 0.0, 0.0
    for number in range(updates):
        made = generate(policy, lambda: desktops(ledger, step), tasks.further(GROUPS), chosen, number)
        asked, rollouts, waiting = (
            before + now
            for before, now in zip(
                (asked, rollouts, waiting),
                (made.times.asked, made.times.rollouts, made.times.waiting),
                strict=True,
            )
        )
        time.sleep(TRAIN_S)
    took = time.perf_counter() - begun
    told = WaitingTimes(took, asked, took * GROUPS * SIZE, took * GROUPS * SIZE - (rollouts - waiting)).since(
        WaitingTimes()
    )
    return row(updates, "in turns", took, updates * TRAIN_S, told, "0")


def beside(policy: Clicking, step: float, updates: int, staleness: int) -> str:
    chosen = simulated_config(
        tasks_per_generation=GROUPS,
        group_size=SIZE,
        limits=RolloutLimits(concurrency=GROUPS * SIZE),
        asynchronous=AsyncConfig(staleness=staleness),
        steps=updates,
    )
    ledger, found = Ledger(), list[int]()
    worker = lambda: ThreadWorker(policy, lambda: desktops(ledger, step), chosen)  # noqa: E731
    collector = RolloutCollector(chosen, Mixed(SIZE), NoWeights(), worker)
    begun = time.perf_counter()
    for number in range(updates):
        found += ages(collector.collect(number), number)
        time.sleep(TRAIN_S)
    took, times = time.perf_counter() - begun, collector.times
    collector.close()
    assert collector.queue is not None
    # of all seats: also those that have nothing to play
    seats = times.wall * GROUPS * SIZE
    told = WaitingTimes(times.wall, times.asked, seats, seats - (times.rollouts - times.waiting)).since(WaitingTimes())
    told_age = f"{sum(found) / len(found):.2f}, {collector.queue.tally.aged} rollouts too old"
    return row(updates, f"beside, staleness {staleness}", took, updates * TRAIN_S, told, told_age)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=float, default=0.25, help="seconds of a desktop's step")
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--staleness", type=int, nargs="+", default=[1, 2, 4], help="updates that weights may be old")
    given = parser.parse_args()
    print(f"{given.updates} updates of {GROUPS} groups of {SIZE}; model {MODEL_S:g} s a call,")
    print(f"desktops {given.step:g} s a step, update {TRAIN_S:g} s; load {os.getloadavg()[0]:.0f}\n")
    print(
        "| | took | rollouts/s | trainer idle | model idle | desktops idle | mean staleness |\n"
        "|---|---|---|---|---|---|---|"
    )
    for how, policy in (("apart", Apart), ("one call", Clicking)):
        print(f"{how}: {in_turns(policy(MODEL_S), given.step, given.updates)}", flush=True)
        for staleness in given.staleness:
            print(f"{how}: {beside(policy(MODEL_S), given.step, given.updates, staleness)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
