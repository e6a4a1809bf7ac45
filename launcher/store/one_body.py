"""Asserts a rule of the store: no key except a heartbeat's is ever put with two different bodies
(docs/explanation/architecture.md).

Only tests set SLIPWAY_ONE_BODY. It names a folder in which every process that opens a store records the sha256 of each
key's first body. A different second body is refused, and recorded in `violations` for tests that cannot see the process
fail. A lost create-only put breaks no rule.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from launcher.store.base import TEMPORARY, Store
from launcher.store.transfer import Known, Piece, file_pieces

VARIABLE: Final = "SLIPWAY_ONE_BODY"
VIOLATIONS: Final = "violations"
_MANY: Final = re.compile(rf"runs/[^/]+/attempts/\d+/beat/[^/]+|{re.escape(TEMPORARY)}/.*")


class OneBody:
    """A Store that raises AssertionError before a key gets a second body."""

    def __init__(self, inner: Store, folder: Path) -> None:
        self._inner, self._folder = inner, folder

    def __reduce__(self) -> tuple[type[OneBody], tuple[Store, Path]]:
        return type(self), (self._inner, self._folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, key: str, body: bytes) -> bool:
        ours = self._inner.create(key, body)
        if ours:
            self._note(key, hashlib.sha256(body).hexdigest())
        return ours

    def put(self, key: str, body: bytes) -> None:
        self._note(key, hashlib.sha256(body).hexdigest())
        self._inner.put(key, body)

    def copy(self, source: str, target: str) -> None:
        first = self._place(source)
        known = first.read_text() if first.exists() else hashlib.sha256(self._inner.get(source)).hexdigest()
        self._note(target, known)
        self._inner.copy(source, target)

    def upload(self, key: str, path: Path) -> str:
        return self.send(key, lambda: file_pieces(path), path.stat().st_size)

    def send(
        self,
        key: str,
        source: Callable[[], Iterable[Piece]],
        size: int,
        sha256: str | None = None,
        known: Known | None = None,
    ) -> str:
        def noted(size: int, digest: str) -> None:
            if known is not None:
                known(size, digest)
            self._note(key, digest)

        return self._inner.send(key, source, size, sha256, noted)

    def _place(self, key: str) -> Path:
        name = f"{self._inner.url.partition('?')[0]} {key}"
        return self._folder / hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()

    def _note(self, key: str, digest: str) -> None:
        if _MANY.fullmatch(key):
            return
        place = self._place(key)
        part = place.with_name(f".{uuid4().hex}")
        try:
            part.write_text(digest)
            os.link(part, place)
        except FileExistsError:
            if place.read_text() != digest:
                with (self._folder / VIOLATIONS).open("a") as file:
                    file.write(f"{key}\n")
                raise AssertionError(f"{key} is put with a second body") from None
        except FileNotFoundError:
            return  # the test has ended and deleted the folder, before this process ended
        finally:
            part.unlink(missing_ok=True)
