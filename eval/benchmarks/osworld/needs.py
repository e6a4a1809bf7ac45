"""What a task of OSWorld's format needs, read from its file alone: programs, downloads, accounts, getters, metrics."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from eval.benchmarks.osworld.history import DOWNLOAD, KEPT, PLACES
from eval.benchmarks.osworld.tasks import INFEASIBLE, Fields, PublicTask, SetupStep

# The last four are of programs that judge (tasks.ProgramCheck): a Python package; something that runs on the agent's
# desktop, which they do not see; a model; what only the format's own harness has
Kind = (
    Literal["program", "download", "site", "account", "proxy", "rights", "setup", "getter", "metric"]
    | Literal["package", "live", "model", "harness"]
)

# the program that a task says it is about -> its command; `os` is the desktop itself, of which nothing is named
PROGRAMS: Final = {
    "chrome": "google-chrome",
    "gimp": "gimp",
    "libreoffice": "libreoffice",
    "libreoffice calc": "libreoffice",
    "libreoffice impress": "libreoffice",
    "libreoffice writer": "libreoffice",
    "libreoffice_calc": "libreoffice",
    "libreoffice_impress": "libreoffice",
    "libreoffice_writer": "libreoffice",
    "calc": "libreoffice",
    "writer": "libreoffice",
    "excel": "libreoffice",
    "thunderbird": "thunderbird",
    "vlc": "vlc",
    "vs_code": "code",
    "vscode": "code",
    "terminal": "gnome-terminal",
    "image": "eog",
    "pdf": "evince",
    "picard": "picard",
}
# what `open` starts for a file, by its ending
OPENS: Final = {
    **dict.fromkeys((".xlsx", ".xls", ".csv", ".ods", ".docx", ".doc", ".odt", ".pptx", ".ppt", ".odp"), "libreoffice"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".bmp"), "eog"),
    **dict.fromkeys((".mp4", ".mkv", ".avi", ".mp3", ".wav"), "vlc"),
    ".pdf": "evince",
    ".xcf": "gimp",
}
# what a shell does itself
BUILTINS: Final = frozenset(
    (
        *("cd", "echo", "export", "history", "set", "unset", "source", ".", "alias", "exit", "return", "read", "test"),
        *("[", "[[", "true", "false", "if", "then", "else", "fi", "for", "do", "done", "while", "case", "esac", "exec"),
        "elif",
        *(
            "eval",
            "printf",
            "wait",
            "trap",
            "ulimit",
            "umask",
            "function",
            "{",
            "}",
            "!",
            "local",
            ":",
            "shift",
            "break",
        ),
        *("continue", "declare", "readonly", "typeset", "type", "command", "let", "getopts", "shopt", "pushd", "popd"),
    )
)
# the `_NAME_setup` of desktop-env 1.0.2, and those that Windows Agent Arena has beside them
SETUP: Final = frozenset(
    (
        *("act", "activate_window", "change_wallpaper", "chrome_close_tabs", "chrome_open_tabs", "close_window"),
        *("command", "download", "execute", "execute_with_verification", "googledrive", "launch", "login", "open"),
        *("proxy", "replay", "sleep", "tidy_desktop", "update_browse_history", "upload_file"),
        *("create_file", "create_folder", "edge_open_tabs", "recycle_file", "update_browse_history_edge"),
    )
)
ACCOUNTS: Final = frozenset({"googledrive", "login", "googledrive_file"})
# getters that look at web sites, whose pages are not the task's own
SITES: Final = frozenset({"info_from_website", "pdf_from_url", "page_info", "gotoRecreationPage_and_get_html_content"})
# getters that talk to Chrome; the others of evaluators/getters/chrome.py read its files
CHROME: Final = re.compile(r"active_(tab|url)|open_tabs|page_info|find_unpacked|find_installed|number_of_search|url_")
TERMINAL_KEYS: Final = re.compile(r"hotkey\(\[?\s*[\"']ctrl[\"'],\s*[\"']alt[\"'],\s*[\"']t[\"']")
ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, order=True)
class TaskNeed:
    """One thing that a task needs. `where`: the place in its file.

    name  a program's command, a URL's host, the name of an account, a getter, a metric or a setup step
    file  of a download: its name in the public harness' cache of the task
    """

    kind: Kind
    name: str
    where: str
    file: str = ""

    @property
    def judges(self) -> bool:
        """Whether only who judges needs it."""
        return self.where.startswith(("evaluator.", "needs.check"))


def needs_of(task: PublicTask) -> list[TaskNeed]:
    """All needs, each once, in the order of the file."""
    found: dict[tuple[str, str, str], TaskNeed] = {}
    for need in _all(task):
        found.setdefault((need.kind, need.name, need.file), need)
    return list(found.values())


def _all(task: PublicTask) -> Iterator[TaskNeed]:
    if task.proxy:
        yield TaskNeed("proxy", "for its web sites", "proxy")
    for name in task.programs:
        if command := PROGRAMS.get(name.lower()):
            yield TaskNeed("program", command, "related_apps")
    for where, steps in (("config", task.setup), ("evaluator.postconfig", task.before_judging)):
        for number, step in enumerate(steps):
            yield from _step(step, f"{where}[{number}]")
    for told in task.needs:
        yield TaskNeed(cast(Kind, told.kind), told.name, f"needs.{told.side}")
    for check in task.checks:
        if check.metric == INFEASIBLE:
            continue
        yield TaskNeed("metric", check.metric, "evaluator.func")
        for name, getter in (("evaluator.result", check.result), ("evaluator.expected", check.expected)):
            if getter is not None:
                yield from _got(getter, name)


def _step(step: SetupStep, where: str) -> Iterator[TaskNeed]:
    if step.kind not in SETUP:
        yield TaskNeed("setup", step.kind, where)
    given = step.parameters
    if step.kind == "download":
        for file in given.get("files") or []:
            url, path = str(file.get("url")), str(file.get("path"))
            # as the public harness names it in its cache of the task
            cached = f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{PurePosixPath(path).name}"
            yield TaskNeed("download", urlsplit(url).netloc or url, where, cached)
    elif step.kind == "open":
        ending = PurePosixPath(str(given.get("path"))).suffix.lower()
        if program := OPENS.get(ending):
            yield TaskNeed("program", program, where)
    elif step.kind in ACCOUNTS:
        yield TaskNeed("account", str(given.get("platform", "googledrive")), where)
    elif step.kind in PLACES:
        yield TaskNeed("download", urlsplit(DOWNLOAD).netloc, where, KEPT)
    elif step.kind in ("chrome_open_tabs", "chrome_close_tabs"):
        yield TaskNeed("program", "google-chrome", where)
        for url in given.get("urls_to_open") or []:
            yield TaskNeed("site", urlsplit(str(url)).netloc or str(url), where)
    elif "command" in given:
        yield from _command(given["command"], bool(given.get("shell")), where)


def _got(getter: Fields, where: str) -> Iterator[TaskNeed]:
    kind = str(getter["type"])
    yield TaskNeed("getter", kind, where)
    if kind in ACCOUNTS:
        yield TaskNeed("account", "googledrive", where)
    if kind == "cloud_file":
        urls, files = (_several(getter.get(name)) for name in ("path", "dest"))
        for url, file in zip(urls, files, strict=False):
            yield TaskNeed("download", urlsplit(url).netloc or url, where, file)
    if kind in SITES:
        for url in _several(getter.get("url", getter.get("path"))):
            yield TaskNeed("site", urlsplit(url).netloc or url, where)
    if CHROME.search(kind):
        yield TaskNeed("program", "google-chrome", where)
    if kind.startswith("vlc_"):
        yield TaskNeed("program", "vlc", where)
    if "command" in getter:
        yield from _command(getter["command"], bool(getter.get("shell")), where)


def _several(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _command(command: Any, shell: bool, where: str) -> Iterator[TaskNeed]:
    text = command if isinstance(command, str) else " ".join(map(str, command))
    if TERMINAL_KEYS.search(text):
        yield TaskNeed("program", "gnome-terminal", where)
    if "org.gnome." in text:
        yield TaskNeed("program", "gnome-shell", where)
    if isinstance(command, str):
        programs = first_words(command) if shell else command.split()[:1]
    else:
        words = [str(word) for word in command]
        programs = words[:1]
        if len(words) > 2 and PurePosixPath(words[0]).name in ("bash", "sh") and words[1].startswith("-"):
            programs += first_words(words[2])
    for program in programs:
        if PurePosixPath(program).name == "sudo" or "{CLIENT_PASSWORD}" in program:
            yield TaskNeed("rights", "root", where)
        else:
            path = PurePosixPath(program)
            yield TaskNeed("program", path.name if path.parent.name in ("bin", "sbin") else program, where)


def first_words(script: str) -> list[str]:
    """The programs of a shell script: the first word of each of its commands, without what the shell does itself.

    A script that is not understood gives what was read up to there: nothing is guessed.
    """
    found: list[str] = []
    for line in script.splitlines():
        words, understood = _first_words_of_line(line)
        found += words
        if not understood:
            break
    return found


@lru_cache(maxsize=1 << 15)  # the scripts of a set have many lines in common, and reading one is slow
def _first_words_of_line(line: str) -> tuple[Sequence[str], bool]:
    """The words, and whether the line was understood to its end."""
    found: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.wordchars += ":,@%+"
    first = True
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                first = first or not set(word) & set("<>")
            elif first and ASSIGNED.match(word):
                continue
            elif first and word not in BUILTINS and "$" not in word:
                found.append(word)
                first = False
            elif first:
                first = word in ("then", "do", "else", "elif", "!", "{", "if", "while")
    except ValueError:
        return found, False
    return found, True


def describe(needs: Sequence[TaskNeed]) -> str:
    """Needs of one task in a line: `program gimp; 2 downloads (huggingface.co)`."""
    parts = [f"{need.kind} {need.name}" for need in needs if need.kind not in ("download", "site")]
    for kind in ("download", "site"):
        hosts = [need.name for need in needs if need.kind == kind]
        if hosts:
            told = ", ".join(dict.fromkeys(hosts))
            parts.append(f"{len(hosts)} {kind}{'s' * (len(hosts) > 1)} ({told})")
    return "; ".join(dict.fromkeys(parts))
