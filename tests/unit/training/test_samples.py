"""Samples are what an evaluation would ask, and what the expert answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from eval import login
from eval.agents.base import Decision, History
from eval.agents.scripted import ScriptedAgent
from eval.config import ConfigError
from eval.desktop import Observation
from eval.prompts import Message, PromptConfig
from eval.rollout import rollout
from training import samples
from training.samples import open_images

PROMPTS = [
    PromptConfig(decimals=2, system="", history=0),
    PromptConfig(decimals=2, history=10),
    PromptConfig(decimals=3, system="Act.", history=2, images=3),
    PromptConfig(dialect="pyautogui", history=4, images=2),
]


class Recorder(ScriptedAgent):
    """The scripted agent, which also writes down what a model would have been asked."""

    def __init__(self, prompt: PromptConfig) -> None:
        self.builder = prompt.builder()
        super().__init__(self.builder.dialect)
        self.asked: list[tuple[list[Message], list[bytes], str]] = []

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = await super().act(observations, histories)
        for observation, history, decision in zip(observations, histories, decisions, strict=True):
            messages, images = self.builder.messages(history.task.instruction, history.past, observation)
            self.asked.append((messages, [image.tobytes() for image in images], decision.response))
        return decisions


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: f"{p.dialect}-{p.history}-{p.images}")
def test_training_sees_byte_for_byte_what_evaluation_asks(prompt: PromptConfig, tmp_path: Path) -> None:
    agent = Recorder(prompt)
    options = {"split": "train"}
    tasks = login.tasks(1, 5, options)
    run = rollout(agent, lambda: login.desktop(options), tasks, out=tmp_path, benchmark="login", environment="login")
    asyncio.run(run)
    found = samples.load(tmp_path / "episodes", agent.builder)
    assert len(found) == len(agent.asked) == 6
    for sample, (messages, images, response) in zip(found, agent.asked, strict=True):
        assert sample.messages[:-1] == messages
        assert [image.tobytes() for image in open_images(sample)] == images
        assert sample.target == response
        observation, history = sample.asked()
        again, shown = agent.builder.messages(history.task.instruction, history.past, observation)
        assert again == messages
        assert [image.tobytes() for image in shown] == images


def test_no_prompt_tells_how_many_steps_there_are_or_where_to_click(tmp_path: Path) -> None:
    prompt = PROMPTS[0]
    agent = Recorder(prompt)
    tasks = login.tasks(1, 5, {"split": "train"})
    run = rollout(
        agent,
        lambda: login.desktop({"split": "train"}),
        tasks,
        out=tmp_path,
        benchmark="login",
        environment="login",
    )
    asyncio.run(run)
    texts = {
        part["text"]
        for messages, _, _ in agent.asked
        for message in messages
        for part in message["content"]
        if "text" in part
    }
    assert texts == {f"Goal: {tasks[0].instruction}\n"}  # the same at every step: only the picture tells what is next


def test_a_folder_without_episodes_is_refused(tmp_path: Path) -> None:
    builder = PROMPTS[0].builder()
    with pytest.raises(ConfigError, match="no folder"):
        samples.load(tmp_path / "missing", builder)
    with pytest.raises(ConfigError, match="no episode with an action"):
        samples.load(tmp_path, builder)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "episode.json").write_text("{")
    with pytest.raises(ConfigError, match="broken"):
        samples.load(tmp_path, builder)
