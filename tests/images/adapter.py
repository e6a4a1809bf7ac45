"""A LoRA adapter of a model folder, with weights far from none: `python adapter.py MODEL OUT`."""

from __future__ import annotations

import sys
from typing import Any


def make(model: str, out: str) -> None:
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    loaded: Any = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(0)
    layers = r".*language_model.*(q_proj|v_proj|down_proj)"
    wanted = peft.LoraConfig(r=8, lora_alpha=32, target_modules=layers, init_lora_weights=False)
    peft.get_peft_model(loaded, wanted).save_pretrained(out)


if __name__ == "__main__":
    make(*sys.argv[1:])
