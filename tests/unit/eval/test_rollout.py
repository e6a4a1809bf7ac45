from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents import batcher, computer
from eval.agents.base import Decision, History
from eval.agents.baselines import ScriptedAgent
from eval.config import ConfigError
from eval.desktop import InfraError, Observation, Score, Task
from eval.episodes import EpisodeWriter, iter_episodes, jsonl, read_episode
from eval.rollout.loop import RECORDS, Rollout, RolloutLimits, TaskRecord, rollout
from eval.rollout.task_run import FRAMES_AHEAD, TaskRun
from eval.scores.summary import summarise
from tests.support.cases import every_case
from tests.support.waiting import HANGS
from tests.unit.eval.doubles import Counting, Saying

QUICK = RolloutLimits(max_steps=8, concurrency=4, attempts=3, backoff=0.0, step_timeout=0.05)
CLICK = "Action: CLICK(x=0.50, y=0.50)"
EXPERT = (CLICK, CLICK, CLICK, "Action: DONE()")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Counting.started.clear()
    Counting.open = Counting.most_open = 0
    yield
    assert Counting.open == 0, "a desktop was not closed"


def make(count: int, **options: object) -> list[Task]:
    return [Task(f"t{i}", "Click three times", i, options=options) for i in range(count)]


def run(
    agent: object, tasks: Sequence[Task], out: Path, limits: RolloutLimits = QUICK, **more: object
) -> list[Rollout]:
    return asyncio.run(
        rollout(agent, Counting, tasks, out=out, benchmark="b", environment="counting", limits=limits, **more)  # type: ignore[arg-type]
    )


def test_an_expert_solves_every_task_in_order_and_many_at_once(tmp_path: Path) -> None:
    agent = Saying(*EXPERT)
    results = run(agent, make(8), tmp_path)
    assert [(r.record.task_id, r.record.success, r.record.score, r.record.steps) for r in results] == [
        (f"t{i}", True, 1.0, 4) for i in range(8)
    ]
    assert Counting.most_open == 4
    assert agent.batches[:4] == [4] * 4  # later episodes begin one by one
    assert sum(agent.batches) == 32
    assert [r.task_id for r in jsonl.read(tmp_path / RECORDS, TaskRecord)] == [f"t{i}" for i in range(8)]


def test_an_agent_that_says_fail_ends_its_episode_as_a_score_not_as_infrastructure(tmp_path: Path) -> None:
    (result,) = run(Saying(CLICK, CLICK, CLICK, 'Action: FAIL(text="no such button")', CLICK), make(1), tmp_path)
    record = result.record
    # three clicks would be the whole task; who then says that it cannot be done has not solved it
    assert (record.outcome, record.success, record.score, record.error) == ("scored", False, 1.0, None)
    assert (record.steps, record.parse_failures, record.attempts) == (4, 0, 1)
    assert Counting.started["t0"] == 1
    episode = read_episode(tmp_path / "episodes" / "t0-0")
    last = episode.steps[-1]
    assert last.action is not None
    assert (last.action.type.value, last.action.text, last.done) == ("fail", "no such button", True)
    assert (tmp_path / "episodes" / "t0-0" / "004.png").is_file()


def test_an_episode_holds_every_frame_the_answers_and_the_reward(tmp_path: Path) -> None:
    run(Saying(*EXPERT), make(1), tmp_path)
    episode = read_episode(tmp_path / "episodes" / "t0-0")
    assert [step.response for step in episode.steps] == list(EXPERT)
    assert [(step.reward, step.done) for step in episode.steps] == [(0.0, False)] * 3 + [(1.0, True)]
    assert [step.metrics for step in episode.steps[2:]] == [
        {"expect_click": 1.0, "correct": 1.0, "in_box": 1.0},
        {"expect_done": 1.0, "correct": 1.0},
    ]
    reds = []
    for index in range(5):
        with Image.open(tmp_path / "episodes" / "t0-0" / f"{index:03d}.png") as image:
            reds.append(image.getpixel((0, 0))[0])  # type: ignore[index]
    assert reds == [0, 50, 100, 150, 150]
    assert (episode.success, episode.agent, episode.environment) == (True, "saying", "counting")


