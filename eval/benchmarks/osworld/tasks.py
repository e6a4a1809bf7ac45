"""OSWorld's task files: one JSON object a task, in a folder per domain (`DOMAIN/ID.json`).

What a file says is kept as it is; what its evaluator could not work with is found here, before a desktop is started:
such a task stays in its set, as one that cannot run, and never keeps the others from running. The rules are those of
desktop-env 1.0.2 (`DesktopEnv._set_evaluator_info`): with a list of metrics, `result`, `expected` and `options` are
lists of the same length, and an entry may be null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from eval.benchmarks.errors import BenchError

INFEASIBLE: Final = "infeasible"  # the metric of a task for which FAIL is the right answer
Fields = Mapping[str, Any]


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
class PublicTask:
    """A task of OSWorld's format.

    task_id  domain and name of the file: `os/5ced85fc-...`. The published harnesses find a task by it
    file_id  the id in the file, which may be another one; the harnesses keep downloads under it
    conj     how several checks make one score: `and` (their mean, 0 if one is 0), `or` (the highest)
    evaluator  the file's own, as the public evaluators read it
    proxy    the task's web sites are reached through a proxy only
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

    @property
    def infeasible(self) -> bool:
        """Whether FAIL is the right answer."""
        return self.checks[0].metric == INFEASIBLE

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
    where = f"{path.parent.name}/{path.name}"
    try:
        if not path.is_file():  # to read a pipe would never end
            raise BenchError(f"{where}: not a file")
        body = path.read_bytes()
        data = json.loads(body)
        if not isinstance(data, dict):
            raise BenchError(f"{where}: not an object")
        evaluator = _fields(data["evaluator"], "evaluator")
        conj = evaluator.get("conj", "and")
        if conj not in ("and", "or"):
            raise ValueError(f"evaluator.conj must be `and` or `or`, not {conj!r}")
        return PublicTask(
            task_id=f"{path.parent.name}/{path.stem}",
            file_id=_text(data.get("id", path.stem), "id"),
            instruction=_text(data["instruction"], "instruction"),
            snapshot=_text(data["snapshot"], "snapshot"),
            programs=_programs(data.get("related_apps")),
            setup=_steps([] if data.get("config") is None else data["config"], "config"),
            before_judging=_steps(evaluator.get("postconfig", []), "evaluator.postconfig"),
            checks=_checks(evaluator),
            conj=conj,
            evaluator=evaluator,
            proxy=bool(data.get("proxy", False)),
            digest=hashlib.sha256(body).hexdigest()[:12],
        )
    except KeyError as error:
        raise BenchError(f"{where}: no {error}") from None
    except BenchError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BenchError(f"{where}: {error}") from None


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
