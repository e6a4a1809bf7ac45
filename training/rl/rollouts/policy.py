"""The policy: the evaluation's agent, sampled, with everything of each answer that a loss needs.

Prompts, history windows, the budget of images and the parser are those of `eval.agents.transformers`. The tokens are
drawn by inversion: for each, one number that only the training's seed, the generation, the rollout and the turn decide.
So what is sampled does not depend on which answers share a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from eval.agents.base import Decision, History
from eval.agents.transformers import Prompt, Ready, TransformersAgent
from eval.desktop import Observation
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import Demonstration
from training.rl.rollouts.filters import SamplingFilters, seen_before


@dataclass(frozen=True)
class SampledTurn:
    """One answer and what was asked.

    prompt_ids  the prompt's tokens, those of its images among them, without padding
    images      its pictures, in the order of their places
    ids         the sampled tokens, the one that ended the answer among them; never tokenised again
    logprobs    of each sampled token, nats, at the temperature of the sampling
    cut         the answer reached its longest length without an end
    version     of the weights that sampled it, where they change while rollouts run
    """

    prompt_ids: tuple[int, ...]
    images: tuple[Any, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cut: bool = False
    version: int | None = None


@dataclass(frozen=True)
class PolicyQuestion(History):
    """A rollout's question.

    seat   the rollout's number in its generation: batches are in this order
    seed   of this answer's random numbers
    turns  where the answer is kept
    """

    seat: int = 0
    seed: str = ""
    turns: list[SampledTurn] = field(default_factory=list)


class _Draws:
    """Draws the tokens of one batch and keeps their log probabilities.

    The log probabilities are those that the loss computes: of the whole vocabulary, and with filters of what these
    leave. Suppressed tokens are never drawn. Without filters they have a share all the same, so that a drawn token is a
    little likelier than it tells, by the same share at each place.
    """

    def __init__(
        self,
        batch: Any,
        prompts: Sequence[Prompt],
        asked: Sequence[PolicyQuestion],
        sampling: float | SamplingFilters,
        suppressed: Sequence[int],
        ends: set[int],
        version: int | None = None,
    ) -> None:
        self.ids, self.mask = batch["input_ids"], batch["attention_mask"].bool()
        self.prompts = prompts
        self.asked = asked
        self.sampling = sampling
        self.suppressed = torch.tensor(list(suppressed), dtype=torch.long, device=self.ids.device)
        self.ends = ends
        self.version = version
        self.numbers = [random.Random(each.seed) for each in asked]
        self.logprobs: list[Tensor] = []  # (batch, 1) for each token

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        whole = self._whole(input_ids, scores)
        shares = whole.double().exp().index_fill(-1, self.suppressed, 0.0).cumsum(-1)
        at = torch.tensor([[number.random()] for number in self.numbers], dtype=torch.float64, device=scores.device)
        # the first place whose sum is above the number: never one without a share of its own
        token = torch.searchsorted(shares, at * shares[:, -1:], right=True).clamp(max=scores.shape[-1] - 1)
        self.logprobs.append(whole.gather(-1, token))
        return torch.full_like(scores, -torch.inf).scatter(-1, token, 0.0)

    def _whole(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(batch, V): the log probabilities of the next token."""
        if not isinstance(self.sampling, SamplingFilters):
            return (scores.float() / self.sampling).log_softmax(-1)
        seen = None
        if self.sampling.penalty != 1.0:
            answers = input_ids[:, self.ids.shape[1] :]
            answers = torch.nn.functional.pad(answers, (0, 1))  # the next one, which stands after itself
            seen = seen_before(self.ids, self.mask, answers, scores.shape[-1])[:, -1]
        return self.sampling.log_probabilities(scores, seen)

    def took(self, row: int, ids: Sequence[int]) -> None:
        likely = torch.stack([each[row, 0] for each in self.logprobs[: len(ids)]]).tolist()
        prompt = self.ids[row][self.mask[row]].tolist()
        cut = ids[-1] not in self.ends
        images = tuple(self.prompts[row][1])
        self.asked[row].turns.append(SampledTurn(tuple(prompt), images, tuple(ids), tuple(likely), cut, self.version))


class Policy(TransformersAgent):
    """Answers `PolicyQuestion` observations by sampling, and keeps each answer in its `turns`.

    model    (model, processor) in memory; the model is set to evaluation
    autocast the context in which the training computes
    filters  of the sampling; None: all tokens
    """

    version: int | None = None  # of the weights, where they change while rollouts run

    def __init__(
        self,
        model: tuple[Any, Any],
        builder: PromptBuilder,
        *,
        temperature: float,
        max_new_tokens: int,
        batch_size: int,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        filters: SamplingFilters | None = None,
    ) -> None:
        super().__init__(model, builder, name="policy", max_new_tokens=max_new_tokens, batch_size=batch_size)
        self.temperature = temperature
        self.autocast = autocast
        self.filters = filters and replace(filters, never=tuple(self.suppressed))

    def _act(
        self,
        observations: Sequence[Observation],
        histories: Sequence[History],
        ready: Ready = lambda *_: None,
        stopped: Any = None,
    ) -> list[Decision]:
        """In the order of the seats, whatever the order of asking."""
        order = sorted(range(len(histories)), key=lambda row: _asked(histories[row]).seat)
        seen, past = [observations[row] for row in order], [histories[row] for row in order]
        with self.autocast():
            decisions = super()._act(seen, past, lambda row, decision: ready(order[row], decision), stopped)
        back: dict[int, Decision] = dict(zip(order, decisions, strict=False))  # stopped: some are missing
        return [back[row] for row in sorted(back)]

    def prompt(
        self, observation: Observation, history: History, shown: Demonstration | None = None
    ) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """(token ids, pictures) of what a turn is asked, with the demonstration `shown`, as a rollout asks it."""
        messages, images = self._builder(observation).ask(history.task, history.past, observation, shown)
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        made = self.processor(text=[text], images=[images] if images else None, return_tensors="pt")
        return tuple(made["input_ids"][0].tolist()), tuple(images)

    def _draws(self, batch: Any, prompts: Sequence[Prompt], histories: Sequence[History]) -> _Draws:
        asked = [_asked(history) for history in histories]
        sampling = self.filters or self.temperature
        return _Draws(batch, prompts, asked, sampling, self.suppressed, self._ends(), self.version)


def _asked(history: History) -> PolicyQuestion:
    if not isinstance(history, PolicyQuestion):
        raise TypeError("a policy keeps what it samples: ask it with PolicyQuestion")
    return history