def test_an_answer_that_is_no_action_ends_the_episode_with_0(tmp_path: Path) -> None:
    (result,) = run(Saying(CLICK, CLICK, CLICK, "I am done!"), make(1), tmp_path)
    assert (result.record.score, result.record.success, result.record.outcome) == (0.0, False, "scored")
    assert result.record.parse_failures == 1
    assert result.episode is not None
    last = result.episode.steps[-1]
    assert last.action is None
    assert last.parse_error
    assert last.response == "I am done!"


def test_parse_failures_may_be_allowed_and_change_nothing_on_the_desktop(tmp_path: Path) -> None:
    limits = RolloutLimits(max_steps=8, parse_failures=2, backoff=0.0)
    (result,) = run(Saying("what?", *EXPERT), make(1), tmp_path, limits)
    assert (result.record.success, result.record.parse_failures, result.record.steps) == (True, 1, 5)


def test_a_claim_of_success_is_not_success(tmp_path: Path) -> None:
    (result,) = run(Saying("Action: DONE()"), make(1), tmp_path)
    assert (result.record.score, result.record.success) == (0.0, False)
    assert (result.record.judged, result.record.correct, result.record.pointed) == (1, 0, 1)


def test_the_last_allowed_step_and_the_environment_end_an_episode(tmp_path: Path) -> None:
    tasks = [
        Task("long", "x", 0),
        Task("short", "x", 0, max_steps=2),
        Task("ended", "x", 0, options={"ends": 1}),
    ]
    results = run(Saying(CLICK), tasks, tmp_path, msgspec.structs.replace(QUICK, max_steps=None))
    assert [r.record.steps for r in results] == [15, 2, 1]
    assert [r.record.success for r in results] == [False, False, False]


@pytest.mark.parametrize("fault", ["reset", "setup", "step", "score", "hang"])
def test_an_infrastructure_failure_is_run_again_and_never_a_score(fault: str, tmp_path: Path) -> None:
    recovering = Task("recovers", "x", 0, options={"fault": fault, "times": 2})
    broken = Task("broken", "x", 0, options={"fault": fault})
    good = Task("good", "x", 0)
    results = {r.record.task_id: r.record for r in run(Saying(*EXPERT), [recovering, broken, good], tmp_path)}
    assert (results["recovers"].success, results["recovers"].attempts) == (True, 3)
    assert (results["good"].success, results["good"].attempts) == (True, 1)
    lost = results["broken"]
    assert (lost.outcome, lost.score, lost.success) == ("infra", None, None)
    assert lost.error
    episode = read_episode(tmp_path / "episodes" / "broken-0")
    assert (episode.outcome, episode.success, episode.error) == ("infra", None, lost.error)


