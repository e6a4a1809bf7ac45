"""Secrets of this machine: names and values in the user's keyring or in a file that only the user can read.

A job names its secrets; the profile says where each is stored: `local` (the default) is this module, `file:/path` is a
file whose content, without the final newline, is the value. Values are never printed. They are passed only to the
environment of runtimes whose jobs name them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.files import replace
from launcher.spec.values.structures import LOCAL_PLACE

SERVICE: Final = "slipway"  # the service name in the keyring
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
LIMIT: Final = 64 * 1024  # largest value in bytes: it must fit into an environment variable


def put(file: Path, name: str, value: str) -> str:
    """Stores a value; returns where: `keyring` or `file`. Raises BadInput for a name or value that an environment
    cannot hold."""
    if not NAME.fullmatch(name):
        raise BadInput(f"`{name}` is not the name of an environment variable; allowed: letters, digits, _")
    if name.startswith("SLIPWAY_"):
        raise BadInput(f"`{name}`: names that start with SLIPWAY_ are the launcher's")
    if not value:
        raise BadInput(f"{name}: the value is empty")
    if "\0" in value or len(value.encode(errors="surrogateescape")) > LIMIT:
        raise BadInput(f"{name}: a value holds at most {LIMIT // 1024} KiB and no NUL byte")
    keyring = _keyring()
    with _locked(file):
        held = _read(file)
        if keyring is not None:
            keyring.set_password(SERVICE, name, value)
        held[name] = value if keyring is None else None
        replace(file, json.dumps(held, sort_keys=True).encode())
    return "file" if keyring is None else "keyring"


def names(file: Path) -> dict[str, str]:
    """Every name and where its value is stored."""
    return {name: "keyring" if value is None else "file" for name, value in sorted(_read(file).items())}


def remove(file: Path, name: str) -> None:
    """Deletes a value; raises NotFound."""
    with _locked(file):
        held = _read(file)
        if name not in held:
            raise NotFound(f"no secret `{name}`; `launcher secrets list` shows the names")
        if held.pop(name) is None and (keyring := _keyring()) is not None:
            keyring.delete_password(SERVICE, name)
        replace(file, json.dumps(held, sort_keys=True).encode())


def values(file: Path, places: Mapping[str, str]) -> dict[str, str]:
    """The values of a job's secrets (name -> place); raises NotFound for a missing one."""
    if absent := missing(file, places):
        name, why = next(iter(absent.items()))
        raise NotFound(f"secret {name}: {why}")
    held = _read(file) if places else {}
    return {name: str(_value(held, name, place)) for name, place in places.items()}


def missing(file: Path, places: Mapping[str, str]) -> dict[str, str]:
    """The secrets of a job that are missing or unreadable: name -> why."""
    held = _read(file) if places else {}
    absent = {}
    for name, place in places.items():
        try:
            if _value(held, name, place) is None:
                absent[name] = f"is not set on this machine; `launcher secrets set {name}`"
        except (OSError, UnicodeDecodeError) as error:
            absent[name] = f"{place} cannot be read: {type(error).__name__}"
        except SlipwayError as error:
            absent[name] = str(error)
    return absent


def _value(held: Mapping[str, str | None], name: str, place: str) -> str | None:
    if place.startswith("file:"):
        text = Path(place.removeprefix("file:").removeprefix("//")).expanduser().read_text()
        return text.removesuffix("\n").removesuffix("\r")
    if place not in ("", LOCAL_PLACE):
        raise BadInput(f"the place `{place}` is not known on this machine; allowed: local, file:/path")
    if name in held and held[name] is None:
        keyring = _keyring()
        password = keyring.get_password(SERVICE, name) if keyring is not None else None
        return None if password is None else str(password)
    return held.get(name)


def _read(file: Path) -> dict[str, str | None]:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise BadInput(f"{file} can be read by others; `chmod 600 {shlex.quote(str(file))}`")
            held: dict[str, str | None] = json.load(opened)
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError:
        raise BadInput(f"{file} is damaged; set the secrets again after removing it") from None
    return held


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Allows one writer at a time, so that two concurrent `secrets set` both take effect."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _keyring() -> Any | None:
    """The user's keyring, if the package is installed and has a working backend."""
    try:
        keyring: Any = import_module("keyring")
    except ModuleNotFoundError:
        return None
    return keyring if keyring.get_keyring().priority >= 1 else None
