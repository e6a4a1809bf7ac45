"""Task files of OSWorld's format: read, refused, and what each needs. The files are ours, in the published form."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld import environment
from eval.benchmarks.osworld.machine import Machine, PublicEvaluators, package_in
from eval.benchmarks.osworld.needs import first_words, needs_of
from eval.benchmarks.osworld.tasks import PublicTask, load, load_task
from eval.config import EXIT_CONFIG, ConfigError
from eval.environments.registry import environment as environment_of
from eval.osworld import main
from eval.run import EvaluatedTasks

URL = "https://files.example.com/cache/a.xlsx"
EVALUATOR = {
    "func": "compare_table",
    "result": {"type": "vm_file", "path": "/home/user/a.xlsx", "dest": "a.xlsx"},
    "expected": {"type": "cloud_file", "path": f"{URL}_gold", "dest": "gold.xlsx"},
}


def written(folder: Path, name: str = "libreoffice_calc/one", **changes: Any) -> Path:
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "id": path.stem,
        "snapshot": "libreoffice_calc",
        "instruction": "Fill the blank cells.",
        "config": [
            {"type": "download", "parameters": {"files": [{"url": URL, "path": "/home/user/a.xlsx"}]}},
            {"type": "open", "parameters": {"path": "/home/user/a.xlsx"}},
        ],
        "related_apps": ["libreoffice calc"],
        "evaluator": EVALUATOR,
        "proxy": False,
        **changes,
    }
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))
    return path


def task(folder: Path, **changes: Any) -> PublicTask:
    return load_task(written(folder, **changes))


def needed(folder: Path, **changes: Any) -> set[str]:
    return {f"{need.kind} {need.name}" for need in needs_of(task(folder, **changes))}


# what is read


def test_a_task_is_read(tmp_path: Path) -> None:
    one = task(tmp_path)
    assert (one.task_id, one.snapshot, one.conj, one.infeasible) == (
        "libreoffice_calc/one",
        "libreoffice_calc",
        "and",
        False,
    )
    assert [step.kind for step in one.setup] == ["download", "open"]
    (check,) = one.checks
    assert (check.metric, check.options) == ("compare_table", {})
    assert check.result is not None
    assert check.result["type"] == "vm_file"


def test_a_list_of_metrics_has_a_list_of_each_other_and_nulls_in_it(tmp_path: Path) -> None:
    rule = {"type": "rule", "rules": {"expected": "1"}}
    evaluator = {
        "func": ["exact_match", "check_list"],
        "conj": "or",
        "result": [rule, rule],
        "options": [None, {"a": 1}],
    }
    one = task(tmp_path, evaluator={**evaluator, "expected": [rule, None]})
    assert [(check.metric, check.expected, check.options) for check in one.checks] == [
        ("exact_match", rule, {}),
        ("check_list", None, {"a": 1}),
    ]
    assert one.conj == "or"


def test_infeasible_needs_no_result(tmp_path: Path) -> None:
    assert task(tmp_path, evaluator={"func": "infeasible"}).infeasible


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"instruction": ""}, "instruction must be a text"),
        ({"instruction": ...}, "no 'instruction'"),
        ({"evaluator": ...}, "no 'evaluator'"),
        ({"evaluator": []}, "evaluator must be an object"),
        ({"evaluator": {}}, "no 'func'"),
        ({"evaluator": {"func": []}}, "evaluator.func is empty"),
        ({"evaluator": {"func": "exact_match"}}, "a metric without a result"),
        ({"evaluator": {**EVALUATOR, "conj": "xor"}}, "evaluator.conj must be `and` or `or`, not 'xor'"),
        ({"evaluator": {**EVALUATOR, "func": ["a", "b"]}}, "evaluator.result must be a list of 2"),
        ({"evaluator": {**EVALUATOR, "result": {"path": "a"}}}, "evaluator.result.type must be a text"),
        ({"evaluator": {"func": ["infeasible", "a"], "result": [None, {"type": "rule"}]}}, "infeasible stands alone"),
        ({"instruction": "\ud83d"}, "instruction holds one half of a surrogate pair"),
        ({"related_apps": "chrome"}, "related_apps must be a list"),
        ({"related_apps": [1]}, "related_apps must be a text"),
        ({"config": {}}, "config must be a list"),
        ({"config": [{"parameters": {}}]}, r"config[0].type must be a text"),
        ({"config": [{"type": "sleep", "parameters": []}]}, "config[0].parameters must be an object"),
    ],
)
def test_a_task_that_could_not_be_judged_is_refused_by_file_and_field(
    tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    with pytest.raises(BenchError) as told:
        task(tmp_path, **change)
    assert str(told.value).startswith("libreoffice_calc/one.json: ")
    assert fault in str(told.value)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "[1",
        "\xff\xfe",
        "null",
        "NaN",
        pytest.param("9" * 5000, id="a long number"),
        pytest.param("[" * 100_000, id="nested without end"),
        pytest.param('{"a":' * 100_000, id="objects without end"),
    ],
)
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, body: str) -> None:
    path = written(tmp_path)
    path.write_bytes(body.encode("latin-1"))
    with pytest.raises(BenchError, match=r"^libreoffice_calc/one\.json: "):
        load_task(path)


@pytest.mark.parametrize(
    ("name", "change", "file_id"),
    [
        ("os/a", {"config": ...}, "a"),  # OSWorld's c288e301-...
        ("os/a", {"config": []}, "a"),
        ("os/a", {"config": None}, "a"),
        ("os/1234-2-WOS", {"id": "1234-WOS-2"}, "1234-WOS-2"),  # as six files of Windows Agent Arena
        ("os/a", {"id": "0b17a146-2934-46c7-8727-73ff6b6483e8"}, "0b17a146-2934-46c7-8727-73ff6b6483e8"),
        ("os/a", {"id": ...}, "a"),
        ("os/a", {"related_apps": None}, "a"),
    ],
)
def test_shapes_of_published_files_are_read(tmp_path: Path, name: str, change: dict[str, Any], file_id: str) -> None:
    one = load_task(written(tmp_path, name, **change))
    assert (one.task_id, one.file_id) == (name, file_id)
    assert bool(one.setup) == ("config" not in change)


def test_what_is_no_file_keeps_no_task_from_running(tmp_path: Path) -> None:
    written(tmp_path, "os/a")
    (tmp_path / "os" / "folder.json").mkdir()
    (tmp_path / "os" / "link.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "os" / "pipe.json")
    (tmp_path / "os" / "._a.json").write_bytes(b"\0\5\x16\7")  # what macOS leaves beside each file of an archive
    (tmp_path / "README.json").write_text("{}")
    found = load(tmp_path)
    assert [one.task_id for one in found.tasks] == ["os/a"]
    assert set(found.unread) == {"os/folder", "os/link", "os/pipe"}


@pytest.mark.parametrize("listed", [{}, {"os": []}, {"os": ["gone"]}])
def test_a_list_without_a_task_that_can_be_read_is_one_line(tmp_path: Path, listed: dict[str, Any]) -> None:
    written(tmp_path, "os/a")
    (tmp_path / "list.json").write_text(json.dumps(listed))
    with pytest.raises(ConfigError, match=r"^options\.list: none of its [01] tasks can be read"):
        environment.tasks(1, 0, {"folder": str(tmp_path), "list": str(tmp_path / "list.json")})


def test_downloads_are_kept_under_the_id_in_the_file(tmp_path: Path) -> None:
    getter = {"type": "cloud_file", "path": URL, "dest": "gold.xlsx"}
    one = load_task(written(tmp_path, config=[], id="other", evaluator={**EVALUATOR, "expected": getter}))
    for folder, kept in (("one", False), ("other", True)):
        (tmp_path / "cache" / folder).mkdir(parents=True)
        (tmp_path / "cache" / folder / "gold.xlsx").write_bytes(b"gold")
        machine = Machine(False, tmp_path / "cache", lambda name: True, tmp_path / "none")
        assert ("download" not in {need.kind for need in machine.lacks(one)}) is kept


def test_one_task_that_cannot_be_read_keeps_no_other_from_running_and_stays_in_the_set(tmp_path: Path) -> None:
    for name in ("os/a", "os/b", "os/c"):
        written(tmp_path, name)
    (tmp_path / "os" / "b.json").write_text("{")
    (tmp_path / "chrome").mkdir()  # a domain without files
    names = tmp_path / "test_all.json"
    names.write_text(json.dumps({"os": ["b", "c", "gone"], "chrome": ["x"]}))
    found = load(tmp_path, names)
    assert found.names == ("os/b", "os/c", "os/gone", "chrome/x")
    assert [one.task_id for one in found.tasks] == ["os/c"]
    assert found.stale == ("os/gone", "chrome/x")
    assert found.unread["os/b"].startswith("os/b.json: ")
    with pytest.raises(BenchError, match=r"^os/b\.json: "):
        load(tmp_path, names, strict=True)
    names.write_text(json.dumps({"os": ["c", "gone"]}))
    with pytest.raises(BenchError, match=r"^os/gone: in the list, and no file has it$"):
        load(tmp_path, names, strict=True)
    assert len(load(tmp_path).names) == 3
    options = {"folder": str(tmp_path), "list": str(names)}
    tasks = environment.tasks(3, 0, options)
    assert [(one.task_id, one.seed, one.not_run) for one in tasks] == [
        ("os/c", 0, ""),
        ("os/gone", 0, "in the list, and no file has it"),
        ("os/c", 1, ""),
    ]
    with pytest.raises(ConfigError, match="os/gone: in the list"):
        environment.tasks(3, 0, {**options, "strict": True})


def test_all_tasks_of_a_set_are_asked_for_without_a_number(tmp_path: Path) -> None:
    for name in ("os/a", "os/b"):
        written(tmp_path, name)
    names = tmp_path / "test_all.json"
    names.write_text(json.dumps({"os": ["b", "gone", "a"]}))
    chosen = EvaluatedTasks(count=None, seed=0)
    assert chosen.number(environment, {"folder": str(tmp_path), "list": str(names)}) == 3
    assert chosen.number(environment, {"folder": str(tmp_path)}) == 2
    with pytest.raises(ConfigError, match=r"tasks\.count: null is for environments with a set"):
        chosen.number(environment_of("login"), {})


def test_names_of_a_list_that_no_file_has_are_reported(tmp_path: Path) -> None:
    written(tmp_path, "os/a")
    written(tmp_path, "os/b")
    names = tmp_path / "test_all.json"
    names.write_text(json.dumps({"os": ["b", "gone"], "chrome": ["also-gone"]}))
    found = load(tmp_path, names)
    assert [one.task_id for one in found.tasks] == ["os/b"]
    assert found.stale == ("os/gone", "chrome/also-gone")


# what it needs


def test_downloads_programs_and_the_judge_are_needs(tmp_path: Path) -> None:
    assert needed(tmp_path) == {
        *("program libreoffice", "download files.example.com", "metric compare_table"),
        *("getter vm_file", "getter cloud_file"),
    }


@pytest.mark.parametrize(
    ("step", "needs"),
    [
        ({"type": "launch", "parameters": {"command": ["/usr/bin/thunderbird"]}}, {"program thunderbird"}),
        (
            {"type": "launch", "parameters": {"command": "VLC_VERBOSE=-1 vlc '/home/user/a b.mp4'", "shell": True}},
            {"program vlc"},
        ),
        (
            {"type": "execute", "parameters": {"command": ["/bin/bash", "-c", "cd /tmp && unzip -q a.zip | wc -l"]}},
            {"program bash", "program unzip", "program wc"},
        ),
        (
            {
                "type": "command",
                "parameters": {"command": "echo {CLIENT_PASSWORD} | sudo -S a", "shell": True},
            },
            {"rights root"},
        ),
        (
            {
                "type": "execute",
                "parameters": {"command": ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 'alt', 't')"]},
            },
            {"program python", "program gnome-terminal"},
        ),
        (
            {"type": "execute", "parameters": {"command": "gsettings set org.gnome.desktop.x y true", "shell": True}},
            {"program gsettings", "program gnome-shell"},
        ),
        (
            {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://www.example.org/a", "b"]}},
            {"program google-chrome", "site www.example.org", "site b"},
        ),
        ({"type": "login", "parameters": {"platform": "googledrive"}}, {"account googledrive"}),
        ({"type": "make_coffee", "parameters": {}}, {"setup make_coffee"}),
        ({"type": "create_folder", "parameters": {"path": "C:\\a"}}, set()),  # Windows Agent Arena's
        ({"type": "sleep", "parameters": {"seconds": 1}}, set()),
        ({"type": "open", "parameters": {"path": "/home/user/a.PDF"}}, {"program evince"}),
    ],
)
def test_what_a_step_of_the_setup_needs(tmp_path: Path, step: dict[str, Any], needs: set[str]) -> None:
    rule = {"func": "infeasible"}
    assert needed(tmp_path, config=[step], related_apps=[], evaluator=rule) == needs
    after = needed(tmp_path, config=[], related_apps=[], evaluator={**rule, "postconfig": [step]})
    assert after == needs


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        ("a=1 b; c | d && e || f", ["b", "c", "d", "e", "f"]),
        ("if [ -f x ]; then y; else z; fi", ["y", "z"]),
        ("pulseaudio --start\npactl list | grep '^a' | head -n 1", ["pulseaudio", "pactl", "grep", "head"]),
        ("ls > out.txt 2> err.txt; cat < in.txt", ["ls", "cat"]),
        ("$HOME/x; y", ["y"]),
        ("echo 'never closed", []),
        ("", []),
    ],
)
def test_the_programs_of_a_script_are_the_first_words_of_its_commands(script: str, programs: list[str]) -> None:
    assert first_words(script) == programs


# what is here


def package(folder: Path, imports: str = "import os\n") -> Path:
    """A package in the form of desktop-env."""
    for kind, names in (("metrics", "compare_table"), ("getters", "get_vm_file, get_cloud_file")):
        place = folder / "desktop_env/evaluators" / kind
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(f"from .one import ({names})\n\ndef infeasible():\n    pass\n")
        (place / "one.py").write_text(f"{imports}from desktop_env.evaluators import x\nfrom . import y\n")
    return folder / "desktop_env"


def test_the_public_evaluators_are_read_and_not_imported(tmp_path: Path) -> None:
    made = package(tmp_path, "import no_such_package.part\nfrom another_one import a\nimport json\n")
    found = PublicEvaluators.of(made, tmp_path)
    assert found.missing == ("another_one", "no_such_package")
    assert "compare_table" in found.metrics
    assert {"vm_file", "cloud_file"} <= found.getters


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder for tasks, on a machine with the public evaluators in an environment of their own."""
    package(tmp_path / "lib/python3.11/site-packages")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tasks"


