"""Grounders through the real SDKs, against a server that speaks the real wire; and what becomes of their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from os import EX_CONFIG
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from eval import run
from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import Observation, Score, Task, ToolDesktop, has_tools
from eval.environments.registry import environment
from eval.grounders.base import GroundedDesktop, TreeGrounder, boxes

# Google's SDK inherits from a class of aiohttp, which warns of it
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
SEED = 1_000_000
KEY = "SLIPWAY_TEST_KEY"
SEEN = Observation(Image.new("RGB", (400, 200), (9, 9, 9)), (400, 200))


def gemini(text: str, **more: Any) -> dict[str, Any]:
    """An answer of the Gemini API, as its reference shows it."""
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 300, "candidatesTokenCount": 9, "totalTokenCount": 309}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-x", **more}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret-key")


def test_a_list_that_was_cut_off_keeps_its_whole_objects() -> None:
    whole = json.dumps([{"b": [0, 0, 10, 10]}, {"b": [10, 10, 20, 20]}])
    assert list(boxes(whole[:-8], "b", "xyxy", (100, 100)).values()) == [(0.0, 0.0, 0.1, 0.1)]


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        ["1", 2, 3, 4],
        [True, 0, 1, 1],
        [10, 0, 10, 10],
        [20, 0, 10, 10],
        [-1, 0, 10, 10],
        [0, 0, 101, 10],
        [float("nan"), 0, 10, 10],
        [0, 0, 1e300, 10],
        {"x": 1},
        None,
    ],
)
def test_what_is_no_box_is_passed_over(value: Any) -> None:
    answer = json.dumps([{"b": value}, 7, {"c": 1}, {"b": [0, 0, 50, 50]}, {"b": [0, 0, 50, 50]}])
    assert boxes(answer, "b", "xyxy", (100, 100)) == {1: (0.0, 0.0, 0.5, 0.5)}


@given(st.text() | st.text(alphabet='[]{}":,b019.e-', max_size=200))
def test_any_answer_is_read(answer: str) -> None:
    for text in (answer, "[" + answer, '[{"b":' + answer):
        for box in boxes(text, "b", "yxyx", (100, 100)).values():
            assert 0 <= box[0] < box[0] + box[2] <= 1.0000001


@pytest.mark.parametrize("answer", ["[" * 100_000, '[{"b":' * 50_000, '[{"b": [' + "9" * 10_000 + "]}", "{" * 200_001])
def test_hostile_answers_hold_no_boxes(answer: str) -> None:
    assert boxes(answer, "b", "xyxy", (100, 100)) == {}


def test_the_tree_is_a_grounder_too() -> None:
    states = ("showing", "visible", "sensitive")
    button = TreeNode(role="push button", bounds=(40, 20, 40, 20), states=states)
    frame = TreeNode(role="frame", bounds=(0, 0, 400, 200), states=states, children=[button])
    tree = Tree(applications=[TreeNode(role="application", children=[frame])], screen=(400, 200))
    seen = Observation(SEEN.image, SEEN.screen, tree=tree)
    assert asyncio.run(TreeGrounder().ground(seen)) == {1: (0.1, 0.1, 0.1, 0.1)}
    with pytest.raises(ConfigError, match="accessibility trees"):
        asyncio.run(TreeGrounder().ground(SEEN))


class WithTools:
    """A desktop that has one tool."""

    tools = ("look",)

    async def reset(self, task: Task, seed: int) -> Observation:
        return SEEN

    async def step(self, action: Action) -> Observation:
        return SEEN

    async def score(self) -> Score:
        return Score(1.0, True)

    async def close(self) -> None:
        pass

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        return f"{name} {arguments}", SEEN


class Corner:
    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        return {1: (0.0, 0.0, 0.1, 0.1)}


def test_every_screen_of_a_desktop_is_marked_and_its_tools_stay() -> None:
    async def go() -> list[Observation]:
        desktop = GroundedDesktop(WithTools(), Corner())
        assert isinstance(desktop, ToolDesktop)
        assert desktop.tools == ("look",)
        result, seen = await desktop.call("look", {})
        assert result == "look {}"
        return [await desktop.reset(Task("t", "i"), 0), await desktop.step(Action(ActionType.WAIT)), seen]

    assert [seen.marks for seen in asyncio.run(go())] == [{1: (0.0, 0.0, 0.1, 0.1)}] * 3
    assert not has_tools(GroundedDesktop(environment("login").desktop({}), Corner()))


def config(tmp_path: Path, grounder: dict[str, Any]) -> str:
    path = tmp_path / "run.yaml"
    settings = {
        "benchmark": "b",
        "environment": "login",
        "tasks": {"count": 1, "seed": SEED},
        "agent": {"kind": "scripted"},
        "prompt": {"marks": True},
        "grounder": grounder,
    }
    path.write_text(yaml.safe_dump(settings))
    return str(path)


def test_a_missing_key_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY)
    path = config(tmp_path, {"kind": "gemini", "model": "m", "api_key": KEY})
    assert run.main(["--config", path, "--out", str(tmp_path / "o")]) == EX_CONFIG
    told = capsys.readouterr().err
    assert f"the environment variable {KEY} is not set" in told
    assert "Traceback" not in told
