"""One process of a GRPO training, as training.grpo runs it; writes the digest of its weights to digest-RANK."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from eval import config as configuration
from training import grpo
from training.grpo_config import GrpoConfig
from training.rewards import Attempt


def variety(attempts: Sequence[Attempt]) -> list[float | None]:
    """How many different characters an answer has."""
    return [len(set(attempt.text)) / 20 for attempt in attempts]


def main(config: Path, out: Path) -> None:
    made = []
    build = grpo.make_trainer

    def kept(*given: object) -> object:
        made.append(build(*given))  # type: ignore[arg-type]
        return made[0]

    grpo.make_trainer = kept  # type: ignore[assignment]
    assert grpo.train(configuration.load(config, GrpoConfig), out, None)
    (trainer,) = made
    digest = hashlib.sha256()
    for name, value in sorted(trainer.accelerator.unwrap_model(trainer.model).state_dict().items()):
        digest.update(name.encode() + value.detach().numpy().tobytes())
    sampled = [attempt.text for _, attempt in trainer.tally.attempts]
    (out / f"digest-{os.environ['RANK']}").write_text(f"{digest.hexdigest()}\n{sampled!r}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
