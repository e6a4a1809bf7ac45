"""The gate: the loss sees what the rollouts saw, or the training stops.

For every turn, the mean absolute difference (nats) between the log probabilities of its tokens at the rollout and those
that the loss computes from the kept ids and pictures, with the same weights. Swapped or missing pictures, other ids and
another temperature all show here. A training that went on would learn from probabilities that no policy had.

The loss's log probabilities are computed before anything else, or they are those of the gradient's own forward, where
nothing needs them earlier (`waits`). Then the optimiser waits for the gate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.config import ConfigError
from training.rl.config import RlConfig
from training.rl.learning.turn_records import TurnRecord, learnt

NAMED = 20  # turns that gate.json names, the worst first


@dataclass(frozen=True)
class Gap:
    """
    where  the turn
    mean   of the tokens' absolute differences, nats; infinite where one is no number
    most   the largest
    """

    where: str
    tokens: int
    mean: float
    most: float


@dataclass(frozen=True)
class GateSettings:
    """
    tolerance  of a turn's mean difference, nats
    file       gate.json
    """

    tolerance: float
    file: Path


def waits(records: Sequence[TurnRecord], config: RlConfig, quantile: float) -> bool:
    """Whether the gate can look at the log probabilities of the gradient's own forward, because nothing before it reads
    them, all of a generation's turns are in it, and no step comes between.

    records   before turns are left out for their length
    quantile  the share of the tokens, those of the highest entropy, whose terms are kept
    """
    read = (
        config.period > 1
        or config.advantage == "gae"
        or config.entropy_share < 1.0
        or quantile < 1.0
        or any(each is not None for each in (config.sdpo, config.kl, config.replay, config.asynchronous))
    )
    left_out = any(each.masked is not None or (config.mask_truncated and each.turn.cut) for each in records)
    return not read and not left_out


def passed(records: Sequence[TurnRecord], settings: GateSettings) -> dict[str, Any]:
    """The stage: compares the turns of a generation that are in the loss, not those of replayed successes, which other
    weights sampled, nor those of older weights that were not computed again. Gives what gate.json tells. Raises
    ConfigError."""
    gaps = [
        gap(record.where, record.turn.logprobs, record.then)
        for record in learnt(records)
        if record.then and not record.played.replayed
    ]
    return check(gaps, settings.tolerance, records[0].made.number, settings.file)


def gap(where: str, rollout: Sequence[float], loss: Sequence[float]) -> Gap:
    """Of one turn. Raises ValueError for lists of different lengths: nothing is cut or filled with zeros."""
    apart = [abs(a - b) for a, b in zip(rollout, loss, strict=True)]
    apart = [math.inf if math.isnan(each) else each for each in apart]
    return Gap(where, len(apart), math.fsum(apart) / len(apart), max(apart))


def check(gaps: Sequence[Gap], tolerance: float, generation: int, file: Path) -> dict[str, Any]:
    """Writes the comparison of a generation into `file`, and gives it. Raises ConfigError when a turn is outside."""
    outside = sorted((each for each in gaps if not each.mean <= tolerance), key=lambda each: -each.mean)
    tokens = sum(each.tokens for each in gaps)
    told = {
        "schema": 1,
        "generation": generation,
        "turns": len(gaps),
        "tokens": tokens,
        "mean": math.fsum(each.mean * each.tokens for each in gaps) / tokens,
        "most": max(each.most for each in gaps),
        "tolerance": tolerance,
        "outside": len(outside),
        "worst": [asdict(each) for each in outside[:NAMED]],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(json.dumps(_finite(told), indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    if outside:
        named = "; ".join(f"{each.where}: {each.mean:.3g}" for each in outside[:3])
        raise ConfigError(
            f"gate: generation {generation}: the loss does not see what the rollouts saw: in {len(outside)} of "
            f"{len(gaps)} turns the log probabilities differ by more than {tolerance:g} nats a token: {named}"
        )
    return told


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
