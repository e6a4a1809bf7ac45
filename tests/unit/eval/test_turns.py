"""An answer may hold several actions; the rollout does, records and tells them all, and a step is one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History, decide
from eval.agents.computer import Computer
from eval.desktop import ActionRefused, InfraError, Observation, Task
from eval.environments.registry import environment
from eval.episodes import Step, TokenUsage, ToolCall, read_episode
from eval.prompts import PastStep, PromptBuilder, PromptConfig
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.unit.eval.doubles import CLICK, DONE, Counting, Saying
from training.data.packed import store

SEED = 1_000_000
LOGIN = environment("login")
LIMITS = RolloutLimits(attempts=1, backoff=0.0, concurrency=4)


def work(
    agent: Any, tasks: Sequence[Task], out: Path, limits: RolloutLimits = LIMITS, name: str = "login"
) -> list[Rollout]:
    desktop = (lambda: LOGIN.desktop({})) if name == "login" else Counting
    told: dict[str, Any] = {"benchmark": "b", "environment": name}
    return asyncio.run(rollout(agent, desktop, tasks, out=out, limits=limits, **told))


class Expert:
    """Plays a task through on a desktop of its own, then says all of the actions in one answer."""

    name = "expert"
    parallel = 1

    def __init__(self, builder: PromptBuilder) -> None:
        self.builder = builder

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        decisions = []
        for history in histories:
            desktop = LOGIN.desktop({})
            seen = await desktop.reset(history.task, history.task.seed)
            actions: list[Action] = []
            while not actions or actions[-1].type is not ActionType.DONE:
                assert seen.expected is not None
                actions.append(seen.expected.action)
                seen = await desktop.step(actions[-1])
            text = self.builder.dialect.format_turn(actions[:-1])  # done is an answer of its own in OpenAI's wire
            decisions.append(decide(partial(self.builder.read_turn, marks={}), text))
        return decisions


@pytest.mark.parametrize("dialect", ["openai", "qwen3-vl", "anthropic-20260801"])
def test_one_answer_with_all_the_actions_is_one_step_and_solves_the_task(dialect: str, tmp_path: Path) -> None:
    """The limit of steps counts answers, as in OSWorld's lib_run_single.py: one is enough here."""
    builder = PromptConfig(dialect=dialect).builder()
    task = Task(**{**vars(LOGIN.tasks(1, SEED, {})[0]), "max_steps": 1})
    (result,) = work(Expert(builder), [task], tmp_path)
    assert (result.record.success, result.record.steps, result.record.error) == (True, 1, None)
    (step,) = read_episode(tmp_path / "episodes" / f"login-{SEED}-{SEED}").steps
    kinds = [action.type.value for action in step.actions]
    assert kinds == ["click", "type", "click", "type", "click"]
    assert result.record.metrics["actions"] == 5
    assert result.episode is not None
    assert result.episode.steps == (step,)


def test_a_refused_action_is_the_agents_error_and_ends_the_answer_not_the_episode(tmp_path: Path) -> None:
    builder = PromptConfig(dialect="dsl").builder()

    class Opens(Expert):
        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            opens = Action(ActionType.OPEN_APP, app_name="browser")
            if not histories[0].past:
                return [Decision("x", opens, further_actions=(CLICK, DONE))]
            expected = observations[0].expected
            assert expected is not None
            return [Decision("y", expected.action)]

    (result,) = work(Opens(builder), LOGIN.tasks(1, SEED, {}), tmp_path)
    assert (result.record.outcome, result.record.success, result.record.metrics["refused"]) == ("scored", True, 1.0)
    assert result.episode is not None
    first = result.episode.steps[0]
    assert first.refused == "action 1 (open_app): there are no other programs"
    assert [action.type.value for action in first.actions] == ["open_app", "click", "done"]  # what the agent said
    assert all(step.refused is None for step in result.episode.steps[1:])


