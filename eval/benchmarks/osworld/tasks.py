"""OSWorld's task files: one JSON object a task, in a folder per domain (`DOMAIN/ID.json`).

What a file says is kept as it is; what its evaluator could not work with is found here, before a desktop is started:
such a task stays in its set, as one that cannot run, and never keeps the others from running. The rules are those of
desktop-env 1.0.2 (`DesktopEnv._set_evaluator_info`): with a list of metrics, `result`, `expected` and `options` are
lists of the same length, and an entry may be null.

Tasks of other formats, which `python -m eval.tasks import` writes in this one, have a program in the place of metrics
(`ProgramCheck`), and say what they need that their steps do not show (`needs`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, get_args

from eval.benchmarks.errors import BenchError

INFEASIBLE: Final = "infeasible"  # the metric of a task for which FAIL is the right answer
Fields = Mapping[str, Any]
ScoreForm = Literal["reward", "json", "verdict", "points"]
SHARED: Final = "+shared"  # in a domain's folder, files of all its imported tasks


@dataclass(frozen=True)
class SetupStep:
    """One step that prepares a desktop, or a screen before it is judged. `kind` is the file's `type`."""

    kind: str
    parameters: Fields


@dataclass(frozen=True)
class StateCheck:
    """One metric: of what `result` finds, against what `expected` gives; each is `{"type": GETTER, ...}` or None."""

    metric: str
    result: Fields | None
    expected: Fields | None
    options: Fields


@dataclass(frozen=True)
class ProgramCheck:
    """A program that judges the files that the agent left, on a desktop where no program of the agent runs.

    command  its arguments; `python3` is the judge's Python. It runs in the folder `at`
    at       where its own files are: those of the task below `check/`, and those of its domain below SHARED
    score    how it says the score: `reward`, a line "REWARD: 0.5"; `json`, an object in the last line with
             overall_score, score or reward; `verdict`, one with passed; `points`, one with passed and a score to 100
    copies   folders outside of the home whose files it sees, too
    """

    command: tuple[str, ...]
    at: str
    score: ScoreForm
    copies: tuple[str, ...]


@dataclass(frozen=True)
class ToldNeed:
    """Something that a file says its task needs. side: who needs it, `setup` or `check`."""

    kind: str
    name: str
    side: str


@dataclass(frozen=True)
class PublicTask:
    """A task of OSWorld's format.

    task_id  domain and name of the file: `os/5ced85fc-...`. The published harnesses find a task by it
    file_id  the id in the file, which may be another one; the harnesses keep downloads under it
    conj     how several checks make one score: `and` (their mean, 0 if one is 0), `or` (the highest)
    evaluator  the file's own, as the public evaluators read it
    proxy    the task's web sites are reached through a proxy only
    program  judges in the place of metrics; then there are no `checks`
    needs    what the steps do not show
    files    of set-up and check, by the path below the folder of the task files, with their sha256
    folders  outside of the home and /tmp that the desktop must have
    digest   the beginning of the sha256 of its file, so that no two editions are compared
    """

    task_id: str
    file_id: str
    instruction: str
    snapshot: str
    programs: tuple[str, ...]
    setup: tuple[SetupStep, ...]
    before_judging: tuple[SetupStep, ...]
    checks: tuple[StateCheck, ...]
    conj: Literal["and", "or"]
    evaluator: Fields
    proxy: bool
    digest: str
    program: ProgramCheck | None = None
    needs: tuple[ToldNeed, ...] = ()
    files: Fields = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    @property
    def infeasible(self) -> bool:
        """Whether FAIL is the right answer."""
        return bool(self.checks) and self.checks[0].metric == INFEASIBLE

    @property
    def cached(self) -> tuple[str, ...]:
        """Names under which the getter `cloud_file` keeps what it downloads, and looks for it first."""
        getters = [getter for check in self.checks for getter in (check.result, check.expected) if getter is not None]
        names: list[str] = []
        for getter in getters:
            if getter["type"] == "cloud_file":
                dest = getter.get("dest")
                names += map(str, dest if isinstance(dest, list) else [dest])
        return tuple(name for name in names if PurePosixPath(name).name == name)


