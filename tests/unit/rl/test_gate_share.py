"""Which turns of older weights the gate computes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eval.environments.registry import TasksConfig
from training.rl.asynchronous.rollouts import AsyncRollouts
from training.rl.config import RlConfig
from training.rl.sections import AsyncConfig

pytestmark = pytest.mark.ml


def config(**changes: Any) -> RlConfig:
    tasks = TasksConfig(count=1, seed=0)
    return RlConfig(model="m", environment="login", tasks=tasks, steps=9, asynchronous=AsyncConfig(**changes))


ROWS = [SimpleNamespace(turn=SimpleNamespace(version=version)) for version in (5, 4, 3, 4, 4, 5, 4, 4, 4)]


class Measuring:
    """The trainer and its published weights: the log probability of a row is the version that is held."""

    def __init__(self) -> None:
        self.held = 5
        self.passes: Counter[int] = Counter()

    @contextmanager
    def at(self, version: int) -> Iterator[None]:
        self.held = version
        yield
        self.held = 5

    def log_probabilities(self, rows: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        assert all(row.turn.version == self.held for row in rows)
        self.passes[self.held] += len(rows)
        lines = [torch.tensor([float(self.held)]) for _ in rows]
        return lines, lines


@pytest.mark.parametrize(("share", "passes"), [(1.0, {4: 6, 3: 1}), (0.25, {4: 2, 3: 1})])
def test_a_share_of_each_older_version_and_one_at_least(share: float, passes: dict[int, int]) -> None:
    trainer = Measuring()
    rollouts = AsyncRollouts(trainer, config(gate_share=share), None)  # type: ignore[arg-type]
    rollouts.weights = trainer  # type: ignore[assignment]
    now = [torch.tensor([float(5)]) for _ in ROWS]
    found = rollouts.at_sampling(ROWS, now, 5)  # type: ignore[arg-type]
    assert trainer.passes == passes
    compared = [None if line is None else int(line) for line in found]
    assert [each for each in compared if each == 5] == [5, 5]
    assert all(each in (None, row.turn.version) for each, row in zip(compared, ROWS, strict=True))
    assert Counter(each for each in compared if each not in (None, 5)) == passes


def test_other_turns_are_drawn_for_each_update() -> None:
    rows = [SimpleNamespace(turn=SimpleNamespace(version=4)) for _ in range(40)]
    trainer = Measuring()
    rollouts = AsyncRollouts(trainer, config(gate_share=0.25), None)  # type: ignore[arg-type]
    rollouts.weights = trainer  # type: ignore[assignment]
    now = [torch.tensor([0.0]) for _ in rows]
    drawn = [
        {place for place, line in enumerate(rollouts.at_sampling(rows, now, number)) if line is not None}  # type: ignore[arg-type]
        for number in (5, 6)
    ]
    assert [len(each) for each in drawn] == [10, 10]
    assert drawn[0] != drawn[1]
