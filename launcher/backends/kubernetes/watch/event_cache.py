"""A Board keeps the state of a namespace's runs up to date, with one watch for each kind, however many runs there are.

Each feed lists once, then watches from the list's resourceVersion; bookmarks advance it while nothing changes. After a
lost connection the watch resumes at the last version. If the server no longer has that version (410), it lists again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final

import msgspec

from launcher.backends.base import BackendObservation
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.access.waking import cut
from launcher.backends.kubernetes.api import Api, ApiRefused, hang_up
from launcher.backends.kubernetes.objects import CHILD_JOB, EVENT, JOB, JOB_SET, POD, WORKLOAD, Kind
from launcher.backends.kubernetes.watch.queues import positions
from launcher.backends.kubernetes.watch.snapshot import Snapshot
from launcher.decoding import decode
from launcher.errors import SlipwayError, Unreachable

LASTS: Final = 240  # seconds after which the server ends a watch
SILENCE: Final = 120.0  # seconds without a bookmark after which a connection counts as dead
IDLE: Final = 120.0  # seconds without a request after which a board ends
SYNC: Final = 30.0  # most seconds for the first lists without another page: with 10,000 runs a list takes longer
PLACES: Final = 15.0  # seconds between two requests for the order of Kueue's queues
BRIEF: Final = 1.0  # seconds; a watch that ends sooner without an event counts as failed
AGAIN: Final = 60.0  # seconds before a missing kind (a CRD) is asked for again


class VersionTooOld(Exception):
    """The server no longer has the version from which the watch would resume."""


class EventCache:
    """The present state of a namespace's runs."""

    def __init__(self, api: Api, namespace: str, context: str) -> None:
        self.api, self.namespace = api, namespace
        self.sight = Snapshot(context)
        self.changed = threading.Condition()  # guards all fields
        self.counts: dict[str, int] = {}  # run -> number of its changes
        self.used = time.monotonic()
        self.refused = -inf  # when a kind that was listed was refused: then the board has ended
        self._placed = -PLACES
        self._placing = threading.Lock()  # the order of the queues is asked for by one caller at a time
        self.ended = False
        self.feeds = [
            KindWatch(self, JOB, labelSelector=names.SELECTOR),
            KindWatch(self, JOB_SET, labelSelector=names.SELECTOR),
            KindWatch(self, CHILD_JOB, labelSelector=names.JOBSET_NAME),
            KindWatch(self, POD, labelSelector=names.SELECTOR),
            KindWatch(self, EVENT, fieldSelector="type=Warning"),
            KindWatch(self, WORKLOAD),
        ]

    def start(self) -> None:
        """Returns when every kind is listed. Raises Unreachable, ApiRefused."""
        for feed in self.feeds:
            feed.start()
        for feed in self.feeds:
            pages = -1
            while not feed.listed.wait(SYNC):
                pages, before = feed.pages, pages
                if pages == before or not self.living:
                    self.stop()
                    raise Unreachable(f"cluster {self.api.where}: {feed.trouble or 'it takes too long to list'}")
        # Jobs must be listed; where another kind was listed and may not be watched, the board has ended already
        for feed in self.feeds if not self.living else self.feeds[:1]:
            if feed.refused is not None:
                self.stop()
                raise feed.refused

    def stop(self) -> None:
        self.ended = True
        for feed in self.feeds:
            feed.interrupt()
        with self.changed:
            self.changed.notify_all()

    @property
    def living(self) -> bool:
        return not self.ended

    def look_up(self, run: str) -> BackendObservation | None:
        self.used = time.monotonic()
        with self.changed:
            observation = self.sight.observe(run, self.api.now())
        if observation is None or observation.phase != "queued" or self.used - self._placed < PLACES:
            return observation
        # the order of a queue is not an object, so it cannot be watched
        with self._placing:
            if time.monotonic() - self._placed < PLACES:  # another caller has just asked
                return observation
            self._placed = time.monotonic()
        with self.changed:
            owners = self.sight.owners.values()
            queues = {(owner.metadata.namespace, owner.metadata.labels.get(names.QUEUE, "")) for owner in owners}
        places: dict[str, int] = {}
        for namespace, queue in queues:
            places |= positions(self.api, namespace, queue) if queue else {}
        with self.changed:
            self.sight.positions = places
            return self.sight.observe(run, self.api.now())

    def follow(self, runs: Iterable[str], every: float) -> Iterator[set[str]]:
        """The runs to look at again: those that changed, or all of them after `every` seconds without a change, because
        some states show only by time."""
        watched = list(runs)
        handled: dict[str, int] = dict.fromkeys(watched, -1)
        while True:
            now = time.monotonic()
            self.used = now
            with self.changed:
                fresh = {run for run in watched if self.counts.get(run, 0) != handled[run]}
                if not fresh:
                    self.changed.wait(every)
                    fresh = {run for run in watched if self.counts.get(run, 0) != handled[run]}
                for run in fresh:
                    handled[run] = self.counts.get(run, 0)
            if fresh:
                yield fresh
            if self.ended:
                return
            if not fresh:
                yield set(watched)

    def put(self, kind: Kind, values: Iterable[dict[str, Any]]) -> None:
        with self.changed:
            for value in values:
                self._touch(self.sight.put(kind, value))
            self.changed.notify_all()

    def drop(self, kind: Kind, keys: Iterable[tuple[str, str]]) -> None:
        with self.changed:
            for namespace, name in keys:
                self._touch(self.sight.drop(kind, namespace, name))
            self.changed.notify_all()

    def keep_only(self, kind: Kind, keys: set[tuple[str, str]]) -> None:
        """After a list: drops objects that were not in it."""
        with self.changed:
            missing = self.sight.names(kind) - keys
        self.drop(kind, missing)

    def _touch(self, runs: Iterable[str]) -> None:
        for run in runs:
            self.counts[run] = self.counts.get(run, 0) + 1


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


