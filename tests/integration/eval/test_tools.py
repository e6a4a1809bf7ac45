"""Tools beside the mouse: what each agent's wire carries, what the episode and the results count, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval import run
from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.agents.config import AgentConfig, make_agent
from eval.config import ConfigError, convert
from eval.desktop import ActionRefused, Desktop, Interface, Observation, Score, Task
from eval.desktops.tools import TOOLS, tree_text
from eval.prompts import PromptConfig
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.integration.eval.test_sdk_loops import calls_of_openai, end, message, response, tool_use
from tests.integration.eval.test_served import LOGIN, SEED
from tests.support.modelserver import ModelServer, Reply, completion, serving

KINDS = ("openai-compatible", "openai", "claude")
CLICK = Action(ActionType.CLICK, x=0.5, y=0.5)


class Tooled:
    """The drawn login, with a tool that says what it was given, and tools that fail."""

    tools = tuple(TOOLS)

    def __init__(self) -> None:
        self.inner: Desktop = LOGIN.desktop({})
        self.called: list[tuple[str, dict[str, Any]]] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.seen = await self.inner.reset(task, seed)
        return self.seen

    async def step(self, action: Action) -> Observation:
        self.seen = await self.inner.step(action)
        return self.seen

    async def score(self) -> Score:
        return await self.inner.score()

    async def close(self) -> None:
        await self.inner.close()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        given = TOOLS[name].check(arguments)
        self.called.append((name, given))
        if given.get("command") == "false":
            raise ActionRefused("it does not work")
        return f"{name} was done", self.seen


def play(
    kind: str, server: ModelServer, out: Path, interface: Interface, desktop: Any = None, **options: Any
) -> Rollout:
    section = {"kind": kind, "model": "m", "retries": 0, **options}
    section["base_url"] = server.url if kind == "claude" else f"{server.url}/v1"
    if kind != "openai-compatible":
        section["api_key"] = "THE_KEY"
    config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
    agent = make_agent(config, PromptConfig().builder())
    told: dict[str, Any] = {"benchmark": "b", "environment": "login", "interface": interface}
    told["limits"] = RolloutLimits(attempts=1)
    tasks = [replace(task, max_steps=4) for task in LOGIN.tasks(1, SEED, {})]
    (result,) = asyncio.run(rollout(agent, desktop or Tooled, tasks, out=out, **told))
    return result


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "secret-value")


def calls(kind: str, number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """An answer with one call of a tool, as the API of the agent has it."""
    text = json.dumps(arguments)
    if kind == "openai":
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        return response(number, {**item, "name": name, "arguments": text})
    if kind == "claude":
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
        return message(number, [block], "tool_use")
    call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}
    return completion(None, "tool_calls", tool_calls=[call])


def clicks(kind: str, number: int) -> dict[str, Any]:
    if kind == "openai":
        return response(number, calls_of_openai(number, [CLICK]))
    if kind == "claude":
        return message(number, [tool_use(f"toolu_{number}", "left_click", {"coordinate": [40, 40]})], "tool_use")
    return completion("Action: CLICK(x=0.5000, y=0.5000)")


def ends(kind: str, number: int) -> dict[str, Any]:
    return completion("Action: DONE()") if kind == "openai-compatible" else end(kind, number, "It is done.")


def names(request: dict[str, Any]) -> list[str]:
    """The tools that a request offers, those of the SDK's computer as `computer`."""
    offered = []
    for tool in request.get("tools", []):
        tool = tool.get("function", tool) if isinstance(tool.get("function"), dict) else tool
        offered.append(tool["name"] if tool.get("name") in TOOLS else "computer")
    return offered


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_uses_a_tool_and_the_mouse_and_reads_how_the_tool_ended(kind: str, tmp_path: Path) -> None:
    replies = [calls(kind, 0, "run_command", {"command": "ls"}), clicks(kind, 1), ends(kind, 2)]
    with serving(lambda request, number: Reply(replies[number])) as server:
        result = play(kind, server, tmp_path, "both")
    assert (result.record.outcome, result.record.error, result.record.steps) == ("scored", None, 3)
    assert result.record.parse_failures == 0
    assert result.episode is not None
    (call,) = result.episode.steps[0].calls
    assert (call.name, call.arguments, call.result) == ("run_command", {"command": "ls"}, "run_command was done")
    assert result.episode.steps[0].action is None
    assert [step.action.type for step in result.episode.steps[1:] if step.action] == [ActionType.CLICK, ActionType.DONE]
    assert "run_command was done" in json.dumps(server.requests[1])
    if kind != "claude":  # its API remembers; elsewhere each request tells everything
        assert json.dumps(server.requests[2]).count("run_command was done") == 1
    used = {"gui_actions": 1.0, "tool_calls": 1.0, "gui_share": 0.5}
    assert {name: result.record.metrics[name] for name in used} == used
    assert result.episode.metadata["interface"] == {"kind": "both", **used}
    assert result.record.rules["interface"] == "both"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_offered_is_what_may_be_used(kind: str, tmp_path: Path) -> None:
    offered: dict[Interface, list[str]] = {}
    interfaces: tuple[Interface, ...] = ("gui", "tools", "both")
    for interface in interfaces:
        with serving(lambda request, number: Reply(ends(kind, number))) as server:
            result = play(kind, server, tmp_path / interface, interface)
        offered[interface] = names(server.requests[0])
        assert result.record.steps == 1
    computer = [] if kind == "openai-compatible" else ["computer"]  # its prompt tells of the mouse
    assert offered == {"gui": computer, "tools": list(TOOLS), "both": [*computer, *TOOLS]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("run_command", {"command": "false"}, "it does not work"),
        ("run_command", {"order": "ls"}, "run_command takes command; given: order"),
        ("run_command", {"command": ""}, "command must be a text"),
        ("open_file", {"program": "mousepad", "path": "a\0b"}, "path must be a text"),
    ],
    ids=["fails", "unknown argument", "empty", "zero byte"],
)
def test_a_call_that_fails_is_told_to_the_model_and_the_episode_goes_on(
    kind: str, name: str, arguments: dict[str, Any], why: str, tmp_path: Path
) -> None:
    replies = [calls(kind, 0, name, arguments), ends(kind, 1)]
    with serving(lambda request, number: Reply(replies[number])) as server:
        result = play(kind, server, tmp_path, "both")
    assert (result.record.outcome, result.record.error, result.record.steps) == ("scored", None, 2)
    assert result.episode is not None
    (call,) = result.episode.steps[0].calls
    assert call.result is None
    assert why in str(call.error)
    assert why in json.dumps(server.requests[1])