@pytest.mark.parametrize("fault", ["reset", "step", "score", "close"])
def test_a_fault_of_an_environments_code_costs_its_own_episode_alone(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Red before: the whole evaluation ended with a traceback, and a restart ended at the same task."""
    faulty = [Task(f"faulty-{number}", "x", number, options={"fault": f"code {fault}"}) for number in range(2)]
    results = {r.record.task_id: r.record for r in run(Saying(*EXPERT), [*faulty, *make(3)], tmp_path)}
    assert [results[f"t{number}"].success for number in range(3)] == [True] * 3
    told = capsys.readouterr()
    if fault == "close":  # what comes after the judgement does not change it
        assert results["faulty-0"].success
        assert "closing the desktop: close: ZeroDivisionError" in told.out
        return
    assert {results[f"faulty-{number}"].outcome for number in range(2)} == {"infra"}
    error = results["faulty-0"].error or ""
    assert error.startswith(
        f"EnvironmentFault: {fault}: ZeroDivisionError: integer division or modulo by zero (doubles.py:"
    )


@pytest.mark.parametrize("fault", ["step", "score"])
def test_what_the_agent_broke_scores_0_and_is_not_run_again(fault: str, tmp_path: Path) -> None:
    broken = Task("broken", "x", 0, options={"fault": f"agent {fault}"})
    (result,) = run(Saying(*EXPERT), [broken], tmp_path)
    assert (result.record.outcome, result.record.score, result.record.attempts) == ("scored", 0.0, 1)
    assert result.record.success is False
    episode = read_episode(tmp_path / "episodes" / "broken-0")
    assert episode.metadata["score"]["agent_failure"] == f"the agent broke the {fault}"


class Raising(Counting):
    """Its checker raises by `options.raises`: `left`, on a state that the agent changed; `once`, at the first call
    of an episode; `always`. A desktop that is used after its end fails."""

    open_now: ClassVar[int] = 0
    asked: ClassVar[int] = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        assert Raising.open_now == 0  # as with the only server of a role
        Raising.open_now += 1
        return await super().reset(task, seed)

    async def score(self) -> Score:
        assert self.task is not None
        Raising.asked += 1
        raises = self.task.options["raises"]
        if raises == "always" or (raises == "left" and self.hits) or (raises == "once" and Raising.asked == 1):
            raise ValueError("no JSON")
        return await super().score()

    async def close(self) -> None:
        Raising.open_now -= 1
        await super().close()


@pytest.mark.parametrize(
    ("raises", "outcome", "score", "starts", "said"),
    [
        ("left", "scored", 0.0, 2, "judges the untouched one: score: ValueError: no JSON"),
        ("once", "scored", 1.0, 1, None),
        ("always", "infra", None, 2, "EnvironmentFault: score: ValueError: no JSON"),
    ],
)
def test_a_checker_that_raises_on_the_agents_state_alone_is_a_score_of_0(
    raises: str, outcome: str, score: float | None, starts: int, said: str | None, tmp_path: Path
) -> None:
    """Red before: `infra` in all three cases, so that an evaluation tried again, and a training voided the rollout."""
    Raising.open_now = Raising.asked = 0
    limits = msgspec.structs.replace(QUICK, attempts=1, concurrency=1)
    work = rollout(
        Saying(*EXPERT),
        Raising,
        [Task("t", "x", options={"raises": raises})],
        out=tmp_path,
        benchmark="b",
        environment="e",
        limits=limits,
    )
    (result,) = asyncio.run(work)
    record = result.record
    assert (record.outcome, record.score, Counting.started["t"], Raising.open_now) == (outcome, score, starts, 0)
    told = record.error if outcome == "infra" else record.failure and record.failure.why
    assert (said is None) == (told is None)
    assert (said or "") in (told or "")


class RaisingSlowly(Raising):
    """The start for the untouched state, its second one, never ends."""

    async def reset(self, task: Task, seed: int) -> Observation:
        shown = await super().reset(task, seed)
        if self.started["t"] == 2:
            await asyncio.Event().wait()
        return shown


def test_a_desktop_is_closed_once_where_a_run_is_cancelled_while_the_untouched_state_is_judged(tmp_path: Path) -> None:
    """Red before: the desktop of the attempt, closed already, was closed again."""

    async def cancelled() -> None:
        work = asyncio.ensure_future(
            rollout(
                Saying(*EXPERT),
                RaisingSlowly,
                [Task("t", "x", options={"raises": "left"})],
                out=tmp_path,
                benchmark="b",
                environment="e",
                limits=msgspec.structs.replace(QUICK, attempts=1, concurrency=1),
            )
        )
        while Counting.started["t"] < 2:
            await asyncio.sleep(0)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    Raising.open_now = Raising.asked = 0
    asyncio.run(cancelled())
    assert (Raising.open_now, Counting.open) == (0, 0)


def test_a_task_that_cannot_run_here_is_tried_once_counts_as_not_solved_and_is_told_apart(tmp_path: Path) -> None:
    known = [replace(make(1)[0], task_id=f"known{number}", not_run="no file has it") for number in range(2)]
    results = run(Saying(*EXPERT), [make(2)[1], *make(1, fault="not here"), *known], tmp_path)
    records = [result.record for result in results]
    assert [(r.outcome, r.score, r.success, r.attempts) for r in records] == [
        ("scored", 1.0, True, 1),
        ("not run", None, None, 1),
        ("not run", None, None, 1),
        ("not run", None, None, 1),
    ]
    assert [r.error for r in records[1:]] == ["no program here", "no file has it", "no file has it"]
    assert Counting.started == {"t1": 1, "t0": 1}
    rows = {row.metric: row for row in summarise(records, version="1", split="test", seed=0)}
    assert (rows["success"].value, rows["success"].n) == (0.25, 4)
    assert (rows["success_of_run"].value, rows["success_of_run"].n) == (1.0, 1)
    again = [result.record for result in run(Saying(*EXPERT), [*make(1), *known], tmp_path)]
    assert [r.outcome for r in again] == ["scored", "not run", "not run"]  # what was missing may be here now


def test_a_solved_state_is_told_also_where_the_last_answer_was_no_action(tmp_path: Path) -> None:
    agent = Saying(CLICK, CLICK, CLICK, "I am done!")
    records = [run(agent, make(1, judged="state"), tmp_path)[0].record]
    assert (records[0].success, records[0].state_solved) == (False, True)
    rows = {row.metric: row.value for row in summarise(records, version="1", split="test", seed=0)}
    assert (rows["success"], rows["success_by_state"]) == (0.0, 1.0)


def test_a_broken_frame_is_an_infrastructure_failure(tmp_path: Path) -> None:
    class Torn(Counting):
        def look(self) -> Observation:
            seen = super().look()
            whole = io.BytesIO()
            seen.image.save(whole, format="PNG")
            return Observation(Image.open(io.BytesIO(whole.getvalue()[:60])), seen.screen)

    results = asyncio.run(
        rollout(Saying(CLICK), Torn, make(1), out=tmp_path, benchmark="b", environment="e", limits=QUICK)
    )
    assert results[0].record.outcome == "infra"
    assert "BadFrame" in (results[0].record.error or "")


def test_a_restart_runs_only_what_has_no_score(tmp_path: Path) -> None:
    tasks = [*make(3), Task("flaky", "x", 0, options={"fault": "reset", "times": 3})]
    first = run(Saying(*EXPERT), tasks, tmp_path)
    assert [r.record.outcome for r in first] == ["scored"] * 3 + ["infra"]
    records = (tmp_path / RECORDS).read_bytes()
    (tmp_path / RECORDS).write_bytes(records + b'{"benchmark": "b", "agent"')  # cut off while it was written
    again = run(Saying("Action: FAIL()"), tasks, tmp_path)
    assert Counting.started == {"t0": 1, "t1": 1, "t2": 1, "flaky": 4}
    assert [r.record.success for r in again] == [True, True, True, False]
    lines = (tmp_path / RECORDS).read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["t0", "t1", "t2", "flaky"]


class Stops:
    """An agent of which the process ends at the third call."""

    name = "saying"
    parallel = 1

    def __init__(self) -> None:
        self.agent, self.calls = Saying("Action: DONE()"), 0

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        self.calls += 1
        if self.calls == 3:
            raise MemoryError("the machine is gone")
        return await self.agent.act(observations, histories)


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    one = RolloutLimits(concurrency=1, backoff=0.0)
    with pytest.raises(ExceptionGroup):
        run(Stops(), make(5), tmp_path, one)
    assert [r.task_id for r in jsonl.read(tmp_path / RECORDS, TaskRecord)] == ["t0", "t1"]
    assert len(run(Saying("Action: DONE()"), make(5), tmp_path, one)) == 5
    assert [Counting.started[f"t{i}"] for i in range(3)] == [1, 1, 2]
    assert len(list(iter_episodes(tmp_path / "episodes"))) == 5


def test_an_agent_whose_server_is_gone_makes_its_episodes_infra(tmp_path: Path) -> None:
    class Gone(Saying):
        async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
            if len(self.batches) == 0:
                self.batches.append(0)
                raise InfraError("connection refused")
            return await super().act(observations, histories)

    results = run(Gone(*EXPERT), make(4), tmp_path)
    assert [(r.record.success, r.record.attempts) for r in results] == [(True, 2)] * 4


def some_fail(count: int) -> list[Task]:
    """Of each ten tasks the sixth ends too early, the eighth has no desktop, and the ninth breaks its own."""
    options: dict[int, dict[str, object]] = {5: {"ends": 2}, 7: {"fault": "step"}, 8: {"fault": "agent step"}}
    return [Task(f"t{i}", "Click three times", i, options=options.get(i % 10, {})) for i in range(count)]


def kept(out: Path) -> set[str]:
    return {path.name for path in (out / "episodes").iterdir()}


FIRST = {"t0-0", "t1-1", "t5-5", "t7-7"}  # of some_fail(20): two that were solved, two that failed


@every_case("concurrency", [1, 3, 20])
def test_the_first_failures_and_the_first_successes_keep_their_pictures(concurrency: int, tmp_path: Path) -> None:
    limits, out = msgspec.structs.replace(QUICK, concurrency=concurrency), tmp_path / str(concurrency)
    seen: list[int] = []
    results = run(
        Saying(*EXPERT), some_fail(20), out, limits, keep_episodes=2,
        on_end=lambda _: seen.append(len(list(out.glob("episodes/*")))),
    )  # fmt: skip
    assert kept(out) == FIRST
    assert {r.record.episode for r in results} == {None, *(f"episodes/{name}" for name in FIRST)}
    assert {each.episode for each in jsonl.read(out / RECORDS, TaskRecord)} == {r.record.episode for r in results}
    assert read_episode(out / "episodes" / "t7-7").success is None  # it says what the infrastructure left of it
    assert max(seen) <= 3 * 2


def test_a_later_failure_makes_way_for_an_earlier_one(tmp_path: Path) -> None:
    """The tasks end from the last to the first."""

    class Backwards(Counting):
        async def reset(self, task: Task, seed: int) -> Observation:
            for _ in range(30 * (12 - seed)):
                await asyncio.sleep(0)
            return await super().reset(task, seed)

    tasks = [Task(f"t{i}", "Click", i, options={"fault": "agent step"} if i % 2 else {}) for i in range(12)]
    ended: list[str] = []
    limits = RolloutLimits(max_steps=8, concurrency=12)
    told: dict[str, Any] = {"benchmark": "b", "environment": "counting", "limits": limits, "keep_episodes": 2}
    say = Saying(*EXPERT)
    results = asyncio.run(
        rollout(say, Backwards, tasks, out=tmp_path, on_end=lambda r: ended.append(r.record.task_id), **told)
    )
    assert ended[0] == "t11"
    assert kept(tmp_path) == {"t0-0", "t2-2", "t1-1", "t3-3"}
    assert [r.record.episode is not None for r in results] == [True] * 4 + [False] * 8


@every_case("after", [1, 6, 9, 13, 19])
def test_an_interruption_changes_nothing_about_what_is_kept(after: int, tmp_path: Path) -> None:
    """Cut off after so many tasks, then again; the infrastructure's failures are run again, and fail again."""
    out, tasks = tmp_path / str(after), some_fail(20)

    class CutOff(Exception):
        pass

    for most in (after, after + 3):
        count = 0

        def stop(_: Rollout, most: int = most) -> None:
            nonlocal count
            count += 1
            if count >= most:
                raise CutOff

        with contextlib.suppress(ExceptionGroup, CutOff):
            run(Saying(*EXPERT), tasks, out, keep_episodes=2, on_end=stop)
    run(Saying(*EXPERT), tasks, out, keep_episodes=2)
    assert kept(out) == FIRST


def test_an_older_folder_keeps_what_it_has(tmp_path: Path) -> None:
    """Made when the first tasks of all kept their pictures: these stand, up to the count."""
    tasks = some_fail(20)
    run(Saying(*EXPERT), tasks[:3], tmp_path, keep_episodes=None)
    run(Saying(*EXPERT), tasks, tmp_path, keep_episodes=3)
    assert kept(tmp_path) == {"t0-0", "t1-1", "t2-2", "t5-5", "t7-7", "t8-8"}


def test_no_pictures_are_kept_where_none_are_asked_for(tmp_path: Path) -> None:
    results = run(Saying(*EXPERT), some_fail(10), tmp_path, keep_episodes=0)
    assert not (tmp_path / "episodes").exists()
    assert {r.record.episode for r in results} == {None}


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="same id, seed and trial"):
        run(Saying(CLICK), [Task("a", "x"), Task("a", "y")], tmp_path)