NO_FILE: Final = "in the list, and no file has it"


@dataclass(frozen=True)
class PublicTasks:
    """A set of tasks: those that were read, and why others of it (`DOMAIN/ID`) cannot be read, in the set's order.

    names  all tasks of the set
    """

    names: tuple[str, ...]
    by_name: Mapping[str, PublicTask]
    unread: Mapping[str, str]

    @property
    def tasks(self) -> tuple[PublicTask, ...]:
        return tuple(self.by_name[name] for name in self.names if name in self.by_name)

    @property
    def stale(self) -> tuple[str, ...]:
        """The names of the list that no file has any more."""
        return tuple(name for name, why in self.unread.items() if why == NO_FILE)


def load(folder: Path, names: Path | None = None, *, strict: bool = False) -> PublicTasks:
    """Every task below `folder` (`DOMAIN/ID.json`; no hidden files), sorted; `names`: only those of a list, such as
    test_all.json: `{DOMAIN: [ID, ...]}`.

    strict  a task that cannot be read is an error
    Raises BenchError, which names file and field.
    """
    if not folder.is_dir():
        raise BenchError(f"{folder}: no such folder")
    files = {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("*/[!.]*.json"))}
    if not files:
        raise BenchError(f"{folder}: no task (DOMAIN/ID.json)")
    wanted = list(files) if names is None else _listed(names)
    found: dict[str, PublicTask] = {}
    unread: dict[str, str] = {}
    for name in dict.fromkeys(wanted):
        try:
            if name not in files:
                raise BenchError(NO_FILE)
            found[name] = load_task(files[name])
        except BenchError as error:
            if strict:
                raise BenchError(f"{name}: {error}" if name not in files else str(error)) from None
            unread[name] = str(error)
    return PublicTasks(tuple(dict.fromkeys(wanted)), found, unread)


def load_task(path: Path) -> PublicTask:
    """One file. Raises BenchError."""
    name = f"{path.parent.name}/{path.stem}"
    try:
        if not path.is_file():  # to read a pipe would never end
            raise BenchError(f"{name}.json: not a file")
        return read_task(name, path.read_bytes())
    except OSError as error:
        raise BenchError(f"{name}.json: {error}") from None


def read_task(name: str, body: bytes) -> PublicTask:
    """The task that a file says; name: DOMAIN/ID. Raises BenchError."""
    where = f"{name}.json"
    stem = PurePosixPath(name).name
    try:
        data = json.loads(body)
        if not isinstance(data, dict):
            raise BenchError(f"{where}: not an object")
        evaluator = _fields(data["evaluator"], "evaluator")
        conj = evaluator.get("conj", "and")
        if conj not in ("and", "or"):
            raise ValueError(f"evaluator.conj must be `and` or `or`, not {conj!r}")
        return PublicTask(
            task_id=name,
            file_id=_text(data.get("id", stem), "id"),
            instruction=_text(data["instruction"], "instruction"),
            snapshot=_text(data["snapshot"], "snapshot"),
            programs=_programs(data.get("related_apps")),
            setup=_steps([] if data.get("config") is None else data["config"], "config"),
            before_judging=_steps(evaluator.get("postconfig", []), "evaluator.postconfig"),
            checks=() if "program" in evaluator else _checks(evaluator),
            conj=conj,
            evaluator=evaluator,
            proxy=bool(data.get("proxy", False)),
            digest=hashlib.sha256(body).hexdigest()[:12],
            program=_program(evaluator["program"]) if "program" in evaluator else None,
            needs=_needs(data.get("needs", [])),
            files=_fields(data.get("files", {}), "files"),
            folders=_paths(data.get("folders", []), "folders"),
        )
    except KeyError as error:
        raise BenchError(f"{where}: no {error}") from None
    except BenchError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise BenchError(f"{where}: {error}") from None


