"""Claude and OpenAI's computer use: the SDKs' own loops, our driver, a server that speaks the real wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.agents.config import AgentConfig, make_agent
from eval.config import ConfigError, convert
from eval.desktop import Task
from eval.episodes import TokenUsage
from eval.prompts import PromptConfig
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.integration.eval.test_served import LOGIN, SEED, SIZE, expert_actions
from tests.support.modelserver import ModelServer, Reply, serving

KINDS = ("openai", "claude")


def play(
    kind: str,
    server: ModelServer,
    out: Path,
    tasks: Sequence[Task] | None = None,
    attempts: int = 1,
    parse_failures: int = 1,
    **options: Any,
) -> list[Rollout]:
    section = {"kind": kind, "model": "m", "api_key": "THE_KEY", "retries": 0, **options}
    section["base_url"] = f"{server.url}/v1" if kind == "openai" else server.url
    config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
    agent = make_agent(config, PromptConfig().builder())
    told: dict[str, Any] = {"benchmark": "b", "environment": "login"}
    limits = RolloutLimits(attempts=attempts, backoff=0.0, parse_failures=parse_failures)
    chosen = tasks or LOGIN.tasks(1, SEED, {})
    return asyncio.run(rollout(agent, lambda: LOGIN.desktop({}), chosen, out=out, limits=limits, **told))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "secret-value")


def cell(action: Action) -> tuple[int, int]:
    assert action.point is not None
    return round(action.point[0] * SIZE), round(action.point[1] * SIZE)


def calls_of_openai(number: int, actions: Sequence[Action], **more: Any) -> dict[str, Any]:
    said: list[dict[str, Any]] = []
    for action in actions:
        if action.type is ActionType.TYPE:
            said.append({"type": "type", "text": action.text})
        else:
            x, y = cell(action)
            said.append({"type": "click", "button": "left", "x": x, "y": y})
    call = {"type": "computer_call", "id": f"cu_{number}", "call_id": f"call_{number}", "status": "completed"}
    return {**call, "actions": said, "pending_safety_checks": [], **more}


def response(number: int, *output: Any, **more: Any) -> dict[str, Any]:
    """A response of OpenAI's API."""
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 400},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 1020,
    }
    head: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed"}
    head |= {"model": "m", "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": usage}
    return {**head, "output": list(output), **more}


def message_of_openai(number: int, text: str, kind: str = "output_text") -> dict[str, Any]:
    content = {"type": kind, "text": text, "annotations": []} if kind == "output_text" else {"type": kind, kind: text}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [content]}


def calls_of_claude(number: int, actions: Sequence[Action]) -> list[dict[str, Any]]:
    blocks = []
    for index, action in enumerate(actions):
        typing = action.type is ActionType.TYPE
        given: dict[str, Any] = {"text": action.text} if typing else {"coordinate": list(cell(action))}
        blocks.append(tool_use(f"toolu_{number}_{index}", "type" if typing else "left_click", given))
    return blocks


def tool_use(identity: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "toolset_name": "computer", "name": name, "input": given}


def message(number: int, content: list[dict[str, Any]], stop: str) -> dict[str, Any]:
    """A message of Anthropic's API."""
    usage = {
        "input_tokens": 600,
        "cache_read_input_tokens": 400,
        "cache_creation_input_tokens": 0,
        "output_tokens": 20,
    }
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return {**head, "content": content, "stop_reason": stop, "usage": usage}


def turn(kind: str, number: int, actions: Sequence[Action]) -> dict[str, Any]:
    if kind == "openai":
        return response(number, calls_of_openai(number, actions))
    return message(number, calls_of_claude(number, actions), "tool_use")


def end(kind: str, number: int, text: str) -> dict[str, Any]:
    if kind == "openai":
        return response(number, message_of_openai(number, text))
    return message(number, [{"type": "text", "text": text}], "end_turn")


def expert() -> list[Action]:
    return expert_actions(LOGIN.tasks(1, SEED, {})[0])[:-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [True, False])
