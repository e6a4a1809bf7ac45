"""What every environment promises. A new one is a line in ENVIRONMENTS; it is then a parameter of everything below or,
where it starts programs (PROGRAMS in worlds.py), of tests/integration/environment."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError
from eval.desktop import ActionRefused, Desktop, Environment, Observation
from eval.environments.registry import DESKTOP_METHODS, ENVIRONMENT_METHODS
from eval.rollout.loop import RolloutLimits, rollout
from tests.contract.environment.worlds import drawn

SEED = 1_000_000  # the first seed of the split `test`, which is every environment's default
COUNT = 3
EVERY_KIND = [
    Action(ActionType.CLICK, x=0.5, y=0.5),
    Action(ActionType.CLICK, x=0.0, y=0.0),
    Action(ActionType.CLICK, x=1.0, y=1.0),
    Action(ActionType.DOUBLE_CLICK, x=0.5, y=0.5),
    Action(ActionType.RIGHT_CLICK, x=0.5, y=0.5),
    Action(ActionType.MIDDLE_CLICK, x=0.5, y=0.5),
    Action(ActionType.TRIPLE_CLICK, x=0.5, y=0.5),
    Action(ActionType.DRAG, x=0.1, y=0.1, x2=0.9, y2=0.9),
    Action(ActionType.SCROLL, direction="down", amount=3.0),
    Action(ActionType.SCROLL, direction="left"),
    Action(ActionType.HOVER, x=0.5, y=0.5),
    Action(ActionType.TYPE, text="ä\n\t\\"),
    Action(ActionType.TYPE, text=""),
    Action(ActionType.KEY, keys=("no such key",)),
    Action(ActionType.HOTKEY, keys=("ctrl", "a")),
    Action(ActionType.CLICK_AND_TYPE, x=0.5, y=0.5, text="a"),
    Action(ActionType.WAIT, duration=0.0),
    Action(ActionType.SCREENSHOT),
    Action(ActionType.GOTO, url="x"),
    Action(ActionType.BACK),
    Action(ActionType.OPEN_APP, app_name="x"),
    Action(ActionType.SELECT_MONITOR, monitor_id=1),
    Action(ActionType.WINDOW_RESIZE, width=0.5, height=0.5),
    Action(ActionType.MOUSE_DOWN),
    Action(ActionType.KEY_DOWN, keys=("shift",)),
    Action(ActionType.KEY_UP, keys=("shift",)),
]


@asynccontextmanager
async def started(world: Environment, index: int = 0) -> AsyncIterator[tuple[Desktop, Observation]]:
    task = world.tasks(COUNT, SEED, {})[index]
    desktop = world.desktop({})
    try:
        yield desktop, await desktop.reset(task, task.seed)
    finally:
        await desktop.close()


def seen(observation: Observation) -> tuple[object, ...]:
    """What an agent sees, and what it is measured by, in a form that compares."""
    image = observation.image
    return (image.size, image.tobytes(), dict(observation.marks), observation.expected, observation.done)


def taken(observation: Observation) -> Action:
    """An action that the environment takes: its expert's, where it has one."""
    return Action(ActionType.WAIT, duration=0.0) if observation.expected is None else observation.expected.action


def test_it_has_the_methods_of_the_protocol(world: Environment) -> None:
    for name, arguments in ENVIRONMENT_METHODS.items():
        inspect.signature(getattr(world, name)).bind(*arguments)
    desktop = world.desktop({})
    for name, arguments in DESKTOP_METHODS.items():
        assert inspect.iscoroutinefunction(getattr(desktop, name))
        inspect.signature(getattr(desktop, name)).bind(*arguments)


def test_the_same_arguments_give_the_same_tasks(world: Environment) -> None:
    tasks = world.tasks(COUNT, SEED, {})
    assert tasks == world.tasks(COUNT, SEED, {})
    assert len({(task.task_id, task.seed) for task in tasks}) == COUNT
    assert all(task.seed >= SEED and task.instruction for task in tasks)


def test_more_tasks_begin_with_the_same_ones(world: Environment) -> None:
    assert world.tasks(2 * COUNT, SEED, {})[:COUNT] == world.tasks(COUNT, SEED, {})


def test_an_option_that_it_does_not_know_is_refused(world: Environment) -> None:
    for use in (lambda: world.tasks(1, SEED, {"no_such_option": 1}), lambda: world.desktop({"no_such_option": 1})):
        with pytest.raises(ConfigError, match="no_such_option"):
            use()


@drawn
def test_training_seeds_are_not_those_of_evaluation(world: Environment) -> None:
    with pytest.raises(ConfigError, match="seed"):
        world.tasks(1, 0, {"split": "test"})
    with pytest.raises(ConfigError, match="seed"):
        world.tasks(1, SEED, {"split": "train"})


def test_a_reset_gives_a_whole_observation(world: Environment) -> None:
    async def look() -> Observation:
        async with started(world) as (_, observation):
            return observation

    observation = asyncio.run(look())
    assert observation.image.mode == "RGB"
    assert min(observation.screen) > 0
    assert not observation.done
    for left, top, width, height in observation.marks.values():
        assert 0 <= left <= left + width <= 1
        assert 0 <= top <= top + height <= 1


def test_the_same_task_and_the_same_actions_give_the_same_pictures(world: Environment) -> None:
    async def play() -> list[tuple[object, ...]]:
        async with started(world) as (desktop, observation):
            pictures = [seen(observation)]
            for action in EVERY_KIND[:3]:
                pictures.append(seen(await desktop.step(action)))
            return pictures

    assert asyncio.run(play()) == asyncio.run(play())


def test_two_desktops_know_nothing_of_each_other(world: Environment) -> None:
    async def play() -> None:
        async with started(world) as (acting, before), started(world) as (resting, same):
            assert seen(before) == seen(same)
            for action in EVERY_KIND:
                with contextlib.suppress(ActionRefused):
                    await acting.step(action)
            after = await resting.step(taken(before))
            async with started(world) as (third, _):
                assert seen(after) == seen(await third.step(taken(before)))

    asyncio.run(play())


@pytest.mark.parametrize("action", EVERY_KIND, ids=lambda action: action.type.value)
def test_any_action_is_taken_or_refused(world: Environment, action: Action) -> None:
    async def play() -> None:
        async with started(world) as (desktop, before):
            try:
                observation = await desktop.step(action)
            except ActionRefused:
                assert action.type not in (ActionType.CLICK, ActionType.TYPE, ActionType.DONE, ActionType.FAIL)
                observation = await desktop.step(taken(before))  # it may be asked for another
            assert observation.image.mode == "RGB"
            score = await desktop.score()
            assert 0 <= score.value <= 1

    asyncio.run(play())


@drawn
@pytest.mark.parametrize("kind", [ActionType.DONE, ActionType.FAIL])
def test_who_does_nothing_but_end_has_solved_nothing(world: Environment, kind: ActionType) -> None:
    async def play() -> None:
        async with started(world) as (desktop, _):
            await desktop.step(Action(kind))
            assert not (await desktop.score()).success

    asyncio.run(play())


@drawn
def test_its_expert_solves_every_task_and_what_is_counted_agrees(world: Environment, tmp_path: Path) -> None:
    results = asyncio.run(
        rollout(
            ScriptedAgent(Dsl(4)),
            lambda: world.desktop({}),
            world.tasks(COUNT, SEED, {}),
            out=tmp_path,
            benchmark="contract",
            environment="contract",
            limits=RolloutLimits(attempts=1),
        )
    )
    assert [result.record.success for result in results] == [True] * COUNT
    assert all(result.record.correct == result.record.judged > 0 for result in results)
