"""Which configurations and generations let the gate wait for the gradient's own forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eval.environments.registry import TasksConfig
from tests.unit.rl.drawn_generations import records_of
from tests.unit.rl.oracle import Rollout, Token, Turn
from training.rl.config import RlConfig
from training.rl.learning.gate import waits
from training.rl.learning.turn_records import UNFIT, TurnRecord
from training.rl.sections import AsyncConfig, CriticConfig, KlConfig, ReplayConfig, SdpoConfig

pytestmark = pytest.mark.ml


def records() -> list[TurnRecord]:
    """Two rollouts of two turns, none of them cut."""
    turn = Turn([Token([0.0, 1.0], 1, 0.0, 0.0, 0.0)])
    return records_of([[Rollout(0.0, [turn, turn]), Rollout(1.0, [turn, turn])]])


def later(given: Sequence[TurnRecord], quantile: float = 1.0, **changes: Any) -> bool:
    tasks = TasksConfig(count=1, seed=0)
    return waits(given, RlConfig(model="m", environment="login", tasks=tasks, steps=4, **changes), quantile)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"advantage": "per_turn", "gamma": 0.9},
        {"advantage": "gigpo"},
        {"rows": "trajectory"},
        {"loss": "grpo", "importance": "sequence"},
        {"loss": "sapo", "average": "tokens"},
        {"average": "constant", "scale_rewards": "none"},
        {"trl": {"entropy_coef": 0.1}},
        {"post_kl": True, "temperature": 0.7, "top_p": 0.9},
        {"most_groups": 9, "mask_truncated": True, "successes": 3},
    ],
    ids=str,
)
def test_it_waits_where_nothing_reads_the_log_probabilities_before(changes: dict[str, Any]) -> None:
    assert later(records(), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps_per_generation": 2},
        {"num_iterations": 2},
        {"advantage": "gae", "critic": CriticConfig()},
        {"entropy_share": 0.8},
        {"quantile": 0.2},
        {"kl": KlConfig(coefficient=0.1)},
        {"kl": KlConfig(coefficient=0.1, place="reward", estimator="k1")},
        {"replay": ReplayConfig()},
        {"asynchronous": AsyncConfig()},
        {"sdpo": SdpoConfig()},
        {"sdpo": SdpoConfig(solved="grpo")},
    ],
    ids=str,
)
def test_what_reads_them_before_there_is_a_coefficient_or_after_a_step_has_a_pass_of_its_own(
    changes: dict[str, Any],
) -> None:
    assert not later(records(), **changes)


def test_a_turn_that_is_left_out_of_the_loss_has_a_pass_of_its_own() -> None:
    """Whether it is left out before the gate, as one whose pictures do not fit, or after it."""
    given = records()
    assert not later([replace(given[0], masked=UNFIT), *given[1:]])
    cut = [replace(given[0], turn=replace(given[0].turn, cut=True)), *given[1:]]
    assert later(cut)
    assert not later(cut, mask_truncated=True)
