"""Gym-Anything's tasks as its repositories have them: scripts start each other, verifiers look beside themselves."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.needs import needs_of
from eval.benchmarks.osworld.tasks import load
from eval.tasks import gym_anything, script, verify_program
from eval.tasks.__main__ import main
from tests.support.documented import ROOT

SAMPLE = ROOT / "tests/data/imported/gym-anything/editor_env"
PLACE = "benchmarks/own/environments/editor_env"

BESIDE = """import importlib.util
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[4] / "common" / "tools.py"


def check_sorted(traj, env_info, task_info):
    found = importlib.util.spec_from_file_location("tools", TOOLS)
    tools = importlib.util.module_from_spec(found)
    found.loader.exec_module(tools)
    return tools.judged(env_info)
"""
TOOLS = """def judged(env_info):
    env_info["copy_from_env"](__file__, "copy.txt")
    return {"passed": True, "score": 100}


def asked(env_info):
    return env_info["query_vlm"]("?")
"""


def repository(tmp_path: Path) -> Path:
    """The sample at its place in a repository, with a folder of common files that it mounts; gives its folder."""
    folder = tmp_path / PLACE
    shutil.copytree(SAMPLE, folder)
    common = tmp_path / "benchmarks/own/common"
    common.mkdir()
    (common / "tools.py").write_text(TOOLS)
    data = json.loads((folder / "env.json").read_text())
    data["mounts"] = [
        {"source": f"{PLACE}/scripts", "target": "/workspace/scripts"},
        {"source": f"{PLACE}/utils", "target": "/workspace/utils"},  # which every verifier has, mounted or not
        {"source": "benchmarks/own/common", "target": "/workspace/common"},
    ]
    (folder / "env.json").write_text(json.dumps(data))
    (folder / "tasks/sort_names/verifier.py").write_text(BESIDE)
    return folder


def edited(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def needed(folder: Path, out: Path) -> set[tuple[str, str]]:
    assert main(["import", "gym-anything", str(folder), str(out)]) == 0
    return {(need.kind, need.name) for task in load(out, strict=True).tasks for need in needs_of(task)}


def test_a_helper_that_is_loaded_by_its_path_counts_as_far_as_it_is_called(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    assert not [kind for kind, _ in needed(folder, tmp_path / "out") if kind == "model"]
    file = folder / "tasks/sort_names/verifier.py"
    file.write_text(BESIDE.replace("tools.judged", "tools.asked"))
    assert ("model", "query_vlm") in needed(folder, tmp_path / "asked")


def test_a_verifier_runs_where_its_repository_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of a check as they lie on the desktop where it is judged."""
    out = tmp_path / "out"
    assert main(["import", "gym-anything", str(repository(tmp_path)), str(out)]) == 0
    (task,) = load(out, strict=True).tasks
    assert task.program is not None
    at = tmp_path / "judging"
    for above in ("editor_env/+shared", "editor_env/sort_names/check"):
        shutil.copytree(out / above, at, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "benchmarks")
    monkeypatch.chdir(at)
    monkeypatch.setattr(sys, "path", [*sys.path])
    verifier, function, _, told, places = task.program.command[2:]
    capsys.readouterr()
    verify_program.main(verifier, function, "-", told, places)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"passed": True, "feedback": "", "score": 100.0}


def test_what_a_hook_hands_over_to_counts_with_it_and_is_no_program(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    (folder / "tasks/sort_names/setup_task.sh").write_text(
        "python3 /workspace/common/make.py --all\nexec /workspace/scripts/open.sh\n"
    )
    (tmp_path / "benchmarks/own/common/make.py").write_text("import numpy\n")
    (folder / "scripts/open.sh").write_text('at="$(cd "$(dirname "$0")" && pwd)"\nnohup sudo -u ga viewer "$at" &\n')
    needs = needed(folder, tmp_path / "out")
    assert {("rights", "root"), ("package", "numpy"), ("program", "dirname")} <= needs
    assert not [name for kind, name in needs if kind == "program" and ("open.sh" in name or " " in name)]


def test_what_is_left_of_a_line_is_no_program() -> None:
    text = "if one; then\n  two\nelif three; then\n  four\nfi\n2>&1\n-name x\n] && six\n"
    assert script.programs(text) == ("one", "two", "three", "four", "six")


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ('SERVER="/workspace/common/serve.py"\nnohup python3 "$SERVER" \\\n  > /tmp/log 2>&1 &', True),
        ("python3 /workspace/common/serve.py &", True),
        ("python3 /workspace/common/make.py > /tmp/log 2>&1", False),
        ("cp /workspace/common/a /tmp && viewer /tmp/a &", True),  # it is not told which half goes on
        ("viewer /tmp/a &", False),
    ],
)
def test_a_program_of_the_mounts_that_goes_on_is_told(text: str, runs: bool) -> None:
    assert script.goes_on(text, "/workspace") is runs


def test_what_the_format_lets_out_or_writes_in_another_way_is_read(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    place = folder / "tasks/sort_names"
    line = "chmod +x /workspace/tasks/sort_names/setup_task.sh && bash -l /workspace/tasks/sort_names/setup_task.sh"
    edited(place / "task.json", hooks={"pre_task": line}, success={"spec": {"program": "verifier.py::check_sorted"}})
    (folder / "tasks/common").mkdir()  # of several tasks, and none
    task = gym_anything.task(place)
    assert [task.steps[-2]["parameters"]["command"], task.program["score"]] == [
        ["bash", "/workspace/tasks/sort_names/setup_task.sh"],
        "verdict",
    ]
    assert list(gym_anything.places(folder)) == [place]


@pytest.mark.parametrize(("base", "system"), [("windows-11", "windows"), ("android-14", "android")])
def test_a_task_of_another_system_is_read_and_cannot_run_here(tmp_path: Path, base: str, system: str) -> None:
    folder = repository(tmp_path)
    edited(folder / "env.json", base=base)
    edited(folder / "tasks/sort_names/task.json", hooks={"pre_task": "sh C:\\workspace\\tasks\\setup_task.ps1"})
    assert ("harness", f"a machine of {system}") in needed(folder, tmp_path / "out")


def test_a_link_to_a_file_of_another_task_is_that_file_and_no_other_link_is_followed(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    shutil.copytree(folder / "tasks/sort_names", folder / "tasks/other")
    edited(folder / "tasks/other/task.json", hooks={})
    file = folder / "tasks/other/verifier.py"
    file.unlink()
    file.symlink_to("../sort_names/verifier.py")
    assert gym_anything.task(file.parent).files["check/tasks/other/verifier.py"].decode() == BESIDE
    file.unlink()
    file.symlink_to(tmp_path / "benchmarks/own/common/tools.py")
    with pytest.raises(BenchError, match="is a link"):
        gym_anything.task(file.parent)
