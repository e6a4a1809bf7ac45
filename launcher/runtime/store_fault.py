"""A runtime that cannot reach the store cannot write there why. So it writes the reason into its working folder, where
this machine's supervisor, and so `launcher status`, reads it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

TROUBLE: Final = "store-trouble"  # the file's name
_LONGEST: Final = 2000  # characters


class StoreFaultFile:
    """Writes what is wrong with the store; "" when nothing is. Never raises: the local disk may be full too."""

    def __init__(self, workdir: Path | None) -> None:
        self._path = workdir / TROUBLE if workdir is not None else None
        self._said: str | None = None

    def __call__(self, trouble: str) -> None:
        if self._path is None or trouble == self._said:
            return
        with contextlib.suppress(OSError):
            if trouble:
                part = self._path.with_name(f".{TROUBLE}")
                part.write_text(trouble[:_LONGEST], encoding="utf-8", errors="replace")
                part.replace(self._path)
            else:
                self._path.unlink(missing_ok=True)
            self._said = trouble


def read(workdir: Path) -> str:
    """What the runtime of a working folder wrote; "" if it wrote nothing."""
    try:
        return (workdir / TROUBLE).read_text(encoding="utf-8", errors="replace")[:_LONGEST].strip()
    except OSError:
        return ""