def test_a_loop_of_an_sdk_solves_the_login_on_our_computer(kind: str, batch: bool, tmp_path: Path) -> None:
    """Two answers of three and two actions, or five of one; then the model says that it is done."""
    actions = expert()
    turns = [actions[:3], actions[3:]] if batch else [[action] for action in actions]
    replies = [turn(kind, number, done) for number, done in enumerate(turns)]
    replies.append(end(kind, len(turns), "Logged in."))
    with serving(lambda request, number: Reply(replies[number])) as server:
        prices = {"input": 2.0, "output": 8.0, "cached": 0.5}
        (result,) = play(kind, server, tmp_path, prices=prices)
    assert (result.record.outcome, result.record.success, result.record.error) == ("scored", True, None)
    assert result.record.steps == len(turns) + 1
    assert result.episode is not None
    steps = result.episode.steps
    assert [[action.type.value for action in step.actions] for step in steps] == [
        *([action.type.value for action in done] for done in turns),
        ["done"],
    ]
    assert steps[-1].actions[0].text == "Logged in."
    assert steps[0].usage == TokenUsage(input_tokens=1000, output_tokens=20, cached_tokens=400)
    assert steps[0].cost == pytest.approx(0.00156)  # 600 fresh at 2, 400 cached at .5, 20 at 8, for a million
    assert steps[0].raw is not None
    assert all(call.error is None for step in steps for call in step.calls)
    tools = server.requests[0]["tools"]
    assert tools[0]["type"] == ("computer" if kind == "openai" else "computer_toolset_20260801")
    assert len(server.requests) == len(replies)


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_that_says_infeasible_is_fail(kind: str, tmp_path: Path) -> None:
    with serving(lambda request, number: Reply(end(kind, 0, "[INFEASIBLE] no such user"))) as server:
        (result,) = play(kind, server, tmp_path)
    assert result.episode is not None
    assert result.episode.steps[-1].actions[0].type is ActionType.FAIL
    assert (result.record.outcome, result.record.score) == ("scored", 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_of_steps_ends_the_sdks_loop(kind: str, tmp_path: Path) -> None:
    def answer(request: dict[str, Any], number: int) -> Reply:
        return Reply(turn(kind, number, expert()[:1]))

    (template,) = LOGIN.tasks(1, SEED, {})
    task = Task(template.task_id, template.instruction, template.seed, max_steps=3)
    with serving(answer) as server:
        (result,) = play(kind, server, tmp_path, [task])
    assert (result.record.outcome, result.record.steps, result.record.score) == ("scored", 3, 0.0)
    assert 3 <= len(server.requests) <= 4


FAULTS: dict[str, Callable[[], Reply]] = {
    "429": lambda: Reply({"error": {"type": "rate_limit_error", "message": "slow down"}}, 429),
    "529": lambda: Reply({"error": {"type": "overloaded_error", "message": "overloaded"}}, 529),
    "500": lambda: Reply({"error": {"message": "oops"}}, 500),
    "no json": lambda: Reply("<html>"),
    "cut": lambda: Reply({"id": "x" * 1000}, cut=20),
    "silence": lambda: Reply(hold=True),
    "empty object": lambda: Reply({}),
    "content null": lambda: Reply({"id": "1", "output": None, "content": None}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [0, 1])
def test_a_failure_of_the_api_is_never_a_score(kind: str, fault: str, at: int, tmp_path: Path) -> None:
    def answer(request: dict[str, Any], number: int) -> Reply:
        return FAULTS[fault]() if number >= at else Reply(turn(kind, number, expert()[:1]))

    with serving(answer) as server:
        (result,) = play(kind, server, tmp_path, timeout=0.5 if fault == "silence" else 30.0)
    assert (result.record.outcome, result.record.score) == ("infra", None)
    assert "ServerFailed" in (result.record.error or "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_api_is_asked_again(kind: str, tmp_path: Path) -> None:
    actions = expert()
    replies = [turn(kind, 0, actions), end(kind, 1, "Done.")]

    def answer(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            return Reply({"error": {"type": "rate_limit_error", "message": "slow down"}}, 429, {"Retry-After": "0.01"})
        return Reply(replies[min(number, 1)])

    with serving(answer) as server:
        (result,) = play(kind, server, tmp_path, retries=2)
    assert (result.record.success, result.record.attempts, result.record.steps) == (True, 1, 2)


def _bad(kind: str, name: str) -> Reply:
    """An answer of a model that is no valid turn."""
    click = Action(ActionType.CLICK, x=0.5, y=0.5)
    if kind == "openai":
        call = calls_of_openai(0, [click])
        wrong: dict[str, Any] = {
            "refusal": response(0, message_of_openai(0, "I cannot.", "refusal")),
            "truncated": response(0, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "filtered": response(0, status="incomplete", incomplete_details={"reason": "content_filter"}),
            "unknown action": response(0, {**call, "actions": [{"type": "explode"}]}),
            "no action": response(0, {**call, "actions": []}),
            "nothing": response(0),
            "another tool": response(
                0, {"type": "function_call", "id": "f", "call_id": "c", "name": "x", "arguments": "{"}
            ),
            "safety": response(
                0, {**call, "pending_safety_checks": [{"id": "s", "code": "malicious", "message": "sure?"}]}
            ),
        }
        return Reply(wrong[name])
    wrong = {
        "refusal": message(0, [{"type": "text", "text": "I cannot."}], "refusal"),
        "truncated": message(0, [{"type": "text", "text": "I w"}], "max_tokens"),
        "context": message(0, [], "model_context_window_exceeded"),
    }
    return Reply(wrong[name])


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("openai", "refusal", "refusal: I cannot."),
        ("openai", "truncated", "truncated: "),
        ("openai", "filtered", "refusal: "),
        ("openai", "unknown action", ""),
        ("openai", "no action", ""),
        ("openai", "nothing", ""),
        ("openai", "another tool", ""),
        ("openai", "safety", "safety: "),
        ("claude", "refusal", "refusal: "),
        ("claude", "truncated", "truncated: "),
        ("claude", "context", "limit: "),
    ],
)
def test_what_a_model_may_not_say_is_its_failure_and_told_apart(kind: str, name: str, why: str, tmp_path: Path) -> None:
    with serving(lambda request, number: _bad(kind, name)) as server:
        (result,) = play(kind, server, tmp_path)
    assert (result.record.outcome, result.record.score) == ("scored", 0.0)
    assert result.episode is not None
    assert len(server.requests) == 1
    (step,) = result.episode.steps
    assert (step.parse_error or "").startswith(why)
    assert step.parse_error
    assert result.episode.metadata["score"]["agent_failure"].startswith("no valid action: ")


def test_safety_checks_are_acknowledged_only_where_the_configuration_says_so(tmp_path: Path) -> None:
    check = {"id": "s", "code": "malicious", "message": "sure?"}
    replies = [
        response(0, calls_of_openai(0, expert(), pending_safety_checks=[check])),
        end("openai", 1, "Done."),
    ]
    with serving(lambda request, number: Reply(replies[number])) as server:
        (result,) = play("openai", server, tmp_path, safety="acknowledge")
    assert result.record.success
    output = server.requests[1]["input"][-1]
    assert [item["id"] for item in output["acknowledged_safety_checks"]] == ["s"]


WRONG_CALLS: dict[str, dict[str, Any]] = {
    "off the screen": tool_use("t", "left_click", {"coordinate": [9999, 1]}),
    "unknown key": tool_use("t", "key", {"text": "NoSuchKey"}),
    "unknown member": tool_use("t", "explode", {}),
    "no input": tool_use("t", "type", {}),
    "half a point": tool_use("t", "left_click", {"coordinate": [1]}),
    "a million repeats": tool_use("t", "key", {"text": "a", "repeat": 1_000_000}),
    "another toolset": {**tool_use("t", "left_click", {}), "toolset_name": "browser"},
}


@pytest.mark.filterwarnings("default:Toolset 'browser':UserWarning")  # the SDK's, about another toolset
@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_told_to_claude_and_the_episode_goes_on(name: str, tmp_path: Path) -> None:
    replies = [
        message(0, [WRONG_CALLS[name]], "tool_use"),
        turn("claude", 1, expert()),
        end("claude", 2, "Done."),
    ]
    with serving(lambda request, number: Reply(replies[number])) as server:
        (result,) = play("claude", server, tmp_path, parse_failures=2)
    assert (result.record.outcome, result.record.success, result.record.steps) == ("scored", True, 3)
    assert result.record.refused + result.record.parse_failures == 1
    (told,) = server.requests[1]["messages"][-1]["content"]
    assert (told["type"], told["is_error"]) == ("tool_result", True)


def test_a_call_that_the_sdk_itself_refuses_could_not_be_done(tmp_path: Path) -> None:
    """The SDK holds a key for at most 100 s; our dialect reads any time."""
    held = tool_use("t", "hold_key", {"text": "a", "duration": 1000})
    replies = [message(0, [held], "tool_use"), turn("claude", 1, expert()), end("claude", 2, "Done.")]
    with serving(lambda request, number: Reply(replies[number])) as server:
        (result,) = play("claude", server, tmp_path)
    record = result.record
    assert (record.success, record.steps, record.refused, record.parse_failures) == (True, 3, 1, 0)
    (told,) = server.requests[1]["messages"][-1]["content"]
    assert told["is_error"] is True


def test_claude_looks_zooms_and_asks_where_the_pointer_is(tmp_path: Path) -> None:
    looks = [
        tool_use("a", "left_click", {"coordinate": [40, 50]}),
        tool_use("b", "cursor_position", {}),
        tool_use("c", "screenshot", {}),
        tool_use("d", "zoom", {"region": [0, 0, 48, 48]}),
    ]
    replies = [message(0, looks, "tool_use"), end("claude", 1, "Done.")]
    with serving(lambda request, number: Reply(replies[number])) as server:
        (result,) = play("claude", server, tmp_path)
    assert result.record.outcome == "scored"
    results = server.requests[1]["messages"][-1]["content"]
    assert [block.get("is_error", False) for block in results] == [False] * 4
    assert "X=40,Y=50" in json.dumps(results[1])
    assert [block["content"][0]["type"] for block in results[2:]] == ["image", "image"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key_ends_the_evaluation_with_one_error(kind: str, tmp_path: Path) -> None:
    body = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
    with (
        serving(lambda request, number: Reply(body, 401)) as server,
        pytest.raises(ConfigError, match=f"agent {kind}: the server does not accept the key"),
    ):
        play(kind, server, tmp_path)
