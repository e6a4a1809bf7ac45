"""Proves that a list of a store is true, before something is deleted or ended because the list lacks it.

A list that is no list (a proxy's login page with status 200, a list of buckets), one that was cut off, and one that is
old look like a list in which something is missing. So whoever deletes puts two keys of its own into the store, one
before and one after every run, and trusts only a list that has both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

from launcher.errors import SlipwayError, Unreachable
from launcher.store.base import Meta, Store
from launcher.store.layout import MARKER, PROOF_AFTER, PROOF_BEFORE, ROOMS, RUNS, is_proof

NOTHING: Final = "nothing of Slipway is here yet"
_BETWEEN: Final = "something else answers in its place (a proxy with a login page?), or its lists are old"


class ListProof:
    """The keys of one process in `runs/`. `may_act`: False for a caller that only shows what it would do: it writes no
    keys and trusts every list. A folder's own list is always true, so a folder store needs no keys."""

    def __init__(self, store: Store, *, may_act: bool = True) -> None:
        self._store = store
        self._needed = may_act and not store.url.startswith("file:")
        self._now: tuple[str, ...] = ()
        self._old: set[str] = set()
        self.others: list[Meta] = []  # keys of other processes, which may have been killed

    def renew(self) -> None:
        """Puts new keys: a list that has them is not older than this call. Two requests."""
        if not self._needed:
            return
        nonce = uuid4().hex
        self._old |= {*self._now}
        self._now = (PROOF_BEFORE + nonce, PROOF_AFTER + nonce)
        for key in self._now:
            self._store.put(key, b"")

    def without(self, metas: Iterable[Meta]) -> Iterator[Meta]:
        """The objects of a list of everything below `runs/`, without the keys of any proof. Raises Unreachable at the
        end of a list that lacks this process's."""
        seen = set()
        for meta in metas:
            if not is_proof(meta.key):
                yield meta
            elif meta.key in self._now:
                seen.add(meta.key)
            elif meta.key not in self._old:
                self.others.append(meta)
        self._check(seen)

    def names(self) -> list[str]:
        """The runs of the store, from one list. Raises Unreachable as `without` does."""
        metas, names = self._store.level(RUNS)
        for _ in self.without(metas):
            pass
        return names

    def clear(self) -> None:
        """Deletes the keys that are left; where the store refuses it, a later gc does."""
        if keys := self.take():
            with suppress(SlipwayError):
                self._store.delete(keys)

    @contextmanager
    def cleared_if_refused(self) -> Iterator[ListProof]:
        """Clears after an error."""
        try:
            yield self
        except BaseException:
            self.clear()
            raise

    def take(self) -> tuple[str, ...]:
        """The keys to delete, each told once: the caller deletes them, with others of its own in one request."""
        keys, self._now, self._old = (*self._now, *self._old), (), set()
        return keys

    def _check(self, seen: set[str]) -> None:
        if missing := [key for key in self._now if key not in seen]:
            raise Unreachable(
                f"store {self._store.url}: its list of {RUNS} is not true: it lacks {missing[0]}, which was just "
                f"written; {_BETWEEN}. Nothing that the list seems to lack is deleted or ended"
            )


def runs_of(store: Store) -> list[str]:
    """The runs of the store, for a caller that only reads. Raises Unreachable, also for an empty list that cannot be
    true."""
    runs = store.folders(RUNS)
    if not runs:
        check_empty(store, RUNS)
    return runs


def no_runs(store: Store) -> str:
    """The line for a user who asked for all runs of a store that has none. Raises Unreachable as `check_empty` does."""
    why = check_empty(store, RUNS)
    return f"{store.url}: {why}" if why else f"no runs in {store.url}"


def check_empty(store: Store, room: str) -> str:
    """To be called when the list of a room (`runs/`, `groups/`) is empty: compares it with what else the store says.
    Returns NOTHING when no submit, push or gc has written into an object store, else "". Raises Unreachable when the
    lists cannot be true."""
    if store.url.startswith("file:"):
        return ""
    metas, folders = store.level("")
    if room[:-1] in folders and store.level(room) == ([], []):
        raise Unreachable(f"store {store.url}: its list of {room} is empty, and the list above has {room}; {_BETWEEN}")
    marker = store.read(MARKER)
    if marker is None:
        return "" if ROOMS & {*folders} else NOTHING
    body = marker[0].decode("ascii", "replace")
    if not (len(body) == 33 and body[:32].isalnum()):
        raise Unreachable(f"store {store.url}: its marker {MARKER} holds something else; {_BETWEEN}")
    if all(meta.key != MARKER for meta in metas):
        raise Unreachable(f"store {store.url}: its list lacks its own marker {MARKER}; {_BETWEEN}")
    return ""