JUDGE = Path("bin/python")


def test_a_package_that_few_metrics_need_takes_only_them_away(here: Path) -> None:
    package = here.parent / "lib/python3.11/site-packages/desktop_env"
    (package / "evaluators/metrics/__init__.py").write_text("from .one import compare_table, compare_image_text\n")
    (package / "evaluators/metrics/one.py").write_text("import easyocr\n")
    about = here.parent / "lib/python3.11/site-packages/desktop_env-1.0.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: desktop-env\nVersion: 1.0.2\n")
    found = PublicEvaluators.of_python(JUDGE)
    assert found is not None
    assert (found.missing, found.metrics, found.version) == ((), {"compare_table"}, "1.0.2")
    assert PublicEvaluators.of_python(here.parent / "elsewhere/bin/python") is None


@pytest.mark.parametrize("place", ["src/win-arena-container/client", "", None])
def test_the_evaluators_of_a_clone_take_the_place_of_the_installed_ones(
    here: Path, tmp_path: Path, place: str | None
) -> None:
    installed = PublicEvaluators.of_python(JUDGE)
    made = package(tmp_path / "clone" / (place or ""), "import json\n")
    (made / "evaluators/getters/__init__.py").write_text("from .one import get_of_the_clone\n")
    found = PublicEvaluators.of_python(JUDGE, package_in(made if place is None else tmp_path / "clone"))
    assert found is not None
    assert installed is not None
    assert (found.getters, found.version) == ({"of_the_clone"}, "")
    assert found.label == f"desktop_env {found.digest}"
    assert found.digest != installed.digest
    assert package_in(tmp_path) is None


