"""Every desktop that stands for another passes on its tools, whether it answers, and what a person does on it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.actions.geometry import Box
from eval.agents.baselines import HumanAgent
from eval.audit.auditing import LeftBehind
from eval.benchmarks.gtk_login.environment import GtkLoginDesktop, GtkLoginOptions
from eval.config import ConfigError
from eval.desktop import (
    DescribedTools,
    Desktop,
    Observation,
    Score,
    Task,
    WrappedScreen,
    answer_of,
    followed_on,
    has_tools,
)
from eval.desktops.tools import Tool
from eval.environments import login
from eval.environments.custom import TwiceJudged
from eval.environments.sources import SourcedDesktop, SourcedTask, SourcesOptions
from eval.environments.started import StartedDesktop
from eval.grounders.base import GroundedDesktop
from eval.judge_errors.measuring import AskedDesktop
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from eval.rollout.tool_servers import DesktopWithServers
from tests.support.documented import ROOT

TASK: Final = Task("t", "Do it.")
CLICK: Final = Action(ActionType.CLICK, x=0.5, y=0.5)
DONE: Final = Action(ActionType.DONE)


def screen(shade: int) -> Observation:
    return Observation(Image.new("RGB", (10, 10), (shade,) * 3), (10, 10))


FIRST, SECOND, THIRD = map(screen, (1, 2, 3))


class Plain:
    """A desktop that has nothing besides."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return FIRST

    async def step(self, action: Action) -> Observation:
        return SECOND

    async def score(self) -> Score:
        return Score(1.0, True)

    async def close(self) -> None:
        pass


class Whole(Plain):
    """One that has all that a desktop may have."""

    tools = ("look",)
    described = {"look": Tool("look", "Look around.", {"where": "a place"})}  # noqa: RUF012

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        return f"{name} {arguments}", THIRD

    async def answers(self) -> Observation | None:
        return SECOND

    async def follow(self) -> AsyncGenerator[tuple[Observation, Action, Observation]]:
        """Between the actions the screen changes by itself."""
        yield FIRST, CLICK, SECOND
        yield THIRD, DONE, THIRD


class Corner:
    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        return {1: (0.0, 0.0, 0.1, 0.1)}


def sourced(inner: Desktop) -> SourcedDesktop:
    desktop = SourcedDesktop([SourcedTask(TASK)], SourcesOptions(sources=[]))
    desktop.inner = inner
    return desktop


def logging_in(inner: Desktop) -> GtkLoginDesktop:
    """Of a form that needs no screen."""
    desktop = GtkLoginDesktop(GtkLoginOptions())
    form = login.LoginForm(login.layout(0, "test"), *login.credentials(0, "test"))

    async def read() -> None: ...

    desktop.inner, desktop.scene = inner, SimpleNamespace(form=form, read=read)  # type: ignore[assignment]
    return desktop


ASKING: Any = SimpleNamespace(config=SimpleNamespace(screens=9))
WRAPPERS: Final[dict[str, Callable[[Desktop], Any]]] = {
    "AskedDesktop": lambda inner: AskedDesktop(inner, ASKING),
    "DesktopWithServers": lambda inner: DesktopWithServers(inner, ()),
    "GroundedDesktop": lambda inner: GroundedDesktop(inner, Corner()),
    "GtkLoginDesktop": logging_in,
    "LeftBehind": LeftBehind,
    "SourcedDesktop": sourced,
    "StartedDesktop": lambda inner: StartedDesktop(inner, {}),
    "TwiceJudged": lambda inner: TwiceJudged(inner, "none:none"),
}
WITH_TOOLS: Final = [name for name in WRAPPERS if name != "GtkLoginDesktop"]  # played by mouse and keyboard alone
PASSED: Final = {"answers", "follow"}


def test_no_desktop_stands_for_another_by_itself() -> None:
    """A class whose `step` calls another one's `step`, or whose base is such a class, leaves the rest to the base."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "eval").rglob("*.py"):
        for made in ast.walk(ast.parse(file.read_text())):
            if isinstance(made, ast.ClassDef):
                methods = {
                    each.name: ast.unparse(each)
                    for each in made.body
                    if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)
                }
                bases = set(map(ast.unparse, made.bases))
                if ".step(" in methods.get("step", "") or bases & {"WrappedScreen", "WrappedDesktop"}:
                    assert made.name == "WrappedScreen" or bases & {"WrappedScreen", "WrappedDesktop"}, made.name
                    found[made.name] = PASSED & methods.keys()
    assert found.pop("WrappedScreen") == PASSED
    assert found == {name: set() for name in [*WRAPPERS, "WrappedDesktop"]}


@pytest.mark.parametrize("name", WRAPPERS)
def test_it_passes_on_whether_the_other_answers(name: str) -> None:
    answered = asyncio.run(answer_of(WRAPPERS[name](Whole())))
    assert answered is not None
    assert answered.image is SECOND.image
    assert asyncio.run(answer_of(WRAPPERS[name](Plain()))) is None


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_it_passes_on_what_the_tools_of_the_other_are(name: str) -> None:
    """Else an agent is told of no tool of an MCP server below a grounder, a judge or a start."""
    desktop = WRAPPERS[name](Whole())
    assert isinstance(desktop, DescribedTools)
    assert desktop.described == Whole.described
    assert has_tools(desktop)
    assert asyncio.run(desktop.call("look", {}))[0] == "look {}"
    if name != "DesktopWithServers":  # which has its own
        assert not has_tools(WRAPPERS[name](Plain()))
    assert WRAPPERS[name](Plain()).described == {}


async def followed(desktop: WrappedScreen) -> list[tuple[Observation, Action, Observation]]:
    work = followed_on(desktop)
    assert work is not None
    return [each async for each in work]


@pytest.mark.parametrize("name", WRAPPERS)
def test_it_passes_on_what_a_person_does(name: str) -> None:
    worked = asyncio.run(followed(WRAPPERS[name](Whole())))
    assert [(before.image, action, after.image) for before, action, after in worked] == [
        (FIRST.image, CLICK, SECOND.image),
        (THIRD.image, DONE, THIRD.image),
    ]
    assert followed_on(WRAPPERS[name](Plain())) is None


def test_what_a_person_does_is_shown_as_what_an_agent_does() -> None:
    (before, _, after), last = asyncio.run(followed(GroundedDesktop(Whole(), Corner())))
    assert all(each.marks == {1: (0.0, 0.0, 0.1, 0.1)} for each in (before, after, last[0], last[2]))
    for name in ("AskedDesktop", "SourcedDesktop", "TwiceJudged"):  # who judges by it
        desktop = WRAPPERS[name](Whole())
        asyncio.run(followed(desktop))
        assert desktop.done == [CLICK, DONE]
    asked = AskedDesktop(Whole(), ASKING)
    asyncio.run(followed(asked))
    assert asked.screens == [FIRST.image, SECOND.image, THIRD.image]  # each once


def played(inner: Desktop, out: Path) -> Rollout:
    made = rollout(
        HumanAgent(Dsl(4)),
        lambda: DesktopWithServers(inner, ()),
        [TASK],
        out=out,
        benchmark="b",
        environment="e",
        limits=RolloutLimits(concurrency=1, attempts=1),
    )
    (result,) = asyncio.run(made)
    return result


def test_a_person_works_on_a_desktop_with_servers(tmp_path: Path) -> None:
    result = played(Whole(), tmp_path)
    assert (result.record.outcome, result.record.score, result.record.steps) == ("scored", 1.0, 2)
    with pytest.raises(ConfigError, match="a person cannot work on these desktops"):
        played(Plain(), tmp_path / "none")
