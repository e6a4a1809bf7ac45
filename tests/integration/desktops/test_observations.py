"""What agents see of a real desktop: pictures, trees and marks, through the one rollout and its episodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from os import EX_CONFIG
from pathlib import Path

import pytest
import yaml

from eval import run as evaluation
from eval.actions.geometry import inside
from eval.agents.base import Decision, History, decide
from eval.config import ConfigError
from eval.desktop import Observation
from eval.environments import desktop
from eval.episodes import episode_tree, read_episode
from eval.episodes.images import image_size
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import RolloutLimits, rollout

SEED = 1_000_000

pytestmark = pytest.mark.usefixtures("folder")


class Reader:
    """Opens the menu File and ends; it knows the menu from the text of its prompt alone."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, name: str = "reader") -> None:
        self.name = name
        self.builder = builder
        self.prompts: list[tuple[str, int]] = []

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [self.one(*pair) for pair in zip(observations, histories, strict=True)]

    def one(self, observation: Observation, history: History) -> Decision:
        messages, images = self.builder.ask(history.task, history.past, observation)
        text = "".join(part.get("text", "") for part in messages[-1]["content"])
        self.prompts.append((text, len(images)))
        if history.past:
            answer = "Action: DONE()"
        else:
            line = next(line for line in text.splitlines() if 'menu "File"' in line)
            if self.builder.marks:
                answer = f"Action: CLICK({line.split()[0]})"
            else:
                x, y = line.partition("at (")[2].rstrip(")").split(", ")
                answer = f"Action: CLICK(x={x}, y={y})"
        return decide(lambda said: self.builder.read_turn(said, observation.marks), answer)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("observation", ["tree", "both", "som"])
def test_an_agent_finds_a_menu_by_the_text_of_its_prompt(observation: str, tmp_path: Path) -> None:
    agent = Reader(PromptConfig(observation=observation).builder())  # type: ignore[arg-type]
    (result,) = asyncio.run(
        rollout(
            agent,
            lambda: desktop.desktop({}),
            desktop.tasks(1, SEED, {}),
            out=tmp_path,
            benchmark="b",
            environment="desktop",
            limits=RolloutLimits(attempts=1),
        )
    )
    (first, images), (second, _) = agent.prompts
    assert images == (0 if observation == "tree" else 1)
    assert 'menu item "Save' not in first
    assert 'menu item "Save' in second  # the click opened the menu
    assert result.record.episode is not None
    folder = tmp_path / result.record.episode
    episode = read_episode(folder)
    assert [step.tree for step in episode.steps] == ["000.tree.json", "001.tree.json"]
    tree = episode_tree(folder, episode.steps[0])
    assert tree is not None
    assert tree.screen == episode.screen == image_size(folder / "000.png")
    assert tree.cut == []
    menu = next(node for node in tree.nodes() if (node.role, node.name) == ("menu", "File"))
    assert menu.bounds is not None
    action = episode.steps[0].action
    assert action is not None
    assert action.point is not None
    left, top, width, height = menu.bounds
    assert left <= action.point[0] * 1280 <= left + width
    assert top <= action.point[1] * 720 <= top + height
    assert any(inside(action.point, box) for box in episode.steps[0].marks.values())
    assert (folder / "002.tree.json").is_file()  # the last frame's


@pytest.mark.timeout(300)
def test_a_configuration_chooses_what_the_agent_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """eval.run: the expert answers in marks; without trees a prompt that needs them is one clear error."""
    config = {
        "benchmark": "b",
        "environment": "desktop",
        "tasks": {"count": 1, "seed": SEED},
        "agent": {"kind": "scripted"},
        "prompt": {"observation": "som"},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(config))
    assert evaluation.main(["--config", str(path), "--out", str(tmp_path / "out")]) == 0
    (record,) = map(json.loads, (tmp_path / "out/tasks.jsonl").read_text().splitlines())
    assert record["success"]
    own = {"kind": "custom", "factory": "tests.integration.desktops.test_observations:Reader", "name": "reader"}
    refused = {**config, "agent": own, "options": {"tree": False}, "prompt": {"observation": "tree"}}
    path.write_text(yaml.safe_dump(refused))
    capsys.readouterr()
    assert evaluation.main(["--config", str(path), "--out", str(tmp_path / "out2")]) == EX_CONFIG
    told = capsys.readouterr().err
    assert "prompt.observation: tree needs accessibility trees" in told
    assert "Traceback" not in told


def test_a_screen_without_a_tree_keeps_none(tmp_path: Path) -> None:
    live = desktop.desktop({"tree": False})

    async def go() -> Observation:
        try:
            return await live.reset(desktop.tasks(1, SEED, {})[0], SEED)
        finally:
            await live.close()

    seen = asyncio.run(go())
    assert (seen.tree, seen.marks) == (None, {})
    with pytest.raises(ConfigError, match=r"prompt\.observation: both"):
        PromptConfig(observation="both").builder().messages("g", [], seen)
