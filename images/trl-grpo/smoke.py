"""Does trl-grpo do what it is for: vLLM can be imported, and training.grpo makes a step with the tiny model on a CPU.

Runs in the image: `docker run --rm --entrypoint python trl-grpo:TAG -m smoke`. On a GPU it also makes one with vLLM in
the trainer's process (generation: backend vllm, mode colocate).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from smoke_training import prepare, step, trained, versions

ON_A_GPU: Final[dict[str, object]] = {"generation": {"backend": "vllm", "mode": "colocate", "memory": 0.2}}


def main() -> int:
    versions("torch", "transformers", "trl", "peft", "vllm")
    import torch
    import vllm  # the GPU build, where there may be none

    print(f"smoke: vllm {vllm.__version__} imported", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model, episodes = prepare(Path(folder))
        config: dict[str, Any] = {
            "model": str(model),
            "data": str(episodes),
            "rewards": [{"name": "format"}],
            "steps": 1,
            "batch_size": 4,
            "num_generations": 2,
            "max_completion": 8,
            "save_every": 1,
        }
        grpo = step("one step of training.grpo, transformers generates", "training.grpo", config, Path(folder), "grpo")
        trained(grpo)
        if torch.cuda.is_available():
            colocate = {**config, **ON_A_GPU}
            trained(step("one step, vLLM generates", "training.grpo", colocate, Path(folder), "vllm"))
        else:
            print("smoke: no GPU: vLLM's generation in the trainer's process was not tried", flush=True)
    print("smoke: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