def test_the_scripted_agent_follows_the_environment(tmp_path: Path) -> None:
    (result,) = run(ScriptedAgent(Dsl(2)), make(1), tmp_path)
    assert (result.record.success, result.record.correct, result.record.judged) == (True, 4, 4)
    assert result.record.by_type == {"click": [3, 3], "done": [1, 1]}


def test_results_of_another_agent_are_not_mistaken_for_ones_own(tmp_path: Path) -> None:
    run(ScriptedAgent(Dsl(2)), make(1), tmp_path)
    with pytest.raises(ConfigError, match="holds results of b/scripted"):
        run(Saying(CLICK), make(1), tmp_path)


@pytest.mark.parametrize(
    ("limit", "own", "steps"),
    [(None, None, 15), (None, 4, 4), (None, 20, 20), (6, None, 6), (6, 4, 6), (6, 20, 6)],
)
def test_the_number_of_steps_is_the_one_asked_for_else_the_tasks_own(
    limit: int | None, own: int | None, steps: int, tmp_path: Path
) -> None:
    """A study of step budgets gives one number for all tasks, as the harness of OSWorld takes `--max_steps`."""
    task = Task("t", "", 0, max_steps=own, options={"clicks": 99})
    (result,) = run(Saying(CLICK), [task], tmp_path, msgspec.structs.replace(QUICK, max_steps=limit))
    assert result.record.steps == steps
    asked = {"step_budget": limit} if limit else {"max_steps": 15}
    assert {name: value for name, value in result.record.rules.items() if "step" in name} == asked


