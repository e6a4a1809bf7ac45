"""What scripts of set-ups and checks need, read from their text. A script that is not understood hides a need; it is
then the set-up that fails, or the check that gives no score."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from eval.benchmarks.osworld.needs import first_words

HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)
SOURCED: Final = re.compile(r"^[ \t]*(?:source|\.)[ \t]+[\"']?([^\s\"';|&]+)", re.MULTILINE)
SCRIPT: Final = re.compile(r"[\w./-]+\.sh\b")
PYTHON: Final = re.compile(r"[\w./-]+\.py\b")
BY_PATH: Final = re.compile(r"\b(spec_from_file_location|SourceFileLoader|run_path)\b")
FUNCTION: Final = re.compile(
    r"^(?:function[ \t]+)?([A-Za-z_]\w*)[ \t]*\(\)[ \t]*\{.*?^\}[^\n]*$", re.DOTALL | re.MULTILINE
)
DEFINED: Final = re.compile(r"^\s*(?:function\s+)?([A-Za-z_]\w*)\s*\(\)", re.MULTILINE)
VARIABLE: Final = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
USED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
BACKGROUND: Final = re.compile(r"^[ \t]*[^#\n]*\b(?:nohup|setsid)\b|[^&>]&[ \t]*$")
IMPORTED: Final = re.compile(r"^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([A-Za-z_][\w., \t]*))", re.MULTILINE)
URL: Final = re.compile(r"https?://([A-Za-z0-9._-]+(?::\d+)?)")
RIGHTS: Final = frozenset(
    {"sudo", "su", "apt", "apt-get", "systemctl", "docker", "snap", "flatpak", "service", "mount", "useradd"}
)
# programs that look at, or act on, what runs on the desktop
LIVE: Final = re.compile(
    r"\b(wmctrl|xdotool|xprop|xwininfo|pgrep|pidof|pkill|scrot|gnome-screenshot|pyautogui|qdbus|dbus-send|psutil)\b"
)
CLIENTS: Final = frozenset({"requests", "urllib", "http", "httpx", "aiohttp", "socket", "websocket", "playwright"})
COMMANDS: Final = frozenset({"curl", "wget"})
HERE: Final = ("localhost", "127.0.0.1", "0.0.0.0")
NAMED: Final = re.compile(r"[\w./~]*[A-Za-z]")  # a program has such a name; what is left of a line may have another
# programs that start the one that follows
STARTERS: Final = re.compile(r"(?<![\w./-])(?:nohup|setsid|exec|nice|timeout(?:[ \t]+-\S+)*[ \t]+[^\s-]\S*)[ \t]+")
Needs = Iterator[tuple[str, str]]


def imports(text: str) -> list[str]:
    """The top-level modules that Python in a text imports, each once."""
    names: list[str] = []
    for match in IMPORTED.finditer(text):
        parts = [match[1]] if match[1] else match[2].split(",")
        names += [part.split()[0].split(".")[0] for part in parts if part.split()]
    return list(dict.fromkeys(names))


@lru_cache(maxsize=64)  # an environment's own script comes with each of its tasks
def programs(text: str) -> Sequence[str]:
    """The programs that a shell script starts, without its own functions."""
    own = set(DEFINED.findall(text))
    found: list[str] = []
    pending = [COMMENT.sub("", HEREDOC.sub("", text)).replace("\\\n", " ")]
    while pending:
        outer, inner = _substituted(pending.pop())
        found += first_words(STARTERS.sub("", outer))
        pending += inner
    return tuple(name for name in dict.fromkeys(found) if name not in own and NAMED.match(name))


def _substituted(text: str) -> tuple[str, list[str]]:
    """A script with `$_` in the place of each `$(command)`, and these commands, which may hold others."""
    outer, inner, place = "", [], 0
    while (start := text.find("$(", place)) >= 0:
        end, depth = start + 2, 1
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if depth:  # it never ends, as in a text for people
            break
        if text[start + 2] != "(":  # that would be arithmetic
            inner.append(text[start + 2 : end - 1])
        outer += f"{text[place:start]}$_"
        place = end
    return outer + text[place:], inner


def with_sourced(text: str, files: Mapping[str, str]) -> str:
    """A shell script, and of the scripts that it reads or starts (path -> text) what it uses: their functions, and what
    is in none. One that is not among them hides what it does."""
    functions: dict[str, str] = {}
    pending, seen = [text], set()
    while pending:
        now = COMMENT.sub("", pending.pop())
        for path in (*SOURCED.findall(now), *SCRIPT.findall(now)):
            if path in files and path not in seen:
                seen.add(path)
                functions |= {match[1]: match[0] for match in FUNCTION.finditer(files[path])}
                rest = FUNCTION.sub("", files[path])
                text += f"\n{rest}"
                pending.append(rest)
    used: dict[str, str] = {}
    while new := {name: functions[name] for name in set(re.findall(r"\w+", text)) & functions.keys() - used.keys()}:
        used |= new
        text += "".join(f"\n{new[name]}" for name in sorted(new))
    return text


def python_of(text: str, files: Mapping[str, str]) -> list[str]:
    """The texts of the Python programs (path -> text) that a shell script names."""
    named = dict.fromkeys(PYTHON.findall(COMMENT.sub("", text)))
    return [files[path] for path in named if path in files]


def goes_on(text: str, folder: str) -> bool:
    """Whether a shell script starts a program in the background that is in `folder`, by its path or by a variable."""
    held = {match[1] for match in VARIABLE.finditer(text) if folder in match[2]}
    lines = [line for line in text.replace("\\\n", " ").splitlines() if BACKGROUND.search(line)]
    return any(f"{folder}/" in line or held & set(USED.findall(line)) for line in lines)


def with_called(text: str, modules: Mapping[str, str]) -> str:
    """A Python program, and of the modules beside it (name -> text) what it uses: the functions that it calls, and what
    is in no function. Modules that a loader gets by a path count where their file is named. Raises SyntaxError for the
    program; a module that is no Python is taken whole."""
    functions: dict[str, str] = {}
    pending, seen = [text], set()
    while pending:
        for module in _modules(pending.pop()):
            if module in modules and module not in seen:
                seen.add(module)
                rest, own = _split(modules[module])
                functions |= own
                text += f"\n{rest}"
                pending.append(modules[module])
    used: dict[str, str] = {}
    while new := {name: functions[name] for name in _called(text) & functions.keys() - used.keys()}:
        used |= new
        text += "".join(f"\n{new[name]}" for name in sorted(new))
    return text


def _modules(text: str) -> list[str]:
    named = [PurePosixPath(path).stem for path in PYTHON.findall(text)] if BY_PATH.search(text) else []
    return [*imports(text), *named]


def _split(text: str) -> tuple[str, dict[str, str]]:
    """A module without its functions, and these by their names."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text, {}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    rest = [ast.unparse(node) for node in body if not isinstance(node, kinds)]
    return "\n".join(rest), {node.name: ast.unparse(node) for node in body if isinstance(node, kinds)}


