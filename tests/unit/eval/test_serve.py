"""A session of eval.serve: what a client does is an episode, as an evaluation's agent would have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eval.config import ConfigError, convert
from eval.desktop import InfraError
from eval.environments.registry import ENVIRONMENTS
from eval.episodes import jsonl, read_episode
from eval.records.task_record import TaskRecord
from eval.serve import sessions as module
from eval.serve.choosing import OfferedTasks, RequestRefused
from eval.serve.config import ServeConfig
from eval.serve.reading import answer_of
from eval.serve.sessions import AfterAnswer, ClientSession, ClientSessions
from tests.unit.eval import doubles
from tests.unit.eval.doubles import Counting

T = TypeVar("T")
CLICK = {"type": "click", "x": 0.5, "y": 0.5}
DONE = {"type": "done"}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(ENVIRONMENTS, "counting", "tests.unit.eval.doubles")
    Counting.started.clear()
    Counting.open = Counting.most_open = 0
    yield
    assert Counting.open == 0, "a desktop was not closed"


def config(**changes: Any) -> ServeConfig:
    given = {"environment": "counting", "tasks": {"count": 3, "seed": 100}, **changes}
    return convert(given, ServeConfig, "serve")


def serving(out: Path, do: Callable[[ClientSessions], Awaitable[T]], **changes: Any) -> T:
    async def run() -> T:
        sessions = ClientSessions(config(**changes), out)
        try:
            return await do(sessions)
        finally:
            await sessions.close()

    return asyncio.run(run())


async def send(session: ClientSession, *answers: dict[str, Any]) -> AfterAnswer:
    seen = await session.look()
    for answer in answers:
        seen = await session.answer(answer_of(answer, session.sessions.builder, seen.observation.marks))
    return seen


def records(out: Path) -> list[TaskRecord]:
    return jsonl.read(out / "tasks.jsonl", TaskRecord)


def fault(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    made = doubles.tasks

    def tasks(*arguments: Any) -> Any:
        return [module.replace(task, options=options) for task in made(*arguments)]

    monkeypatch.setattr(doubles, "tasks", tasks)


def test_what_a_client_does_is_an_episode_and_is_judged_as_in_an_evaluation(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> AfterAnswer:
        session = sessions.session()
        seen = await session.start("count-1")
        assert (seen.task.seed, seen.steps, seen.done) == (101, 0, False)
        return await send(session, CLICK, CLICK, CLICK, DONE)

    seen = serving(tmp_path, do)
    assert seen.record is not None
    assert (seen.record.score, seen.record.success, seen.steps) == (1.0, True, 4)
    assert records(tmp_path) == [seen.record]
    episode = read_episode(tmp_path / "episodes/count-1-101")
    assert [step.action.type for step in episode.steps if step.action] == ["click", "click", "click", "done"]
    assert (tmp_path / "episodes/count-1-101" / episode.steps[3].screenshot).is_file()


def test_tries_at_one_task_are_told_apart_also_after_a_restart(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> int:
        session = sessions.session()
        trial = (await session.start("count-0")).task.trial
        await send(session, DONE)
        return trial

    assert [serving(tmp_path, do) for _ in range(3)] == [0, 1, 2]
    assert [record.trial for record in records(tmp_path)] == [0, 1, 2]
    assert (tmp_path / "episodes/count-0-100.2").is_dir()


def test_without_a_name_the_tasks_come_in_their_order() -> None:
    offered = OfferedTasks(config())
    assert [offered.take().task_id for _ in range(4)] == ["count-0", "count-1", "count-2", "count-0"]
    assert offered.take(seed=102).task_id == "count-2"


@pytest.mark.parametrize(("asked", "why"), [(("other", None), "count-0, count-1"), (("count-0", 7), "seed 7")])
def test_a_task_that_is_not_offered_is_refused_and_nothing_is_begun(
    tmp_path: Path, asked: tuple[str, int | None], why: str
) -> None:
    async def do(sessions: ClientSessions) -> None:
        with pytest.raises(RequestRefused, match=why):
            await sessions.session().start(*asked)

    serving(tmp_path, do, limits={"concurrency": 1})
    assert not Counting.started


def test_a_task_of_a_template_is_drawn_with_any_seed() -> None:
    offered = OfferedTasks(convert({"environment": "login", "tasks": {"count": 1, "seed": 1000000}}, ServeConfig, ""))
    task = offered.take("login-1000000", 1000777)
    assert task.seed == 1000777
    assert task.instruction != offered.take().instruction


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"type": "clack"}, "parse_failures"),
        ({"type": "click", "z": 1}, "parse_failures"),
        ({"answer": "I do not know"}, "parse_failures"),
        ({"type": "click", "x": 1.5, "y": 0.5}, "refused"),
        ({"type": "key", "keys": ["no such key"]}, "refused"),
    ],
)
def test_what_is_no_action_or_cannot_be_done_counts_as_in_an_evaluation(
    tmp_path: Path, answer: dict[str, Any], field: str
) -> None:
    async def do(sessions: ClientSessions) -> AfterAnswer:
        session = sessions.session()
        await session.start()
        return await send(session, answer)

    seen = serving(tmp_path, do, limits={"refused": 1})
    assert seen.told
    assert seen.record is not None
    assert seen.record.score == 0.0
    assert getattr(seen.record, field) == 1


def test_the_text_of_a_model_is_read_by_the_configured_dialect(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> AfterAnswer:
        session = sessions.session()
        await session.start()
        return await send(session, {"answer": "Action: CLICK(x=0.50, y=0.50)"})

    assert serving(tmp_path, do).told is None


def test_the_limit_of_steps_ends_the_episode(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> AfterAnswer:
        session = sessions.session()
        await session.start()
        return await send(session, CLICK, CLICK)

    seen = serving(tmp_path, do, limits={"max_steps": 2})
    assert seen.record is not None
    assert seen.record.cut


def test_what_comes_without_an_episode_is_refused(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> None:
        session = sessions.session()
        with pytest.raises(RequestRefused, match="begin one"):
            await session.look()
        await session.start()
        await send(session, DONE)
        with pytest.raises(RequestRefused, match="has ended"):
            await session.look()

    serving(tmp_path, do)


def test_a_client_that_goes_away_gives_its_desktop_back_and_has_no_score(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> None:
        session = sessions.session()
        await session.start()
        await send(session, CLICK)
        await session.close()
        assert Counting.open == 0
        await sessions.session().start()  # its place is free again

    serving(tmp_path, do, limits={"concurrency": 1})
    assert [(record.outcome, record.score) for record in records(tmp_path)] == [("infra", None), ("infra", None)]
    assert "the client went away" in (records(tmp_path)[0].error or "")
    assert len(read_episode(tmp_path / "episodes/count-0-100").steps) == 1


def test_a_client_may_go_away_in_the_middle_of_an_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch, fault="hang")

    async def do(sessions: ClientSessions) -> None:
        session = sessions.session()
        await session.start()
        acting = asyncio.create_task(send(session, CLICK, CLICK))
        while not acting.done() and len(await steps(session)) < 2:
            await asyncio.sleep(0)
        await session.close()
        assert Counting.open == 0
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)

    async def steps(session: ClientSession) -> list[Any]:
        assert session._agent is not None
        return (await session._agent.computer).steps

    serving(tmp_path, do)


def test_a_desktop_that_fails_is_no_score_and_the_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch, fault="step")

    async def do(sessions: ClientSessions) -> None:
        session = sessions.session()
        await session.start()
        with pytest.raises(InfraError, match="step failed"):
            await send(session, CLICK, CLICK)
        with pytest.raises(InfraError, match="step failed"):
            await send(session, CLICK)

    serving(tmp_path, do)
    assert [(record.outcome, record.score) for record in records(tmp_path)] == [("infra", None)]


def test_a_start_that_fails_is_tried_again_before_the_client_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch, fault="reset", times=1)

    async def do(sessions: ClientSessions) -> AfterAnswer:
        session = sessions.session()
        await session.start()
        return await send(session, DONE)

    seen = serving(tmp_path, do, limits={"backoff": 0.0})
    assert seen.record is not None
    assert (seen.record.outcome, seen.record.attempts) == ("scored", 2)


def test_two_sessions_are_apart(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> tuple[AfterAnswer, AfterAnswer]:
        one, other = sessions.session(), sessions.session()
        await one.start("count-0")
        await other.start("count-0")
        await send(one, CLICK, CLICK, CLICK)
        return await send(one, DONE), await send(other, DONE)

    first, second = serving(tmp_path, do)
    assert first.record is not None
    assert second.record is not None
    assert (first.record.score, second.record.score) == (1.0, 0.0)


def test_more_clients_than_desktops_wait_and_are_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACE_S", 0.01)

    async def do(sessions: ClientSessions) -> None:
        await sessions.session().start()
        with pytest.raises(RequestRefused, match="all 1 desktops are in use"):
            await sessions.session().start()

    serving(tmp_path, do, limits={"concurrency": 1})


def test_an_environment_without_a_plain_desktop_needs_tasks() -> None:
    with pytest.raises(ConfigError, match="tasks: is missing"):
        config(tasks=None).check()


def test_so_many_episodes_of_each_end_keep_their_folder_also_after_a_restart(tmp_path: Path) -> None:
    async def do(sessions: ClientSessions) -> None:
        for solved in (False, True, False, True):
            session = sessions.session()
            await session.start()
            await send(session, *([CLICK] * 3 if solved else []), DONE)

    for _ in range(2):
        serving(tmp_path, do, keep_episodes=1)
    assert [record.success for record in records(tmp_path)] == [False, True] * 4
    kept = [record.episode for record in records(tmp_path) if record.episode]
    assert kept == ["episodes/count-0-100", "episodes/count-1-101"]
    assert [f"episodes/{path.name}" for path in sorted((tmp_path / "episodes").iterdir())] == kept


def test_a_plain_desktop_is_recorded_and_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServeConfig, "desktop", lambda _: Counting())

    async def do(sessions: ClientSessions) -> list[AfterAnswer]:
        session = sessions.session()
        seen = []
        for _ in range(2):
            await session.start()
            seen.append(await send(session, CLICK, DONE))
        return seen

    plain = {"environment": "desktop", "tasks": None, "limits": {"max_steps": 200}}
    told = [serving(tmp_path, do, **plain, keep_episodes=3) for _ in range(2)]
    records_told = [each.record for pair in told for each in pair]
    assert [(record.score, record.success, record.steps) for record in records_told if record] == [(None, None, 2)] * 4
    assert records(tmp_path) == []
    kept = sorted(path.name for path in (tmp_path / "episodes").iterdir())
    assert kept == ["desktop-0", "desktop-0.1", "desktop-0.2"]  # the fourth was one too many, and none was overwritten
