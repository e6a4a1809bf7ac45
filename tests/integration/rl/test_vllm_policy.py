"""The policy by vLLM asks and reads as the one by transformers; a sampler by a script in the place of vLLM."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.environments import login
from eval.prompts import PastStep
from tests.integration.rl.conftest import rl_config
from tests.integration.training import clicks
from training.common.model.loading import load_model, load_processor
from training.common.vllm_prompts import one_placeholder
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt, TokenRules, VllmPolicy, token_rules
from training.rl.rollouts.policy import Policy, PolicyQuestion
from training.rl.sections import AsyncConfig
from training.rl.vllm_config import SamplerConfig
from training.tiny import TinyConfig, build

pytestmark = pytest.mark.ml


@dataclass
class Scripted:
    """Answers with `ids`, as version 3."""

    ids: list[int] = field(default_factory=list)
    ran: list[int] | None = None  # another prompt than the one that was asked
    asked: list[TokenPrompt] = field(default_factory=list)
    who: str = "vLLM"

    def follow(self, version: int, file: str) -> None: ...

    async def sample(self, prompt: TokenPrompt) -> TokenAnswer:
        self.asked.append(prompt)
        return TokenAnswer(self.ran or prompt.ids, self.ids, [-0.5] * len(self.ids), 3)

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build(TinyConfig(episodes=str(clicks.episodes(32)), prompt=clicks.PROMPT), folder)
    return folder


def question() -> tuple[Observation, PolicyQuestion]:
    """The second turn of a task: two pictures."""
    task = login.tasks(1, 0, {"split": "train"})[0]
    screen = asyncio.run(login.LoginDesktop(login.LoginOptions(split="train")).reset(task, 0))
    past = PastStep(Action(ActionType.CLICK, x=0.5, y=0.25), screen.image)
    return screen, PolicyQuestion(Task(task.task_id, task.instruction, task.seed), (past,), seed="a seed")


def made(tiny: Path, sampler: Any) -> tuple[VllmPolicy, TokenRules, Any]:
    config = rl_config(tiny, max_pixels=64 * 64, batching="ready", asynchronous=AsyncConfig(vllm=SamplerConfig()))
    processor = load_processor(str(tiny), config.max_pixels)
    rules = token_rules(config, processor)
    return VllmPolicy(sampler, processor, config, rules, 4), rules, config


def test_it_asks_what_the_policy_by_transformers_asks_and_reads_it_so(tiny: Path) -> None:
    sampler = Scripted()
    policy, rules, config = made(tiny, sampler)
    model, _ = load_model(config)
    other = Policy(
        (model, load_processor(str(tiny), config.max_pixels)),
        config.prompt.builder(),
        temperature=1.0,
        max_new_tokens=rules.max_tokens,
        batch_size=1,
    )
    screen, asked = question()
    sampler.ids = [*policy.processor.tokenizer("click(0.25, 0.75)")["input_ids"], rules.ends[0]][-rules.max_tokens :]
    (decision,) = asyncio.run(policy.act([screen], [asked]))

    (sent,) = sampler.asked
    ids, images = other.prompt(screen, asked)
    assert (sent.ids, len(images)) == (ids, 2)
    assert all(mine.tobytes() == theirs.tobytes() for mine, theirs in zip(sent.images, images, strict=True))
    assert one_placeholder(sent.ids, rules.image_token, 2).count(rules.image_token) == 2
    assert sent.ids.count(rules.image_token) > 2
    assert (rules.bounds["max_pixels"], rules.max_tokens) == (64 * 64, config.max_completion)
    assert rules.suppressed == tuple(other.suppressed)
    assert set(rules.ends) == other._ends()

    (turn,) = asked.turns
    assert (turn.prompt_ids, turn.ids, turn.logprobs) == (ids, tuple(sampler.ids), (-0.5,) * len(sampler.ids))
    assert (turn.version, turn.cut) == (3, False)
    assert decision.response == other.processor.batch_decode([sampler.ids], skip_special_tokens=True)[0]

    sampler.ids = [5] * rules.max_tokens
    asyncio.run(policy.act([screen], [asked]))
    assert asked.turns[1].cut


def test_an_answer_to_another_prompt_is_no_turn(tiny: Path) -> None:
    sampler = Scripted(ids=[5], ran=[1, 2, 3])
    policy, _, _ = made(tiny, sampler)
    screen, asked = question()
    with pytest.raises(ConfigError, match=r"asynchronous\.vllm: vLLM reads a prompt as 3 tokens \(0 of images\)"):
        asyncio.run(policy.act([screen], [asked]))
    assert not asked.turns
