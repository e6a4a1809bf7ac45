"""What every agent promises. A new one is a class of configuration, a line in AGENTS, and an example in CASES."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from eval.agents.base import Agent, Decision, History
from eval.agents.config import AGENTS, AgentConfig, DecidingConfig, EvaluatedConfig, make_agent, make_deciding
from eval.config import Config, ConfigError, convert
from eval.desktop import Observation, Task
from eval.environments.registry import environment
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from training.make_episodes import MakeEpisodesConfig, make

SEED = 1_000_000
WORLD = environment("click")
TASKS = WORLD.tasks(4, SEED, {})
Pair = tuple[Agent, PromptBuilder]


def _episodes(folder: Path) -> str:
    settings = {"environment": "click", "options": {"split": "train"}, "tasks": {"count": 3, "seed": 0}}
    make(convert(settings, MakeEpisodesConfig, "episodes"), folder)
    return str(folder / "episodes")


def _model(folder: Path) -> str:
    from training.tiny import TinyConfig, build

    build(TinyConfig(hidden=64, vision_hidden=32), folder)
    return str(folder)


# kind -> its section of a configuration
CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "transformers": lambda folder: {"model": _model(folder), "max_new_tokens": 4},
    "openai-compatible": lambda folder: {"model": "m", "retries": 0},
    "scripted": lambda folder: {},
    "nothing": lambda folder: {},
    "hacker": lambda folder: {},
    "random": lambda folder: {"seed": 7},
    "commonest": lambda folder: {"episodes": _episodes(folder)},
    "nearest": lambda folder: {"episodes": _episodes(folder)},
    "custom": lambda folder: {
        "factory": "tests.contract.agent.own:Fixed",
        "options": {"text": "Action: CLICK(x=0.5000, y=0.5000)"},
    },
}
# these ask a server: tests/integration/agent starts one
SERVED = {"openai-compatible"}
# these run a loop of their own and answer no single screen: tests/integration/eval/test_sdk_loops.py
LOOPING = {"openai", "claude", "human"}
# only eval.run takes these, which gives them desktops of their own: tests/unit/eval/test_hacked.py
EVALUATED_ONLY = {"hacker"}
MARKS = {"transformers": [pytest.mark.ml]}


def test_every_kind_of_a_configuration_makes_an_agent_and_has_a_case_here() -> None:
    kinds = set(get_args(EvaluatedConfig))
    assert set(AGENTS) == kinds
    assert _names(kinds - set(get_args(AgentConfig))) == EVALUATED_ONLY
    assert _names(get_args(DecidingConfig)) == set(CASES) - EVALUATED_ONLY
    assert _names(kinds) - set(CASES) == LOOPING


def _names(kinds: Iterable[Any]) -> set[str]:
    return {kind.__struct_config__.tag for kind in kinds}


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=MARKS.get(kind, [])) for kind in CASES if kind not in SERVED]
)
def agent_and_builder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return agent_of(request.param, CASES[request.param](tmp_path_factory.mktemp("agent")))


def agent_of(kind: str, settings: dict[str, Any]) -> Pair:
    builder = PromptConfig().builder()
    config: Any = convert({"kind": kind, "name": "under-test", **settings}, EvaluatedConfig, "agent")  # type: ignore[arg-type]
    assert isinstance(config, Config)
    return make_deciding(config, builder), builder


def test_a_users_own_agent_may_run_a_loop_but_is_refused_for_single_screens(tmp_path: Path) -> None:
    section = {"kind": "custom", "name": "own", "factory": "tests.contract.agent.own:Looping"}
    config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
    agent = make_agent(config, PromptConfig().builder())
    told: dict[str, Any] = {"benchmark": "contract", "environment": "click"}
    results = asyncio.run(rollout(agent, lambda: WORLD.desktop({}), TASKS, out=tmp_path, **told))
    assert [(result.record.outcome, result.record.steps) for result in results] == [("scored", 1)] * len(TASKS)
    with pytest.raises(ConfigError, match="agent own: it runs a loop of its own, so it needs an environment"):
        make_deciding(config, PromptConfig().builder())


def first_screens() -> tuple[list[Observation], list[History]]:
    async def look() -> list[Observation]:
        return [await WORLD.desktop({}).reset(task, task.seed) for task in TASKS]

    return asyncio.run(look()), [History(task) for task in TASKS]


def ask(agent: Agent, observations: list[Observation], histories: list[History]) -> list[Decision]:
    return asyncio.run(agent.act(observations, histories))


def test_it_has_its_name_and_says_how_many_calls_it_takes_at_once(
    agent_and_builder: Pair,
) -> None:
    agent, _ = agent_and_builder
    assert agent.name == "under-test"
    assert agent.parallel >= 1


def test_one_decision_for_each_observation_whole(agent_and_builder: Pair) -> None:
    agent, builder = agent_and_builder
    observations, histories = first_screens()
    decisions = ask(agent, observations, histories)
    assert len(decisions) == len(observations)
    for decision, observation in zip(decisions, observations, strict=True):
        assert isinstance(decision.response, str)
        assert (decision.action is None) == (decision.parse_error is not None)
        if decision.action is not None:  # the text says the action that is done
            assert builder.read(decision.response, observation.marks).action == decision.action


def test_nothing_asked_is_nothing_answered(agent_and_builder: Pair) -> None:
    assert ask(agent_and_builder[0], [], []) == []


def test_the_decisions_are_in_the_order_of_the_observations(agent_and_builder: Pair) -> None:
    agent, _ = agent_and_builder
    observations, histories = first_screens()
    forward = ask(agent, observations, histories)
    backward = ask(agent, observations[::-1], histories[::-1])
    assert [d.response for d in forward] == [d.response for d in backward][::-1]


def test_it_goes_through_the_rollout(agent_and_builder: Pair, tmp_path: Path) -> None:
    agent, _ = agent_and_builder
    results = asyncio.run(
        rollout(
            agent,
            lambda: WORLD.desktop({}),
            TASKS,
            out=tmp_path,
            benchmark="contract",
            environment="click",
            limits=RolloutLimits(attempts=1),
        )
    )
    assert [result.record.outcome for result in results] == ["scored"] * len(TASKS)
    assert {result.record.agent for result in results} == {"under-test"}


def test_a_task_that_it_never_saw_is_no_failure_of_the_program(agent_and_builder: Pair) -> None:
    observations, _ = first_screens()
    (decision,) = ask(agent_and_builder[0], observations[:1], [History(Task("other", "Sing a song", 5))])
    assert isinstance(decision, Decision)