def test_results_by_other_rules_are_refused_and_not_mixed(tmp_path: Path) -> None:
    """A folder of 2 steps an episode is not continued with 1, nor with another version."""

    def again(limits: RolloutLimits, version: str = "1") -> list[Rollout]:
        told: dict[str, Any] = {"benchmark": "b", "environment": "counting", "version": version}
        return asyncio.run(rollout(Saying(CLICK), Counting, make(2), out=tmp_path, limits=limits, **told))

    (first, _) = again(msgspec.structs.replace(QUICK, max_steps=2))
    assert first.record.version == "1"
    assert first.record.rules["step_budget"] == 2
    assert "max_steps" not in first.record.rules
    again(msgspec.structs.replace(QUICK, max_steps=2, concurrency=1))  # defines no score
    with pytest.raises(
        ConfigError, match=r"results by other rules: step_budget 2 where it is 1 now \(.*\); name another folder"
    ):
        again(msgspec.structs.replace(QUICK, max_steps=1))
    with pytest.raises(ConfigError, match="version '1' where it is '2' now"):
        again(msgspec.structs.replace(QUICK, max_steps=2), "2")


def test_a_frame_that_takes_long_to_write_holds_up_no_other_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, write = threading.Event(), EpisodeWriter.frame

    def slow(writer: EpisodeWriter, index: int, image: Image.Image | bytes | Path) -> str:
        if writer.folder.name == "t0-0":
            assert others.wait(HANGS)
        return write(writer, index, image)

    def ended(result: Rollout) -> None:
        if result.record.task_id == "t1":
            others.set()

    monkeypatch.setattr(EpisodeWriter, "frame", slow)
    results = run(Saying(*EXPERT), make(2), tmp_path, on_end=ended)
    assert [result.record.success for result in results] == [True, True]
    for result in results:
        assert result.episode is not None
        folder = tmp_path / "episodes" / result.episode.episode_id
        assert len(list(folder.glob("*.png"))) == 5


