"""One builder for training and evaluation: what a model is asked in a real rollout is, byte for byte, what it is taught
from the episodes that the rollout wrote. Chat template text, token ids and pixels, for every kind of prompt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Agent, Decision, History
from eval.agents.baselines import ScriptedAgent
from eval.desktop import Observation, Task
from eval.environments import click, login
from eval.episodes import Step
from eval.prompts import Message, PastStep, PromptBuilder, PromptConfig
from eval.prompts.demonstrations import DemonstrationConfig
from eval.rollout.loop import RolloutLimits, rollout
from training.data import samples
from training.data.faults import Faults
from training.data.samples import Sample, open_images

Asked = tuple[list[Message], list[bytes], str]
HISTORIES: dict[str, dict[str, Any]] = {
    "none": {"history": 0},
    "list": {},
    "list-short": {"history": 2, "images": 3},
    "turns-1": {"history_style": "turns", "images": 1},
    "turns": {"history_style": "turns"},
    "turns-5-short": {"history_style": "turns", "images": 5, "history": 3},
    "chat": {"history_style": "chat"},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "dsl": {"decimals": 2},
    "marks": {"marks": True},
    "pyautogui": {"dialect": "pyautogui"},
    "dsl-thought": {"decimals": 2, "thought": True},
    "pyautogui-thought": {"dialect": "pyautogui", "thought": True},
}


def settings() -> list[Any]:
    found = []
    for how, answer in ANSWERS.items():
        for kind, history in HISTORIES.items():
            level = {"history_level": "l2"} if kind.startswith("turns") and "thought" in answer else {}
            for images in (None, 0, 1, 5):
                # every answer with every history; demonstrations with all of those, but not all of their sizes
                if images in (None, 1) or (how == "marks" and kind in ("list", "turns")):
                    shown = None if images is None else {"images": images, "steps": 4}
                    name = f"{how}-{kind}" + ("" if images is None else f"-shown{images}")
                    values = {"system": None, **answer, **history, **level, "demonstration": shown}
                    found.append(pytest.param(values, id=name))
    return found


class Thinking(ScriptedAgent):
    """The environment's expert, who says why; two of its answers are no actions, as a model's may be."""

    def __init__(self, builder: PromptBuilder) -> None:
        super().__init__(builder.dialect)
        self.builder = builder
        self.asked: list[Asked] = []

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = await super().act(observations, histories)
        for number, (observation, history) in enumerate(zip(observations, histories, strict=True)):
            messages, images = self.builder.ask(history.task, history.past, observation, history.demonstration)
            if len(history.past) == 2:
                decisions[number] = Decision("Hm.", None, parse_error="no action")
            elif self.builder.thought:
                thought = f"Step by step: {len(history.past)}.\nSo it must be this."
                action = decisions[number].action
                assert action is not None
                text = self.builder.dialect.format_response(action, thought)
                decisions[number] = Decision(text, action, thought)
            self.asked.append((messages, [image.tobytes() for image in images], decisions[number].response))
        return decisions


def play(agent: Agent, world: Any, tasks: list[Task], options: dict[str, Any], out: Path) -> Path:
    run = rollout(
        agent,
        lambda: world.desktop(options),
        tasks,
        out=out,
        benchmark="b",
        environment="e",
        limits=RolloutLimits(parse_failures=3, concurrency=1),
    )
    asyncio.run(run)
    return out / "episodes"


WORLDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "login": (login, {"split": "train", "disturb": 0.2}),
    "click": (click, {"split": "train", "distractors": 2}),
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of demonstrations, by world."""
    folders = {}
    for name, (world, options) in WORLDS.items():
        agent = ScriptedAgent(PromptConfig().builder().dialect)
        folders[name] = play(agent, world, world.tasks(3, 40, options), options, tmp_path_factory.mktemp(name))
    return folders


def taught(root: Path, config: PromptConfig) -> list[Sample]:
    """The samples of the episodes, as a trainer gets them."""
    return samples.load(root, config.builder(), Faults("fail"))


def evaluated(values: dict[str, Any], world: str, folder: Path, out: Path) -> tuple[PromptConfig, list[Asked], Path]:
    """(configuration, what was asked, the episodes that were written)."""
    module, options = WORLDS[world]
    demonstration = values["demonstration"] and DemonstrationConfig(**values["demonstration"], folder=str(folder))
    config = PromptConfig(**{**values, "demonstration": demonstration})
    agent = Thinking(config.builder())
    root = play(agent, module, module.tasks(2, 5, options), options, out)
    return config, agent.asked, root


@pytest.mark.parametrize("values", settings())
def test_what_is_asked_is_what_is_taught(values: dict[str, Any], shown: dict[str, Path], tmp_path: Path) -> None:
    for world in WORLDS:
        config, asked, root = evaluated(values, world, shown[world], tmp_path / world)
        asked = [
            one for one in asked if one[2] != "Hm."
        ]  # nothing is learnt from those, but later prompts tell of them
        found = taught(root, config)
        assert len(found) == len(asked)
        for sample, (messages, images, response) in zip(found, asked, strict=True):
            assert json.dumps(sample.messages[:-1]) == json.dumps(messages)
            assert [image.tobytes() for image in open_images(sample)] == images
            assert sample.target == response
            places = [part for turn in messages for part in turn["content"] if part["type"] == "image"]
            assert len(places) == len(images)
            observation, history = sample.asked()
            again, pictures = config.builder().ask(history.task, history.past, observation, history.demonstration)
            assert again == messages
            assert [picture.tobytes() for picture in pictures] == images


