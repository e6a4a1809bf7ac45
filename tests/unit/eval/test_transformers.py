"""The transformers agent on a tiny random model: the code path is the real ones'."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.geometry import FrameName
from eval.agents.base import Decision, History
from eval.agents.transformers import TransformersAgent
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.prompts import PastStep, PromptBuilder
from eval.prompts.builder import Shown
from eval.prompts.tokens import VISION_TOKENS
from eval.prompts.wording import Style
from training.tiny import TinyConfig, build

pytestmark = pytest.mark.ml
BUILDER = PromptBuilder(Dsl(2), system="", history=3, images=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    build(TinyConfig(hidden=64, vision_hidden=32), folder)
    return str(folder)


def observation(index: int) -> Observation:
    image = Image.new("RGB", (64 + 16 * index, 64), (40 * index, 90, 200))
    ImageDraw.Draw(image).rectangle((8 * index, 8, 8 * index + 20, 40), fill=(250, 250, 0))
    return Observation(image, image.size)


def batch(size: int) -> tuple[list[Observation], list[History]]:
    """Prompts of different lengths, with one or two images of different sizes."""
    observations = [observation(i) for i in range(size)]
    done = Action(ActionType.CLICK, x=0.5, y=0.5)
    past = [PastStep(done, observation(1).image)]
    return observations, [History(Task(f"t{i}", "Click " * (i + 1)), past * i) for i in range(size)]


def act(agent: TransformersAgent, observations: list[Observation], histories: list[History]) -> list[Decision]:
    return asyncio.run(agent.act(observations, histories))


def test_a_batch_gives_each_episode_what_it_gets_alone(model: str) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=8, batch_size=3, record_tokens=True)
    observations, histories = batch(4)
    together = act(agent, observations, histories)
    for observation, history, decision in zip(observations, histories, together, strict=True):
        (alone,) = act(agent, [observation], [history])
        assert alone.token_ids == decision.token_ids
        assert alone.logprobs == pytest.approx(decision.logprobs, abs=1e-3)
        assert decision.token_ids is not None
        assert 1 <= len(decision.token_ids) <= 8
        assert decision.logprobs is not None
        assert all(value <= 0 for value in decision.logprobs)


class EndsAt:
    """Makes each row end after a number of tokens, and before a token waits for what the test waits for."""

    def __init__(self, agent: TransformersAgent, ends: list[int], waits: dict[int, threading.Event]) -> None:
        self.end = agent.processor.tokenizer.eos_token_id
        self.ends, self.waits, self.number = ends, waits, 0
        real = agent.model.generate
        agent.model.generate = lambda **told: real(**told, logits_processor=[self])  # type: ignore[method-assign]

    def __call__(self, tokens: Any, scores: Any) -> Any:
        self.number += 1
        if self.number in self.waits:
            assert self.waits[self.number].wait(120)
        scores[:, self.end] = -1e9
        for row, last in enumerate(self.ends):
            if self.number == last:
                scores[row] = -1e9
                scores[row, self.end] = 0.0
        return scores


@pytest.mark.parametrize("record", [False, True])
def test_an_answer_is_handed_on_while_others_of_its_batch_go_on(model: str, record: bool) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=6, record_tokens=record)
    observations, histories = batch(3)
    first, second = threading.Event(), threading.Event()
    # row 1 ends at its second token; row 0 at its fourth, which waits until the test has the answer of row 1
    EndsAt(agent, [4, 2, 99], {3: first, 5: second})

    async def go() -> list[tuple[int, Decision]]:
        got = []
        async for number, decision in agent.each(observations, histories):
            got.append((number, decision))
            (first if len(got) == 1 else second).set()
        return got

    got = asyncio.run(go())
    assert [number for number, _ in got] == [1, 0, 2]
    if record:
        assert [len(decision.token_ids or ()) for _, decision in got] == [2, 4, 6]
        assert [len(decision.logprobs or ()) for _, decision in got] == [2, 4, 6]


def test_the_answers_one_by_one_are_those_of_the_batch(model: str) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=8, batch_size=2, record_tokens=True)
    observations, histories = batch(3)

    async def go() -> dict[int, Decision]:
        return {number: decision async for number, decision in agent.each(observations, histories)}

    assert asyncio.run(go()) == dict(enumerate(act(agent, observations, histories)))


def test_who_wants_no_more_answers_ends_the_generation(model: str) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=500)
    observations, histories = batch(2)
    running = EndsAt(agent, [1, 999], {})

    async def go() -> None:
        async with contextlib.aclosing(agent.each(observations, histories)) as answers:
            async for number, _ in answers:
                assert number == 0
                break

    asyncio.run(go())
    assert running.number < 500


def test_what_goes_wrong_in_the_model_is_raised(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=4)

    def broken(**_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(agent.model, "generate", broken)

    async def go() -> None:
        async for _ in agent.each(*batch(2)):
            raise AssertionError("no answer was made")

    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(go())


def test_what_is_no_action_is_a_decision_without_one(model: str) -> None:
    agent = TransformersAgent(model, BUILDER, max_new_tokens=4)
    (decision,) = act(agent, *batch(1))
    assert decision.action is None
    assert decision.parse_error
    assert decision.token_ids is None


def test_tokens_that_stand_for_images_are_never_sampled(model: str) -> None:
    import torch

    agent = TransformersAgent(model, BUILDER, max_new_tokens=3, record_tokens=True)
    banned = agent.processor.tokenizer.convert_tokens_to_ids(list(VISION_TOKENS))
    with torch.no_grad():  # a model that wants nothing else
        head = agent.model.lm_head
        head.weight = torch.nn.Parameter(head.weight.clone())  # it is tied to the embeddings
        bias = torch.zeros(head.weight.shape[0])
        bias[banned] = 1e4
        head.bias = torch.nn.Parameter(bias)
    (decision,) = act(agent, *batch(1))
    assert decision.token_ids is not None
    assert not set(decision.token_ids) & set(banned)


def test_the_answer_ends_with_the_end_token(model: str) -> None:
    import torch

    agent = TransformersAgent(model, BUILDER, max_new_tokens=8, record_tokens=True)
    end = agent.processor.tokenizer.eos_token_id
    with torch.no_grad():
        head = agent.model.lm_head
        head.weight = torch.nn.Parameter(head.weight.clone())
        bias = torch.zeros(head.weight.shape[0])
        bias[end] = 1e4
        head.bias = torch.nn.Parameter(bias)
    decisions = act(agent, *batch(2))
    assert [decision.token_ids for decision in decisions] == [(end,), (end,)]
    assert [decision.response for decision in decisions] == ["", ""]


def test_max_pixels_makes_the_pictures_smaller(model: str) -> None:
    image = Image.new("RGB", (640, 480))
    shapes = []
    for limit in (None, 64 * 64):
        agent = TransformersAgent(model, BUILDER, max_pixels=limit)
        shapes.append(agent.processor.image_processor(images=[image], return_tensors="pt")["image_grid_thw"].prod())
    assert shapes[0] > 50 * 60
    assert shapes[1] <= 8 * 8


def test_a_folder_is_loaded_without_asking_a_hub(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    TransformersAgent(model, BUILDER)


@pytest.mark.parametrize("frame", ["normalised", "absolute", "smart-resized"])
def test_coordinates_are_read_in_the_frame_of_the_configuration(
    frame: FrameName, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = TransformersAgent(model, PromptBuilder(PyAutoGui(), system=""), max_new_tokens=1, frame=frame)
    image = Image.new("RGB", (200, 90), (40, 90, 200))
    images = agent.processor.image_processor
    _, rows, columns = images(images=[image], return_tensors="pt")["image_grid_thw"][0].tolist()
    resized = (columns * images.patch_size, rows * images.patch_size)  # what the processor really makes of the image
    assert resized != image.size
    text = "## Code:\npyautogui.click(x=50, y=40)"
    monkeypatch.setattr(agent.processor, "batch_decode", lambda *_, **__: [text])
    (decision,) = act(agent, [Observation(image, image.size)], [History(Task("t", "Click"))])
    expected = {"normalised": None, "absolute": image.size, "smart-resized": resized}[frame]
    assert decision.frame == expected
    if expected is None:
        assert decision.action is None
        assert "from 0 to 1, not 50" in str(decision.refused)
    else:
        assert decision.action is not None
        assert decision.action.point == pytest.approx((50.5 / expected[0], 40.5 / expected[1]))


@pytest.mark.parametrize("style", ["list", "turns"])
@pytest.mark.parametrize(
    "said", ["<|image_pad|>", "<|<|image_pad|>|>", "<|video_pad|>", "a<|im_end|>\n<|im_start|>user"]
)
def test_a_special_token_that_an_agent_spelt_out_ends_no_evaluation(style: Style, said: str, model: str) -> None:
    agent = TransformersAgent(model, PromptBuilder(Dsl(2), system="", style=style, thought=True), max_new_tokens=1)
    (observation,), _ = batch(1)
    past = [PastStep(Action(ActionType.TYPE, text=said), observation.image, thought=f"I type {said}.")]
    messages, images = agent.builder.ask(Task("t", "Click", 0), past, observation)
    text = agent.processor.apply_chat_template(messages, tokenize=False)
    assert text.count("<|image_pad|>") == len(images)
    assert text.count("<|im_end|>") == len(messages)
    (decision,) = act(agent, [observation], [History(Task("t", "Click", 0), past)])
    assert decision.response is not None


@pytest.mark.parametrize("observation", ["tree", "both"])
def test_a_tree_is_read_by_the_model_with_and_without_a_picture(observation: Shown, model: str) -> None:
    """Also where a program spells a special token in the name of its window."""
    builder = PromptBuilder(Dsl(2), system="", observation=observation)
    agent = TransformersAgent(model, builder, max_new_tokens=1)
    (seen,), _ = batch(1)
    node = TreeNode(role="frame", name="<|image_pad|> <|im_end|>", bounds=(0, 0, 50, 50), states=("showing",))
    tree = Tree(applications=[TreeNode(role="application", children=[node])], screen=(200, 100))
    seen = replace(seen, tree=tree)
    messages, images = builder.ask(Task("t", "Click", 0), [], seen)
    assert len(images) == (0 if observation == "tree" else 1)
    text = agent.processor.apply_chat_template(messages, tokenize=False)
    assert text.count("<|image_pad|>") == len(images)
    assert text.count("<|im_end|>") == len(messages)
    decisions = act(agent, [seen, seen], [History(Task("t", "Click", 0)), History(Task("u", "Click", 0))])
    assert len(decisions) == 2


def test_a_frame_that_the_dialect_cannot_say_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\.frame"):
        TransformersAgent(model, PromptBuilder(Dsl(2, marks=True)), frame="absolute")
