"""Gym-Anything's environments: `env.json`, and for each task `tasks/ID/task.json` with set-up, export and verifier.

Read in its documentation and its corpus CUA-World, of August 2026. There the folders of `mounts` lie below /workspace
while the agent works, the tasks' verifiers with them. Here they are put there for the set-up and taken away again. The
export (`hooks.post_task`) and the verifier run apart, on a copy of the files that the agent left: what they ask of
running programs is not there, and such a task is told as one that cannot be scored. A verifier or an export that raises
is a score of 0 there, and none here. There a verifier runs in the repository and finds files by their path from its
own; here it runs in a copy of its environment and mounts at the same paths.
"""

from __future__ import annotations

import json
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
HOOKED: Final = re.compile(rf"{WORKSPACE}/[\w./+-]+")
HIDDEN: Final = ("task.json", "verifier.py", "vlm_checklist.json", "validated_pi.json")


def places(source: Path) -> Iterator[Path]:
    """The folders of tasks: of one environment, or of a folder of environments."""
    source = (source.parent if source.is_file() else source).resolve()
    if (source / "task.json").is_file():
        yield source
        return
    environments = [source] if (source / "env.json").is_file() else sorted(source.glob("*/"))
    for environment in environments:
        folders = sorted((environment / "tasks").glob("*/"))
        yield from (each for each in folders if (each / "task.json").exists())


