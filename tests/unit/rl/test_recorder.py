"""What a generation becomes in the records, as the launcher reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.desktop import Task
from eval.environments.registry import TasksConfig
from eval.episodes import Episode, Step
from eval.records.task_record import TaskRecord
from eval.rollout.task_run import Rollout
from eval.scores.stats import Estimate
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from training.rl.config import RlConfig
from training.rl.learning.turn_records import UNFIT, turns_of
from training.rl.records.recorder import FLAT, REPLACED, TrainingRecorder
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.sections import AsyncConfig, SdpoConfig

pytestmark = pytest.mark.ml
STATE = SimpleNamespace(global_step=0)
CLICK = Action(ActionType.CLICK, x=0.5, y=0.5)


def config(**changes: Any) -> RlConfig:
    return RlConfig(model="tiny", environment="login", tasks=TasksConfig(count=3, seed=0), steps=4, **changes)


def played(number: int, reward: float, turns: int = 2) -> PlayedRollout:
    """Its first step is a click, and the last one is no action."""
    steps = [Step(index=n, screenshot=f"{n:03d}.png", action=CLICK, response="click") for n in range(turns - 1)]
    steps.append(Step(index=turns - 1, screenshot="x.png", response="hm", parse_error="no action"))
    episode = Episode(
        episode_id="e",
        task_id="t",
        instruction="i",
        screen=(8, 8),
        success=reward == 1,
        score=reward,
        steps=tuple(steps),
        duration_ms=1500,
    )
    shown = Image.new("RGB", (8, 6), (number, 0, 0))
    sampled = tuple(SampledTurn((1,), (shown,), (5, n), (-0.5, -0.25)) for n in range(turns))
    return PlayedRollout(number, episode, sampled, reward)


def generation() -> RolloutGeneration:
    """Task 0 is mixed, with a void rollout; task 1 has one valid rollout; task 2 is solved by all."""
    tasks = tuple(Task(f"task-{n}", f"Do {n}.", n) for n in range(3))
    groups = [
        RolloutGroup(tasks[0], (played(0, 1.0), played(2, 0.0, turns=1)), 0),
        RolloutGroup(tasks[2], (played(0, 1.0), played(1, 1.0), played(2, 1.0)), 2),
    ]
    lost = [(0, 1, "DesktopGone: the cable"), (1, 1, "x"), (1, 2, "x")]
    return RolloutGeneration(0, groups=groups, dropped=["task-1"], tasks=tasks, lost=lost)


def told(folder: Path, **changes: Any) -> list[Any]:
    recorder = TrainingRecorder(config(**changes), folder)
    recorder.on_train_begin(None, STATE, None)  # type: ignore[arg-type]
    made = generation()
    first, second, *others = turns_of(made)
    records = [replace(first, gains=(0.5, 0.5), entropies=(0.0, 0.5)), replace(second, gains=(-0.75, -0.25)), *others]
    recorder.generation(made, 1, records)
    recorder.status("done", 1)
    return list(read_folder(folder))


def of(kind: type[Any], lines: list[Any]) -> list[Any]:
    return [line for line in lines if isinstance(line, kind)]


def test_groups_say_whether_they_taught_something(tmp_path: Path) -> None:
    groups = of(reading.RlGroup, told(tmp_path))
    assert [(line.group, line.task_id, line.dropped) for line in groups] == [
        (0, "task-0", None),
        (1, "task-1", "fewer than two valid rollouts"),
        (2, "task-2", FLAT),
    ]


def test_tokens_have_their_texts_and_masked_turns_their_reason(tmp_path: Path) -> None:
    recorder = TrainingRecorder(config(), tmp_path, lambda token: f"<{token}>")
    made = generation()
    masked = [replace(each, masked=UNFIT) if each.at == (0, 1, 0) else each for each in turns_of(made)]
    measured = [replace(each, entropies=(0.5, 1.0)) if each.at == (0, 0, 1) else each for each in turns_of(made)]
    recorder.generation(made, 1, masked)
    recorder.generation(made, 2, measured)
    recorder.writer.cut()
    every = of(reading.RlTurn, list(read_folder(tmp_path)))
    assert [(turn.turn, turn.entropies, turn.entropy) for turn in every if turn.entropies] == [(1, [0.5, 1.0], 0.75)]
    turns = [turn for turn in every if turn.step == 1]
    assert turns[1].texts == ["<5>", "<1>"]
    assert [(turn.group, turn.rollout, turn.turn) for turn in turns if turn.masked] == [(0, 2, 0)]


def test_every_rollout_is_there_and_a_void_one_has_its_reason(tmp_path: Path) -> None:
    rollouts = of(reading.RlRollout, told(tmp_path))
    assert sorted((r.group, r.rollout, r.outcome, r.total, r.error) for r in rollouts if r.group == 0) == [
        (0, 0, "scored", 1.0, None),
        (0, 1, "void", None, "DesktopGone: the cable"),
        (0, 2, "scored", 0.0, None),
    ]
    assert [(r.rollout, r.outcome) for r in rollouts if r.group == 1] == [(1, "void"), (2, "void")]
    first = rollouts[0]
    assert (first.turns, first.tokens, first.errors, first.seconds) == (2, 4, {"parse": 1}, 1.5)


def test_turns_have_what_the_loss_saw(tmp_path: Path) -> None:
    lines = told(tmp_path)
    first, second = of(reading.RlTurn, lines)[:2]
    assert (first.advantage, first.entropy, first.token_ids, first.logprobs) == (0.5, 0.25, [5, 0], [-0.5, -0.25])
    assert (second.advantage, second.entropy, second.response, second.parse_error) == (-0.5, None, "hm", "no action")
    third = of(reading.RlTurn, lines)[2]
    assert third.advantage is None  # it was left out of the loss
    (action, *_) = of(reading.RlAction, lines)
    assert (action.turn, action.number, action.action["type"]) == (0, 0, "click")


@pytest.mark.parametrize(("kept", "groups"), [(0, set()), (1, {0}), (2, {0, 2})])
def test_the_screens_of_some_groups_are_kept(tmp_path: Path, kept: int, groups: set[int]) -> None:
    lines = told(tmp_path, kept_groups=kept)
    folders = {(r.group, r.rollout): r.episode for r in of(reading.RlRollout, lines) if r.episode}
    observations = of(reading.RlObservation, lines)
    assert {line.group for line in observations} == groups == {group for group, _ in folders}
    for line in observations:
        with Image.open(tmp_path / folders[line.group, line.rollout] / line.screenshot) as picture:
            assert picture.size == line.size == (8, 6)
            assert picture.getpixel((0, 0)) == (line.rollout, 0, 0)


def test_whoever_begins_again_throws_away_what_was_told(tmp_path: Path) -> None:
    """Killed before its first checkpoint: the same rollouts are told again, and counted once."""
    once = told(tmp_path)
    again = told(tmp_path)
    for kind in (reading.RlGroup, reading.RlRollout, reading.RlTurn, reading.RlAction, reading.RlValidation):
        assert len(of(kind, again)) == len(of(kind, once)), kind
    assert [line.status for line in of(reading.RlStatus, again)] == ["started", "done", "resumed", "done"]


def test_what_the_log_says_is_a_step(tmp_path: Path) -> None:
    recorder = TrainingRecorder(config(), tmp_path)
    state = SimpleNamespace(global_step=3)
    recorder.on_log(None, state, None, logs={"loss": 0.5, "note": "text", "reward": float("nan")})  # type: ignore[arg-type]
    recorder.on_save(None, state, None)  # type: ignore[arg-type]
    recorder.on_log(None, state, None, logs=None)  # type: ignore[arg-type]
    recorder.writer.cut()
    first, second = read_folder(tmp_path)
    assert isinstance(first, reading.RlStep)
    assert (first.step, first.metrics) == (3, {"loss": 0.5, "reward": None})
    assert isinstance(second, reading.RlStep)
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == ["000001.jsonl", "000002.jsonl"]


def test_the_recipe_s_table_names_fields_that_are_there() -> None:
    """docs/explanation/algorithms.md: what it says an option is called here."""
    import re

    from eval.environments.sources import TaskSourceConfig
    from tests.support.documented import ROOT
    from training.rl.learning import advantages

    page = (ROOT / "docs/explanation/algorithms.md").read_text(encoding="utf-8")
    table = page.partition("| recipe | here |")[2].partition("\n\n")[0]
    known = {*RlConfig.__struct_fields__, *TaskSourceConfig.__struct_fields__, *vars(advantages), "rank", "max_steps"}
    known |= {
        *AsyncConfig.__struct_fields__,
        "options",
        "sources",
        "environment",
        "every",
        "at_start",
        "demo_eval",
        "success",
        "ids",
        "tasks",
    }
    seen = set()
    for row in table.splitlines()[2:]:
        here = row.split("|")[2]
        if "left out" in here or "not needed" in here:
            continue
        for code in re.findall(r"`([^`]+)`", here):
            names = re.findall(r"[a-z_]+", code) if not code.startswith("--") else []
            assert set(names) <= known, (row, set(names) - known)
            seen.update(names)
    assert {"tasks_per_generation", "group_size", "max_completion", "save_every", "report_to"} <= seen


def test_a_group_that_the_teacher_told_of_is_not_dropped(tmp_path: Path) -> None:
    """All of task 2 solved it: no advantage, and a teacher's turn where SDPO shows another's success."""
    recorder = TrainingRecorder(config(sdpo=SdpoConfig()), tmp_path)
    recorder.on_train_begin(None, STATE, None)  # type: ignore[arg-type]
    made = generation()
    recorder.generation(
        made, 1, [replace(each, teacher_turn=each.turn) if each.at[0] == 1 else each for each in turns_of(made)]
    )
    recorder.status("done", 1)
    lines = list(read_folder(tmp_path))
    assert [line.dropped for line in of(reading.RlGroup, lines)] == [None, "fewer than two valid rollouts", None]
    assert [line.method for line in of(reading.RlTraining, lines)] == ["sdpo"]


def test_a_rollout_in_whose_place_a_success_stands_is_told_as_it_was_played(tmp_path: Path) -> None:
    made = generation()
    first = made.groups[0]
    success = replace(first.rollouts[0], replayed=True)  # of two turns, in place of one turn
    learnt = replace(made, groups=[replace(first, rollouts=(first.rollouts[0], success)), *made.groups[1:]])
    recorder = TrainingRecorder(config(), tmp_path)
    recorder.generation(made, 1, [replace(each, gains=(1.0, 1.0)) for each in turns_of(learnt)])
    recorder.writer.cut()
    turns = [turn for turn in of(reading.RlTurn, list(read_folder(tmp_path))) if turn.group == 0]
    assert [(turn.rollout, turn.turn, turn.advantage, turn.masked) for turn in turns] == [
        (0, 0, 1.0, None),
        (0, 1, 1.0, None),
        (2, 0, None, REPLACED),
    ]


def evaluated() -> list[tuple[Task, Rollout]]:
    """Task 0 is solved, task 1 failed by an answer that is no action, task 2 was lost to a desktop."""
    tasks = [Task(f"test-{n}", f"Do {n}.", 100 + n) for n in range(3)]

    def record(number: int, **changes: Any) -> TaskRecord:
        given = {"benchmark": "login", "agent": "trained", "task_id": f"test-{number}", "seed": 100 + number}
        return TaskRecord(**given, duration_ms=1500, **changes)

    good, bad = played(0, 1.0).episode, played(0, 0.0, turns=1).episode
    return [
        (tasks[0], Rollout(record(0, score=1.0, success=True, outcome="scored"), good)),
        (tasks[1], Rollout(record(1, score=0.0, success=False, outcome="scored"), bad)),
        (tasks[2], Rollout(record(2, score=None, success=None, outcome="infra", error="DesktopGone: x"))),
    ]


def test_an_evaluation_and_the_baseline_are_told_as_groups_of_one(tmp_path: Path) -> None:
    recorder = TrainingRecorder(config(), tmp_path)
    scores = {"success": Estimate(0.5, 0.1, 0.9, 2)}
    recorder.evaluation("baseline", 0, scores, evaluated())
    recorder.evaluation("eval", 2, scores, evaluated())
    recorder.writer.cut()
    lines = list(read_folder(tmp_path))
    rollouts = of(reading.RlRollout, lines)
    once = [("scored", 1.0, True, None), ("scored", 0.0, False, None), ("void", None, None, "DesktopGone: x")]
    assert [(r.outcome, r.total, r.success, r.error) for r in rollouts] == once * 2
    assert [(r.phase, r.step, r.group, r.rollout) for r in rollouts] == [
        (phase, step, group, 0) for phase, step in (("baseline", 0), ("eval", 2)) for group in range(3)
    ]
    assert [(r.turns, r.errors, r.seconds) for r in rollouts[:2]] == [(2, {"parse": 1}, 1.5), (1, {"parse": 1}, 1.5)]
    groups = of(reading.RlGroup, lines)
    assert [(g.task_id, g.seed, g.instruction) for g in groups[:3]] == [
        (f"test-{n}", 100 + n, f"Do {n}.") for n in range(3)
    ]
    judged = of(reading.RlValidation, lines)
    assert [(v.phase, v.group, v.score) for v in judged] == [
        (phase, group, score) for phase in ("baseline", "eval") for group, score in ((0, 1.0), (1, 0.0))
    ]
    assert [(s.phase, s.step, s.metrics) for s in of(reading.RlStep, lines)] == [
        ("baseline", 0, {"success": 0.5}),
        ("eval", 2, {"success": 0.5}),
    ]


def test_a_baseline_that_is_told_again_counts_once(tmp_path: Path) -> None:
    """Killed while it told of the baseline, before any checkpoint: what was told of it, whole or half, is thrown
    away."""
    scores = {"success": Estimate(0.5, 0.1, 0.9, 2)}
    for cut in (True, False):
        recorder = TrainingRecorder(config(), tmp_path)
        recorder.on_train_begin(None, STATE, None)  # type: ignore[arg-type]
        recorder.evaluation("baseline", 0, scores, evaluated())
        recorder.writer.cut()
        if cut:
            piece = tmp_path / "records" / "000001.jsonl"
            piece.write_bytes(b"".join(piece.read_bytes().splitlines(keepends=True)[:6]))
    lines = list(read_folder(tmp_path))
    assert [(line.group, line.total) for line in of(reading.RlRollout, lines)] == [(0, 1.0), (1, 0.0), (2, None)]
    assert [(line.group, line.turn) for line in of(reading.RlTurn, lines)] == [(0, 0), (0, 1), (1, 0)]
    assert [line.step for line in of(reading.RlStatus, lines)] == [0, -1]
