"""Asking about single screens while the agent's server fails: nothing is lost, and nothing is a score."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from PIL import Image

from eval.agents.base import Agent, Decision, History
from eval.config import ConfigError
from eval.desktop import BadFrame, DesktopGone, Observation, Task
from eval.rollout.single_screens import GIVE_UP, Asked, ScreenQuestion, ask


class Answers:
    """Answers each screen with its name; fails where `fails` says so of (name, how often it was asked)."""

    name = "answers"

    def __init__(self, parallel: int, fails: Callable[[str, int], Exception | None]) -> None:
        self.parallel = parallel
        self.fails = fails
        self.asked: list[str] = []
        self.at_once = self.most = 0

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        names = [history.task.task_id for history in histories]
        self.asked += names
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0)
            for name in names:
                if error := self.fails(name, self.asked.count(name)):
                    raise error
        finally:
            self.at_once -= 1
        return [Decision(name, None, parse_error="no action") for name in names]


def screens(count: int, broken: Sequence[int] = ()) -> list[ScreenQuestion[int]]:
    def screen(number: int) -> ScreenQuestion[int]:
        def show() -> tuple[Observation, History]:
            if number in broken:
                raise BadFrame("cut off")
            image = Image.new("RGB", (4, 4))
            return Observation(image, image.size), History(Task(str(number), "go"))

        return ScreenQuestion(number, show)

    return [screen(number) for number in range(count)]


def asked(agent: Agent, given: Sequence[ScreenQuestion[int]], batch_size: int) -> list[list[Asked[int]]]:
    async def go() -> list[list[Asked[int]]]:
        return [batch async for batch in ask(agent, given, batch_size)]

    return asyncio.run(go())


@pytest.mark.parametrize("parallel", [1, 64])
def test_every_screen_is_answered_once_in_order(parallel: int) -> None:
    agent = Answers(parallel, lambda name, times: None)
    batches = asked(agent, screens(7, broken=[2]), 3)
    assert [[each.key for each in batch] for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    told = [each for batch in batches for each in batch]
    assert [each.decision.response if each.decision else each.infra for each in told] == [
        *("0", "1", "BadFrame: cut off"),
        *("3", "4", "5", "6"),
    ]
    assert sorted(agent.asked) == ["0", "1", "3", "4", "5", "6"]


def test_a_failure_of_a_served_model_costs_its_own_screen_only() -> None:
    agent = Answers(64, lambda name, times: DesktopGone("503") if name == "1" else None)
    ((zero, one, two),) = asked(agent, screens(3), 8)
    assert (zero.infra, one.infra, two.infra) == (None, "DesktopGone: 503", None)
    assert one.decision is None


def test_no_more_screens_are_asked_at_once_than_the_agent_takes() -> None:
    agent = Answers(2, lambda name, times: None)
    asked(agent, screens(8), 8)
    assert agent.most == 2


def test_a_batch_of_a_model_in_this_process_fails_as_one_and_the_next_is_asked() -> None:
    agent = Answers(1, lambda name, times: DesktopGone("no memory") if name == "1" else None)
    first, second = asked(agent, screens(4), 2)
    assert [each.infra for each in first] == ["DesktopGone: no memory"] * 2
    assert [each.infra for each in second] == [None, None]


@pytest.mark.parametrize("parallel", [1, 64])
def test_a_server_that_is_gone_is_not_asked_for_ever(parallel: int) -> None:
    agent = Answers(parallel, lambda name, times: DesktopGone("gone"))
    batches = asked(agent, screens(100), 2)
    told = [each for batch in batches for each in batch]
    assert [each.key for each in told] == list(range(100))
    assert len(agent.asked) == 2 * GIVE_UP
    assert told[-1].infra == f"not asked after {GIVE_UP} batches without an answer; the last one: DesktopGone: gone"


def test_pictures_that_are_broken_are_no_silence_of_the_agent() -> None:
    agent = Answers(64, lambda name, times: None)
    batches = asked(agent, screens(10, broken=range(8)), 2)
    assert [each.infra for each in batches[-1]] == [None, None]


@pytest.mark.parametrize("parallel", [1, 64])
def test_what_the_configuration_must_mend_ends_the_asking(parallel: int) -> None:
    agent = Answers(parallel, lambda name, times: ConfigError("wrong key") if name == "3" else None)
    with pytest.raises(ConfigError, match="wrong key"):
        asked(agent, screens(6), 2)


# agentnetbench through the real SDK
