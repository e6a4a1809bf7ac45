"""Samples are what an evaluation would ask, and what the expert answered."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from eval.accessibility.tree import Tree, TreeNode
from eval.accessibility.visible import marks_of
from eval.actions import Action
from eval.agents.base import Decision, History
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError
from eval.desktop import Desktop, Observation, Score, Task
from eval.environments import login
from eval.episodes import Episode, Step, read_episode
from eval.prompts import Message, PromptConfig
from eval.prompts.builder import Shown
from eval.prompts.demonstrations import DemonstrationConfig
from eval.rollout.loop import rollout
from training.data import samples
from training.data.faults import BadSample, Faults
from training.data.samples import Sample, episode_samples, open_images

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


class WithTrees:
    """The login's desktop, with a tree whose objects lie where its marks do."""

    def __init__(self, desktop: Desktop) -> None:
        self.desktop = desktop

    async def reset(self, task: Task, seed: int) -> Observation:
        return self.seen(await self.desktop.reset(task, seed))

    async def step(self, action: Action) -> Observation:
        return self.seen(await self.desktop.step(action))

    async def score(self) -> Score:
        return await self.desktop.score()

    async def close(self) -> None:
        await self.desktop.close()

    def seen(self, plain: Observation) -> Observation:
        (width, height), states = plain.screen, ("showing", "visible", "sensitive")
        objects = [
            TreeNode(
                role="push button",
                name=f"object {number}",
                bounds=(round(x * width), round(y * height), round(w * width), round(h * height)),
                states=states,
            )
            for number, (x, y, w, h) in plain.marks.items()
        ]
        frame = TreeNode(role="frame", bounds=(0, 0, width, height), states=states, children=objects)
        tree = Tree(applications=[TreeNode(role="application", children=[frame])], screen=plain.screen)
        return dataclasses.replace(plain, tree=tree, marks=marks_of(tree))


@pytest.mark.parametrize("observation", ["both", "som"])
def test_training_shows_the_trees_that_evaluation_shows(observation: Shown, tmp_path: Path) -> None:
    agent = Recorder(PromptConfig(observation=observation))
    options = {"split": "train"}
    tasks = login.tasks(1, 5, options)
    world = lambda: WithTrees(login.desktop(options))  # noqa: E731 as short as the others
    asyncio.run(rollout(agent, world, tasks, out=tmp_path, benchmark="login", environment="login"))
    found = samples.load(tmp_path / "episodes", agent.builder)
    assert len(found) == len(agent.asked) == 6
    for sample, (messages, images, response) in zip(found, agent.asked, strict=True):
        assert "object" in str(messages)
        assert sample.messages[:-1] == messages
        assert [image.tobytes() for image in open_images(sample)] == images
        assert sample.target == response
        seen, history = sample.asked()
        assert agent.builder.messages(history.task.instruction, history.past, seen)[0] == messages
    (folder,) = (tmp_path / "episodes").iterdir()
    (folder / "000.tree.json").write_text("{")
    with pytest.raises(ConfigError, match=r"000\.tree\.json"):
        samples.load(tmp_path / "episodes", agent.builder)


def test_prompts_that_training_cannot_show_are_refused(tmp_path: Path) -> None:
    episode = Episode(
        episode_id="e", task_id="t", instruction="i", screen=(8, 8), steps=(Step(index=0, screenshot="a"),)
    )
    with pytest.raises(ConfigError, match=r"prompt\.observation: tree: training shows pictures"):
        list(episode_samples(tmp_path, episode, PromptConfig(observation="tree").builder()))
    with pytest.raises(ConfigError, match=r"prompt\.observation: som: packed data and pairs have no trees"):
        samples.step_sample(episode, 0, PromptConfig(observation="som").builder(), tmp_path.__truediv__)


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


def made(root: Path, count: int = 2) -> Path:
    """Episodes of the login form."""
    tasks = login.tasks(count, 5, {"split": "train"})
    agent = ScriptedAgent(PROMPTS[0].builder().dialect)
    run = rollout(
        agent,
        lambda: login.desktop({"split": "train"}),
        tasks,
        out=root,
        benchmark="login",
        environment="login",
    )
    asyncio.run(run)
    return root / "episodes"


def spoil(root: Path) -> Faults:
    """Breaks one episode in every way that a folder of episodes can be broken; gives Faults that skip."""
    first, second, *_ = sorted(root.iterdir())
    (first / "001.png").unlink()
    whole = (first / "003.png").read_bytes()
    (first / "003.png").write_bytes(whole[:-20])
    (first / "004.png").write_bytes(b"no picture")
    shutil.copytree(first, root / "no-steps")
    (root / "no-steps" / "steps.jsonl").write_text("")
    record = json.loads((first / "episode.json").read_text())
    (root / "no-steps" / "episode.json").write_text(json.dumps({**record, "steps": 0}))
    shutil.copytree(second, root / "unreadable")
    (root / "unreadable" / "steps.jsonl").write_text("{")
    return Faults("skip")


