"""A policy whose tokens vLLM draws: the same prompts, parser and kept tokens as `training.rl.rollouts.policy`.

Each question goes to vLLM by itself, which batches what runs. The ids of the prompt that vLLM ran are compared with
those that the loss will see, for every answer: what cannot be proved ends the training.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from eval.agents.base import Decision, History, decide
from eval.config import ConfigError
from eval.config.models import source
from eval.desktop import Observation
from eval.prompts import Message
from eval.prompts.tokens import VISION_TOKENS
from training.common.vllm_prompts import check_prompt_ids
from training.rl.config import RlConfig
from training.rl.rollouts.policy import PolicyQuestion, SampledTurn
from training.rl.vllm_config import FIELD


@dataclass(frozen=True)
class TokenPrompt:
    """
    ids       the prompt's tokens, all those of its images among them
    images    in the order of their places
    messages  the same prompt before the chat template
    seed      of the answer's random numbers
    """

    ids: tuple[int, ...]
    images: tuple[Any, ...]
    messages: list[Message]
    seed: int


@dataclass(frozen=True)
class TokenAnswer:
    """
    prompt_ids  that the sampler ran; None: it does not tell
    ids         sampled, with the one that ended the answer
    logprobs    of each, nats
    version     of the weights that sampled all of them
    """

    prompt_ids: Sequence[int] | None
    ids: Sequence[int]
    logprobs: Sequence[float]
    version: int


class TokenSampler(Protocol):
    """Samples answers. `who` names it in texts."""

    who: str

    def follow(self, version: int, file: str) -> None:
        """Answers to questions that come from now on are of these weights, or of newer ones."""
        ...

    async def sample(self, prompt: TokenPrompt) -> TokenAnswer: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class TokenRules:
    """What every answer is sampled by.

    suppressed  token ids that are never drawn; ends: those that end an answer
    bounds      of an image's area, as vLLM's mm_processor_kwargs
    """

    max_tokens: int
    temperature: float
    suppressed: tuple[int, ...]
    ends: tuple[int, ...]
    image_token: int
    bounds: dict[str, int]


class VllmPolicy:
    """Answers `PolicyQuestion` observations, and keeps each answer in its `turns`. `parallel`: answers at once."""

    name = "policy"
    batch_size = 1  # vLLM makes its own batches: no question waits for another

    def __init__(
        self, sampler: TokenSampler, processor: Any, config: RlConfig, rules: TokenRules, parallel: int
    ) -> None:
        self.sampler = sampler
        self.processor = processor
        self.builder = config.prompt.builder()
        self.rules = rules
        self.parallel = parallel

    def follow(self, version: int, file: str) -> None:
        self.sampler.follow(version, file)

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        asked = zip(observations, histories, strict=True)
        return list(await asyncio.gather(*(self._answer(observation, history) for observation, history in asked)))

    async def _answer(self, observation: Observation, history: History) -> Decision:
        if not isinstance(history, PolicyQuestion):
            raise TypeError("a policy keeps what it samples: ask it with PolicyQuestion")
        prompt = await asyncio.to_thread(self._prompt, observation, history)
        answer = await self.sampler.sample(prompt)
        check_answer(prompt, answer, self.rules, self.sampler.who)
        ids = tuple(answer.ids)
        text = self.processor.batch_decode([list(ids)], skip_special_tokens=True)[0]
        decision = decide(partial(self.builder.read_turn, marks=observation.marks), text)
        cut = ids[-1] not in self.rules.ends
        history.turns.append(
            SampledTurn(prompt.ids, prompt.images, ids, tuple(answer.logprobs), cut, version=answer.version)
        )
        return replace(decision, frame=self.builder.frame)

    def _prompt(self, observation: Observation, history: PolicyQuestion) -> TokenPrompt:
        messages, images = self.builder.ask(history.task, history.past, observation, history.demonstration)
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.processor(text=[text], images=[images] if images else None)["input_ids"][0]
        seed = random.Random(history.seed).getrandbits(31)
        return TokenPrompt(tuple(map(int, ids)), tuple(images), messages, seed)

    def close(self) -> None:
        self.sampler.close()


def check_answer(prompt: TokenPrompt, answer: TokenAnswer, rules: TokenRules, who: str) -> None:
    """Raises ConfigError for an answer to another prompt, or with a suppressed token; ValueError for one that is not
    whole."""
    check_prompt_ids(prompt.ids, answer.prompt_ids, rules.image_token, who, FIELD)
    if bad := [token for token in answer.ids if token in rules.suppressed]:
        raise ConfigError(f"{FIELD}: {who} sampled the token {bad[0]}, although logit_bias suppresses it")
    if not answer.ids or len(answer.ids) != len(answer.logprobs):
        raise ValueError(f"{who}: {len(answer.logprobs)} log probabilities for {len(answer.ids)} tokens")
    if len(answer.ids) < rules.max_tokens and answer.ids[-1] not in rules.ends:
        raise ValueError(f"{who}: an answer of {len(answer.ids)} tokens without an end")
    if odd := [each for each in answer.logprobs if not math.isfinite(each)]:
        raise ValueError(f"{who}: a log probability is {odd[0]}")


def token_rules(config: RlConfig, processor: Any) -> TokenRules:
    """Of a model's folder or name, without loading its weights. Raises ConfigError."""
    from training.common.vllm_prompts import processor_bounds

    card, ends = _settings(config.model)
    vocabulary = processor.tokenizer.get_vocab()
    return TokenRules(
        max_tokens=config.max_completion,
        temperature=config.temperature,
        suppressed=tuple(vocabulary[token] for token in VISION_TOKENS if token in vocabulary),
        ends=ends,
        image_token=int(card.image_token_id),
        bounds=processor_bounds(processor),
    )


def _settings(model: str) -> tuple[Any, tuple[int, ...]]:
    """(configuration, tokens that end an answer), as transformers takes them for the model itself."""
    from transformers import AutoConfig, GenerationConfig

    from training.common.model.loading import reading

    name, where = source(model)
    with reading(model, "its configuration"):
        card = AutoConfig.from_pretrained(name, **where)
    try:
        settings = GenerationConfig.from_pretrained(name, **where)
    except OSError:
        settings = GenerationConfig.from_model_config(card)
    ends = settings.eos_token_id
    return card, (ends,) if isinstance(ends, int) else tuple(ends or ())
