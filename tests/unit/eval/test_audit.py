"""An audit finds a planted hole by exactly the family that it was planted for, and none in a sound environment."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from eval.actions import Action, ActionType
from eval.audit.__main__ import main
from eval.audit.families import FAMILIES
from eval.audit.moves import JITTER, jittered
from eval.audit.verdicts import AuditReport, Verdict
from eval.config import EXIT_CONFIG
from eval.scores.stats import wilson
from tests.support.documented import ROOT
from tests.unit.eval import planted

COMMANDS = {name for name, family in FAMILIES.items() if family.needs == "commands"}
HOLES = tuple(name for name, family in FAMILIES.items() if family.judged and name not in COMMANDS)


def config(folder: Path, **changes: Any) -> str:
    written = {
        "benchmark": "planted",
        "environment": "tests.unit.eval.planted:PlantedEnvironment",
        "options": {"hole": ""},
        "tasks": {"count": 4, "seed": 10},
        "agent": {"kind": "scripted"},
        "limits": {"attempts": 1, "backoff": 0.0},
        "keep_episodes": 0,
    }
    file = folder / "audit-config.json"
    file.write_text(json.dumps({**written, **changes}))
    return str(file)


def audited(folder: Path, *words: str, **changes: Any) -> tuple[int, AuditReport]:
    code = main(["--config", config(folder, **changes), "--out", str(folder / "out"), *words])
    return code, msgspec.json.decode((folder / "out" / "audit.json").read_bytes(), type=AuditReport)


def verdicts(report: AuditReport) -> dict[str, str]:
    return {each.family: each.verdict for each in report.families}


def test_a_sound_environment_is_found_sound_by_all_families(tmp_path: Path) -> None:
    code, report = audited(tmp_path)
    told = verdicts(report)
    assert code == 0
    assert {name for name, said in told.items() if said == "sound"} == set(HOLES)
    assert {name for name, said in told.items() if said == "not played"} == COMMANDS
    same = report.families[-1]
    assert (same.family, same.verdict, same.passed, same.tries) == ("same-seed", "measured", 8, 8)


@pytest.mark.parametrize("hole", HOLES)
def test_a_planted_hole_is_found_by_exactly_its_family(tmp_path: Path, hole: str) -> None:
    code, report = audited(tmp_path, options={"hole": hole}, tasks={"count": 2, "seed": 10})
    assert code == 1
    assert [each.family for each in report.faults] == [hole]
    found = next(each for each in report.families if each.family == hole)
    assert found.verdict == "hole"
    assert found.passed > 0
    assert all(task.ways for task in found.tasks if task.passed)


def test_who_gives_up_and_who_repeats_do_not_play_tasks_that_cannot_be_done(tmp_path: Path) -> None:
    """To say so is right there."""
    code, report = audited(tmp_path, options={"hole": "", "infeasible": True})
    played = {each.family: {task.task_id for task in each.tasks} for each in report.families if each.tries}
    assert (code, report.tasks, report.feasible) == (0, 4, 2)
    assert played["nothing"] == played["hacker"] == {"press", "write"}
    assert played["gives-up"] == played["replay"] == played["same-seed"] == played["left-behind"] == {"press"}
    assert verdicts(report)["other-task"] == "not played"


def test_a_failure_of_the_infrastructure_is_neither_a_pass_nor_a_failure(tmp_path: Path) -> None:
    code, report = audited(tmp_path, "--players", "nothing", "gives-up", "replay", options={"hole": "infra"})
    nothing, gives_up, replay = report.families
    assert code == 1
    assert (nothing.verdict, nothing.tries, nothing.passed, nothing.infra) == ("incomplete", 0, 0, 4)
    assert (nothing.bound, nothing.tasks[0].bound) == (1.0, 1.0)
    assert "no such machine" in nothing.why
    assert gives_up.verdict == "incomplete"
    assert replay.verdict == "not played"


def test_the_same_command_plays_only_what_has_no_score_yet(tmp_path: Path) -> None:
    _, before = audited(tmp_path)
    planted.made.clear()
    _, again = audited(tmp_path)
    assert planted.made == []
    assert again == before


def test_the_bound_is_wilson_s_over_the_tries_of_a_task(tmp_path: Path) -> None:
    _, report = audited(tmp_path, "--players", "random", "--tries", "5")
    (found,) = report.families
    estimate = wilson(0, 5)
    assert estimate is not None
    assert [(task.tries, task.bound) for task in found.tasks] == [(5, estimate.high)] * 4


def test_a_rate_that_the_author_allows_is_no_hole(tmp_path: Path) -> None:
    code, report = audited(tmp_path, "--allow", "gives-up=1", options={"hole": "gives-up"})
    assert code == 0
    assert verdicts(report)["gives-up"] == "allowed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--allow", "lucky=1"], "--allow lucky=1; allowed: FAMILY=RATE"),
        (["--allow", "random=2"], "a rate of 0 to 1"),
        (["--tries", "0"], "--tries 0; allowed: 1 or more"),
        (["--markdown", "nowhere/page.md"], "--markdown nowhere/page.md: there is no such folder"),
    ],
)
def test_wrong_arguments_are_one_error_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    planted.made.clear()
    assert main(["--config", config(tmp_path), "--out", str(tmp_path / "out"), *words]) == EXIT_CONFIG
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert planted.made == []


def test_the_tables_name_the_way_that_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    audited(tmp_path, "--markdown", str(page), options={"hole": "hacker"})
    assert "hacker: press with seed 10: 1 of 1 passed, 1 paid, at most 100 %: a line break" in capsys.readouterr().out
    assert (
        "| hacker | takes the short ways that the environment itself knows | 4/4 | 100.0 % | hole |" in page.read_text()
    )


@pytest.mark.parametrize("name", ["click", "login", "versions"])
def test_our_environments_without_a_desktop_are_sound(tmp_path: Path, name: str) -> None:
    tasks = {"count": 6, "seed": 1_000_000}
    allow = ["--allow", "random=0.4", "--allow", "other-task=0.4", "--allow", "replay=0.4"]
    code, report = audited(tmp_path, *allow, environment=name, options={"split": "test"}, tasks=tasks)
    assert code == 0, report.faults
    assert verdicts(report)["same-seed"] == "measured"


def test_the_page_s_command_audits_the_example_and_writes_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/howto/audit.md").read_text(encoding="utf-8")
    _, folder, words = re.split(r"\ncd (\S+)\npython -m eval\.audit ", page.partition("\n```\n")[0])
    own = tmp_path / "own"
    shutil.copytree(ROOT / folder, own)
    monkeypatch.chdir(own)
    monkeypatch.syspath_prepend(str(own))
    try:
        assert main(words.split()) == 1
    finally:
        sys.modules.pop("my_environment", None)
    report = msgspec.json.decode((own / "audited/audit.json").read_bytes(), type=AuditReport)
    assert {each.family for each in report.faults} == {"random", "other-task"}
    assert "| other-task | repeats a success of another task" in (own / "audited.md").read_text()
    assert (
        "replay                                0  not played: the environment draws no task" in capsys.readouterr().out
    )
    assert [verdict for verdict in get_args(Verdict) if f"\n| {verdict} | " not in page] == []
    assert {name for name in FAMILIES if f"`{name}`" not in page} == set()


def test_jitter_moves_every_point_a_little_and_nothing_else() -> None:
    way = [Action(ActionType.CLICK, x=0.0, y=0.5), Action(ActionType.TYPE, text="a"), Action(ActionType.DONE)]
    click, *rest = jittered(way, 1)
    assert rest == way[1:]
    assert click.x is not None
    assert click.y is not None
    assert 0 <= click.x <= JITTER
    assert 0 < abs(click.y - 0.5) <= JITTER
    assert list(jittered(way, 1)) == [click, *rest] != list(jittered(way, 2))