def _called(text: str) -> set[str]:
    """The names of what a program calls."""
    called = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = [getattr(each, "attr", None) or getattr(each, "id", None) for each in called]
    return {name for name in names if name}


def of_setup(text: str, kind: str, own: Collection[str] = ()) -> Needs:
    """Needs of a set-up script, which runs on the agent's desktop; kind: py or sh. own: paths of scripts beside it."""
    if kind == "sh":
        for name in programs(text):
            if name in own:
                continue
            yield ("rights", "root") if name in RIGHTS else ("program", PurePosixPath(name).name)
    for module in imports(text):
        if module not in sys.stdlib_module_names:
            yield "package", module
    if CLIENTS & set(imports(text)) or COMMANDS & set(programs(text) if kind == "sh" else ()):
        yield from (("site", host) for host in URL.findall(text) if host.split(":")[0] not in HERE)


def of_check(text: str, kind: str, own: Collection[str] = ()) -> Needs:
    """Needs of a check, which runs apart from the agent's desktop and without a network. own: modules beside it, and
    paths of scripts."""
    found = imports(text)
    for module in found:
        if module not in sys.stdlib_module_names and module not in own and not LIVE.fullmatch(module):
            yield "package", module
    yield from (("live", word) for word in dict.fromkeys(LIVE.findall(text)))
    started = programs(text) if kind == "sh" else ()
    for name in started:
        if name in RIGHTS:
            yield "rights", "root"
        elif not LIVE.fullmatch(name) and name not in own:
            yield "program", PurePosixPath(name).name
    if CLIENTS & set(found) or COMMANDS & set(started):
        yield from (("live", host) for host in dict.fromkeys(URL.findall(text)))
