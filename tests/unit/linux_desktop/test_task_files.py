"""Tasks as files: OSWorld's keys, the schema, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eval.benchmarks.linux_desktop import environment
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.osworld.tasks import load
from eval.config import ConfigError
from eval.linux_desktop import main

# the keys of every task file of OSWorld's test_all, but `trajectory`, which names a folder of theirs
PUBLIC = ("id", "snapshot", "instruction", "source", "config", "related_apps", "evaluator")
SEED = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tasks") / "set"
    assert main(["--write", str(out), "--seeds", "2"]) == 0
    return out


def files(folder: Path) -> dict[Path, dict[str, Any]]:
    return {path: json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))}


def test_every_task_is_a_file_with_the_keys_of_osworld_that_the_schema_takes(folder: Path) -> None:
    schema = json.loads((folder / "task.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for path, task in files(folder).items():
        jsonschema.Draft202012Validator(schema).validate(task)
        assert set(PUBLIC) <= set(task)
        assert path == folder / task["related_apps"][0] / f"{task['id']}.json"
    assert len(files(folder)) == 2 * len(TEMPLATES)
    assert {task["template"] for task in files(folder).values()} == set(TEMPLATES)


def test_a_set_is_the_same_wherever_it_lies(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its own copy of an input, and their results are compared."""
    monkeypatch.setattr(environment, "of_this_machine", lambda options: {})
    shutil.copytree(folder, tmp_path / "copy")
    told = [environment.provenance({"files": str(each)}) for each in (folder, tmp_path / "copy")]
    assert told[0] == told[1]
    next((tmp_path / "copy").glob("*/*.json")).unlink()
    assert environment.provenance({"files": str(tmp_path / "copy")}) != told[0]


def test_our_reader_of_osworlds_files_reads_them(folder: Path) -> None:
    """The reader is strict, and was written for the public files."""
    (folder / "task.schema.json").rename(folder.parent / "task.schema.json")
    try:
        found = {task.task_id: task for task in load(folder, None).tasks}
    finally:
        (folder.parent / "task.schema.json").rename(folder / "task.schema.json")
    for path, task in files(folder).items():
        read = found[f"{path.parent.name}/{task['id']}"]
        assert read.instruction == task["instruction"]
        assert list(read.programs) == task["related_apps"]
        assert read.infeasible == TEMPLATES[task["template"]].about.infeasible


def test_a_folder_gives_the_tasks_that_its_templates_draw(folder: Path) -> None:
    tasks = environment.tasks(4, 0, {"files": str(folder)})
    drawn = {(task.task_id, task.seed): task for task in environment.tasks(2 * len(TEMPLATES), SEED, {})}
    assert tasks == [drawn[task.task_id, task.seed] for task in tasks]
    with pytest.raises(ConfigError, match=rf"tasks.count: 9999, and .* has {2 * len(TEMPLATES)} tasks"):
        environment.tasks(9999, 0, {"files": str(folder)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"instruction": "Do something else."},
            "mousepad-append-1000000.json: instruction: the template mousepad-append has changed",
        ),
        ({"asked": {}}, "asked: the template mousepad-append has changed since; write the file again"),
        ({"template": "x"}, "template: there is no template 'x'"),
        ({"config": [{"type": "sleep"}]}, "config"),
        ({"evaluator": {"func": "infeasible"}}, "evaluator: the template mousepad-append has changed"),
        ({"more": 1}, "more"),
        ({"seed": "1"}, "seed"),
    ],
)
def test_a_file_that_is_not_what_is_drawn_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    task = json.loads((folder / "mousepad/mousepad-append-1000000.json").read_text())
    path = tmp_path / "mousepad/mousepad-append-1000000.json"
    path.parent.mkdir()
    path.write_text(json.dumps(task))
    assert len(environment.tasks(1, 0, {"files": str(tmp_path)})) == 1
    path.write_text(json.dumps(task | change))
    with pytest.raises(ConfigError, match=re.escape(says)):
        environment.tasks(1, 0, {"files": str(tmp_path)})


def test_no_folder_and_templates_beside_it_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"options.files: .* has no PROGRAM/ID.json"):
        environment.tasks(1, 0, {"files": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match=r"options.templates: .* give one of both"):
        environment.tasks(1, 0, {"files": str(folder), "templates": ["mousepad"]})