@pytest.mark.ml
def test_the_model_gets_the_same_tokens_and_pixel_values(shown: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from transformers import AutoProcessor

    from training.tiny import TinyConfig, build

    build(TinyConfig(hidden=48, heads=2, layers=1, vision_hidden=32, vision_layers=1), tmp_path / "model")
    processor = AutoProcessor.from_pretrained(tmp_path / "model")
    tokens = processor.tokenizer
    for number, param in enumerate(settings()):
        if number % 7:
            continue
        (values,) = param.values
        config, asked, root = evaluated(values, "login", shown["login"], tmp_path / str(number))
        sample = taught(root, config)[-1]
        messages, _, response = asked[-1]
        prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        whole = processor.apply_chat_template(sample.messages, tokenize=False)
        assert whole.startswith(prompt + response)
        ids = tokens(prompt)["input_ids"]
        assert tokens(whole)["input_ids"][: len(ids)] == ids  # no token across the border
        theirs = processor(text=[prompt], images=[open_images(sample)], return_tensors="pt")
        observation, history = sample.asked()
        _, images = config.builder().ask(history.task, history.past, observation, history.demonstration)
        ours = processor(text=[prompt], images=[images], return_tensors="pt")
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.ml
def test_turns_of_the_history_are_not_learnt_a_second_time(tmp_path: Path) -> None:
    from training.common.model.loading import load_model
    from training.sft.collate import Collator
    from training.sft.train import SftConfig
    from training.tiny import TinyConfig, build

    build(TinyConfig(hidden=48, heads=2, layers=1, vision_hidden=32, vision_layers=1), tmp_path / "model")
    module, options = WORLDS["login"]
    builder = PromptConfig(**ANSWERS["dsl"], **HISTORIES["turns"]).builder()
    root = play(ScriptedAgent(builder.dialect), module, module.tasks(1, 5, options), options, tmp_path)
    found = samples.load(root, builder)
    _, processor = load_model(SftConfig(model=str(tmp_path / "model"), episodes=str(root), steps=1))
    batch = Collator(processor, found)([{"index": len(found) - 1}])
    assert "# Step 1:" in processor.tokenizer.decode(batch["input_ids"][0])
    learnt = processor.tokenizer.decode(batch["labels"][0][batch["labels"][0] >= 0])
    assert learnt == f"{found[-1].target}<|im_end|>\n"


def texts(messages: list[Message]) -> str:
    return "\n".join(part["text"] for turn in messages for part in turn["content"] if part["type"] == "text")


@pytest.mark.parametrize("values", settings()[::4])
def test_no_prompt_tells_how_many_steps_there_are(
    values: dict[str, Any], shown: dict[str, Path], tmp_path: Path
) -> None:
    """Cut off after any step, an episode has asked the same: nothing in a prompt comes from what follows."""
    config, _, root = evaluated(values, "login", shown["login"], tmp_path)
    whole = taught(root, config)
    for folder in sorted(root.iterdir()):
        lines = (folder / "steps.jsonl").read_text().splitlines()
        record = json.loads((folder / "episode.json").read_text())
        (folder / "steps.jsonl").write_text("\n".join(lines[:4]))
        (folder / "episode.json").write_text(json.dumps({**record, "steps": len(lines[:4])}))
    short = taught(root, config)
    assert 0 < len(short) < len(whole)
    by_step = {(s.folder, s.step.index if s.step else None): s for s in whole}
    for sample in short:
        assert sample.step is not None
        assert sample.messages == by_step[sample.folder, sample.step.index].messages


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_system_prompt_holds_the_solution_of_a_task(answer: str) -> None:
    """Neither as it would be written, nor by a point that would hit, nor by a mark."""
    builder = PromptConfig(**ANSWERS[answer]).builder()
    system = builder.layout("", [], Path("x"))[0][0]["content"][0]["text"]

    async def look() -> None:
        for world, options in WORLDS.values():
            desktop = world.desktop(options)
            for task in world.tasks(60, 200, options):
                seen = await desktop.reset(task, task.seed)
                while not seen.done and seen.expected.action.type not in (ActionType.DONE, ActionType.FAIL):
                    step = Step(index=0, screenshot="", action=seen.expected.action, marks=seen.marks)
                    written = builder.target(step).split(":")[-1].strip()
                    assert written not in system
                    seen = await desktop.step(seen.expected.action)

    asyncio.run(look())


def test_gold_and_model_history_have_the_same_form(tmp_path: Path) -> None:
    """A person's step (all sections, more decimals) and a model's: the same in the prompts after it."""
    click_ = Action(ActionType.CLICK, x=0.51236, y=0.25)
    thought = "The button.\n\nClick it."
    gold = Step(
        index=0,
        screenshot="",
        action=click_,
        thought=thought,
        response="## Thought:\nThe button.\n\n## Action:\nClick it.\n\n## Code:\npyautogui.click(x=.51236, y=.25)",
    )
    for level in ("l1", "l2"):
        builder = PromptConfig(
            dialect="pyautogui",
            thought=True,
            history_style="turns",
            history_level=level,
        ).builder()
        answer = builder.target(gold)
        said = builder.read(answer)
        past = [
            PastStep(gold.action, None, gold.thought, gold.response),
            PastStep(said.action, None, said.thought, answer),
        ]
        one, other = [builder.layout("g", [step], Path("x"))[0] for step in past]
        assert one == other
        assert ("The button." in texts(one)) == (level == "l2")
