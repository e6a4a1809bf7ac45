"""CUA-Gym's two forms of a task: the data set's (`task.json`, `reward.py`, `initial_setup.*`), and the bundles that its
pipeline writes now (`meta.json`, `instruction.md`, `exec/`, `hidden/`, `setup.sh`, `gt/`, `check.sh`).

Read in its code, in a published reward, and in the notes of others on its data set, of August 2026. In the first form
the set-up's script is run in the home and taken away; the reward, which there is run on the agent's machine, is run
apart, on a copy of the home. In the second form `exec/` and `hidden/` are put into /tmp_workspace, set-up runs, and
what is hidden is taken away again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.needs import SETUP
from eval.tasks import script
from eval.tasks.writing import ImportedTask, Step, below, list_of, object_of, read, read_object, run, text_of, upload

SOURCE: Final = "CUA-Gym"
PLACEHOLDER: Final = re.compile(r"__CUA_GYM_([A-Z0-9_]+?)_(?:URL|HOST)__")
WORKSPACE: Final = "/tmp_workspace"
HIDDEN: Final = f"{WORKSPACE}/.uda_hidden"
SETUP_FILE: Final = f"{HIDDEN}/setup.sh"
HARNESS: Final = ("CUA_GYM_ADMIN_TOKEN", "UDA_GYM_HARNESS_STATE_DIR", "/opt/uda_apps")
BUNDLE: Final = ("meta.json", "instruction.md", "setup.sh", "check.sh")
CHECK_AT: Final = "/tmp/check"
KINDS: Final = SETUP - {"upload_file"}  # which brings files of the machine that imports
SCRIPTS: Final = (".py", ".sh")


def places(source: Path) -> Iterator[Path]:
    """The folders of tasks in a folder, or the one that it is."""
    if source.is_file():
        source = source.parent
    if any((source / name).is_file() for name in ("task.json", "meta.json")):
        yield source
        return
    for folder in sorted(source.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def task(folder: Path) -> ImportedTask:
    """Raises BenchError, which names file and field."""
    if (folder / "task.json").is_file():
        return _of_data_set(folder)
    if (folder / "meta.json").is_file():
        return _of_bundle(folder)
    raise BenchError(f"{folder.name}: no task.json and no meta.json; allowed: one of them")


def _of_data_set(folder: Path) -> ImportedTask:
    where = f"{folder.name}/task.json"
    data = read_object(folder / "task.json", where)
    name = str(data.get("id") or folder.name)
    kinds = [word.strip() for word in str(data.get("app_type") or "").split(",") if word.strip()]
    domain = "multi_apps" if len(kinds) > 1 else (kinds or ["unknown"])[0]
    evaluator = object_of(data, "evaluator", where)
    if evaluator.get("type") != "python":
        raise BenchError(f"{where}: evaluator.type: {evaluator.get('type')!r}; allowed: python")
    url = text_of(evaluator, "url", f"{where}: evaluator")
    reward = _file(folder, url, f"{where}: evaluator.url")
    text = _checked_reward(reward, f"{folder.name}/{PurePosixPath(url)}")
    given = _steps(data.get("config"), f"{where}: config")
    after = _steps(evaluator.get("postconfig", []), f"{where}: evaluator.postconfig")
    started, gone = {}, []
    steps: list[Step] = []
    for number, step in enumerate(given):
        place = f"{where}: config[{number}].parameters"
        if step["type"] != "download":
            steps.append(step)
            continue
        for file in list_of(step["parameters"].get("files"), f"{place}.files"):
            source, path = text_of(file, "url", place), text_of(file, "path", place)
            if "://" in source:
                steps.append({"type": "download", "parameters": {"files": [file]}})
                continue
            inside = PurePosixPath(source)
            if inside == PurePosixPath(url):
                raise BenchError(f"{place}.files: url: {source!r}; allowed: a file that the agent may see")
            started[f"setup/{inside}"] = _file(folder, source, f"{place}.files: url")
            steps.append(upload(f"{domain}/{name}/setup/{inside}", path))
            if PurePosixPath(path).suffix in SCRIPTS:
                gone.append(path)
    steps = [_strict(step, gone) for step in steps]
    if gone:
        steps.append(run("rm", "-f", *gone))
    ran = {name: data.decode("utf-8", "replace") for name, data in started.items() if name.endswith(SCRIPTS)}
    before = [need for name, each in ran.items() for need in script.of_setup(each, name.rpartition(".")[2])]
    judging = [*_sites([text]), *script.of_check(text, "py")]
    judging = [("model", need[1]) if need == ("package", "reward_judge") else need for need in judging]
    return ImportedTask(
        domain,
        name,
        text_of(data, "instruction", where),
        steps,
        {
            "command": ["python3", "reward.py"],
            "at": CHECK_AT,
            "score": "reward",
            "copies": ["/tmp"] if "/tmp/" in text else [],
        },
        kinds,
        after,
        [*_sites(ran.values()), *before],
        judging,
        {"check/reward.py": reward, **started},
    )


def _steps(value: Any, where: str) -> list[Step]:
    """Steps of kinds that are known, each with its parameters."""
    steps = list_of(value, where)
    for number, step in enumerate(steps):
        if (kind := step.get("type")) not in KINDS:
            raise BenchError(f"{where}[{number}].type: {kind!r}; allowed: {', '.join(sorted(KINDS))}")
    return [
        {"type": step["type"], "parameters": object_of(step, "parameters", f"{where}[{number}]")}
        for number, step in enumerate(steps)
    ]


def _file(folder: Path, url: str, where: str) -> bytes:
    path = PurePosixPath(url)
    if path.is_absolute() or ".." in path.parts or "://" in url:
        raise BenchError(f"{where}: {url!r}; allowed: a file of the bundle, as ./reward.py")
    return read(folder / path, f"{folder.name}/{path}", folder)


def _checked_reward(reward: bytes, where: str) -> str:
    """The text of a reward. Of the published 10,910 tasks, 152 have an empty one, 26 one that is no Python, 42 one that
    gives no score."""
    try:
        text = reward.decode()
        with warnings.catch_warnings(action="ignore"):
            compile(text, where, "exec", dont_inherit=True)
    except (UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BenchError(f"{where}: {type(error).__name__}: {error}") from None
    if not text.strip() or ("REWARD" not in text and "print" not in text):
        raise BenchError(f"{where}: it prints no score; allowed: a program that prints REWARD: and a number")
    return text


def _strict(step: Step, scripts_here: list[str]) -> Step:
    """A command that runs a script of the bundle must succeed."""
    given = step["parameters"]
    if step["type"] == "execute" and any(path in str(given.get("command")) for path in scripts_here):
        return {**step, "parameters": {**given, "must_succeed": True}}
    return step


def _sites(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        yield from (("harness", f"CUA-Gym-Hub {name.lower()}") for name in PLACEHOLDER.findall(text))


def _of_bundle(folder: Path) -> ImportedTask:
    where = f"{folder.name}/meta.json"
    data = read_object(folder / "meta.json", where)
    if data.get("driver", "uda-gym") != "uda-gym":
        raise BenchError(f"{where}: driver: {data['driver']!r}; allowed: uda-gym")
    name = str(data.get("id") or folder.name)
    texts = {file: read(folder / file, f"{folder.name}/{file}").decode("utf-8", "replace") for file in BUNDLE}
    for part in ("exec", "hidden", "gt"):
        if not (folder / part).is_dir():
            raise BenchError(f"{folder.name}/{part}: no such folder; allowed: exec, hidden and gt")
    profile = object_of(data, "runtime", where).get("profile")
    domain = profile if isinstance(profile, str) and profile else "uda"
    files: dict[str, bytes] = {
        "setup/setup.sh": texts["setup.sh"].encode(),
        "check/check.sh": texts["check.sh"].encode(),
    }
    steps = []
    for part, there in (("exec", WORKSPACE), ("hidden", HIDDEN)):
        for path, content in below(folder / part, f"{folder.name}/{part}").items():
            files[f"setup/{part}/{path}"] = content
            steps.append(upload(f"{domain}/{name}/setup/{part}/{path}", f"{there}/{path}"))
    files |= {f"check/gt/{path}": content for path, content in below(folder / "gt", f"{folder.name}/gt").items()}
    files.setdefault("check/gt/.keep", b"")  # so that no folder of this name stays that the agent made
    steps += [
        upload(f"{domain}/{name}/setup/setup.sh", SETUP_FILE),
        run(f"cd {WORKSPACE} && exec bash {SETUP_FILE}", shell=True),
        run("rm", "-rf", HIDDEN),
    ]
    judging = [*script.of_check(texts["check.sh"], "sh")]
    modules = frozenset(PurePosixPath(path).stem for path in files if path.startswith("check/gt/"))
    for path, content in files.items():
        if path.startswith("check/gt/") and path.endswith(".py"):
            judging += script.of_check(content.decode("utf-8", "replace"), "py", modules)
    harness = {file: [("harness", word) for word in HARNESS if word in texts[file]] for file in BUNDLE}
    return ImportedTask(
        domain,
        name,
        texts["instruction.md"].strip(),
        steps,
        {
            "command": ["env", f"PYTHONPATH={WORKSPACE}/gt", "bash", "check.sh"],
            "at": WORKSPACE,
            "score": "json",
            "copies": [WORKSPACE],
        },
        before=[*script.of_setup(texts["setup.sh"], "sh"), *harness["setup.sh"]],
        judging=[*judging, *harness["check.sh"]],
        files=files,
        folders=(WORKSPACE,),
    )
