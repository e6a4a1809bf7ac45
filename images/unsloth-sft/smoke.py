"""Does unsloth-sft do what it is for: a step of the tiny model through training.sft; on a GPU also with Unsloth.

Runs in the image: `docker run --rm --entrypoint python unsloth-sft:TAG -m smoke` on a CPU, with `--gpus all` on a GPU:
there a LoRA step through `loader: unsloth` follows. `-m smoke MODEL` takes a real model's folder for it (the tiny one
has sizes that Unsloth's kernels were not made for).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from smoke_training import prepare, step, trained, versions

ON_A_GPU: Final[dict[str, object]] = {"loader": "unsloth", "precision": "bf16", "lora": {"rank": 8, "alpha": 16}}


def main(argv: list[str]) -> int:
    versions("torch", "transformers", "trl", "peft", "unsloth", "unsloth_zoo", "bitsandbytes")
    import torch

    with tempfile.TemporaryDirectory() as folder:
        model, episodes = prepare(Path(folder))
        config = {"model": str(model), "episodes": str(episodes), "steps": 1, "batch_size": 2}
        trained(step("one step of training.sft", "training.sft", config, Path(folder), "sft"))
        if torch.cuda.is_available():
            lora = {**config, "model": argv[0] if argv else str(model), **ON_A_GPU}
            trained(step("one LoRA step with Unsloth", "training.sft", lora, Path(folder), "unsloth"))
        else:
            # Unsloth refuses to be imported without a GPU unless this is set; it then does nothing but import.
            command = [sys.executable, "-c", "import unsloth"]
            environment = {**os.environ, "UNSLOTH_ALLOW_CPU": "1"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
            if done.returncode:
                raise SystemExit(f"smoke: import unsloth: {done.stderr[-2000:]}")
            print("smoke: unsloth imported; no GPU: its training step was not tried", flush=True)
    print("smoke: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