def _program(value: Any) -> ProgramCheck:
    where = "evaluator.program"
    given = _fields(value, where)
    command, score = given.get("command"), given.get("score")
    if not isinstance(command, list) or not command:
        raise ValueError(f"{where}.command must be a list, not {command!r}")
    if score is None or score not in get_args(ScoreForm):
        raise ValueError(f"{where}.score must be one of {', '.join(get_args(ScoreForm))}, not {score!r}")
    (at,) = _paths([given.get("at")], f"{where}.at")
    words = tuple(_text(word, f"{where}.command") for word in command)
    return ProgramCheck(words, at, score, _paths(given.get("copies", []), f"{where}.copies"))


def _paths(value: Any, where: str) -> tuple[str, ...]:
    paths = value if isinstance(value, list) else [value]
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{where} must be absolute paths, not {path!r}")
    return tuple(paths)


def _needs(value: Any) -> tuple[ToldNeed, ...]:
    if not isinstance(value, list):
        raise ValueError(f"needs must be a list, not {value!r}")
    each = [_fields(one, f"needs[{number}]") for number, one in enumerate(value)]
    names = ("kind", "name", "side")
    return tuple(ToldNeed(*(_text(one.get(name), f"needs.{name}") for name in names)) for one in each)


def _programs(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | None):
        raise ValueError(f"related_apps must be a list, not {value!r}")
    return tuple(_text(name, "related_apps") for name in value or ())


def _listed(path: Path) -> list[str]:
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or not all(
            isinstance(ids, list) and all(isinstance(one, str) for one in ids) for ids in data.values()
        ):
            raise BenchError(f"{path.name}: not a list of ids for each domain")
    except (OSError, ValueError, RecursionError) as error:
        raise error if isinstance(error, BenchError) else BenchError(f"{path.name}: {error}") from None
    return [f"{domain}/{one}" for domain, ids in data.items() for one in ids]


def _checks(evaluator: Fields) -> tuple[StateCheck, ...]:
    func = evaluator["func"]
    metrics = func if isinstance(func, list) else [func]
    if not metrics:
        raise ValueError("evaluator.func is empty")
    columns: dict[str, Sequence[Any]] = {}
    for name in ("result", "expected", "options"):
        given = evaluator.get(name)
        column = given if isinstance(func, list) and given else [given or None] * len(metrics)
        if not isinstance(column, list) or len(column) != len(metrics):
            raise ValueError(f"evaluator.{name} must be a list of {len(metrics)}, one for each metric")
        columns[name] = column
    checks = []
    for number, metric in enumerate(metrics):
        result, expected = (_getter(columns[name][number], f"evaluator.{name}") for name in ("result", "expected"))
        options = columns["options"][number]
        checks.append(
            StateCheck(
                _text(metric, "evaluator.func"),
                result,
                expected,
                {} if options is None else _fields(options, "evaluator.options"),
            )
        )
    if len(checks) > 1 and any(check.metric == INFEASIBLE for check in checks):
        raise ValueError("evaluator.func: infeasible stands alone")
    if any(check.result is None and check.metric != INFEASIBLE for check in checks):
        raise ValueError("evaluator.result: a metric without a result")
    return tuple(checks)


def _getter(value: Any, where: str) -> Fields | None:
    if not value:
        return None
    fields = _fields(value, where)
    _text(fields.get("type"), f"{where}.type")
    return fields


def _steps(value: Any, where: str) -> tuple[SetupStep, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list, not {value!r}")
    steps = []
    for number, item in enumerate(value):
        fields = _fields(item, f"{where}[{number}]")
        kind = _text(fields.get("type"), f"{where}[{number}].type")
        steps.append(SetupStep(kind, _fields(fields.get("parameters", {}), f"{where}[{number}].parameters")))
    return tuple(steps)


def _fields(value: Any, where: str) -> Fields:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, not {value!r}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where} must be a text, not {value!r}")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError(f"{where} holds one half of a surrogate pair, which no file can hold")
    return value