def test_no_more_frames_wait_to_be_written_than_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = most = 0
    write, save, lock = EpisodeWriter.frame, TaskRun._save, threading.Lock()

    def counted(run: TaskRun, index: int, observation: Observation) -> None:
        nonlocal waiting, most
        with lock:
            waiting += 1
            most = max(most, waiting)
        save(run, index, observation)

    def written(writer: EpisodeWriter, index: int, image: Image.Image | bytes | Path) -> str:
        nonlocal waiting
        time.sleep(0.02)  # slower than the desktop and the agent
        with lock:
            waiting -= 1
        return write(writer, index, image)

    monkeypatch.setattr(TaskRun, "_save", counted)
    monkeypatch.setattr(EpisodeWriter, "frame", written)
    limits = msgspec.structs.replace(QUICK, max_steps=30)
    (result,) = run(Saying(CLICK), [Task("t", "", 0, options={"clicks": 99})], tmp_path, limits)
    assert result.record.outcome == "scored"
    assert most <= FRAMES_AHEAD + 1


def test_a_frame_that_cannot_be_written_ends_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(EpisodeWriter, "frame", full)
    with pytest.raises(ExceptionGroup) as error:
        run(Saying(*EXPERT), make(1), tmp_path)
    assert error.group_contains(OSError, match="No space left")


