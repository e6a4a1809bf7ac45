"""Runs examples/serve/grpo_trl.py on the CPU with a tiny model whose answers are given:
`trl_run.py MODEL URL CLIENTS EPISODES`.

CLIENTS is the folder of packages that has OpenEnv's client, EPISODES the server's folder of episodes. Prints as JSON
the sha256 of the pixel values of each picture that the model got in its training steps, those of the recorded frames,
the rewards, and how many steps there were.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from itertools import count
from pathlib import Path
from typing import Any

ANSWERS = (
    '<tool_call>\n{"name": "click", "arguments": {"x": 0.5, "y": 0.25}}\n</tool_call><|im_end|>',
    '<tool_call>\n{"name": "done", "arguments": {}}\n</tool_call><|im_end|>',
    "It is done.<|im_end|>",
)


def values_of(inputs: dict[str, Any]) -> list[str]:
    """The sha256 of each picture's pixel values."""
    sizes = [int(grid.prod()) for grid in inputs["image_grid_thw"]]
    parts = inputs["pixel_values"].float().split(sizes)
    return [hashlib.sha256(part.contiguous().numpy().tobytes()).hexdigest() for part in parts]


def main(model: str, url: str, clients: str, episodes: str) -> None:
    sys.path.append(clients)  # after our own, which win
    from PIL import Image
    from transformers import AutoProcessor
    from trl import GRPOTrainer

    processor = AutoProcessor.from_pretrained(model)
    seen: set[str] = set()
    turn = count()

    def answered(self: Any, prompts: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        text = ANSWERS[next(turn) % len(ANSWERS)]
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [list(ids) for _ in prompts], None

    def trained(self: Any) -> None:
        def note(_: Any, __: Any, given: dict[str, Any]) -> None:
            seen.update(values_of(given))

        self.model.register_forward_pre_hook(note, with_kwargs=True)
        train(self)
        frames = [Image.open(path).convert("RGB") for path in sorted(Path(episodes).glob("*/*.png"))]
        recorded = values_of(dict(processor.image_processor(images=frames, return_tensors="pt")))
        rewards = [row["reward"] for row in self.state.log_history if "reward" in row]
        told = {"seen": sorted(seen), "recorded": sorted(set(recorded)), "rewards": rewards}
        print("told:", json.dumps({**told, "steps": self.state.global_step}), flush=True)

    train = GRPOTrainer.train
    GRPOTrainer._generate_single_turn = answered
    GRPOTrainer.train = trained
    sys.argv = ["grpo_trl.py", model, url, "--cpu"]
    runpy.run_path("examples/serve/grpo_trl.py", run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
