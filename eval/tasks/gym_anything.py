"""Gym-Anything's environments: `env.json`, and for each task `tasks/ID/task.json` with set-up, export and verifier.

Read in its documentation and its corpus CUA-World, of August 2026. There the folders of `mounts` lie below /workspace
while the agent works, the tasks' verifiers with them. Here they are put there for the set-up and taken away again. The
export (`hooks.post_task`) and the verifier run apart, on a copy of the files that the agent left: what they ask of
running programs is not there, and such a task is told as one that cannot be scored. A verifier or an export that raises
is a score of 0 there, and none here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.tasks import SHARED
from eval.tasks import script, verify_program
from eval.tasks.writing import ImportedTask, below, list_of, object_of, read_object, run, text_of, upload

SOURCE: Final = "Gym-Anything"
WORKSPACE: Final = "/workspace"
HOMES: Final = "/home/ga"  # of the user of most of its machines
RUNNER: Final = Path(verify_program.__file__)
PROGRAM: Final = re.compile(r"([\w./-]+\.py)::([A-Za-z_]\w*)")
MODES: Final = ("program", "multi")
SCORES: Final = {
    "sparse": "verdict",
    "dense": "verdict",
    "partial": "points",
    "rubric": "points",
    "continuous": "points",
}
LOOKS: Final = ("copy_from_env", "exec_capture")  # a verifier without both has a verdict before anybody acts
# what a verifier has there and not here
ASKED: Final = {
    "query_vlm": ("model", "query_vlm"),
    "gym_anything.vlm": ("model", "query_vlm"),
    "exec_capture": ("live", "exec_capture"),
}
ROOTS: Final = ("benchmarks", "examples")  # folders of its repository that a mount may name
NOT_LINUX: Final = ("android", "windows", "macos")
HIDDEN: Final = ("task.json", "verifier.py", "vlm_checklist.json", "validated_pi.json")


def places(source: Path) -> Iterator[Path]:
    """The folders of tasks: of one environment, or of a folder of environments."""
    source = (source.parent if source.is_file() else source).resolve()
    if (source / "task.json").is_file():
        yield source
        return
    environments = [source] if (source / "env.json").is_file() else sorted(source.glob("*/"))
    for environment in environments:
        yield from (each for each in sorted((environment / "tasks").glob("*/")) if not each.name.startswith("."))


@dataclass(frozen=True)
class Mounted:
    """What an environment mounts. files: path below /workspace -> content; hooks: those of all its tasks."""

    name: str
    files: dict[str, bytes]
    hooks: dict[str, str]
    system: str


def task(folder: Path) -> ImportedTask:
    """Raises BenchError, which names file and field."""
    environment = _environment(folder.parents[1])
    where = f"{environment.name}/{folder.name}/task.json"
    data = read_object(folder / "task.json", where)
    hooks, start = object_of(data, "hooks", where), object_of(data, "init", where)
    kind = start.get("reward_type", "sparse")
    if not isinstance(kind, str) or kind not in SCORES:
        raise BenchError(f"{where}: init.reward_type: {kind!r}; allowed: {', '.join(SCORES)}")
    verifier, function = _verifier(data, where)
    inside = f"tasks/{folder.name}"
    mine = {f"{inside}/{name}": content for name, content in below(folder, f"{environment.name}/{folder.name}").items()}
    own = {**environment.files, **mine}
    if f"{inside}/{verifier}" not in own:
        raise BenchError(f"{where}: success.spec.program: no file {verifier}; allowed: a file of the task's folder")
    before = [environment.hooks.get("post_start"), hooks.get("pre_task"), start.get("init_script")]
    setups = [_hook(each, own, where) for each in before if each]
    after = _hook(hooks["post_task"], own, where) if hooks.get("post_task") else None
    shown = {name: data for name, data in mine.items() if setups and PurePosixPath(name).name not in HIDDEN}
    shown.pop(after or "", None)
    files = {f"setup/{name}": content for name, content in shown.items()}
    files |= {f"check/{name}": content for name, content in mine.items()}
    files["check/verify_program.py"] = RUNNER.read_bytes()
    mounted = environment.files if setups else ()
    steps = [upload(f"{environment.name}/{SHARED}/{name}", f"{WORKSPACE}/{name}") for name in mounted]
    steps += [upload(f"{environment.name}/{folder.name}/setup/{name}", f"{WORKSPACE}/{name}") for name in shown]
    steps += [run("bash", f"{WORKSPACE}/{hook}") for hook in setups]
    steps.append(run("find", WORKSPACE, "-mindepth", "1", "-delete"))
    texts = {name: content.decode("utf-8", "replace") for name, content in own.items() if name.endswith((".py", ".sh"))}
    seen = {f"{WORKSPACE}/{name}": text for name, text in texts.items()}

    def whole(hook: str) -> str:
        return script.with_sourced(texts.get(hook, ""), seen)

    needs = [need for hook in setups for need in script.of_setup(whole(hook), "sh")]
    if any(name in environment.system for name in NOT_LINUX):
        needs.append(("harness", f"a machine of {environment.system}"))
    judging = [*script.of_check(whole(after), "sh")] if after else []
    judging += _of_verifier(texts[f"{inside}/{verifier}"], texts, f"{environment.name}/{folder.name}/{verifier}")
    order = [f"{inside}/{verifier}", function, after or "-", f"{inside}/task.json"]
    program = {"command": ["python3", "verify_program.py", *order], "at": WORKSPACE, "copies": [HOMES, "/tmp"]}
    spoken = data.get("natural_language")
    asked = spoken.get("prompt") if isinstance(spoken, dict) else spoken
    instruction = asked if isinstance(asked, str) and asked.strip() else text_of(data, "description", where)
    return ImportedTask(
        environment.name,
        folder.name,
        instruction,
        steps,
        {**program, "score": SCORES[kind]},
        before=needs,
        judging=judging,
        files=files,
        folders=(WORKSPACE, HOMES),
        shared={f"{SHARED}/{name}": content for name, content in environment.files.items()},
    )


@lru_cache(maxsize=1)  # its tasks come one after the other
def _environment(folder: Path) -> Mounted:
    where = f"{folder.name}/env.json"
    data = read_object(folder / "env.json", where)
    files: dict[str, bytes] = {}
    if (utils := folder / "utils").is_dir():  # on the path of each verifier, mounted or not
        files |= {f"utils/{path}": content for path, content in below(utils, f"{folder.name}/utils").items()}
    for number, mount in enumerate(list_of(data.get("mounts") or [], f"{where}: mounts")):
        source, target = (text_of(mount, name, f"{where}: mounts[{number}]") for name in ("source", "target"))
        inside = PurePosixPath(target)
        if not inside.is_relative_to(WORKSPACE) or inside == PurePosixPath(f"{WORKSPACE}/tasks"):
            continue  # of the tasks each brings its own
        if (place := _place(folder, source)) is not None:
            name = inside.relative_to(WORKSPACE).as_posix()
            files |= {f"{name}/{path}": content for path, content in below(place, f"{folder.name}/{name}").items()}
    hooks = {name: each for name, each in object_of(data, "hooks", where).items() if isinstance(each, str)}
    system = f"{data.get('os_type') or ''} {data.get('base') or ''} {data.get('runner') or ''}".lower().strip()
    return Mounted(folder.name, files, hooks, system)


def _place(folder: Path, source: str) -> Path | None:
    """The folder that a mount names, by a path of its repository; None where it is not there, or elsewhere."""
    path = PurePosixPath(source)
    if folder.name in path.parts:
        above, path = folder, PurePosixPath(*path.parts[path.parts.index(folder.name) + 1 :])
    else:
        names = folder.parts
        root = next((number for number, name in enumerate(names) if name in ROOTS and name == path.parts[0]), None)
        if root is None:
            return None
        above = Path(*names[:root])
    place = above / path
    inside = above if above == folder else above / path.parts[0]
    return place if place.is_dir() and place.resolve().is_relative_to(inside.resolve()) else None


def _verifier(data: dict[str, Any], where: str) -> tuple[str, str]:
    success = object_of(data, "success", where)
    if success.get("mode") not in MODES:
        raise BenchError(f"{where}: success.mode: {success.get('mode')!r}; allowed: {', '.join(MODES)}")
    program = object_of(success, "spec", f"{where}: success").get("program")
    found = PROGRAM.fullmatch(program) if isinstance(program, str) else None
    if found is None:
        raise BenchError(f"{where}: success.spec.program: {program!r}; allowed: FILE.py::FUNCTION")
    return found[1], found[2]


def _hook(path: Any, files: dict[str, bytes], where: str) -> str:
    """A hook's path below /workspace."""
    inside = PurePosixPath((str(path).split() or [""])[0])
    name = inside.relative_to(WORKSPACE).as_posix() if inside.is_relative_to(WORKSPACE) else str(path)
    if name not in files:
        raise BenchError(f"{where}: hooks: {path!r}: no such file; allowed: a file of the mounts and of the task")
    return name


def _of_verifier(text: str, texts: dict[str, str], where: str) -> Iterator[tuple[str, str]]:
    modules = {PurePosixPath(name).stem: each for name, each in texts.items() if name.endswith(".py")}
    try:
        reached = script.with_called(text, modules)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BenchError(f"{where}: {type(error).__name__}: {error}") from None
    yield from script.of_check(reached, "py", frozenset(modules))
    yield from (need for word, need in ASKED.items() if word in reached)
    if not any(word in reached for word in LOOKS):
        yield "model", "the verifier looks at nothing"