class Batched(Saying):
    """An agent that takes two observations in one call."""

    batch_size = 2


def test_an_agent_that_takes_two_at_once_is_not_kept_waiting_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "LINGER", HANGS)
    agent = Batched(*EXPERT)
    results = run(agent, make(4), tmp_path)
    assert [result.record.success for result in results] == [True] * 4
    assert agent.batches == [2] * 8


def test_a_spare_desktop_that_breaks_while_it_waits_is_made_anew(tmp_path: Path) -> None:
    tasks = [*make(1), Task("t1", "Click three times", 1, options={"fault": "step", "times": 1})]
    results = run(Saying(*EXPERT), tasks, tmp_path, RolloutLimits(concurrency=1, spares=1, backoff=0.0))
    assert [(result.record.success, result.record.attempts) for result in results] == [(True, 1), (True, 2)]


def test_an_action_has_the_time_that_it_asks_for_and_all_waits_of_an_episode_one_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, float]] = []
    real = computer.timed

    async def timed(call: Any, seconds: float, name: str) -> Any:
        given.append((name, seconds))
        return await real(call, HANGS, name)

    monkeypatch.setattr(computer, "timed", timed)
    said = [
        "Action: WAIT(duration=60)",
        'Action: KEY(key="a", duration=60)',
        "Action: DRAG(x=0.50, y=0.50, x2=0.60, y2=0.60, duration=2.5)",
        f'Action: TYPE(text="{"字" * 5000}")',
        "Action: WAIT(duration=60)",  # more than what is left
        "Action: WAIT(duration=1)",
        *EXPERT,
    ]
    limits = RolloutLimits(max_steps=20, step_timeout=10.0, waiting=130.0)
    (result,) = run(Saying(*said), make(1), tmp_path, limits)
    assert [seconds for name, seconds in given if name == "step"][:5] == [70.0, 70.0, 12.5, 260.0, 11.0]
    assert (result.record.success, result.record.refused, result.record.outcome) == (True, 1, "scored")
    assert result.episode is not None
    assert "only 7.5 s are left" in (result.episode.steps[4].refused or "")
    assert result.record.rules["answers"]["waiting"] == 130.0


@pytest.mark.parametrize("dead", [False, True])
def test_a_step_that_takes_too_long_is_told_where_the_desktop_answers_and_infra_where_it_does_not(
    dead: bool, tmp_path: Path
) -> None:
    class Answering(Counting):
        async def answers(self) -> Observation | None:
            return None if dead else self.look()

        async def step(self, action: Action) -> Observation:
            if action.type is ActionType.SCROLL:
                await asyncio.Event().wait()
            return await super().step(action)

    limits = RolloutLimits(max_steps=8, step_timeout=0.05, attempts=2, backoff=0.0)
    agent = Saying('Action: SCROLL(direction="down")', *EXPERT)
    told: dict[str, Any] = {"benchmark": "b", "environment": "counting", "limits": limits}
    (result,) = asyncio.run(rollout(agent, Answering, make(1), out=tmp_path, **told))
    record = result.record
    found = (record.outcome, record.success, record.refused, record.attempts)
    assert found == (("infra", None, 0, 2) if dead else ("scored", True, 1, 1))
