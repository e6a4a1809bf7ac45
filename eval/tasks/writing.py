"""An imported task, and the folder of task files that is written: OUT/DOMAIN/ID.json, with its files in OUT/DOMAIN/ID/.

Files below `setup/` come to the desktop while it is prepared, those below `check/` never.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.tasks import read_task

SUMMARY: Final = "import.json"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
FILE_LIMIT: Final = 64 << 20
Step = dict[str, Any]


@dataclass(frozen=True)
class ImportedTask:
    """A task on its way into a file of OSWorld's format.

    program  as `evaluator.program` (eval.benchmarks.osworld.tasks.ProgramCheck)
    before, judging  (kind, name) of what set-up and check need and the steps do not show
    files    path below its own folder, as setup/data.csv or check/reward.py -> content
    shared   path below its domain's folder, all in SHARED -> content: of all tasks there, for set-up and check
    folders  outside of the home and /tmp that its desktop must have
    """

    domain: str
    name: str
    instruction: str
    steps: Sequence[Step]
    program: Mapping[str, Any]
    programs: Sequence[str] = ()
    before_judging: Sequence[Step] = ()
    before: Iterable[tuple[str, str]] = ()
    judging: Iterable[tuple[str, str]] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    folders: Sequence[str] = ()
    shared: Mapping[str, bytes] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Raises BenchError for what cannot be written and read again."""
        for told, name in (("id", self.name), ("domain", self.domain)):
            if not NAME.fullmatch(name):
                raise BenchError(f"{where}: {told}: {name!r}; allowed: letters, digits, . _ and -, no . or - in front")
        if not self.instruction.strip():
            raise BenchError(f"{where}: instruction: is empty")
        read_task(self.folder, self.body("", where))

    @property
    def folder(self) -> str:
        return f"{self.domain}/{self.name}"

    @property
    def placed(self) -> dict[str, bytes]:
        """All files, by their path below the folder of all tasks."""
        own = {f"{self.folder}/{path}": data for path, data in self.files.items()}
        return own | {f"{self.domain}/{path}": data for path, data in self.shared.items()}

    def body(self, source: str, where: str) -> bytes:
        """The task file. Raises BenchError for a text that no file can hold."""
        digests = {path: _digest(data) for path, data in self.placed.items()}
        sides = {"setup": self.before, "check": self.judging}
        told = dict.fromkeys((kind, name, side) for side, needs in sides.items() for kind, name in needs)
        data = {
            "id": self.name,
            "snapshot": source or self.domain,
            "instruction": self.instruction,
            "source": source,
            "config": list(self.steps),
            "related_apps": list(self.programs),
            "evaluator": {"program": dict(self.program), "postconfig": list(self.before_judging)},
            "needs": [{"kind": kind, "name": name, "side": side} for kind, name, side in told],
            "files": dict(sorted(digests.items())),
            "folders": list(self.folders),
        }
        try:
            return f"{json.dumps(data, indent=1, ensure_ascii=False)}\n".encode()
        except UnicodeEncodeError:
            raise BenchError(f"{where}: holds one half of a surrogate pair, which no file can hold") from None


@lru_cache(maxsize=4096)  # many tasks share an environment's files
def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(task: ImportedTask, source: str, out: Path) -> Path:
    """Writes a task; gives its file. Raises BenchError, OSError."""
    for name, data in task.placed.items():
        file = out / name
        if file.exists():  # of another task of the environment, too
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    path = out / f"{task.folder}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(task.body(source, task.folder))
    return path


def upload(local: str, path: str) -> Step:
    """The step that brings a file, named from the folder of all tasks, to `path` of the desktop."""
    return {"type": "upload_file", "parameters": {"files": [{"local_path": local, "path": path}]}}


def run(*command: str, shell: bool = False) -> Step:
    """The step that runs a command, without which the task cannot begin."""
    given = {"command": command[0] if shell else list(command), "shell": shell}
    return {"type": "execute", "parameters": {**given, "must_succeed": True}}


def below(folder: Path, where: str, inside: Path | None = None) -> dict[str, bytes]:
    """The plain files below a folder, by their path from there; {} where there is none. Raises BenchError for a link
    that does not lead to a plain file below `inside`, and for a file of more than FILE_LIMIT bytes."""
    if folder.is_symlink():
        raise BenchError(f"{where}: is a link; allowed: a folder")
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = path.relative_to(folder).as_posix()
        real = path
        if path.is_symlink():
            real = path.resolve()
            if inside is None or not real.is_file() or not real.is_relative_to(inside.resolve()):
                raise BenchError(f"{where}/{name}: is a link; allowed: plain files")
        if real.is_file():
            found[name] = read(real, f"{where}/{name}")
    return found


def read(path: Path, where: str, bundle: Path | None = None) -> bytes:
    """The content of a plain file, which lies below `bundle`. Raises BenchError."""
    outside = bundle is not None and not path.resolve().is_relative_to(bundle.resolve())
    if outside or path.is_symlink() or not path.is_file():
        raise BenchError(f"{where}: no such file")
    if path.stat().st_size > FILE_LIMIT:
        raise BenchError(f"{where}: more than {FILE_LIMIT} bytes; allowed: less")
    return path.read_bytes()


def read_object(path: Path, where: str) -> dict[str, Any]:
    """The object of a JSON file. Raises BenchError."""
    try:
        data = json.loads(read(path, where))
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{where}: {error}") from None
    if not isinstance(data, dict):
        raise BenchError(f"{where}: is a {type(data).__name__}; allowed: an object")
    return data


def text_of(data: Mapping[str, Any], name: str, where: str) -> str:
    """A field that must be a text. Raises BenchError."""
    value = data.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BenchError(f"{where}: {name}: {value!r}; allowed: a text")
    return value


def object_of(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """A field that must be an object; {} where it is missing. Raises BenchError."""
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise BenchError(f"{where}: {name}: {value!r}; allowed: an object")
    return value or {}


def list_of(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects. Raises BenchError."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BenchError(f"{where}: {value!r}; allowed: a list of objects")
    return value
