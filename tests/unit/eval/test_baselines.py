"""The agents that every other must beat: nothing at all, and random actions."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.agents.base import Decision, History
from eval.agents.baselines import DoesNothing, RandomAction, ScriptedAgent
from eval.desktop import Observation, Task
from eval.environments.registry import environment
from eval.prompts import PastStep, PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from tests.bench.nearest_told import NearestTold

LOOK = Observation(Image.new("RGB", (8, 8)), (8, 8))
PAST = PastStep(Action(ActionType.WAIT))


def drawn(agent: RandomAction, steps: int, task: Task) -> list[Decision]:
    histories = [History(task, [PAST] * number) for number in range(steps)]
    return asyncio.run(agent.act([LOOK] * steps, histories))


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_random_actions_are_valid_in_every_dialect_and_its_text_says_them(name: str) -> None:
    dialect = make_dialect(name, 4, False)
    decisions = drawn(RandomAction(dialect, 3), 200, Task("t", "Do it."))
    kinds = Counter(decision.action.type for decision in decisions if decision.action is not None)
    assert sum(kinds.values()) == 200
    usual = {ActionType.CLICK} if name.startswith("place") else {ActionType.CLICK, ActionType.TYPE, ActionType.KEY}
    assert usual <= set(kinds)
    assert not {ActionType.DONE, ActionType.FAIL} & set(kinds)
    assert all(dialect.parse_response(each.response).action == each.action for each in decisions)


def test_random_points_are_spread_over_the_whole_screen() -> None:
    decisions = drawn(RandomAction(make_dialect("dsl", 4, False)), 2000, Task("t", "Do it."))
    points = [each.action.point for each in decisions if each.action and each.action.point]
    cells = Counter((int(4 * min(x, 0.999)), int(4 * min(y, 0.999))) for x, y in points)
    assert len(cells) == 16
    # 16 equally likely cells: 5 standard deviations about the mean of a binomial distribution
    mean = len(points) / 16
    assert all(abs(count - mean) < 5 * (mean * 15 / 16) ** 0.5 for count in cells.values())


def test_the_seed_and_the_task_decide_what_is_drawn_and_nothing_else() -> None:
    dialect = make_dialect("dsl", 4, False)
    first = drawn(RandomAction(dialect, 1), 20, Task("t", "Do it.", 5))
    assert drawn(RandomAction(dialect, 1), 20, Task("t", "Do it.", 5)) == first
    assert drawn(RandomAction(dialect, 2), 20, Task("t", "Do it.", 5)) != first
    assert drawn(RandomAction(dialect, 1), 20, Task("t", "Do it.", 6)) != first
    assert drawn(RandomAction(dialect, 1), 20, Task("u", "Do it.", 5)) != first


def test_nothing_scores_what_the_start_state_scores(tmp_path: Path) -> None:
    world = environment("click")
    results = asyncio.run(
        rollout(
            DoesNothing(make_dialect("dsl", 4, False)),
            lambda: world.desktop({}),
            world.tasks(3, 1_000_000, {}),
            out=tmp_path,
            benchmark="b",
            environment="click",
            limits=RolloutLimits(attempts=1),
        )
    )
    assert [(each.record.score, each.record.steps, each.record.parse_failures) for each in results] == [(0.0, 1, 0)] * 3


def test_the_nearest_step_is_copied_with_the_words_of_the_own_task(tmp_path: Path) -> None:
    """The screens of an episode, with other words in the goal: its clicks, and those words where it typed its own."""
    world = environment("login")
    (task,) = world.tasks(1, 7, {"split": "train"})
    limits = RolloutLimits(attempts=1)
    builder = PromptConfig(dialect="dsl").builder()
    asyncio.run(
        rollout(
            ScriptedAgent(builder.dialect),
            lambda: world.desktop({"split": "train"}),
            [task],
            out=tmp_path,
            benchmark="b",
            environment="login",
            limits=limits,
        )
    )
    agent = NearestTold(builder, name="told", episodes=str(tmp_path / "episodes"))
    other = Task("other", 'Log in as "jim" with the password "secret word".')

    async def play() -> list[tuple[ActionType, str | None]]:
        desktop = world.desktop({"split": "train"})
        seen = await desktop.reset(task, task.seed)
        answers: list[tuple[ActionType, str | None]] = []
        while seen.expected is not None and len(answers) < 6:
            (decision,) = await agent.act([seen], [History(other, [])])
            assert decision.action is not None
            answers.append((decision.action.type, decision.action.text))
            seen = await desktop.step(seen.expected.action)
        return answers

    click, typed = ActionType.CLICK, ActionType.TYPE
    expected = [(click, None), (typed, "jim"), (click, None), (typed, "secret word"), (click, None)]
    assert asyncio.run(play()) == [*expected, (ActionType.DONE, None)]