class KindWatch(threading.Thread):
    """Keeps the objects of one kind on a board up to date."""

    def __init__(self, board: EventCache, kind: Kind, **query: str) -> None:
        super().__init__(daemon=True, name=f"watch-{kind.plural}")
        self.board, self.kind, self.query = board, kind, query
        self.listed = threading.Event()
        self.refused: ApiRefused | None = None
        self.trouble = ""
        self.relists = 0
        self.pages = 0  # that were read of all lists
        self._response: Any = None
        self._path = kind.path(board.namespace)

    def run(self) -> None:
        try:
            self._keep()
        finally:  # without one of its feeds a board would show old states
            if self.board.living:
                self.board.stop()
            self.listed.set()  # nobody waits for what does not come

    def _keep(self) -> None:
        version, failed = "", 0
        while self.board.living and time.monotonic() - self.board.used < IDLE:
            began, advanced = time.monotonic(), False
            try:
                if not version:
                    version = self._list()
                    began = time.monotonic()
                    self.refused = None
                reached = self._watch(version)
                advanced, version = reached != version, reached
            except VersionTooOld:
                version = ""
            except ApiRefused as error:  # no right, or no such kind: the other feeds continue without it
                if self.listed.is_set() and self.refused is None:  # what it had may be old from now on
                    self.board.refused = time.monotonic()
                    self.board.stop()
                self.refused = error
                self.listed.set()
                version = ""
                self._pause(AGAIN)
            except (SlipwayError, OSError, ValueError) as error:
                self.trouble = str(error)
                began = time.monotonic()
            # a watch that ended at once without an event would do so again
            failed = 0 if advanced or time.monotonic() - began >= BRIEF else failed + 1
            if failed:
                self._pause(random.uniform(0.1, min(15.0, 0.2 * 2**failed)))

    def interrupt(self) -> None:
        response = self._response
        if response is not None:
            cut(response)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.board.living and (remaining := end - time.monotonic()) > 0:
            time.sleep(min(remaining, 0.5))

    def _list(self) -> str:
        """Lists all objects; returns the version from which to watch."""
        self.relists += 1
        version = ""
        listed: set[tuple[str, str]] = set()
        served = False
        for page in self.board.api.pages(self._path, **self.query):
            served = True
            self.pages += 1
            items = page.get("items") or []
            listed_version = (page.get("metadata") or {}).get("resourceVersion") or ""
            if listed_version != version:  # the first page; or the list started again, in its present state
                version, listed = listed_version, set()
            listed |= {(item["metadata"].get("namespace") or "", item["metadata"]["name"]) for item in items}
            self.board.put(self.kind, items)
        if not served:
            raise ApiRefused(404, "NotFound", f"{self.kind.plural} are not known to the cluster", self._path)
        self.board.keep_only(self.kind, listed)
        self.listed.set()
        return version

    def _watch(self, version: str) -> str:
        """Watches until the connection ends; returns the version from which to resume."""
        query = {
            **self.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(LASTS),
        }
        import urllib3

        try:
            self._response = self.board.api.stream(self._path, query=query, read=SILENCE)
        except ApiRefused as error:
            if error.status == 410:
                raise VersionTooOld from None
            raise
        try:
            for line in lines(self._response):
                event = decode(line, _Event)
                if event.type == "ERROR":
                    if event.object.get("code") == 410:
                        raise VersionTooOld
                    raise Unreachable(str(event.object.get("message") or "the watch broke"))
                metadata = event.object.get("metadata") or {}
                version = metadata.get("resourceVersion") or version
                if event.type == "DELETED":
                    self.board.drop(self.kind, [(metadata.get("namespace") or "", metadata.get("name") or "")])
                elif event.type != "BOOKMARK":
                    self.board.put(self.kind, [event.object])
                if not self.board.living:
                    break
        except (urllib3.exceptions.HTTPError, OSError):
            pass  # resumed from the last version that was read completely
        finally:
            hang_up(self._response)
            self._response = None
        return version


def lines(response: Any) -> Iterator[bytes]:
    """The lines of a body, each as soon as it is complete."""
    rest = b""
    while chunk := response.read1(1 << 16):
        rest += chunk
        *complete, rest = rest.split(b"\n")
        yield from (line for line in complete if line.strip())
