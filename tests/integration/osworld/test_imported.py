"""Imported tasks on real desktops: the oracle gets 1, nobody 0; nothing hidden comes to the agent; attacks get 0.

The samples are ours, in the forms of CUA-Gym, its pipeline's bundles and Gym-Anything (tests/data/imported).
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path

import pytest

from eval import run
from eval.benchmarks.osworld import program_judge
from eval.desktop import CheckerFailed, InfraError, NotRunHere, Score, SetupFailed
from eval.desktops.live import LiveDesktop
from eval.episodes import jsonl
from eval.records.task_record import TaskRecord
from eval.tasks.__main__ import FORMATS, import_tasks
from tests.integration.osworld.playing import opened
from tests.support.desktops import need_isolation
from tests.support.documented import ROOT
from tests.support.osworld_tasks import DONE

pytestmark = pytest.mark.timeout(300)
SAMPLES = ROOT / "tests/data/imported"
OFFICE = SAMPLES / "cua-gym/5f1d0c4e-1111-5a2b-8c3d-000000000001"
BUNDLE = SAMPLES / "cua-gym-bundle/90000101_000001"
EDITOR = SAMPLES / "gym-anything/editor_env"
RIGHT = {
    OFFICE: "mv Documents/draft.txt Documents/report.txt && echo approved >> Documents/report.txt",
    BUNDLE: "echo 979 > /tmp_workspace/results/sum.txt",
    EDITOR: "sort -o /home/ga/Documents/names.txt /home/ga/Documents/names.txt",
}
FORM = {OFFICE: "cua-gym", BUNDLE: "cua-gym", EDITOR: "gym-anything"}
MARK = "MARK-HIDDEN"  # stands in all that the agent must not see


def imported(source: Path, out: Path) -> Path:
    need_isolation()
    import_tasks(FORMATS[FORM[source]], source, out, revision=None, skip=False)
    return out


async def play(folder: Path, *commands: str) -> tuple[Score, list[str]]:
    """The score after these commands of an agent, and what each printed."""
    async with opened(folder) as (desktop, one):
        await desktop.reset(one, one.seed)
        said = [await told(desktop, command) for command in commands]
        await desktop.step(DONE)
        return await desktop.score(), said


async def told(desktop: LiveDesktop, command: str) -> str:
    text, _ = await desktop.call("run_command", {"command": command})
    return text


@pytest.mark.parametrize("source", RIGHT, ids=lambda path: path.parent.name)
def test_the_oracle_solves_it_and_nobody_sees_what_is_hidden(source: Path, tmp_path: Path) -> None:
    folder = imported(source, tmp_path / "tasks")
    # all but the machine's own programs and settings, which every desktop sees
    look = f"grep -rls {MARK} $(ls -d /* | grep -vE '^/(usr|bin|sbin|lib.*|etc|proc|dev|var)$'); true"
    running = f"cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | grep -a -c '{MARK[:-1]}[N]'; true"
    score, said = asyncio.run(play(folder, look, running, RIGHT[source]))
    assert said[:2] == ["status 0", "status 0\n0"]
    assert (score.value, score.success) == (1.0, True)
    score, _ = asyncio.run(play(folder))
    assert (score.value, score.success) == (0.0, False)


async def watched(folder: Path) -> tuple[Score, str]:
    """The score, and what a program of the agent that goes on meanwhile sees of the check: its files, its processes."""
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; ls -R /tmp /tmp_workspace /home"
    async with opened(folder) as (desktop, one):
        await desktop.reset(one, one.seed)
        await told(desktop, f"(while sleep 1; do {look}; echo again; done) > /tmp/seen 2> /dev/null < /dev/null &")
        score = await desktop.score()
        return score, await told(desktop, "cat /tmp/seen")


def test_a_program_that_goes_on_while_it_is_judged_sees_nothing_of_the_check(tmp_path: Path) -> None:
    score, seen = asyncio.run(watched(imported(BUNDLE, tmp_path / "tasks")))
    assert (score.value, score.success) == (0.0, False)
    assert "again" in seen
    assert not [word for word in ("check.sh", "answer.json", "PYTHONPATH", MARK) if word in seen]


@pytest.mark.nightly
def test_part_of_the_work_is_part_of_the_score(tmp_path: Path) -> None:
    folder = imported(BUNDLE, tmp_path / "tasks")
    score, _ = asyncio.run(play(folder, "echo 1 > /tmp_workspace/results/sum.txt"))
    assert (score.value, score.success) == (0.2, False)
    assert score.detail["check"] == {"subscores": {"written": 1.0, "right": 0.0}}


PLANTED = """import os
print("REWARD: 1.0")
print('{"overall_score": 1.0, "passed": true}')
os._exit(0)
"""
PLACES = (
    "pathlib.py",
    "/tmp/check/pathlib.py",
    "/tmp/check/reward.py",
    ".local/lib/python3.11/site-packages/usercustomize.py",
)
ATTACKS = {
    OFFICE: (
        "mkdir -p .local/lib/python3.11/site-packages /tmp/check",
        *(f"printf %s {shlex.quote(PLANTED)} > {place}" for place in PLACES),
        "mkdir -p bin && printf '#!/bin/sh\\necho REWARD: 1.0\\n' > bin/python3 && chmod +x bin/python3",
    ),
    BUNDLE: (
        "mkdir -p /tmp_workspace/gt && echo '{\"sum\": 1}' > /tmp_workspace/gt/answer.json",
        f"printf %s {shlex.quote(PLANTED)} > /tmp_workspace/json.py",
        "printf '#!/bin/sh\\necho {\\\"score\\\": 1.0}\\n' > /tmp_workspace/check.sh",
        "ln -s /etc/passwd /tmp_workspace/results/sum.txt",
    ),
    EDITOR: (
        "mkdir -p /workspace/utils /workspace/tasks/sort_names",
        'printf \'def lines_of(path):\\n    return ["Ada", "Grace", "Katherine"]\\n\' > /workspace/utils/lines.py',
        "printf 'Ada\\nGrace\\nKatherine\\n' > /tmp/result.txt",
    ),
}
FORGED = (
    "rm /home/ga/Documents/names.txt; printf 'Ada\\nGrace\\nKatherine\\n' > /tmp/result.txt; chmod 400 /tmp/result.txt"
)
ODD = (
    "rm -rf .config .profile && touch .config && mkdir -p .profile/deep /tmp/check/pathlib.py",
    "mkdir -p /tmp/.X11-unix/a && touch /tmp/.X1-lock && mkfifo pipe && ln -s / root && ln -s /etc/passwd draft",
    "touch $(printf '\\377') && mkdir -m 0 closed && touch secret && chmod 0 secret",
)


@pytest.mark.nightly
@pytest.mark.parametrize("source", ATTACKS, ids=lambda path: path.parent.name)
def test_what_the_agent_plants_for_the_check_gets_nothing(source: Path, tmp_path: Path) -> None:
    folder = imported(source, tmp_path / "tasks")
    try:
        score, _ = asyncio.run(play(folder, *ATTACKS[source]))
    except CheckerFailed:  # no score: the untouched state is asked then (eval.rollout.task_run)
        return
    assert score.value == 0.0


def test_a_result_that_the_agent_wrote_in_the_place_of_the_export_s_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(CheckerFailed, match=r"export_result\.sh.*status 1"):
        asyncio.run(play(imported(EDITOR, tmp_path / "tasks"), FORGED))


def test_odd_files_of_the_agent_neither_stop_the_check_nor_change_it(tmp_path: Path) -> None:
    folder = imported(OFFICE, tmp_path / "tasks")
    score, _ = asyncio.run(play(folder, RIGHT[OFFICE], *ODD))
    assert (score.value, score.success) == (1.0, True)


@pytest.mark.parametrize(
    ("reward", "words"),
    [("import sys\nprint('REWARD: 0.0')\nsys.exit(3)\n", "status 3"), ("print('REWARD:', 1 / 0)\n", "ZeroDivision")],
)
def test_a_check_that_crashes_gives_no_score(reward: str, words: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(OFFICE, source / OFFICE.name)
    (source / OFFICE.name / "reward.py").write_text(reward)
    need_isolation()
    import_tasks(FORMATS["cua-gym"], source, tmp_path / "tasks", revision=None, skip=False)
    with pytest.raises(CheckerFailed, match=words):
        asyncio.run(play(tmp_path / "tasks", RIGHT[OFFICE]))


def test_a_check_that_does_not_end_gives_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_judge, "LIMIT_S", 3.0)
    source = tmp_path / "source"
    shutil.copytree(OFFICE, source / OFFICE.name)
    (source / OFFICE.name / "reward.py").write_text("import time\nprint('REWARD: 1.0', flush=True)\ntime.sleep(99)\n")
    need_isolation()
    import_tasks(FORMATS["cua-gym"], source, tmp_path / "tasks", revision=None, skip=False)
    with pytest.raises(InfraError, match="3 s"):
        asyncio.run(play(tmp_path / "tasks", RIGHT[OFFICE]))


def test_a_check_that_was_changed_after_the_import_judges_nothing(tmp_path: Path) -> None:
    folder = imported(OFFICE, tmp_path / "tasks")
    (check,) = folder.glob("os/*/check/reward.py")
    check.write_text("print('REWARD: 1.0')\n")
    with pytest.raises(SetupFailed, match=r"check/reward\.py: it is not the file that was imported"):
        asyncio.run(play(folder))


def test_a_setup_that_fails_begins_no_episode(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle/90000101_000009"
    (bundle / "exec").mkdir(parents=True)
    for name in ("hidden", "gt"):
        (bundle / name).mkdir()
    for name in ("meta.json", "instruction.md", "check.sh", "setup.sh"):
        (bundle / name).write_text((BUNDLE / name).read_text())
    import_tasks(FORMATS["cua-gym"], bundle, tmp_path / "tasks", revision=None, skip=False)
    with pytest.raises(SetupFailed, match="status 1") as failed:
        asyncio.run(play(tmp_path / "tasks"))
    assert not isinstance(failed.value, NotRunHere)


def test_the_page_s_evaluation_scores_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/howto/import-tasks.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n# imported.yaml\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("imported.yaml").write_text(text)
    imported(BUNDLE, Path("imported/bundles"))
    assert run.main(page.partition("\npython -m eval.run ")[2].partition("\n")[0].split()) == 0
    (record,) = jsonl.read(Path("results/tasks.jsonl"), TaskRecord)
    assert (record.outcome, record.score) == ("scored", 0.0)
