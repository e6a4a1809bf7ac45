"""`python -m eval.tasks`: what it reads, what it refuses with one clear error, and what it says that tasks need."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval import osworld
from eval.benchmarks.osworld.judging import MetricRaised
from eval.benchmarks.osworld.needs import needs_of
from eval.benchmarks.osworld.program_judge import read_score
from eval.benchmarks.osworld.tasks import load
from eval.tasks import script
from eval.tasks.__main__ import FORMATS, main
from tests.support.documented import ROOT

SAMPLES = ROOT / "tests/data/imported"
OFFICE = "5f1d0c4e-1111-5a2b-8c3d-000000000001"
BUNDLE = "90000101_000001"
TASK = "editor_env/tasks/sort_names/task.json"
FORMS = {"cua-gym": "cua-gym", "cua-gym-bundle": "cua-gym", "gym-anything": "gym-anything", "osworld-2": "osworld-2"}


def copied(form: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / form, tmp_path / form))


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def needed(out: Path) -> set[tuple[str, str]]:
    return {(need.kind, need.name) for task in load(out, strict=True).tasks for need in needs_of(task)}


@pytest.mark.parametrize("form", FORMS)
def test_every_sample_is_written_as_a_task_that_can_be_read(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["import", FORMS[form], str(SAMPLES / form), str(out), "--revision", "r1"]) == 0
    told = json.loads((out / "import.json").read_text())
    assert told["revision"] == "r1"
    assert told["tasks"] == len(load(out, strict=True).tasks) > 0
    assert capsys.readouterr().out.endswith(f"0 left out: {out}\n")


def test_of_the_check_and_its_answer_nothing_is_in_a_step_that_the_agents_desktop_gets(tmp_path: Path) -> None:
    for form, name in FORMS.items():
        main(["import", name, str(SAMPLES / form), str(tmp_path / form)])
        for task in load(tmp_path / form, strict=True).tasks:
            for step in task.setup:
                for file in step.parameters.get("files", ()):
                    content = (tmp_path / form / file["local_path"]).read_text()
                    hidden = [word for word in ("MARK-HIDDEN-CHECK", "MARK-HIDDEN-ANSWER") if word in content]
                    # tools that several checks share are there for the set-up, and gone before the agent comes
                    assert not hidden or "/+shared/" in file["local_path"]


# One clear error, and nothing is written

Spoil = Callable[[Path], object]


def json_with(file: str, name: str, value: Any) -> Spoil:
    return lambda path: changed(path / file, lambda data: data.update({name: value}))


def task_with(name: str, value: Any) -> Spoil:
    return json_with(f"{OFFICE}/task.json", name, value)


def brings(url: str) -> dict[str, Any]:
    return {"type": "download", "parameters": {"files": [{"url": url, "path": "/home/user/x"}]}}


def verifier(program: str) -> dict[str, Any]:
    return {"mode": "program", "spec": {"program": program}}


def writes(file: str, text: str) -> Spoil:
    return lambda path: (path / file).write_text(text)


def removes(file: str) -> Spoil:
    return lambda path: (shutil.rmtree if (path / file).is_dir() else os.unlink)(path / file)


def links(file: str, target: str) -> Spoil:
    def spoil(path: Path) -> None:
        if (path / file).is_dir():
            shutil.rmtree(path / file)
        (path / file).symlink_to(target)

    return spoil


def behind_a_link(path: Path) -> None:
    links(f"{OFFICE}/link", "/etc")(path)
    task_with("config", [brings("./link/passwd")])(path)


def twice(path: Path) -> None:
    shutil.copytree(path / OFFICE, path / "other")


def twice_a_class(path: Path) -> None:
    text = (path / "task_900.py").read_text()
    (path / "task_900.py").write_text(text + text)


COMPUTED = "class T(BaseTask):\n    id = f()\n    instruction = 'x'\n"
BAD: dict[str, tuple[str, Spoil, str]] = {
    "no task": ("cua-gym", removes(f"{OFFICE}/task.json"), "no task.json and no meta.json"),
    "no JSON": ("cua-gym", writes(f"{OFFICE}/task.json", "{"), "task.json: Expecting"),
    "no object": ("cua-gym", writes(f"{OFFICE}/task.json", "[]"), "is a list; allowed: an object"),
    "another judge": ("cua-gym", task_with("evaluator", {"type": "vlm"}), "evaluator.type: 'vlm'; allowed: python"),
    "no instruction": ("cua-gym", task_with("instruction", ""), "instruction: ''; allowed: a text"),
    "half a letter": ("cua-gym", task_with("instruction", "\ud800"), "one half of a surrogate pair"),
    "a name that is a path": ("cua-gym", task_with("id", "../../x"), "id: '../../x'; allowed: letters"),
    "a name of two tasks": ("cua-gym", twice, "is also that of"),
    "steps that are none": ("cua-gym", task_with("config", ["x"]), "config: ['x']; allowed: a list of objects"),
    "an unknown step": ("cua-gym", task_with("config", [{"type": "x"}]), "config[0].type: 'x'; allowed: act"),
    "a file of this machine": ("cua-gym", task_with("config", [{"type": "upload_file"}]), "'upload_file'; allowed"),
    "bad parameters": ("cua-gym", task_with("config", [{"type": "sleep", "parameters": 1}]), "parameters: 1; allowed"),
    "a file of elsewhere": ("cua-gym", task_with("config", [brings("../x")]), "'../x'; allowed: a file of the bundle"),
    "a file behind a link": ("cua-gym", behind_a_link, "link/passwd: no such file"),
    "a check for the agent": ("cua-gym", task_with("config", [brings("reward.py")]), "a file that the agent may see"),
    "no reward": ("cua-gym", removes(f"{OFFICE}/reward.py"), "reward.py: no such file"),
    "an empty reward": ("cua-gym", writes(f"{OFFICE}/reward.py", ""), "it prints no score"),
    "a reward in no Python": ("cua-gym", writes(f"{OFFICE}/reward.py", "("), "reward.py: SyntaxError"),
    "a deep reward": ("cua-gym", writes(f"{OFFICE}/reward.py", f"print({'-' * 9999}1)"), "reward.py: "),
    "no answer": ("cua-gym-bundle", removes(f"{BUNDLE}/gt"), "gt: no such folder"),
    "no check": ("cua-gym-bundle", removes(f"{BUNDLE}/check.sh"), "check.sh: no such file"),
    "a link": ("cua-gym-bundle", links(f"{BUNDLE}/gt/a", "/etc/passwd"), "gt/a: is a link"),
    "a link to a folder": ("cua-gym-bundle", links(f"{BUNDLE}/hidden", "/etc"), "hidden: is a link"),
    "another driver": ("cua-gym-bundle", json_with(f"{BUNDLE}/meta.json", "driver", "x"), "driver: 'x'; allowed"),
    "a runtime of text": ("cua-gym-bundle", json_with(f"{BUNDLE}/meta.json", "runtime", "x"), "runtime: 'x'; allowed"),
    "no environment": ("gym-anything", removes("editor_env/env.json"), "env.json: no such file"),
    "mounts of text": ("gym-anything", json_with("editor_env/env.json", "mounts", "x"), "mounts: 'x'; allowed"),
    "another mode": ("gym-anything", json_with(TASK, "success", {"mode": "image_match"}), "allowed: program, multi"),
    "a list of modes": ("gym-anything", json_with(TASK, "success", {"mode": []}), "success.mode: []; allowed"),
    "a list of rewards": ("gym-anything", json_with(TASK, "init", {"reward_type": ["sparse"]}), "allowed: sparse"),
    "no such verifier": ("gym-anything", json_with(TASK, "success", verifier("x.py::f")), "no file x.py; allowed"),
    "no function": ("gym-anything", json_with(TASK, "success", verifier("verifier.py")), "FILE.py::FUNCTION"),
    "a verifier elsewhere": ("gym-anything", json_with(TASK, "success", verifier("../../x.py::f")), "no file ../../x"),
    "no such hook": ("gym-anything", json_with(TASK, "hooks", {"pre_task": "/etc/passwd"}), "'/etc/passwd': no such"),
    "a hook of blanks": ("gym-anything", json_with(TASK, "hooks", {"pre_task": " "}), "hooks: ' ': no such file"),
    "no Python": ("gym-anything", writes("editor_env/tasks/sort_names/verifier.py", "("), "verifier.py: SyntaxError"),
    "two classes": ("osworld-2", twice_a_class, "2 classes of BaseTask"),
    "no class": ("osworld-2", writes("task_900.py", "x = 1"), "0 classes of BaseTask"),
    "a class in no Python": ("osworld-2", writes("task_900.py", "("), "task_900.py: SyntaxError"),
    "a computed id": ("osworld-2", writes("task_900.py", COMPUTED), "id: None; allowed: a text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_bundle_is_one_error_and_nothing_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form, spoil, words = BAD[name]
    source = copied(form, tmp_path)
    spoil(source)
    assert main(["import", FORMS[form], str(source), str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("eval.tasks: ")
    assert words in told.err
    assert not (tmp_path / "out").exists()


def test_places_that_are_not_good_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for source, out in (("nowhere", "out"), (str(SAMPLES), "full"), (str(tmp_path / "full"), "out")):
        assert main(["import", "cua-gym", source, str(tmp_path / out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for argv in (["import", "nothing", ".", "out"], ["import"], []):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2


def test_bad_bundles_can_be_left_out_and_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = copied("cua-gym", tmp_path)
    (source / OFFICE / "reward.py").write_text("")
    assert main(["import", "cua-gym", str(source), str(tmp_path / "out"), "--skip-bad"]) == 0
    assert capsys.readouterr().out.startswith(f"left out: {OFFICE}: {OFFICE}/reward.py: it prints no score")
    assert main(["count", str(tmp_path / "out"), "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    figures = {name: row[name] for name in ("tasks", "loadable", "runnable", "scorable")}
    assert figures == {"tasks": 2, "loadable": 1, "runnable": 0, "scorable": 0}
    assert row["lacking"]["it cannot be read"] == 1
    assert row["lacking"]["CUA-Gym-Hub gmail"] == 1


def test_only_a_folder_that_was_imported_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(tmp_path)]) == 2
    assert "import.json: no such file" in capsys.readouterr().err


# What tasks need


def test_a_task_that_lacks_only_what_its_check_needs_can_run_and_not_be_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = copied("gym-anything", tmp_path)
    folder = source / "editor_env/tasks/sort_names"
    (folder / "export_result.sh").write_text("source /workspace/scripts/tools.sh\nfocus names\n")
    (source / "editor_env/scripts/tools.sh").write_text(
        'focus() {\n    DISPLAY=:1 wmctrl -a "$1"\n}\nstop() {\n    sudo kill 1\n}\n'
    )
    assert main(["import", "gym-anything", str(source), str(tmp_path / "out")]) == 0
    needs = needed(tmp_path / "out")
    assert ("live", "wmctrl") in needs
    assert ("rights", "root") not in needs  # of a function that nobody calls
    capsys.readouterr()
    main(["count", str(tmp_path / "out"), "-o", "json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["runnable"], row["scorable"]) == (1, 0)


def test_a_verifiers_helpers_are_read_as_far_as_they_are_called(tmp_path: Path) -> None:
    source = copied("gym-anything", tmp_path)
    utils = source / "editor_env/utils/lines.py"
    utils.write_text(utils.read_text() + "\ndef seen(env_info):\n    return env_info['query_vlm']('x')\n")
    main(["import", "gym-anything", str(source), str(tmp_path / "uncalled")])
    assert ("model", "query_vlm") not in needed(tmp_path / "uncalled")
    file = source / "editor_env/tasks/sort_names/verifier.py"
    file.write_text(file.read_text().replace("import lines_of", "import lines_of, seen") + "\nseen({})\n")
    main(["import", "gym-anything", str(source), str(tmp_path / "called")])
    assert ("model", "query_vlm") in needed(tmp_path / "called")


def test_a_mount_of_another_place_brings_nothing(tmp_path: Path) -> None:
    for number, place in enumerate(("etc", "../../etc", "/etc", str(tmp_path).lstrip("/"))):
        source = copied("gym-anything", tmp_path / str(number))
        mount = {"source": place, "target": "/workspace/more"}
        changed(source / "editor_env/env.json", lambda data, mount=mount: data["mounts"].append(mount))
        main(["import", "gym-anything", str(source), str(tmp_path / f"out{number}")])
        assert not [*(tmp_path / f"out{number}").glob("*/+shared/more")]


def test_texts_of_osworld_2_that_are_put_together_from_constants_are_read(tmp_path: Path) -> None:
    (tmp_path / "task_013.py").write_text(
        "from desktop_env.controllers.website import SUFFIX\n"
        "NUMBER = '013'\nTEXT = ('Watch ' f'{NUMBER} at {SUFFIX} ' + 'and finish. ')\n"
        "class Task013(BaseTask):\n    id = NUMBER\n    instruction = TEXT.strip()\n"
    )
    assert main(["import", "osworld-2", str(tmp_path), str(tmp_path / "out")]) == 0
    (task,) = load(tmp_path / "out", strict=True).tasks
    assert (task.file_id, task.instruction) == ("013", "Watch 013 at {SUFFIX} and finish.")
    assert ("site", "OSWorld-web") in needed(tmp_path / "out")


def test_a_script_that_is_read_by_another_one_counts_with_it() -> None:
    files = {"/workspace/a.sh": ". /workspace/b.sh\nrun() {\n  deep\n}", "/workspace/b.sh": "deep() {\n  sudo x\n}"}
    assert script.programs(script.with_sourced("source '/workspace/a.sh'\nrun", files)) == ("sudo",)


# What a check says


@pytest.mark.parametrize(
    ("form", "status", "out", "value"),
    [
        ("reward", 0, "note\nREWARD: 0.5\n", 0.5),
        ("reward", 0, "0.25\n", 0.25),
        ("json", 0, 'x\n{"overall_score": 1.0}', 1.0),
        ("verdict", 0, '{"passed": true, "score": 40}', 1.0),
        ("points", 0, '{"passed": false, "score": 40}', 0.4),
    ],
)
def test_a_score_is_what_the_check_printed(form: str, status: int, out: str, value: float) -> None:
    assert read_score(form, status, out, "").value == value


@pytest.mark.parametrize(
    ("form", "status", "out"),
    [
        ("reward", 1, "REWARD: 0.0\n"),  # it fell afterwards
        ("reward", 137, "REWARD: 0.0\n"),
        ("reward", 0, "REWARD: 0.0\nREWARD: 1.0\n"),
        ("reward", 0, ""),
        ("reward", 0, "REWARD: nan\n"),
        ("reward", 0, "REWARD: 2\n"),
        ("json", 1, '{"overall_score": 0}'),
        ("json", 0, '{"overall": 1}'),
        ("json", 0, "[]"),
        ("verdict", 0, '{"passed": "false"}'),
        ("verdict", 0, "Traceback"),
        ("points", 0, '{"passed": true}'),
    ],
)
def test_a_check_that_fell_gives_no_score(form: str, status: int, out: str) -> None:
    with pytest.raises(MetricRaised):
        read_score(form, status, out, "")


# The page


def test_the_page_s_commands_import_the_samples_and_print_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/howto/import-tasks.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    counts, lists = re.findall(r"^python -m eval\.(tasks count|osworld) (.*)$", page, re.MULTILINE)
    imports = re.findall(r"^python -m eval\.tasks (import .*)$", page, re.MULTILINE)
    assert [main(line.split()) for line in imports] == [0] * len(imports)
    assert {line.split()[1] for line in imports} == {*FORMATS}
    capsys.readouterr()
    assert main(["count", *counts[1].split(), "-o", "json"]) == 0
    names = ("tasks", "loadable", "runnable", "scorable")
    found = [[str(row[name]) for name in names] for row in json.loads(capsys.readouterr().out)]
    assert found == [re.split(r" *\| *", line)[2:6] for line in page.splitlines() if line.startswith("| our sample")]
    assert osworld.main(lists[1].split()) == 0
    assert "1 of 1 tasks can run here" in capsys.readouterr().out
