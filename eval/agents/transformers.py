"""A vision-language model in this process, through transformers: one batched, left-padded `generate` for many episodes.

Each answer is handed on when its last token is there, while `generate` goes on with the others of the batch: no episode
waits for the longest answer. torch is imported when the agent is made, not before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from eval.actions.geometry import Cells, Family, FrameName, smart_resize
from eval.agents.base import Decision, History, decide
from eval.config.importing import large_imports
from eval.config.models import source
from eval.desktop import Observation
from eval.prompts import PromptBuilder
from eval.prompts.marks import Marks
from eval.prompts.tokens import VISION_TOKENS

Ready = Callable[[int, Decision], None]
Prompt = tuple[list[dict[str, Any]], list[Any]]  # messages, and the images in the order of their places


class Draws(Protocol):
    """Draws the tokens of one batch of answers."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """The scores (batch, vocabulary) in which the drawn token of each row is the largest."""
        ...

    def took(self, row: int, ids: Sequence[int]) -> None:
        """Called once for each row: the ids of its answer, with the one that ended it."""
        ...


def _numbered(ready: Ready, start: int, row: int, decision: Decision) -> None:
    """Tells of a row of a batch that begins at observation `start`."""
    ready(start + row, decision)


def _load(model: str, adapter: str | None, dtype: str, device: str | None) -> tuple[Any, Any]:
    name, where = source(model)
    with large_imports():
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

    async def each(
        self, observations: Sequence[Observation], histories: Sequence[History]
    ) -> AsyncGenerator[tuple[int, Decision]]:
        """(number of the observation, its decision) as they get ready. Closed early, it ends the generation, too."""
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[tuple[int, Decision] | None] = asyncio.Queue()
        stopped = threading.Event()

        def ready(number: int, decision: Decision) -> None:
            loop.call_soon_threadsafe(came.put_nowait, (number, decision))

        working = asyncio.ensure_future(asyncio.to_thread(self._act, observations, histories, ready, stopped))
        working.add_done_callback(lambda _: came.put_nowait(None))
        try:
            while (item := await came.get()) is not None:
                yield item
            await working  # raises what went wrong
        finally:
            stopped.set()
            await asyncio.gather(working, return_exceptions=True)

    def _act(
        self,
        observations: Sequence[Observation],
        histories: Sequence[History],
        ready: Ready = lambda *_: None,
        stopped: threading.Event | None = None,
    ) -> list[Decision]:
        builders = [self._builder(observation) for observation in observations]
        prompts = [
            builder.ask(history.task, history.past, observation, history.demonstration)
            for builder, observation, history in zip(builders, observations, histories, strict=True)
        ]
        decisions: list[Decision] = []
        for start in range(0, len(prompts), self.batch_size):
            part = slice(start, start + self.batch_size)
            marks = [observation.marks for observation in observations[part]]
            if stopped is not None and stopped.is_set():
                break
            numbered = partial(_numbered, ready, start)
            decisions += self._generate(prompts[part], marks, builders[part], numbered, stopped, histories[part])
        return decisions

    def _draws(self, batch: Any, prompts: Sequence[Prompt], histories: Sequence[History]) -> Draws | None:
        """How the tokens of a batch are drawn; None: the likeliest ones."""
        return None

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
        prompts: Sequence[Prompt],
        marks: Sequence[Marks],
        builders: Sequence[PromptBuilder],
        ready: Ready = lambda *_: None,
        stopped: threading.Event | None = None,
        histories: Sequence[History] = (),
    ) -> list[Decision]:
        """One decision per prompt. `ready` is called with each, by its row, when it is there; `stopped` ends early."""
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        texts = [
            self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            for messages, _ in prompts
        ]
        shown = [images for _, images in prompts]  # a prompt may show a tree in the place of pictures
        batch = self.processor(text=texts, images=shown if any(shown) else None, padding=True, return_tensors="pt").to(
            self.device
        )
        begun = batch["input_ids"].shape[1]
        ends = self._ends()
        draws = self._draws(batch, prompts, histories)
        # what draws its tokens suppresses for itself, and knows no penalty that a model's own settings name
        how: dict[str, Any] = {"suppress_tokens": self.suppressed or None}
        if draws is not None:
            how = {"logits_processor": LogitsProcessorList([draws]), "repetition_penalty": 1.0}
        decisions: dict[int, Decision] = {}

        def take(rows: Sequence[int], tokens: Any, scores: Sequence[Any]) -> None:
            """Makes the decisions of these rows; tokens: (batch, length), scores: one (batch, vocabulary) a token."""
            for row in rows:
                ids = tokens[row].tolist()
                text = self.processor.batch_decode([ids], skip_special_tokens=True)[0]
                read = decide(partial(builders[row].read_turn, marks=marks[row]), text)
                decision = replace(read, frame=builders[row].frame)
                n = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
                if draws is not None:
                    draws.took(row, ids[:n])
                elif self.record_tokens:
                    likely = [float(scores[i][row].float().log_softmax(-1)[ids[i]]) for i in range(n)]
                    decision = replace(decision, token_ids=tuple(ids[:n]), logprobs=tuple(likely))
                decisions[row] = decision
                ready(row, decision)

        def look(tokens: Any, scores: Any, **_: Any) -> Any:
            """Called after each token: hands on what has ended."""
            last = tokens[:, -1].tolist()
            take(
                [row for row, token in enumerate(last) if token in ends and row not in decisions],
                tokens[:, begun:],
                scores,
            )
            over = stopped is not None and stopped.is_set()
            return torch.full((tokens.shape[0],), over, dtype=torch.bool, device=tokens.device)

        with torch.inference_mode():
            out = self.model.generate(
                **batch,
                do_sample=False,
                max_new_tokens=self.max_new_tokens,
                **how,
                pad_token_id=self.pad,
                return_dict_in_generate=True,
                output_scores=self.record_tokens,
                stopping_criteria=StoppingCriteriaList([look]),
            )
        # answers that were cut off at their longest
        take([row for row in range(len(prompts)) if row not in decisions], out.sequences[:, begun:], out.scores or ())
        return [decisions[row] for row in range(len(prompts))]

    def _ends(self) -> set[int]:
        """The tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return {ends} if isinstance(ends, int) else set(ends or ())