def test_bad_steps_and_episodes_are_left_out_and_counted(tmp_path: Path) -> None:
    root = made(tmp_path)
    clean = samples.load(root, PROMPTS[0].builder())
    faults = spoil(root)
    left = samples.load(root, PROMPTS[0].builder(), faults)
    assert faults.report()["by_reason"] == {"broken_episode": 1, "image_broken": 2, "image_missing": 1, "no_steps": 1}
    assert [sample.target for sample in left] == [s.target for i, s in enumerate(clean) if i not in (1, 3, 4)]
    for sample in left:
        open_images(sample)


def test_a_step_whose_history_shows_a_broken_image_is_bad_too(tmp_path: Path) -> None:
    root = made(tmp_path)
    (sorted(root.iterdir())[0] / "001.png").unlink()
    faults = Faults("skip")
    assert len(samples.load(root, PromptConfig(decimals=2, images=2).builder(), faults)) == 10
    assert faults.counts == {"image_missing": 2}


def test_without_a_policy_the_first_bad_step_is_one_clear_error(tmp_path: Path) -> None:
    root = made(tmp_path)
    (sorted(root.iterdir())[0] / "001.png").unlink()
    with pytest.raises(ConfigError, match=r"step 1: image_missing: .*001.png"):
        samples.load(root, PROMPTS[0].builder())


class Pack:
    """Frames that are no files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = (folder / name).read_bytes()

    def open(self) -> Image.Image:
        return Image.open(io.BytesIO(self.bytes)).convert("RGB")


def test_frames_need_not_be_files(tmp_path: Path) -> None:
    builder = PROMPTS[2].builder()
    folder = sorted(made(tmp_path).iterdir())[0]
    episode = read_episode(folder)
    files = list(episode_samples(folder, episode, builder))
    packed = list(episode_samples(None, episode, builder, frame=lambda name: Pack(folder, name)))
    assert [sample.messages for sample in packed] == [sample.messages for sample in files]
    for one, other in zip(packed, files, strict=True):
        assert one.asked()[0].image.tobytes() == other.asked()[0].image.tobytes()
        assert [i.tobytes() for i in open_images(one)] == [i.tobytes() for i in open_images(other)]


def test_a_sample_without_an_episode_has_a_target_and_images_but_can_not_be_asked(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (1, 2, 3)).save(tmp_path / "a.png")
    user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What colour?"}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Black."}]}
    sample = Sample([user, answer], [tmp_path / "a.png"])
    assert sample.target == "Black."
    assert open_images(sample)[0].getpixel((0, 0)) == (1, 2, 3)
    with pytest.raises(ValueError, match="of no episode"):
        sample.asked()
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(BadSample, match="image_broken"):
        open_images(sample)


def test_a_training_episode_is_shown_another_successful_one_and_never_itself(tmp_path: Path) -> None:
    root = made(tmp_path, 4)
    failed = sorted(root.iterdir())[0]
    record = json.loads((failed / "episode.json").read_text())
    (failed / "episode.json").write_text(json.dumps({**record, "success": False}))
    prompt = PromptConfig(decimals=2, demonstration=DemonstrationConfig(images=2, share=0.3))
    found = samples.load(root, prompt.builder())
    assert len(found) == 24
    chosen = {}
    for sample in found:
        assert sample.episode is not None
        shown = sample.demonstration
        chosen[sample.episode.episode_id] = shown
        assert shown.task not in (sample.episode.goal, record["goal"])
        assert len(sample.images) == 1 + 2 * bool(shown.steps)
        text = sample.messages[1]["content"][0]["text"]
        assert text.startswith(f"Demonstration\nTask: {shown.task}\n" if shown.steps else "Goal: ")
        assert sample.asked()[1].demonstration == shown
    assert {bool(shown.steps) for shown in chosen.values()} == {True, False}
    assert {s.target for s in found} == {s.target for s in samples.load(root, PROMPTS[0].builder())}


def test_an_episode_alone_has_nothing_to_be_shown(tmp_path: Path) -> None:
    root = made(tmp_path, 1)
    builder = PromptConfig(decimals=2, demonstration=DemonstrationConfig()).builder()
    assert [s.demonstration.steps for s in samples.load(root, builder)] == [()] * 6


def test_a_point_that_no_mark_holds_is_a_counted_fault_and_no_guess(tmp_path: Path) -> None:
    root = made(tmp_path)
    folder = sorted(root.iterdir())[0]
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    steps[0]["action"].update(x=0.0, y=1.0)
    del steps[2]["marks"]
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    faults = Faults("skip")
    found = samples.load(root, PromptConfig(marks=True).builder(), faults)
    assert faults.counts == {"unrepresentable": 2}
    assert len(found) == 10
    history = found[0].messages[1]["content"][0]["text"]
    assert "1. (click)\n" in history  # what was done is told, but not where
    with pytest.raises(ConfigError, match="step 0: unrepresentable: no mark at the point of click"):
        samples.load(root, PromptConfig(marks=True).builder())
