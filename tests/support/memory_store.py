"""A store in memory whose clock is the caller's. Times of objects are whole seconds, as those of object stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import floor

from launcher.errors import NotFound
from launcher.store.base import Meta


class MemoryStore:
    """As much of the interface as records need. `asked` is called before each operation, `answered` after it; either
    may raise."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float],
        objects: dict[str, tuple[bytes, float]] | None = None,
        asked: Callable[[str], None] = lambda method: None,
        answered: Callable[[str], None] = lambda method: None,
    ) -> None:
        self.url, self.clock = url, clock
        self.objects = {} if objects is None else objects
        self.asked, self.answered = asked, answered

    def _meta(self, key: str) -> Meta:
        body, modified = self.objects[key]
        return Meta(key, len(body), modified)

    def get(self, key: str) -> bytes:
        stored = self.read(key)
        if stored is None:
            raise NotFound(f"no {key}")
        return stored[0]

    def read(self, key: str) -> tuple[bytes, Meta] | None:
        self.asked("read")
        stored = (self.objects[key][0], self._meta(key)) if key in self.objects else None
        self.answered("read")
        return stored

    def head(self, key: str) -> Meta | None:
        self.asked("head")
        meta = self._meta(key) if key in self.objects else None
        self.answered("head")
        return meta

    def create(self, key: str, body: bytes) -> bool:
        self.asked("create")
        there = self.objects.setdefault(key, (body, float(floor(self.clock()))))
        self.answered("create")
        return there[0] == body

    def put(self, key: str, body: bytes) -> None:
        self.asked("put")
        self.objects[key] = body, float(floor(self.clock()))
        self.answered("put")

    def delete(self, keys: Iterable[str]) -> None:
        chosen = list(keys)
        self.asked("delete")
        for key in chosen:
            self.objects.pop(key, None)
        self.answered("delete")

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        self.asked("scan")
        metas = [self._meta(key) for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        self.answered("scan")
        return iter(metas)

    def folders(self, prefix: str) -> list[str]:
        return self.level(prefix)[1]

    def level(self, prefix: str) -> tuple[list[Meta], list[str]]:
        self.asked("level")
        rest = {key: key.removeprefix(prefix) for key in sorted(self.objects) if key.startswith(prefix)}
        metas = [self._meta(key) for key, name in rest.items() if "/" not in name]
        names = sorted({name.partition("/")[0] for name in rest.values() if "/" in name})
        self.answered("level")
        return metas, names

    def now(self) -> float:
        return self.clock()
