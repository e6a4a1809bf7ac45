"""Chains of jobs, without a desktop: what is drawn, when the next job begins, what is scored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.linux_chain.environment import LinuxChainOptions, allowed_templates, drawn, names_of, tasks
from eval.benchmarks.linux_chain.events import EVENTS, FileChanges, MailArrives, UserAnswers
from eval.benchmarks.linux_chain.scene import ChainScene
from eval.benchmarks.linux_desktop import steps
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.template import Instance
from eval.config import ConfigError
from eval.desktop import Score
from tests.support import folder_stage

SEED = 1_000_000
WAIT = Action(ActionType.WAIT, duration=0.5)
DONE = Action(ActionType.DONE)


class FolderStage(folder_stage.FolderStage):
    """Programs that are ended leave no window."""

    written: list[str] | None = None  # while a start state is made

    async def clear(self) -> int:
        self.started.clear()
        return 0

    async def write_file(self, path: str, data: bytes) -> None:
        if self.written is not None:
            self.written.append(path)
        await super().write_file(path, data)

    def solve(self, job: Instance) -> None:
        """Leaves what a solution leaves."""
        for path, content in job.targets().items():
            file = self.home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for path in job.removed():
            (self.home / path).unlink()


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window shows anything; what a program of the start state would write is written."""

    async def shown(*_: object) -> None:
        pass

    async def written(stage: FolderStage, path: str, content: bytes) -> None:
        await stage.write_file(path, content)

    monkeypatch.setattr(steps, "shown", shown)
    monkeypatch.setattr(steps, "written", written)


@pytest.fixture
def stage(tmp_path: Path) -> FolderStage:
    home = tmp_path / "home"
    home.mkdir()
    return FolderStage(home)


def of_files(count: int) -> list[Instance]:
    """Jobs that are done when their files are right."""
    options = LinuxChainOptions(
        events=False, templates=["mousepad-append", "thunar-move", "xterm-count", "thunar-rename"]
    )
    jobs = [job for job in drawn(SEED, options) if job.targets()]
    return jobs[:count]


def acted(scene: ChainScene, stage: FolderStage, done: list[Action], action: Action = WAIT) -> bool:
    done.append(action)
    return asyncio.run(scene.after(stage, done))


def judged(scene: ChainScene, stage: FolderStage, done: Sequence[Action]) -> Score:
    return asyncio.run(scene.judge(stage, [*done, DONE]))


@pytest.mark.parametrize("length", [5, 12, 20])
def test_no_job_has_a_file_of_another(length: int) -> None:
    for seed in range(SEED, SEED + 10):
        jobs = drawn(seed, LinuxChainOptions(length=length))
        names = [name for job in jobs for name in names_of(job)]
        assert len(jobs) == length
        assert len(names) == len(set(names))
        assert {job.about.name for job in jobs} >= set(EVENTS)


def test_the_start_of_a_job_never_writes_over_what_an_earlier_one_left(stage: FolderStage) -> None:
    """What is written is more than a job's names tell."""
    for seed in range(SEED, SEED + 6):
        found: set[str] = set()
        for job in drawn(seed, LinuxChainOptions(length=12)):
            stage.written = []
            asyncio.run(job.prepare(stage))
            assert found.isdisjoint({*stage.written, *job.targets()}), (seed, job.about.name)
            found |= {*stage.written, *job.targets()}


def test_a_chain_is_the_same_each_time_and_says_all_its_jobs() -> None:
    options = {"length": 8}
    (first,), (again,) = tasks(1, SEED, options), tasks(1, SEED, options)
    assert first == again
    jobs = drawn(SEED, LinuxChainOptions(length=8))
    assert all(f"\n{number}. {job.request}\n" in first.instruction for number, job in enumerate(jobs, 1))
    assert first.max_steps == sum(job.about.max_steps for job in jobs)
    other = tasks(1, SEED + 1, options)[0]
    assert other.instruction != first.instruction


def test_a_template_that_no_chain_can_have_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"options\.templates: 'calc-sum'"):
        tasks(1, SEED, {"templates": ["calc-sum"]})
    assert "mousepad-append" in allowed_templates()