def test_no_kind_of_action_ends_an_evaluation_on_a_drawn_desktop(tmp_path: Path) -> None:
    examples: dict[str, Mapping[str, Any]] = json.loads(
        (Path(__file__).parent / "every_action.json").read_text(encoding="utf-8")
    )
    assert set(examples) == {kind.value for kind in ActionType}

    class Each:
        name = "each"
        parallel = 1

        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            return [Decision("x", Action(**examples[history.task.options["kind"]])) for history in histories]

    for name in ("login", "click", "versions"):
        world = environment(name)
        template = world.tasks(1, SEED, {})[0]
        tasks = [Task(kind, "x", template.seed, 2, {"kind": kind}) for kind in examples]
        told: dict[str, Any] = {"benchmark": "b", "environment": name}
        made = rollout(Each(), lambda world=world: world.desktop({}), tasks, out=tmp_path / name, limits=LIMITS, **told)
        results = asyncio.run(made)
        assert [result.record.outcome for result in results] == ["scored"] * len(tasks)
        refused = {result.record.task_id for result in results if result.record.metrics.get("refused")}
        assert "goto" in refused
        assert not refused & {"click", "type", "wait", "done"}


FULL = Step(
    index=0,
    screenshot="000.png",
    action=CLICK,
    further_actions=(DONE,),
    refused="action 2 (done): no",
    calls=(ToolCall(name="computer", id="c1", arguments={"x": 1}, result="ok"), ToolCall(name="y", error="no")),
    usage=TokenUsage(input_tokens=1200, output_tokens=30, cached_tokens=1000),
    cost=0.0125,
    raw={"id": "r", "output": [{"type": "message"}]},
)


def test_calls_tokens_cost_and_the_raw_answer_are_recorded_and_packed(tmp_path: Path) -> None:
    class Full:
        name = "full"
        parallel = 1

        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            told = {name: getattr(FULL, name) for name in ("further_actions", "calls", "usage", "cost", "raw")}
            return [Decision("x", FULL.action, **told)] * len(histories)

    (result,) = work(Full(), [Task("t", "x", 0)], tmp_path, name="counting")
    (step,) = read_episode(tmp_path / "episodes" / "t-0").steps
    for name in ("actions", "calls", "usage", "cost", "raw"):
        assert getattr(step, name) == getattr(FULL, name)
    figures = {name: result.record.metrics[name] for name in ("input_tokens", "output_tokens", "cost")}
    assert figures == {"input_tokens": 1200, "output_tokens": 30, "cost": 0.0125}
    assert Step.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL
    assert result.episode is not None
    assert store.from_row(store.to_row(result.episode, ["a", "b"])) == result.episode


def test_answers_whose_cost_nobody_knows_are_counted_beside_the_cost(tmp_path: Path) -> None:
    class Cut:
        name = "cut"
        parallel = 1

        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            costs = (0.25, None, 0.5, None)
            return [Decision("x", CLICK if step < 3 else DONE, cost=costs[step]) for step in map(_past, histories)]

    (result,) = work(Cut(), [Task("t", "x", 0)], tmp_path, name="counting")
    assert (result.record.metrics["cost"], result.record.metrics["answers_without_cost"]) == (0.75, 2.0)


def _past(history: History) -> int:
    return len(history.past)


def test_the_next_prompt_tells_every_action_of_a_past_answer() -> None:
    typed = Action(ActionType.TYPE, text="a")
    past = [PastStep(CLICK, further_actions=(typed,))]
    for style, told in (
        ("list", "1. CLICK(x=0.50, y=0.50); TYPE(text="),
        ("turns", "# Step 1:\nCLICK(x=0.50, y=0.50); TYPE("),
    ):
        builder = PromptConfig(decimals=2, history_style=style).builder()  # type: ignore[arg-type]
        messages, _ = builder.layout("g", past, Path("x.png"))
        assert any(told in part.get("text", "") for message in messages for part in message["content"])
    openai = PromptConfig(dialect="openai", history_style="turns").builder()
    messages, _ = openai.layout("g", past, Path("x.png"))
    answer = next(message for message in messages if message["role"] == "assistant")["content"][0]["text"]
    assert openai.read_turn(answer).actions == (CLICK, typed)
    step = msgspec.structs.replace(FULL, further_actions=(typed,))
    assert openai.read_turn(openai.target(step)).actions == (CLICK, typed)  # what a training teaches


class Loop:
    """An SDK's loop: it does its actions one by one, and swallows every exception of its tool."""

    name = "loop"

    def __init__(self, *kinds: Action, answers: int = 50) -> None:
        self.kinds = kinds
        self.answers = answers
        self.caught: list[str] = []

    async def run(self, computer: Computer) -> None:
        for number in range(self.answers):
            try:
                computer.begin(Decision(f"answer {number}", None))
            except Exception as error:
                self.caught.append(type(error).__name__)
            for action in self.kinds:
                try:
                    await computer.act(action, ToolCall(name="computer", id=f"{number}-{action.type}"))
                except Exception as error:
                    self.caught.append(type(error).__name__)