def test_a_task_can_run_with_its_program_the_judge_and_its_downloads(here: Path, tmp_path: Path) -> None:
    one = task(here)
    machine = Machine(internet=False, cache=tmp_path / "cache", program=lambda name: name == "libreoffice", judge=JUDGE)
    assert [(need.kind, need.where) for need in machine.lacks(one)] == [
        ("download", "config[0]"),
        ("download", "evaluator.expected"),
    ]
    assert not Machine(internet=True, program=lambda name: True, judge=JUDGE).lacks(one)
    assert {need.name for need in Machine(internet=True, program=lambda name: False, judge=JUDGE).lacks(one)} == {
        "libreoffice"
    }
    # the names that the public harness gives its downloads
    for name in (f"{uuid.uuid5(uuid.NAMESPACE_URL, URL)}_a.xlsx", "gold.xlsx"):
        (tmp_path / "cache/one").mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache/one" / name).touch()
    assert not machine.lacks(one)


def test_web_sites_are_reached_by_the_desktops_network_alone(here: Path) -> None:
    """A download is this machine's, a page is the desktop's."""
    steps = [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://www.example.com/a"]}}]
    one = task(here, config=steps, proxy=True, evaluator={"func": "infeasible"})
    here_alone = Machine(internet=True, program=lambda name: True, judge=JUDGE)
    assert {(need.kind, need.name) for need in here_alone.lacks(one)} == {
        ("site", "www.example.com"),
        ("proxy", "for its web sites"),
    }
    assert not replace(here_alone, sites=True).lacks(one)
    assert here_alone.could(one)
    assert not here_alone.could(task(here, config=[{"type": "login", "parameters": {"platform": "googledrive"}}]))


def test_a_metric_that_the_installed_evaluators_do_not_have_is_named(here: Path) -> None:
    one = task(here, evaluator={**EVALUATOR, "func": "compare_dreams"})
    assert [need.name for need in Machine(internet=True, program=lambda name: True, judge=JUDGE).lacks(one)] == [
        "compare_dreams"
    ]


def test_the_command_tells_every_task_and_what_they_lack(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = [{"type": "sleep", "parameters": {"seconds": 1}}]
    written(here, "os/free", config=free, related_apps=["os"], evaluator={"func": "infeasible"})
    written(here, "os/shell", config=[], related_apps=[], proxy=True)
    names = here / "names.json"
    names.write_text(json.dumps({"os": ["free", "shell", "gone"]}))
    assert main(["can-run", str(here), "--list", str(names), "--judge", str(JUDGE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["os/free   can run", "os/shell  lacks proxy for its web sites; 1 download (files.example.com)"]
    assert lines[3] == "1 of 3 tasks can run here"
    assert lines[4].startswith("2 of 3 could with every program, download and web site")
    assert lines[-1] == "os/gone: in the list, and no file has it"
    assert main(["can-run", str(here), "-o", "json", "--internet", "--judge", str(JUDGE)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["task"], row["can_run"]) for row in found["tasks"]] == [("os/free", True), ("os/shell", False)]
    assert found["tasks"][1]["lacks"] == [{"kind": "proxy", "name": "for its web sites", "where": "proxy"}]


@pytest.mark.parametrize("names", [None, "[]", '{"os": "a"}', '{"os": ["nobody"]}', "{"])
def test_a_folder_or_a_list_without_tasks_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str | None
) -> None:
    more = []
    if names is not None:
        written(tmp_path)
        (tmp_path / "names.json").write_text(names)
        more = ["--list", str(tmp_path / "names.json")]
    assert main(["can-run", str(tmp_path), *more]) == EXIT_CONFIG
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