def test_a_job_begins_when_the_one_before_is_done_and_each_is_a_milestone(stage: FolderStage) -> None:
    jobs, done = of_files(3), list[Action]()
    scene = ChainScene(jobs, ["oracle"] * 3)
    asyncio.run(scene.prepare(stage))
    assert judged(scene, stage, done).value == 0
    for number, job in enumerate(jobs):
        assert not acted(scene, stage, done)
        assert scene.scene.instance is job
        stage.solve(job)
        assert judged(scene, stage, done).value == pytest.approx((number + 1) / 3)
        assert acted(scene, stage, done)
    assert scene.finished
    score = judged(scene, stage, done)
    assert (score.value, score.success, score.detail["reached"]) == (1.0, True, [True] * 3)
    gave_up = asyncio.run(scene.judge(stage, [*done, Action(ActionType.FAIL)]))
    assert (gave_up.value, gave_up.success) == (0.0, False)


def test_what_a_later_job_spoils_is_no_milestone_any_more(stage: FolderStage) -> None:
    jobs, done = of_files(2), list[Action]()
    scene = ChainScene(jobs, ["oracle"] * 2)
    asyncio.run(scene.prepare(stage))
    stage.solve(jobs[0])
    acted(scene, stage, done)
    path = next(iter(jobs[0].targets()))
    (stage.home / path).write_bytes(b"other\n")
    stage.solve(jobs[1])
    assert judged(scene, stage, done).detail["reached"] == [False]  # and the second job has spoiled something
    assert not judged(scene, stage, done).success


def test_a_job_with_something_spoiled_is_not_done(stage: FolderStage) -> None:
    jobs, done = of_files(2), list[Action]()
    scene = ChainScene(jobs, ["oracle"] * 2)
    asyncio.run(scene.prepare(stage))
    stage.solve(jobs[0])
    (stage.home / "more.txt").write_text("more\n")
    assert not acted(scene, stage, done)
    (stage.home / "more.txt").unlink()
    assert acted(scene, stage, done)


def begun(stage: FolderStage, kind: type[Instance]) -> ChainScene:
    scene = ChainScene([kind.draw(WordPool("chain", "test", SEED))], ["oracle"])
    asyncio.run(scene.prepare(stage))
    return scene


def test_a_mail_arrives_after_two_actions(stage: FolderStage) -> None:
    scene, done = begun(stage, MailArrives), list[Action]()
    job = scene.scene.instance
    assert isinstance(job, MailArrives)
    assert not acted(scene, stage, done)
    assert not (stage.home / job.mail).exists()
    assert acted(scene, stage, done)
    assert job.new in (stage.home / job.mail).read_text()
    assert not acted(scene, stage, done)


def test_who_copies_the_number_before_it_is_final_has_the_old_one(stage: FolderStage) -> None:
    scene, done = begun(stage, FileChanges), list[Action]()
    job = scene.scene.instance
    assert isinstance(job, FileChanges)
    (stage.home / job.answer).write_bytes((stage.home / job.source).read_bytes())
    acted(scene, stage, done)
    acted(scene, stage, done)
    assert judged(scene, stage, done).value == 0
    assert (stage.home / job.flag).exists()
    (stage.home / job.answer).write_bytes((stage.home / job.source).read_bytes())
    assert judged(scene, stage, done).success


def test_the_number_is_the_colleague_s(stage: FolderStage) -> None:
    """Who writes a number and the flag itself has not waited for it."""
    scene, done = begun(stage, FileChanges), list[Action]()
    job = scene.scene.instance
    assert isinstance(job, FileChanges)
    (stage.home / job.flag).write_text("final\n")
    (stage.home / job.answer).write_bytes((stage.home / job.source).read_bytes())
    assert judged(scene, stage, done).value == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [("To which city?", True), ("WHERE DOES {who} GO?", True), ("Which city", False), ("What time is it?", False)],
)
def test_the_user_answers_a_question_about_it(stage: FolderStage, asked: str, told: bool) -> None:
    scene, done = begun(stage, UserAnswers), list[Action]()
    job = scene.scene.instance
    assert isinstance(job, UserAnswers)
    (stage.home / job.answer).write_bytes(job.right)
    assert not acted(scene, stage, done)
    assert judged(scene, stage, done).value == 0  # guessed
    (stage.home / job.question).write_text(asked.format(who=job.who) + "\n")
    assert acted(scene, stage, done)
    assert (job.city in (stage.home / job.reply).read_text()) is told
    assert judged(scene, stage, done).success is told