@pytest.mark.filterwarnings("ignore:Tool 'run_command' not found")  # Anthropic's SDK, which tells its model too
@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_where_only_the_mouse_may_be_used_is_no_action(kind: str, tmp_path: Path) -> None:
    made: list[Tooled] = []

    def desktop() -> Tooled:
        made.append(Tooled())
        return made[-1]

    with serving(lambda request, number: Reply(calls(kind, number, "run_command", {"command": "ls"}))) as server:
        result = play(kind, server, tmp_path, "gui", desktop)
    assert (result.record.outcome, result.record.error, result.record.score) == ("scored", None, 0.0)
    assert made[0].called == []
    assert "gui_share" not in result.record.metrics


def test_the_mouse_where_only_tools_may_be_used_is_refused(tmp_path: Path) -> None:
    replies = [clicks("openai-compatible", 0), ends("openai-compatible", 1)]
    with serving(lambda request, number: Reply(replies[number])) as server:
        result = play("openai-compatible", server, tmp_path, "tools")
    assert result.episode is not None
    assert "there is no mouse and no keyboard here" in str(result.episode.steps[0].refused)
    assert result.record.steps == 2


@pytest.mark.parametrize("kind", KINDS)
def test_calls_without_end_stop_at_the_limit_of_steps(kind: str, tmp_path: Path) -> None:
    def answer(request: dict[str, Any], number: int) -> Reply:
        return Reply(calls(kind, number, "read_tree", {}))

    with serving(answer) as server:
        result = play(kind, server, tmp_path, "tools")
    assert (result.record.outcome, result.record.steps, result.record.score) == ("scored", 4, 0.0)
    assert result.record.metrics["tool_calls"] == 4
    assert result.record.metrics["gui_share"] == 0


def test_an_answer_with_two_calls_does_both(tmp_path: Path) -> None:
    first = calls("openai-compatible", 0, "run_command", {"command": "ls"})
    more = calls("openai-compatible", 9, "read_tree", {})["choices"][0]["message"]["tool_calls"]
    first["choices"][0]["message"]["tool_calls"] += more
    replies = [first, ends("openai-compatible", 1)]
    with serving(lambda request, number: Reply(replies[number])) as server:
        result = play("openai-compatible", server, tmp_path, "both")
    assert result.episode is not None
    assert [call.result for call in result.episode.steps[0].calls] == ["run_command was done", "read_tree was done"]


def evaluated(tmp_path: Path, **given: Any) -> None:
    config = {
        "benchmark": "b",
        "environment": "login",
        "tasks": {"count": 1, "seed": SEED},
        "agent": {"kind": "nothing"},
    }
    run.evaluate(convert({**config, **given}, run.RunConfig, "run"), tmp_path)


def test_an_evaluation_that_could_do_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interface: tools: agent nothing calls no tools; allowed for it: gui, both"):
        evaluated(tmp_path, interface="tools")
    with pytest.raises(ConfigError, match=r"interface: both: the desktops of environment login have no tools; .* gui"):
        evaluated(tmp_path, interface="both")


def test_a_tree_in_words() -> None:
    label = TreeNode(role="label", name="Name", bounds=(10, 20, 30, 40))
    text = TreeNode(role="text", text="two\nlines")
    panel = TreeNode(role="panel", children=[label, text])
    tree = Tree(applications=[TreeNode(role="application", name="mousepad", children=[panel])], cut=["it ended"])
    assert tree_text(tree) == (
        "application 'mousepad'\n  label 'Name' at (10, 20) 30x40\n  text 'two\\nlines'\nleft out: it ended"
    )
