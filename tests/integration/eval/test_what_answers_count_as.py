"""One rule for the loops of all agents: the same task with the same faults gives the same outcome.

A case says what the model does in words of its own (`Said`); each kind of agent gets it in its own wire, from a server
that speaks that wire. The expected outcome is written once, beside the case. Agents without a wire ask the server, too:
a user's own, and `transformers` in the place of its model's `generate`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History, decide
from eval.agents.config import AgentConfig, make_agent
from eval.agents.transformers import TransformersAgent
from eval.config import convert
from eval.desktop import ActionRefused, Interface, Observation
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from tests.integration.eval import test_tools as tools
from tests.integration.eval.test_sdk_loops import calls_of_claude, calls_of_openai, expert, message, response, tool_use
from tests.integration.eval.test_served import LOGIN, SEED
from tests.support.cases import every_case
from tests.support.modelserver import ModelServer, Reply, completion, serving
from training.tiny import TinyConfig, build

CLICK = Action(ActionType.CLICK, x=0.5, y=0.5)
OFF, SCROLL_0, KEY, KEY_0, NO_KEYS, PROSE, MALFORMED, DRAG_1, TOOL = (
    "off the screen",
    "a scroll of 0",
    "a key",
    "a key without a name",
    "no keys",
    "prose",
    "?",
    "a drag",
    "!",
)
Said = Sequence[Action | str]  # an answer: actions, and what is named above
KINDS = ("openai-compatible", "custom", "transformers", "openai", "openai preview", "claude")
CALLING = ("openai-compatible", "openai", "openai preview", "claude")  # tools, too
TEXTS = ("openai-compatible", "custom", "transformers")  # answers are texts of a dialect


class Refusing(tools.Tooled):
    """The drawn login with tools. It refuses F12, and keeps what it did."""

    made: ClassVar[list[Refusing]] = []

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Action] = []
        Refusing.made.append(self)

    async def step(self, action: Action) -> Observation:
        if action.keys == ("f12",):
            raise ActionRefused("there is no F12 here")
        seen = await super().step(action)
        self.done.append(action)
        return seen


def _openai(number: int, said: Said, preview: bool) -> dict[str, Any]:
    if PROSE in said:
        return response(number)  # a text would say that the task is done
    if TOOL in said:
        return tools.calls("openai", number, "run_command", {"command": "false"})
    wire: list[dict[str, Any]] = []
    for one in said:
        if isinstance(one, Action) and one.keys:
            wire.append({"type": "keypress", "keys": [one.keys[0].upper()]})
        elif isinstance(one, Action):
            wire += calls_of_openai(0, [one])["actions"]
        else:
            faults: dict[str, dict[str, Any]] = {
                OFF: {"type": "click", "button": "left", "x": 9999, "y": 1},
                SCROLL_0: {"type": "scroll", "x": 1, "y": 1, "scroll_x": 0, "scroll_y": 0},
                KEY: {"type": "keypress", "keys": ["NO_SUCH_KEY"]},
                KEY_0: {"type": "keypress", "keys": [""]},
                NO_KEYS: {"type": "keypress", "keys": []},
                DRAG_1: {"type": "drag", "path": [{"x": 5, "y": 5}]},
                MALFORMED: {"type": "explode"},
            }
            wire.append(faults[one])
    call = calls_of_openai(number, [])
    if preview:
        del call["actions"]
        calls = [
            {**call, "id": f"i{number}_{at}", "call_id": f"c{number}_{at}", "action": one}
            for at, one in enumerate(wire)
        ]
        return response(number, *calls)
    return response(number, {**call, "actions": wire})


def _claude(number: int, said: Said) -> dict[str, Any]:
    if PROSE in said:
        return message(number, [], "end_turn")
    if TOOL in said:
        return tools.calls("claude", number, "run_command", {"command": "false"})
    blocks: list[dict[str, Any]] = []
    for at, one in enumerate(said):
        name = f"toolu_{number}_{at}"
        if isinstance(one, Action) and one.keys:
            blocks.append(tool_use(name, "key", {"text": one.keys[0].upper()}))
        elif isinstance(one, Action):
            blocks.append({**calls_of_claude(number, [one])[0], "id": name})
        else:
            faults: dict[str, tuple[str, dict[str, Any]]] = {
                OFF: ("left_click", {"coordinate": [9999, 1]}),
                SCROLL_0: ("scroll", {"coordinate": [1, 1], "scroll_direction": "down", "scroll_amount": 0}),
                KEY: ("key", {"text": "NoSuchKey"}),
                KEY_0: ("key", {"text": ""}),
                NO_KEYS: ("wait", {"duration": 0}),  # this wire presses a key at least
                DRAG_1: ("key", {"text": "NoSuchKey"}),  # this wire has no drag of one point
                MALFORMED: ("explode", {}),
            }
            member, given = faults[one]
            blocks.append(tool_use(name, member, given))
    return message(number, blocks, "tool_use")


def _text(number: int, said: Said) -> dict[str, Any]:
    if PROSE in said:
        return completion("I shall think about it.")
    if TOOL in said:
        return tools.calls("openai-compatible", number, "run_command", {"command": "false"})
    calls = []
    for one in said:
        if isinstance(one, Action):
            arguments: dict[str, Any]
            if one.keys:
                arguments = {"action": "key", "keys": [one.keys[0]]}
            elif one.type is ActionType.TYPE:
                arguments = {"action": "type", "text": one.text}
            else:
                assert one.point is not None
                arguments = {"action": "left_click", "coordinate": [round(side * 1000) for side in one.point]}
        else:
            faults: dict[str, dict[str, Any]] = {
                OFF: {"action": "left_click", "coordinate": [9999, 1]},
                SCROLL_0: {"action": "scroll", "coordinate": [1, 1], "pixels": 0},
                KEY: {"action": "key", "keys": ["NO_SUCH_KEY"]},
                KEY_0: {"action": "key", "keys": [""]},
                NO_KEYS: {"action": "key", "keys": []},
                DRAG_1: {"action": "key", "keys": ["NO_SUCH_KEY"]},
                MALFORMED: {"action": "explode"},
            }
            arguments = faults[one]
        calls.append(f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>")
    return completion("\n".join(calls))


def wire(kind: str, number: int, said: Said) -> dict[str, Any]:
    if kind.startswith("openai") and kind != "openai-compatible":
        return _openai(number, said, kind.endswith("preview"))
    return _claude(number, said) if kind == "claude" else _text(number, said)


def end(kind: str, number: int) -> dict[str, Any]:
    if kind in TEXTS:
        done = {"name": "computer_use", "arguments": {"action": "terminate", "status": "success"}}
        return completion(f"<tool_call>\n{json.dumps(done)}\n</tool_call>")
    return tools.ends(kind.split()[0], number)


@dataclass(frozen=True)
class Case:
    """What the model answers before it does the task and says done, and what comes of it, for every kind of agent."""

    answers: tuple[Said, ...]
    solved: bool = True
    refused: int = 0
    parse_failures: int = 0
    told: str = ""  # in the next request
    steps: int | None = None  # None: all answers, the task's and the end
    done: tuple[ActionType, ...] = ()  # what the desktop did before the task's actions
    interfaces: tuple[Interface, ...] = ("gui", "both")
    limits: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = KINDS


F12 = Action(ActionType.KEY, keys=("f12",))
CASES = {
    "no fault": Case(()),
    "a scroll of 0 does nothing": Case(((SCROLL_0,),), done=(ActionType.HOVER,)),
    "off the screen": Case(((OFF,),), refused=1, told="Not done: "),
    "an unknown key": Case(((KEY,),), refused=1, told="Not done: "),
    "a key without a name": Case(((KEY_0,),), refused=1, told="Not done: "),
    "no keys do nothing": Case(((NO_KEYS,),), done=(ActionType.WAIT,)),
    "a drag of one point": Case(((DRAG_1,),), refused=1, told="Not done: "),
    "ten in a row": Case(((OFF,),) * 10, refused=10, told="Not done: "),
    "up to the limit of them": Case(((OFF,), (F12,)), solved=False, refused=2, steps=2, limits={"refused": 2}),
    "the desktop refuses it": Case(((F12,),), refused=1, told="Not done: "),
    "nothing is done of an answer that cannot be done": Case(((CLICK, OFF),), refused=1, told="Not done: "),
    "nothing is done after what the desktop refuses": Case(
        ((CLICK, F12, CLICK),), refused=1, told="Not done: ", done=(ActionType.CLICK,)
    ),
    "no action": Case(((MALFORMED,),), solved=False, parse_failures=1, steps=1),
    "no action, and one is allowed": Case(
        ((MALFORMED,),), parse_failures=1, told="Not done: ", limits={"parse_failures": 2}
    ),
    "nothing is done of an answer that is no action": Case(
        ((CLICK, MALFORMED),), parse_failures=1, told="Not done: ", limits={"parse_failures": 2}
    ),
    "neither call nor text": Case(((PROSE,),), parse_failures=1, told="Not done: ", limits={"parse_failures": 2}),
    "a tool that fails": Case(
        ((TOOL,),),
        refused=1,
        told="it does not work",
        interfaces=("both",),
        kinds=CALLING,
    ),
    "a tool that fails, where there is nothing else": Case(
        ((TOOL,), (TOOL,)), solved=False, refused=2, told="it does not work", interfaces=("tools",), kinds=CALLING
    ),
    "the mouse, where there are only tools": Case(
        ((CLICK,), (F12,)), solved=False, refused=2, told="Not done: ", interfaces=("tools",)
    ),
    "off the screen, where there are only tools": Case(
        ((OFF,),), solved=False, refused=1, told="Not done: ", interfaces=("tools",)
    ),
    "no action, where there are only tools": Case(
        ((MALFORMED,),), solved=False, parse_failures=1, steps=1, interfaces=("tools",)
    ),
    "neither call nor text, where there are only tools": Case(
        ((PROSE,),),
        solved=False,
        parse_failures=1,
        told="Not done: ",
        limits={"parse_failures": 2},
        interfaces=("tools",),
    ),
}


def play(kind: str, server: ModelServer, out: Path, case: Case, interface: Interface) -> Any:
    builder = PromptConfig(dialect="qwen3-vl").builder()
    agent = in_process(builder, server.url) if kind == "transformers" else served(kind, builder, server)
    tasks = [replace(task, max_steps=40) for task in LOGIN.tasks(1, SEED, {})]
    told: dict[str, Any] = {"benchmark": "b", "environment": "login", "interface": interface}
    limits = RolloutLimits(attempts=1, **case.limits)
    (result,) = asyncio.run(rollout(agent, Refusing, tasks, out=out, limits=limits, **told))
    return result


def served(kind: str, builder: PromptBuilder, server: ModelServer) -> Any:
    section: dict[str, Any] = {"kind": kind.split()[0], "model": "m", "retries": 0}
    section["base_url"] = server.url if kind == "claude" else f"{server.url}/v1"
    if kind == "openai preview":
        section["preview"] = True
    if kind == "custom":
        section = {"kind": "custom", "factory": f"{__name__}:Asking", "options": {"url": server.url}}
    elif kind != "openai-compatible":
        section["api_key"] = "THE_KEY"
    config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
    return make_agent(config, builder)


@cache
def tiny() -> tuple[Any, Any]:
    """(model, processor) with random weights."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    with tempfile.TemporaryDirectory() as folder:
        build(TinyConfig(layers=1, vision_layers=1), Path(folder))
        return AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def in_process(builder: PromptBuilder, url: str) -> TransformersAgent:
    """An agent that does all itself but to compute the tokens of an answer: those come from a server, as a text."""
    import torch

    agent = TransformersAgent(tiny(), builder)
    tokenizer = agent.processor.tokenizer

    def generate(input_ids: Any, stopping_criteria: Any, **_: Any) -> Any:
        said = asked(url, {"prompts": tokenizer.batch_decode(input_ids)})
        tokens = tokenizer(said + tokenizer.eos_token, add_special_tokens=False, return_tensors="pt")["input_ids"]
        whole = torch.cat([input_ids, tokens], dim=1)
        stopping_criteria(whole, None)
        return SimpleNamespace(sequences=whole, scores=None)

    agent.model.generate = generate
    return agent


