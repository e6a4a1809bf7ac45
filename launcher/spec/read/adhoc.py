"""Makes a job from flags and a command, for `launcher run`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from launcher.spec.check.schema import NAME_LENGTH
from launcher.spec.values.problems import Problems, show
from launcher.spec.values.source import Route, read_text

Sources = dict[Route, tuple[str, int, int]]

# flag -> the field that it sets; numbers and sizes are parsed as in a file
_PLAIN: Final[dict[str, Route]] = {
    "name": ("name",),
    "image": ("image",),
    "backend": ("backend",),
    "code": ("code",),
}
_TYPED: Final[dict[str, Route]] = {
    "gpus": ("resources", "gpus"),
    "gpu": ("resources", "gpu"),
    "cpus": ("resources", "cpus"),
    "memory": ("resources", "memory"),
    "deadline": ("limits", "deadline"),
    "retries": ("limits", "retries"),
    "fresh": ("fresh",),
}
_PAIRS: Final[dict[str, tuple[str, str]]] = {
    "input": ("inputs", "NAME=URL"),
    "env": ("env", "NAME=VALUE"),
    "label": ("labels", "KEY=VALUE"),
}
_LISTS: Final[dict[str, str]] = {"output": "outputs", "secret": "secrets"}
_INTERPRETER: Final = r"python[0-9.]*|bash|sh"


def adhoc(flags: Mapping[str, Any], command: Sequence[str]) -> tuple[dict[str, Any], Sources]:
    """Returns (the job as a file would hold it, field -> the flag that set it, for messages).

    `flags`: flag -> its text; a list of texts for `input`, `env`, `label`, `output` and `secret`. Flags that are None
    or missing are skipped. Raises one BadInput that lists every malformed flag.
    """
    problems = Problems()
    value: dict[str, Any] = {"name": _name(command)}
    sources: Sources = {("command",): ("the command", 0, 0), ("name",): ("--name", 0, 0)}

    def put(route: Route, item: Any, flag: str) -> None:
        inner = value
        for key in route[:-1]:
            inner = inner.setdefault(str(key), {})
        inner[str(route[-1])] = item
        sources[route] = (f"--{flag}", 0, 0)

    for flag, route in _PLAIN.items():
        if flags.get(flag) is not None:
            put(route, flags[flag], flag)
    value["command"] = list(command)
    for flag, route in _TYPED.items():
        if flags.get(flag) is not None:
            put(route, _read(flags[flag], flag, problems), flag)
    for flag, (field, form) in _PAIRS.items():
        for key, text in _pairs(flags.get(flag) or (), flag, form, problems).items():
            put((field, key), text, flag)
    for flag, field in _LISTS.items():
        if flags.get(flag):
            put((field,), list(flags[flag]), flag)
    problems.check()
    return value, sources


def _read(text: str, flag: str, problems: Problems) -> Any:
    documents = read_text(text, f"--{flag}", problems)
    return documents[0].value if len(documents) == 1 else text


def _pairs(texts: Sequence[str], flag: str, form: str, problems: Problems) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, item = text.partition("=")
        if not separator or not key:
            problems.add(f"--{flag}", 0, 0, "", f"{show(text)} is not of the form {form}")
        elif key in pairs:
            problems.add(f"--{flag}", 0, 0, "", f"{show(key)} is given twice")
        else:
            pairs[key] = item
    return pairs


def _name(command: Sequence[str]) -> str:
    """The job's name: the program's, or that of the script or module that an interpreter runs."""
    words = list(command)
    program = PurePosixPath(words[0]).name if words else ""
    if re.fullmatch(_INTERPRETER, program):
        if words[1:2] == ["-m"] and len(words) > 2:
            program = words[2]
        elif len(words) > 1 and not words[1].startswith("-"):
            program = PurePosixPath(words[1]).stem
    return re.sub(r"[^a-z0-9]+", "-", program.lower()).strip("-")[:NAME_LENGTH].strip("-") or "run"
