"""Tasks of linux-desktop as files, with the keys of OSWorld's task files where these apply.

A file holds one instance: what is asked, and all that was drawn. Its start state and its judge are the template's code:
`config` is empty, and `template` names who judges. A folder of files is a task set that does not change by itself:
where a template draws something else today, its file is refused, and no result of it stands beside older ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.template import VERSION, Difficulty
from eval.config import ConfigError
from eval.environments.splits import Split

SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"
FILE: Final = "task.schema.json"  # beside the folders of the tasks


class TemplateState(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is judged: the final state of the desktop."""

    type: Literal["desktop_state"] = "desktop_state"


class TemplateJudge(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who judges. `infeasible` is OSWorld's word, without a result: the task cannot be done, and to say so is right."""

    func: Literal["template", "infeasible"]
    result: TemplateState | None = None


class TaskFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One task. The first ten fields are OSWorld's, the others ours.

    id            TEMPLATE-SEED
    snapshot      the desktop that it begins on
    source        where the task comes from
    config        steps of the set-up: none, the template prepares it
    related_apps  the programs that it needs
    template      which template draws and judges it
    asked         all that was drawn from the seed
    steps         about so many actions of the oracle
    screen        it needs the screen: who knows the answer does not solve it by shell commands
    version       of the template
    max_steps     that an agent has
    """

    id: str
    snapshot: Literal["linux-desktop"] = "linux-desktop"
    instruction: str
    source: Literal["slipway"] = "slipway"
    config: tuple[()] = ()
    related_apps: tuple[str, ...]
    evaluator: TemplateJudge
    proxy: Literal[False] = False
    fixed_ip: Literal[False] = False
    possibility_of_env_change: Literal["low"] = "low"
    template: str
    split: Split
    seed: int
    difficulty: Difficulty
    steps: int
    screen: bool
    version: int = VERSION
    max_steps: int
    asked: dict[str, Any]


def task_file(template: str, split: Split, seed: int) -> TaskFile:
    """The file of one instance."""
    drawn = instance(template, split, seed)
    about = drawn.about
    return TaskFile(
        id=f"{template}-{seed}",
        instruction=drawn.instruction,
        related_apps=about.programs,
        evaluator=TemplateJudge(func="infeasible")
        if about.infeasible
        else TemplateJudge(func="template", result=TemplateState()),
        template=template,
        split=split,
        seed=seed,
        difficulty=about.difficulty,
        steps=about.steps,
        screen=about.screen,
        max_steps=about.max_steps,
        asked=json.loads(msgspec.json.encode(drawn.asked())),  # bytes as base64
    )


def schema() -> dict[str, Any]:
    """The JSON schema of a file."""
    return {"$schema": SCHEMA, **msgspec.json.schema(TaskFile)}


def write(folder: Path, tasks: list[TaskFile]) -> None:
    """Writes PROGRAM/ID.json for each task, as OSWorld lays them out by domain, and their schema."""
    for task in tasks:
        path = folder / task.related_apps[0] / f"{task.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(task, order="deterministic"), indent=2) + b"\n")
    (folder / FILE).write_text(json.dumps(schema(), indent=2) + "\n")


def read(folder: Path) -> list[TaskFile]:
    """The tasks of a folder, in the order of their files' names.

    Raises ConfigError for a folder without tasks, a file that is none, and one whose template draws something else now.
    """
    paths = sorted(folder.glob("*/*.json"))
    if not paths:
        raise ConfigError(
            f"options.files: {folder} has no PROGRAM/ID.json (`python -m eval.linux_desktop --write FOLDER`)"
        )
    return [_read(path) for path in paths]


def _read(path: Path) -> TaskFile:
    try:
        task = msgspec.json.decode(path.read_bytes(), type=TaskFile)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    name = task.template
    if name not in TEMPLATES:
        raise ConfigError(f"{path}: template: there is no template {name!r}")
    now = task_file(name, task.split, task.seed)
    changed = [field for field in TaskFile.__struct_fields__ if getattr(task, field) != getattr(now, field)]
    if changed:
        raise ConfigError(f"{path}: {', '.join(changed)}: the template {name} has changed since; write the file again")
    return task
