"""images/catalogue.yaml: image name -> the build that jobs get. Written after a push, read by `resolve`."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from launcher.errors import BadInput, SlipwayError
from launcher.spec.images.definition import FOLDER
from launcher.trees import PACKED

FILE: Final = "catalogue.yaml"
_HEAD: Final = """\
# Which build of each image a job gets that names it. Written by `launcher images push --registry REGISTRY`, checked by
# `launcher images check`; `version` is the hash of everything that went in, `reference` is what jobs run.
"""
# field -> (the pattern of its value, the same in words)
_FORMS: Final = {
    "version": (r"[0-9A-Za-z.]+-[0-9a-f]{8}", "<version>-<8 hex digits>"),
    "reference": (r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", "registry/name@sha256:<64 hex digits>"),
}


class CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One pushed image. `base` and `arguments` are the build arguments that differ from the Dockerfile's defaults.
    `check` uses them to tell whether the same build from today's sources would give another image."""

    version: str
    reference: str
    base: str | None = None
    arguments: dict[str, str] = {}


def path(root: Path) -> Path:
    """A project's catalogue. That of the installed Slipway's images is the working folder's: `load_profile` reads it
    there."""
    return (Path.cwd() if root == PACKED else root) / FOLDER / FILE


def load(file: Path) -> dict[str, CatalogueEntry]:
    """Image name -> entry; empty if the file does not exist. Raises BadInput for a malformed file."""
    import yaml

    if not file.is_file():
        return {}
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        entries = msgspec.convert(data, dict[str, CatalogueEntry])
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{file}: {' '.join(str(error).split())}; allowed: NAME: {{version, reference, base, arguments}}"
        ) from None
    for name, entry in entries.items():
        for field, (form, allowed) in _FORMS.items():
            if not re.fullmatch(form, value := getattr(entry, field)):
                raise BadInput(f"{file}: {name}.{field}: `{value}`; allowed: {allowed}")
    return entries


def save(file: Path, entries: Mapping[str, CatalogueEntry]) -> None:
    """Writes the file atomically, names sorted, so equal catalogues have equal bytes. Raises SlipwayError."""
    import yaml

    body = yaml.safe_dump({name: msgspec.to_builtins(entries[name]) for name in sorted(entries)}, sort_keys=False)
    temporary = file.with_name(f".{file.name}")
    try:
        temporary.write_text(_HEAD + (body if entries else "{}\n"), encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise SlipwayError(f"{file} cannot be written: {error.strerror}; it was not changed") from None
    finally:
        with suppress(OSError):
            temporary.unlink()  # missing after the rename


def record(file: Path, name: str, entry: CatalogueEntry) -> None:
    """Writes one entry and keeps entries that other processes write at the same time. Raises BadInput, SlipwayError."""
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        save(file, {**load(file), name: entry})
    finally:
        os.close(folder)