def test_a_loop_that_swallows_every_exception_still_ends_at_the_limit_of_steps(tmp_path: Path) -> None:
    agent = Loop(CLICK, CLICK)
    (result,) = work(agent, [Task("t", "x", 0)], tmp_path, RolloutLimits(max_steps=3, attempts=1), "counting")
    assert (result.record.steps, result.record.outcome, result.record.score) == (3, "scored", 1.0)
    assert result.record.metrics["actions"] == 6
    assert set(agent.caught) <= {"EpisodeOver"}
    assert result.episode is not None
    assert [call.id for call in result.episode.steps[1].calls] == ["1-click"]


def test_a_loop_that_swallows_the_desktops_failure_is_infra_and_never_a_score(tmp_path: Path) -> None:
    broken = Task("broken", "x", 0, options={"fault": "step"})
    Counting.started.clear()
    (result,) = work(Loop(CLICK), [broken], tmp_path, RolloutLimits(attempts=2, backoff=0.0), "counting")
    assert (result.record.outcome, result.record.score, result.record.attempts) == ("infra", None, 2)
    assert "step failed" in (result.record.error or "")


def test_a_loop_that_stops_by_itself_is_judged_as_the_screen_is(tmp_path: Path) -> None:
    (result,) = work(Loop(CLICK, answers=3), [Task("t", "x", 0)], tmp_path, name="counting")
    assert (result.record.outcome, result.record.success, result.record.score) == ("scored", False, 1.0)


def test_an_agent_that_never_answers_is_infra(tmp_path: Path) -> None:
    class Silent(Saying):
        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            await asyncio.Event().wait()
            raise AssertionError

    limits = RolloutLimits(attempts=1, answer_timeout=0.05)
    (result,) = work(Silent(), [Task("t", "x", 0)], tmp_path, limits, "counting")
    assert (result.record.outcome, result.record.score) == ("infra", None)
    assert result.record.error == "AgentTimeout: no answer of the agent for 0.05 s"


def test_a_batching_models_answer_returns_when_it_is_ready_and_waits_for_no_other(tmp_path: Path) -> None:
    """The answer of the second episode comes only after the first one has ended: in lockstep it never would."""
    first_is_done = asyncio.Event()

    class Streaming:
        name = "streaming"
        parallel = 2

        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            raise AssertionError("each is there")

        async def each(
            self, observations: Sequence[Observation], histories: Sequence[History]
        ) -> AsyncIterator[tuple[int, Decision]]:
            order = sorted(range(len(histories)), key=lambda number: histories[number].task.task_id)
            for number in order:
                task, past = histories[number].task.task_id, len(histories[number].past)
                if task == "t1":
                    await first_is_done.wait()
                elif past == 1:
                    first_is_done.set()
                yield number, Decision("x", CLICK if past == 0 else DONE)

    tasks = [Task("t0", "x", 0), Task("t1", "x", 0)]
    results = work(Streaming(), tasks, tmp_path, name="counting")
    assert [result.record.steps for result in results] == [2, 2]


def test_held_keys_are_known_to_the_agent_and_a_refusal_is_told_to_it() -> None:
    class Refusing(Counting):
        async def step(self, action: Action) -> Observation:
            if action.type is ActionType.GOTO:
                raise ActionRefused("no browser")
            return await super().step(action)

    async def scenario() -> None:
        desktop = Refusing()
        task = Task("t", "x", 0)
        computer = Computer(desktop, task, await desktop.reset(task, 0), max_steps=5, step_timeout=5)
        assert computer.size == (20, 20)
        with pytest.raises(ValueError, match="before the first answer"):
            await computer.act(CLICK)
        computer.begin(Decision("x", None))
        await computer.act(Action(ActionType.KEY_DOWN, keys=("shift",)))
        await computer.act(Action(ActionType.MOUSE_DOWN, button="right"))
        assert computer.held == {"shift", "button:right"}
        await computer.act(Action(ActionType.KEY_UP, keys=("shift",)))
        assert computer.held == {"button:right"}
        with pytest.raises(ActionRefused, match="no browser"):
            await computer.act(Action(ActionType.GOTO, url="x"), ToolCall(name="goto", id="1"))
        assert computer.steps[-1].calls == (ToolCall(name="goto", id="1", error="no browser"),)
        assert not computer.ended.is_set()
        assert isinstance(computer.failure, InfraError | None)
        await desktop.close()

    asyncio.run(scenario())
