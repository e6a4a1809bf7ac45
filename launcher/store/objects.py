"""Object stores, accessed with obstore: S3 and compatible ones, Google, Azure."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from launcher.clock import boottime
from launcher.errors import BadInput, Conflict, NotFound, SlipwayError, Unreachable
from launcher.store.address import StoreUrl, client
from launcher.store.base import DEADLINE, TEMPORARY, Meta, check_key
from launcher.store.layout import MARKER
from launcher.store.retrying import Exists, Missing, StoreFault, retrying
from launcher.store.transfer import PIECE, Known, Piece, ahead, checked, download, file_pieces, pumped

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore as Client

T = TypeVar("T")

REQUEST: Final = 20.0  # seconds, the longest one small request may take
BULK: Final = 300.0  # seconds, the longest a request with a piece of a large object may take
IN_FLIGHT: Final = 48 << 20  # bytes of parts that are sent at the same time
PARTS: Final = 9000  # parts of one upload, at most; the services' limit is 10,000
CLOCK_KEPT: Final = 600.0  # seconds after which the store's clock is read again, because clocks drift apart
# the process that used obstore first: a fork has none of its threads, and would wait for them for ever
_process = 0


class ObjectStore:
    def __init__(self, address: StoreUrl, *, deadline: float = DEADLINE) -> None:
        self.url = address.url
        self._address = address
        self._deadline = deadline
        self._clock: tuple[float, float] | None = None  # a moment: by boot time, and by the store's clock
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[], ObjectStore], tuple[()]]:
        """For a process that is started by spawn."""
        return partial(type(self).at, self.url, deadline=self._deadline), ()

    @classmethod
    def at(cls, url: str, *, deadline: float = DEADLINE) -> ObjectStore:
        return cls(StoreUrl.parse(url), deadline=deadline)

    def make(self) -> None:
        """Puts the marker, if there is none yet: from then on an empty list of the store is known to be false."""
        if self.head(MARKER) is None:
            self.create(MARKER, f"{uuid4().hex}\n".encode())

    # reading

    def get(self, key: str) -> bytes:
        stored = self.read(key)
        if stored is None:
            raise self._missing(key)
        return stored[0]

    def get_range(self, key: str, start: int, end: int | None = None) -> bytes:
        if end is not None and end <= start:
            return b""
        try:
            return bytes(self._range(key, start, end)[0])
        except Missing:
            raise self._missing(key) from None

    def read(self, key: str) -> tuple[bytes, Meta] | None:
        import obstore

        self._checked(key)

        def act() -> tuple[bytes, Meta]:
            answer = obstore.get(self._small, key)
            return bytes(answer.bytes()), _meta(answer.meta)

        try:
            return self._call(key, act)
        except Missing:
            return None

    def head(self, key: str) -> Meta | None:
        import obstore

        self._checked(key)
        try:
            return self._call(key, lambda: _meta(obstore.head(self._small, key)))
        except Missing:
            return None

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        """As in Store. A prefix that ends within a name costs one more request."""
        folder, _, rest = prefix.rpartition("/")
        if rest and prefix > after:
            exact = self.head(prefix)
            if exact is not None:
                yield exact
        for meta in self._list(folder, max(after, prefix) if rest else after):
            if meta.key.startswith(prefix):
                if not meta.key.startswith(TEMPORARY + "/") and meta.key != MARKER:
                    yield meta
            elif meta.key > prefix:
                return

    def folders(self, prefix: str) -> list[str]:
        return self.level(prefix)[1]

    def level(self, prefix: str) -> tuple[list[Meta], list[str]]:
        import obstore

        folder = prefix.rstrip("/")
        listing = self._call(prefix, lambda: obstore.list_with_delimiter(self._small, folder or None))
        paths = [path.rstrip("/") for path in listing["common_prefixes"]]
        for path in (*paths, *(item["path"] for item in listing["objects"])):
            self._below(folder, path)
        names = (path.rpartition("/")[2] for path in paths)
        metas = sorted(map(_meta, listing["objects"]), key=lambda meta: meta.key)
        return metas, sorted(name for name in names if folder or name != TEMPORARY)

    def stream(self, key: str) -> Iterator[Piece]:
        try:
            # one request for a small object; the rest of a larger one follows in parallel ranges
            first, meta = self._range(key, 0, PIECE)
        except Missing:
            raise self._missing(key) from None
        yield first
        if meta is not None and meta.size > len(first):
            yield from ahead(lambda start, end: self._piece(meta, start, end), meta.size, start=len(first))

    def download(self, key: str, path: Path) -> str:
        return download(self.stream(key), path)

    def now(self) -> float:
        with self._lock:
            if self._clock is None or boottime() - self._clock[0] > CLOCK_KEPT:
                self._clock = self._moment()
            return self._clock[1] + boottime() - self._clock[0]

    # writing

    def create(self, key: str, body: bytes) -> bool:
        import obstore

        self._checked(key)
        began = time.monotonic()
        while True:
            try:
                self._call(key, lambda: obstore.put(self._small, key, body, mode="create"))
                return True
            except Exists:
                # the object may be ours, from a request whose response was lost
                stored = self.read(key)
            except Missing:
                raise Unreachable(f"store {self.url}: {key}: the store answered `not found` to a put") from None
            if stored is not None:
                return stored[0] == body
            # the object was deleted meanwhile, or S3 answered 409 because of a concurrent put that then failed
            if time.monotonic() - began > self._deadline:
                raise Unreachable(
                    f"store {self.url}: {key}: refused because the key exists, but the key does not exist"
                )
            time.sleep(0.1)

    def put(self, key: str, body: bytes) -> None:
        import obstore

        self._checked(key)
        self._written(key, lambda: obstore.put(self._small, key, body, use_multipart=False))

    def copy(self, source: str, target: str) -> None:
        import obstore

        self._checked(source)
        self._checked(target)
        try:
            self._call(target, lambda: obstore.copy(self._bulk, source, target))
        except Exists:
            raise Conflict(f"store {self.url}: {target}: the store refused to overwrite it") from None
        except Missing:
            raise self._missing(source) from None

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
        import obstore

        self._checked(key)
        part = max(PIECE, -(-size // PARTS))

        def act() -> str:
            sha = hashlib.sha256()
            pieces = checked(source(), sha, size, sha256, f"store {self.url}: {key}", known)
            if size <= PIECE:
                obstore.put(self._bulk, key, b"".join(pieces), use_multipart=False)
            else:
                several = max(2, IN_FLIGHT // part)
                obstore.put(self._bulk, key, pumped(pieces), chunk_size=part, max_concurrency=several)
            return sha.hexdigest()

        return self._written(key, act, bulk=True)

    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        rest = iter(keys)
        while batch := [self._checked(key) for key in islice(rest, 1000)]:
            try:
                self._call(batch[0], lambda batch=batch: obstore.delete(self._small, batch))  # type: ignore[misc]
            except Missing:
                # a store without batches stops at the first missing key
                for key in batch:
                    with suppress(Missing):
                        self._call(key, lambda key=key: obstore.delete(self._small, key))  # type: ignore[misc]

    # helpers

    @cached_property
    def _small(self) -> Client:
        return client(self._address, timeout=min(REQUEST, self._deadline), deadline=self._deadline)

    @cached_property
    def _bulk(self) -> Client:
        return client(self._address, timeout=BULK, deadline=self._deadline, retries=4)

    def _call(self, key: str, act: Callable[[], T], *, bulk: bool = False) -> T:
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():
            raise SlipwayError(
                f"store {self.url}: this process was forked from one that had used an object store and cannot use any; "
                'start it by spawn, as multiprocessing.get_context("spawn") does'
            )
        return retrying(act, url=self.url, key=key, deadline=self._deadline, bulk=bulk)

    def _written(self, key: str, act: Callable[[], T], *, bulk: bool = False) -> T:
        try:
            return self._call(key, act, bulk=bulk)
        except Exists:
            raise Conflict(f"store {self.url}: {key}: the store refused to overwrite it") from None
        except Missing:
            raise Unreachable(f"store {self.url}: {key}: the store answered `not found` to a put") from None

    def _range(self, key: str, start: int, end: int | None) -> tuple[memoryview, Meta | None]:
        """(bytes [start, end), the object's metadata); (empty, None) if the object ends at or before `start`."""
        import obstore
        import obstore.exceptions

        self._checked(key)

        def act() -> tuple[memoryview, Meta | None]:
            try:
                options: GetOptions = {"range": {"offset": start} if end is None else (start, end)}
                answer = obstore.get(self._bulk, key, options=options)
                return memoryview(answer.bytes()), _meta(answer.meta)
            except obstore.exceptions.BaseError as error:
                if StoreFault(error).unsatisfiable:
                    return memoryview(b""), None
                raise

        return self._call(key, act, bulk=True)

    def _piece(self, whole: Meta, start: int, end: int) -> memoryview:
        try:
            body, meta = self._range(whole.key, start, end)
        except Missing:
            raise self._missing(whole.key) from None
        if meta is None or meta.etag != whole.etag or len(body) != end - start:
            raise Unreachable(f"store {self.url}: {whole.key}: changed while it was read")
        return body

    def _list(self, folder: str, after: str) -> Iterator[Meta]:
        """Lists a folder. Continues after the last key if the connection breaks between two pages."""
        import obstore

        pages: Iterator[Sequence[ObjectMeta]] | None = None

        start = after

        def page() -> Sequence[ObjectMeta]:
            nonlocal pages, start
            if pages is None:
                start = after
                pages = obstore.list(self._small, folder or None, offset=after or None, chunk_size=1000)
            try:
                return next(pages, [])
            except Exception:
                pages = None
                raise

        while items := self._call(folder, page):
            for item in items:
                self._below(folder, item["path"])
                if item["path"] > start:  # not every server knows start-after
                    yield _meta(item)
                    after = item["path"]

    def _below(self, folder: str, path: str) -> None:
        if folder and not path.startswith(f"{folder}/"):
            raise Unreachable(f"store {self.url}: {folder}/: the answer lists another folder: it has {path}")

    def _moment(self) -> tuple[float, float]:
        """One moment as (boot time, the store's clock). A store's time stamp has whole seconds. If this machine's wall
        clock agrees with it, the wall clock is returned, because it is more precise."""
        import obstore

        key = f"{TEMPORARY}/clock"
        sent, wall = boottime(), time.time()
        try:
            self._call(key, lambda: obstore.put(self._small, key, b"", use_multipart=False))
            answered = boottime()
            stamp = self._call(key, lambda: obstore.head(self._small, key))["last_modified"].timestamp()
        except (Unreachable, Missing, Exists):
            return sent, wall  # a user who may only read decides nothing, so this machine's clock is good enough
        if wall - 1 <= stamp <= wall + answered - sent:
            return sent, wall
        return (sent + answered) / 2, stamp + 0.5

    def _checked(self, key: str) -> str:
        if self._address.scheme == "az" and "\\" in key:
            raise BadInput(f"store key {key!r}: Azure takes a backslash for a slash; allowed: names without it")
        return check_key(key)

    def _missing(self, key: str) -> NotFound:
        return NotFound(f"store {self.url}: {key}: not there")


def _meta(item: ObjectMeta) -> Meta:
    etag = item["e_tag"] or ""
    if etag and not etag.endswith('"'):  # Azure writes it so in its lists alone
        etag = f'"{etag}"'
    return Meta(item["path"], item["size"], item["last_modified"].timestamp(), etag)
