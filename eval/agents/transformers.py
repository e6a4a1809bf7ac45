"""A vision-language model in this process, through transformers: one batched, left-padded `generate` for many episodes.

torch is imported when the agent is made, not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from eval.actions.geometry import Cells, Family, FrameName, smart_resize
from eval.agents.base import Decision, History, decide
from eval.config.models import source
from eval.desktop import Observation
from eval.prompts import PromptBuilder
from eval.prompts.marks import Marks
from eval.prompts.tokens import VISION_TOKENS


def _load(model: str, adapter: str | None, dtype: str, device: str | None) -> tuple[Any, Any]:
    name, where = source(model)
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(name, **where)
    loaded = AutoModelForImageTextToText.from_pretrained(name, dtype=dtype, **where)
    if adapter is not None:
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(loaded, adapter)
    return loaded.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), processor


class TransformersAgent:
    """Greedy decoding.

    model           a folder with the model and its processor, or hf://OWNER/NAME[@REVISION]; or (model, processor) in
                    memory, used where they are: the processor is set to pad on the left, the model to evaluation
    adapter         a PEFT adapter to put on it
    max_pixels      the largest area of an image after resizing; None leaves the processor's own (min_pixels likewise)
    batch_size      how many prompts go through the model at once
    record_tokens   gives the sampled token ids and their log probabilities with each decision
    frame           what the model's coordinates are, see TransformersConfig
    """

    parallel = 1

    def __init__(
        self,
        model: str | tuple[Any, Any],
        builder: PromptBuilder,
        *,
        name: str = "model",
        adapter: str | None = None,
        max_new_tokens: int = 64,
        batch_size: int = 64,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        dtype: str = "auto",
        device: str | None = None,
        record_tokens: bool = False,
        frame: FrameName = "normalised",
    ) -> None:
        """Raises ConfigError for a folder that is not there, and for a dialect that cannot say `frame`."""
        if frame != "normalised":
            builder.in_frame(Cells(1, 1))
        if isinstance(model, str):
            self.model, self.processor = _load(model, adapter, dtype, device)
        else:
            self.model, self.processor = model
        self.name = name
        self.builder = builder
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size
        self.record_tokens = record_tokens
        self.frame = frame
        self.device = self.model.device
        size = self.processor.image_processor.size
        if min_pixels is not None:
            size["shortest_edge"] = min_pixels
        if max_pixels is not None:
            size["longest_edge"] = max_pixels
        tokenizer = self.processor.tokenizer
        tokenizer.padding_side = "left"
        self.model.eval()
        vocabulary = tokenizer.get_vocab()
        self.suppressed = [vocabulary[token] for token in VISION_TOKENS if token in vocabulary]
        self.pad = tokenizer.pad_token_id

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return await asyncio.to_thread(self._act, observations, histories)

    def _act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        builders = [self._builder(observation) for observation in observations]
        prompts = [
            builder.ask(history.task, history.past, observation, history.demonstration)
            for builder, observation, history in zip(builders, observations, histories, strict=True)
        ]
        decisions: list[Decision] = []
        for start in range(0, len(prompts), self.batch_size):
            part = slice(start, start + self.batch_size)
            marks = [observation.marks for observation in observations[part]]
            decisions += self._generate(prompts[part], marks, builders[part])
        return decisions

    def _builder(self, observation: Observation) -> PromptBuilder:
        """The prompt builder, in the frame of the observation's image."""
        width, height = observation.image.size
        if self.frame == "normalised":
            return self.builder
        if self.frame == "smart-resized":
            images = self.processor.image_processor
            low, high = images.size["shortest_edge"], images.size["longest_edge"]  # areas, despite their names
            height, width = smart_resize(height, width, Family(images.patch_size * images.merge_size, low, high))
        return self.builder.in_frame(Cells(width, height))

    def _generate(
        self,
        prompts: Sequence[tuple[list[dict[str, Any]], list[Any]]],
        marks: Sequence[Marks],
        builders: Sequence[PromptBuilder],
    ) -> list[Decision]:
        import torch

        texts = [
            self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            for messages, _ in prompts
        ]
        batch = self.processor(
            text=texts, images=[images for _, images in prompts], padding=True, return_tensors="pt"
        ).to(self.device)
        with torch.inference_mode():
            out = self.model.generate(
                **batch,
                do_sample=False,
                max_new_tokens=self.max_new_tokens,
                suppress_tokens=self.suppressed or None,
                pad_token_id=self.pad,
                return_dict_in_generate=True,
                output_scores=self.record_tokens,
            )
        ids = out.sequences[:, batch["input_ids"].shape[1] :]
        texts = self.processor.batch_decode(ids, skip_special_tokens=True)
        decisions = [
            replace(decide(partial(builder.read_turn, marks=m), text), frame=builder.frame)
            for text, m, builder in zip(texts, marks, builders, strict=True)
        ]
        if not self.record_tokens:
            return decisions
        scores = torch.stack(out.scores, dim=1).float().log_softmax(-1)  # (batch, tokens, vocabulary)
        logprobs = scores.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        return [self._with_tokens(*row) for row in zip(decisions, ids.tolist(), logprobs.tolist(), strict=True)]

    def _with_tokens(self, decision: Decision, ids: list[int], logprobs: list[float]) -> Decision:
        """The tokens up to the end token, with it; the rest is padding."""
        ends = self.model.generation_config.eos_token_id
        stop = {ends} if isinstance(ends, int) else set(ends or ())
        n = next((i + 1 for i, token in enumerate(ids) if token in stop), len(ids))
        return replace(decision, token_ids=tuple(ids[:n]), logprobs=tuple(logprobs[:n]))
