"""One process of an SFT whose evaluations get chosen scores; writes what it ends with to end-RANK.json.

With a third argument each process has a disk of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from eval import config as configuration
from eval.scores.stats import Estimate
from tests.integration.training.grpo_rank import digest
from training.common.measuring import callbacks
from training.common.measuring.measured_weights import KeptWeights
from training.sft import train as sft

SCORES = iter((0.5, 0.75, 0.25))  # the second is the best, the last is not


def main(config: Path, out: Path, own_disk: bool) -> None:
    rank, best = os.environ["RANK"], callbacks.take_weights

    def chosen(*given: Any) -> dict[str, Estimate]:
        score = next(SCORES)
        return {"exact": Estimate(score, score, score, 4)}

    def taken(trainer: Any, *given: Any) -> KeptWeights:
        kept = best(trainer, *given)
        weights = digest(trainer.accelerator.unwrap_model(trainer.model))
        end = {"weights": weights, "rows": msgspec.to_builtins(kept.rows)}
        (out / f"end-{rank}.json").write_text(json.dumps(end))
        return kept

    callbacks.evaluate = chosen
    callbacks.take_weights = taken
    assert sft.train(configuration.load(config, sft.SftConfig), out / rank if own_disk else out, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), len(sys.argv) > 3)
