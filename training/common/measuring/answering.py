"""The agents that answer with a trained model: while it is trained, and when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval.agents.transformers import TransformersAgent
from training.common.model.loading import load_processor


def agents_in_memory(config: Any) -> Callable[[Any], TransformersAgent]:
    """Makes an agent of a model in memory. `config`: of a trainer with `prompt` and `max_new_tokens`."""
    # its own processor: an agent pads on the other side than a trainer
    processor = load_processor(config.model, config.max_pixels, config.min_pixels)
    builder = config.prompt.builder()

    def agent(model: Any) -> TransformersAgent:
        return TransformersAgent((model, processor), builder, name="trained", max_new_tokens=config.max_new_tokens)

    return agent


def final_agent(trainer: Any, config: Any, out: Path) -> TransformersAgent:
    """An agent over what a finished training saved: model/, which has its own processor.

    A quantised model has no model/. Where it is whole it answers from memory, quantised as it was trained: a second
    model would need its memory again. A sharded one is loaded anew, with its adapter.
    """
    builder, longest = config.prompt.builder(), config.max_new_tokens
    if (out / "model").is_dir():
        return TransformersAgent(str(out / "model"), builder, max_new_tokens=longest)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        return agents_in_memory(config)(model)
    return TransformersAgent(
        config.model,
        builder,
        adapter=str(out / "adapter"),
        max_new_tokens=longest,
        min_pixels=config.min_pixels,
        max_pixels=config.max_pixels,
    )