def asked(url: str, request: dict[str, Any]) -> str:
    """The text that the server answers."""
    with urllib.request.urlopen(url, data=json.dumps(request).encode()) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


class Asking:
    """A user's own agent that decides for each screen: the answer comes from a server, as a text."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str, url: str) -> None:
        self.name, self.builder, self.url = name, builder, url

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for observation, history in zip(observations, histories, strict=True):
            messages, _ = self.builder.ask(history.task, history.past, observation)
            decisions.append(decide(self.builder.read_turn, asked(self.url, {"messages": messages})))
        return decisions


def cases() -> list[tuple[str, Interface]]:
    return [(name, how) for name, case in CASES.items() for how in case.interfaces]


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")  # the SDKs', about tools that they do not know
@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.ml if k == "transformers" else ()) for k in KINDS])
@every_case(("name", "interface"), cases, ids=lambda value: value)
def test_the_same_faults_give_the_same_outcome(
    kind: str, name: str, interface: Interface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "secret-value")
    case = CASES[name]
    if kind not in case.kinds:
        return
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    Refusing.made.clear()
    replies = [wire(kind, number, said) for number, said in enumerate(case.answers)]
    if interface != "tools":  # in which the task cannot be done
        replies += [wire(kind, len(replies) + at, [action]) for at, action in enumerate(expert())]
    replies.append(end(kind, len(replies)))
    with serving(lambda request, number: Reply(replies[number])) as server:
        record = play(kind, server, tmp_path / "out", case, interface).record
    found = (record.outcome, record.error, record.success, record.refused, record.parse_failures, record.steps)
    steps = len(replies) if case.steps is None else case.steps
    assert found == ("scored", None, case.solved, case.refused, case.parse_failures, steps)
    if case.solved:
        (desktop,) = Refusing.made
        assert [action.type for action in desktop.done][: len(desktop.done) - len(expert()) - 1] == list(case.done)
    if case.told:
        assert case.told in json.dumps(server.requests[1])
        assert json.dumps(server.requests[1]).count(case.told) <= 2 * len(case.answers[0])