@dataclass(frozen=True)
class Mounted:
    """What an environment mounts.

    files   path below /workspace -> content
    hooks   those of all its tasks
    system  that of its machine where it is no Linux, else empty
    path    in its repository
    places  path in its repository -> path below /workspace, of what is mounted
    """

    name: str
    files: dict[str, bytes]
    hooks: dict[str, str]
    system: str
    path: str
    places: dict[str, str]


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
    found = below(folder, f"{environment.name}/{folder.name}", folder.parent)
    mine = {f"{inside}/{name}": content for name, content in found.items()}
    own = {**environment.files, **mine}
    if f"{inside}/{verifier}" not in own:
        raise BenchError(f"{where}: success.spec.program: no file {verifier}; allowed: a file of the task's folder")
    before = [environment.hooks.get("post_start"), hooks.get("pre_task"), start.get("init_script")]
    last = hooks.get("post_task")
    if environment.system:  # its hooks are commands of that machine
        before, last = [], None
    setups = [_hook(each, own, where) for each in before if each]
    after = _hook(last, own, where) if last else None
    shown = {name: data for name, data in mine.items() if setups and PurePosixPath(name).name not in HIDDEN}
    shown.pop(after or "", None)
    files = {f"setup/{name}": content for name, content in shown.items()}
    files |= {f"check/{name}": content for name, content in mine.items()}
    files["check/verify_program.py"] = RUNNER.read_bytes()
    layout = {"environment": environment.path, "mounts": environment.places}
    files["check/places.json"] = json.dumps(layout, indent=1).encode()
    mounted = environment.files if setups else ()
    steps = [upload(f"{environment.name}/{SHARED}/{name}", f"{WORKSPACE}/{name}") for name in mounted]
    steps += [upload(f"{environment.name}/{folder.name}/setup/{name}", f"{WORKSPACE}/{name}") for name in shown]
    if setups:  # they may start each other by their names
        steps.append(run("find", WORKSPACE, "-name", "*.sh", "-exec", "chmod", "+x", "{}", "+"))
    steps += [run("bash", f"{WORKSPACE}/{hook}") for hook in setups]
    steps.append(run("find", WORKSPACE, "-mindepth", "1", "-delete"))
    texts = {name: content.decode("utf-8", "replace") for name, content in own.items() if name.endswith((".py", ".sh"))}
    seen = {f"{WORKSPACE}/{name}": text for name, text in texts.items()}

    def whole(hook: str) -> str:
        return script.with_sourced(texts.get(hook, ""), seen)

    needs: list[tuple[str, str]] = []
    for text in map(whole, setups):
        needs += script.of_setup(text, "sh", seen)
        needs += [need for program in script.python_of(text, seen) for need in script.of_setup(program, "py")]
        if script.goes_on(text, WORKSPACE):
            needs.append(("harness", f"a program in {WORKSPACE} that goes on while the agent works"))
    if environment.system:
        needs.append(("harness", f"a machine of {environment.system}"))
    judging: list[tuple[str, str]] = []
    if after:
        judging += script.of_check(whole(after), "sh", seen)
        judging += [need for program in script.python_of(whole(after), seen) for need in script.of_check(program, "py")]
    judging += _of_verifier(texts[f"{inside}/{verifier}"], texts, f"{environment.name}/{folder.name}/{verifier}")
    order = [f"{inside}/{verifier}", function, after or "-", f"{inside}/task.json", "places.json"]
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
    own, places = folder.name, {}
    if (utils := folder / "utils").is_dir():  # on the path of each verifier, mounted or not
        files |= {f"utils/{path}": content for path, content in below(utils, f"{folder.name}/utils").items()}
    for number, mount in enumerate(list_of(data.get("mounts") or [], f"{where}: mounts")):
        source, target = (text_of(mount, name, f"{where}: mounts[{number}]") for name in ("source", "target"))
        parts = PurePosixPath(source).parts
        if folder.name in parts:
            own = PurePosixPath(*parts[: parts.index(folder.name) + 1]).as_posix()
        inside = PurePosixPath(target)
        if not inside.is_relative_to(WORKSPACE) or inside == PurePosixPath(f"{WORKSPACE}/tasks"):
            continue  # of the tasks each brings its own
        if (place := _place(folder, source)) is not None:
            name = inside.relative_to(WORKSPACE).as_posix()
            places[PurePosixPath(source).as_posix()] = name
            files |= {f"{name}/{path}": content for path, content in below(place, f"{folder.name}/{name}").items()}
    hooks = {name: each for name, each in object_of(data, "hooks", where).items() if isinstance(each, str)}
    told = f"{data.get('os_type')} {data.get('base')} {data.get('runner')}".lower()
    system = next((name for name in NOT_LINUX if name in told), "")
    return Mounted(folder.name, files, hooks, system, own, places)


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
    if (mode := success.get("mode", "program")) not in MODES:
        raise BenchError(f"{where}: success.mode: {mode!r}; allowed: {', '.join(MODES)}")
    program = object_of(success, "spec", f"{where}: success").get("program")
    found = PROGRAM.fullmatch(program) if isinstance(program, str) else None
    if found is None:
        raise BenchError(f"{where}: success.spec.program: {program!r}; allowed: FILE.py::FUNCTION")
    return found[1], found[2]


def _hook(path: Any, files: dict[str, bytes], where: str) -> str:
    """The script of a hook, which is its path or a line that starts it: its path below /workspace."""
    for match in HOOKED.finditer(str(path)):
        if (name := match[0].removeprefix(f"{WORKSPACE}/")) in files:
            return name
    raise BenchError(f"{where}: hooks: {path!r}: no such file; allowed: a file of the mounts and of the task")


def _of_verifier(text: str, texts: dict[str, str], where: str) -> Iterator[tuple[str, str]]:
    modules: dict[str, str] = {}
    for name, each in texts.items():
        if name.endswith(".py"):  # of two with one name it cannot be told which is meant
            modules[PurePosixPath(name).stem] = f"{modules.get(PurePosixPath(name).stem, '')}\n{each}"
    try:
        reached = script.with_called(text, modules)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BenchError(f"{where}: {type(error).__name__}: {error}") from None
    yield from script.of_check(reached, "py", frozenset(modules))
    yield from (need for word, need in ASKED.items() if word in reached)
    if not any(word in reached for word in LOOKS):
        yield "model", "the verifier looks at nothing"
