"""Does slipway-cpu do what it is for: a tiny model, trained for one step through training.sft, as a job does.

Runs in the image, with a read-only root or not: `docker run --rm --entrypoint python slipway-cpu:TAG -m smoke`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from smoke_training import prepare, step, trained, versions


def main() -> int:
    versions("torch", "torchvision", "transformers", "trl", "peft", "datasets")
    with tempfile.TemporaryDirectory() as folder:
        model, episodes = prepare(Path(folder))
        config = {"model": str(model), "episodes": str(episodes), "steps": 1, "batch_size": 2}
        trained(step("one step of training.sft", "training.sft", config, Path(folder), "sft"))
    print("smoke: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
