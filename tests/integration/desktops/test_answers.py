"""The rule of what an answer counts as (docs/explanation/answers.md) on a real desktop."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.actions.keys import XDOTOOL
from eval.agents.config import AgentConfig, make_agent
from eval.config import convert
from eval.desktop import ActionRefused
from eval.desktops.display.keysyms import NAMED_KEYS
from eval.environments import desktop
from eval.environments.desktop import NoteScene
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from tests.integration.desktops.test_live import begun
from tests.integration.eval.test_sdk_loops import message, tool_use
from tests.integration.eval.test_what_answers_count_as import KEY, OFF, SCROLL_0, Said, end, wire
from tests.support.modelserver import Reply, serving

SEED = 1_000_000
FAULTS: tuple[Said, ...] = ((OFF,), (SCROLL_0,), (KEY,))
pytestmark = pytest.mark.usefixtures("folder")


def expert() -> list[Action]:
    note, done = NoteScene(SEED, "test"), []
    while not done or done[-1].type is not ActionType.DONE:
        done.append(note.expected(done).action)
    return done[:-1]


def keys(kind: str, number: int, action: Action) -> dict[str, Any]:
    """An answer of the expert's, a text or several keys at once."""
    if action.keys is None:
        return wire(kind, number, [action])
    if kind == "claude":
        given = {"text": "+".join(XDOTOOL.get(key, key) for key in action.keys)}
        return message(number, [tool_use(f"toolu_{number}", "key", given)], "tool_use")
    said = wire(kind, number, [Action(ActionType.KEY, keys=("enter",))])
    pressed = json.dumps(list(action.keys))
    for one in ('["ENTER"]', r"[\"enter\"]"):
        text = json.dumps(said)
        if one in text:
            return dict(
                json.loads(text.replace(one, pressed if one.startswith('["E') else pressed.replace('"', r"\"")))
            )
    raise AssertionError(said)


@pytest.mark.parametrize("kind", ["openai", "claude", "openai-compatible"])
def test_the_same_faults_on_a_real_desktop_cost_a_step_and_the_task_is_solved(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "secret-value")
    replies = [wire(kind, number, said) for number, said in enumerate(FAULTS)]
    replies += [keys(kind, len(replies) + at, action) for at, action in enumerate(expert())]
    replies.append(end(kind, len(replies)))
    with serving(lambda request, number: Reply(replies[number])) as server:
        section: dict[str, Any] = {"kind": kind, "model": "m", "retries": 0, "api_key": "THE_KEY"}
        section["base_url"] = server.url if kind == "claude" else f"{server.url}/v1"
        config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
        agent = make_agent(config, PromptConfig(dialect="qwen3-vl").builder())
        tasks = [replace(task, max_steps=20) for task in desktop.tasks(1, SEED, {})]
        told: dict[str, Any] = {"benchmark": "b", "environment": "desktop", "limits": RolloutLimits(attempts=1)}
        (result,) = asyncio.run(rollout(agent, lambda: desktop.desktop({}), tasks, out=tmp_path, **told))
    record = result.record
    found = (record.outcome, record.error, record.success, record.refused, record.parse_failures, record.steps)
    assert found == ("scored", None, True, 2, 0, len(replies))
    assert "Not done: " in json.dumps(server.requests[1])


def test_claude_hears_where_the_pointer_is_at_the_start_and_after_a_zoom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen of 1280 x 720 is shown to the model as it is."""
    monkeypatch.setenv("THE_KEY", "secret-value")
    asked = [
        [tool_use("a", "cursor_position", {})],
        [tool_use("b", "mouse_move", {"coordinate": [300, 200]}), tool_use("c", "zoom", {"region": [0, 0, 64, 36]})],
        [tool_use("d", "cursor_position", {})],
    ]
    replies = [message(number, blocks, "tool_use") for number, blocks in enumerate(asked)]
    replies.append(end("claude", 3))
    where: list[tuple[int, int]] = []

    async def start() -> None:
        live = await begun()
        try:
            shown = await live._computer.look()  # type: ignore[union-attr]
            assert shown.pointer is not None
            where.append(shown.pointer)
        finally:
            await live.close()

    asyncio.run(start())
    with serving(lambda request, number: Reply(replies[number])) as server:
        config: Any = convert(
            {"kind": "claude", "model": "m", "retries": 0, "api_key": "THE_KEY", "base_url": server.url},
            AgentConfig,  # type: ignore[arg-type]
            "agent",
        )
        agent = make_agent(config, PromptConfig().builder())
        told: dict[str, Any] = {"benchmark": "b", "environment": "desktop", "limits": RolloutLimits(attempts=1)}
        tasks = desktop.tasks(1, SEED, {})
        (result,) = asyncio.run(rollout(agent, lambda: desktop.desktop({}), tasks, out=tmp_path, **told))
    assert result.record.refused == 0
    ((x, y),) = where
    assert f"X={x},Y={y}" in json.dumps(server.requests[1]["messages"][-1])
    assert "X=300,Y=200" in json.dumps(server.requests[3]["messages"][-1])


def test_every_key_with_a_keysym_can_be_pressed() -> None:
    refused: list[str] = []

    async def go() -> None:
        live = await begun()
        try:
            for name in ("fn", *NAMED_KEYS):
                try:
                    await live.step(Action(ActionType.KEY, keys=(name,)))
                except ActionRefused:
                    refused.append(name)
        finally:
            await live.close()

    asyncio.run(go())
    assert refused == ["fn"]
