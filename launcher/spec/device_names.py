"""File names that Windows reserves for devices.

Flux reads Git with go-git, which refuses a whole commit that has such a name anywhere in its tree, on every system.
Then no file of the repository is applied.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

# go-git 5.19, internal/pathutil/ntfs.go; the same list as Git's compat/mingw.c
_DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com[1-9]|lpt[1-9]|conin\$|conout\$)(?:[ .:]|\Z)", re.IGNORECASE)


def device_name(path: str) -> str:
    """The part of a path that is the name of a device, with any extension (`aux.yaml`); empty if there is none. Of an
    absolute path only the last part counts: where the repository begins is not known."""
    named = PurePath(path)
    return next(
        (part for part in (named.parts if not named.is_absolute() else (named.name,)) if _DEVICE.match(part)), ""
    )


def refusal(path: str) -> str:
    """Why a path cannot be in a repository that Flux reads; empty if it can."""
    name = device_name(path)
    return f"`{name}` is a device on Windows, so Flux takes no commit that holds this file" if name else ""
