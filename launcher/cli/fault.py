"""Writes the report of a fault of the launcher itself: the traceback for its developers, with secrets masked."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

KEPT: Final = 50  # reports to keep; older ones are deleted
_SECRET_NAME: Final = re.compile(r"(?i)key|secret|token|passw|credential|auth|cookie")
_SHORTEST: Final = 4  # shortest value that is masked; a shorter one could be part of any text


def report(said: str, error: Exception) -> str:
    """Writes the report; returns a line for the user that ends with the file's path."""
    hidden = sorted(set(_secrets()), key=len, reverse=True)
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = f"a fault of the launcher itself: {_line(_masked(message, hidden))}"
    try:
        from launcher.version import __version__

        # no local variables: they could contain values of the environment, the job and files
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
        head = f"slipway {__version__}, Python {sys.version.split()[0]} on {sys.platform}\n{said}\n\n"
        path = _write(_masked(head + shown, hidden))
    except OSError as problem:
        return f"{line}; no report could be written: {problem.strerror}"
    return f"{line}; the report for the developers: {path}"


def _write(text: str) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = state / "slipway" / "faults"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
        stream.write(text.encode("utf-8", "backslashreplace").decode())
    for old in sorted(folder.glob("*.txt"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def _secrets() -> Iterator[str]:
    """Values to mask: those of variables with names like KEY or TOKEN, and this machine's secrets."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name):
            yield from _parts(value)
    with suppress(Exception):  # the secrets may be the very cause of the fault
        from launcher.backends.local.state import StateDir
        from launcher.spec.profile import load_profile
        from launcher.userdata import secrets

        file = StateDir(load_profile(Path.cwd(), None, os.environ).local_state).secrets
        for name in secrets.names(file):
            yield from _parts(secrets.values(file, {name: "local"})[name])


def _parts(value: str) -> Iterator[str]:
    yield from (part for part in (value, *value.splitlines()) if len(part) >= _SHORTEST)


def _masked(text: str, hidden: list[str]) -> str:
    from launcher.spec.secrets.tokens import mask

    for value in hidden:
        text = text.replace(value, "***")
        text = text.replace(repr(value)[1:-1], "***")
    return mask(text)


def _line(text: str) -> str:
    from launcher.spec.values.problems import one_line

    return one_line(text, 300)
