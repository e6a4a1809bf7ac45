"""Gather: copies runs into another store, where all verbs can read them, or into a folder for people.

A file that a manifest lists is compared with its hash while it is copied. A record beside the copy lists the files that
it holds, with their hashes and the copy's own etags, so a second call sends nothing. In a folder the record is
`<run>/gathered.json`; in a store it is `gathered/<run>/<number>.json`, and the highest number counts, because a key in
a store never gets a second body.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode, decode_record
from launcher.errors import BadInput, Conflict, NotFound, SlipwayError
from launcher.protocol.records import Result
from launcher.store.base import TEMPORARY, Meta, Store
from launcher.store.file import FileStore
from launcher.store.layout import RUNS, RunKeys, group
from launcher.store.manifest import make_executable, undamaged
from launcher.store.opening import open_store
from launcher.store.paths import stored_name
from launcher.store.transfer import Damaged, Meter, Progress, TransferThreads
from launcher.verbs.gather_plan import WHAT, Item, Plan, plan_run

OUTPUTS: Final = "outputs"  # in `what`: all that a job declares as its outputs
RECORDED: Final = 10.0  # seconds between two records during a copy
PLANS: Final = 3  # a running run may delete objects after the plan was made


class Held(msgspec.Struct, frozen=True):
    """One object of a copy: the mark of its source, and the etag that the copy's store gave it."""

    mark: str
    size: int
    etag: str


class Copied(msgspec.Struct, frozen=True):
    """What a copy of one run holds."""

    source: str
    files: dict[str, Held]
    time: float


@dataclass(frozen=True)
class Gathered:
    """The result of copying one run. `error` is set if a part could not be copied; the other parts were."""

    run: str
    attempt: int | None
    outcome: str
    files: int
    size: int
    sent_files: int
    sent: int
    notes: tuple[str, ...] = ()
    error: SlipwayError | None = None


def gather(
    store: Store,
    runs: Sequence[str],
    to: str,
    *,
    what: Iterable[str] = WHAT,
    groups: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Gathered]:
    """Copies `what` of each run to a store (`to` is its URL) or to a folder (`to` has no `://`).

    The order is files (in parallel), manifests, markers, and last result.json. The attempt is the result's for a run
    that has ended, otherwise the last complete one. Raises BadInput or Unreachable for a target that cannot be used; a
    problem with a run is in its Gathered.
    """
    kinds = _kinds(what)
    target, folder = _target(to)
    if target.url.partition("?")[0].rstrip("/") == store.url.partition("?")[0].rstrip("/"):
        raise BadInput(f"--to {to} is the store itself")
    runs = runs if folder else with_sources(store, runs)
    meter = Meter(0, progress)
    with TransferThreads() as lanes, ThreadPoolExecutor(4, thread_name_prefix="slipway-gather") as pool:
        copies = [_Copy(store, target, run, kinds, folder, lanes, meter) for run in runs]
        try:
            done = list(pool.map(lambda copy: copy(), copies))
        except BaseException:
            meter.stopped = True
            lanes.stop()
            raise
    if not folder and not any(item.error for item in done):
        for name in groups:
            body = store.get(group(name))
            target.create(group(name), body)
    if folder and isinstance(target, FileStore):
        with suppress(OSError):
            (target.root / TEMPORARY).rmdir()
    return done


def with_sources(store: Store, runs: Sequence[str]) -> list[str]:
    """The runs, and the runs whose work they adopted."""
    with ThreadPoolExecutor(8) as pool:
        bodies = pool.map(lambda run: store.read(RunKeys(run).result), runs)
        ended = [(run, *body) for run, body in zip(runs, bodies, strict=True) if body]
    sources = [decode_record(meta.key, body, Result).source(run)[0] for run, body, meta in ended]
    return list(dict.fromkeys([*runs, *sources]))


def _kinds(what: Iterable[str]) -> frozenset[str]:
    kinds = frozenset(what)
    unknown = sorted(kinds - set(WHAT) - {"all", OUTPUTS})
    if unknown:
        raise BadInput(f"--what {unknown[0]}: unknown; allowed: {OUTPUTS}, {', '.join(WHAT)}, all")
    if OUTPUTS in kinds:
        kinds = (kinds - {OUTPUTS}) | {"results", "checkpoints"}
    return frozenset(WHAT) if "all" in kinds else kinds


def _target(to: str) -> tuple[Store, bool]:
    """The store to copy into, and whether it is a folder for people."""
    if "://" in to:
        return open_store(to), False
    root = Path(to).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise BadInput(f"--to {to} is a file; name a folder or a store's URL")
    return FileStore(root, sync=False, any_name=True), True


class _Copy:
    """Copies one run to the target."""

    def __init__(
        self,
        store: Store,
        target: Store,
        run: str,
        kinds: frozenset[str],
        folder: bool,
        lanes: TransferThreads,
        meter: Meter,
    ) -> None:
        self._store, self._target, self._run, self._kinds, self._folder = store, target, run, kinds, folder
        self._lanes, self._meter = lanes, meter
        self._held: dict[str, Held] = {}
        self._new: dict[str, Item] = {}  # bytes sent since the last record
        self._lock = threading.Lock()
        self._sent_files = self._sent = 0
        self._saved = time.monotonic()
        self._recorded: list[str] = []  # keys of the records in the target store, in order

    @property
    def _records(self) -> str:
        return f"gathered/{self._run}/"

    @property
    def _prefix(self) -> str:
        return f"{self._run}/" if self._folder else f"{RUNS}{self._run}/"

    def __call__(self) -> Gathered:
        plan: Plan | None = None
        error: SlipwayError | None = None
        try:
            for again in range(PLANS):
                plan = plan_run(self._store, self._run, self._kinds, folder=self._folder)
                try:
                    self._copy(plan)
                    break
                except (NotFound, Damaged):
                    # changed since the plan: a checkpoint was deleted, pieces of a log were merged, a live file was
                    # rewritten
                    if again == PLANS - 1:
                        raise
        except SlipwayError as caught:
            error = caught
        items = plan.items if plan else ()
        return Gathered(
            run=self._run,
            attempt=plan.attempt if plan else None,
            outcome=plan.outcome if plan else "",
            files=len(items),
            size=sum(item.size for item in items),
            sent_files=self._sent_files,
            sent=self._sent,
            notes=plan.notes if plan else (),
            error=error,
        )

    def _copy(self, plan: Plan) -> None:
        there = {meta.key: meta for meta in self._target.scan(self._prefix)}
        there |= {meta.key: meta for meta in map(self._target.head, plan.outside) if meta is not None}
        self._held = self._record({stored_name(key): meta for key, meta in there.items()})
        missing = [item for item in plan.items if not self._has(item)]
        if not self._folder:
            self._same_history(item for item in missing if item.target in there and "/claim/" in item.target)
        self._meter.expect(sum(item.size for item in missing))
        try:
            for stage in sorted({item.stage for item in missing}):
                self._lanes.run((item.size, self._task(item)) for item in missing if item.stage == stage)
        finally:
            if self._new:
                self._save()
        if isinstance(self._target, FileStore) and self._folder:
            self._as_they_were(plan, self._target.root)

    @staticmethod
    def _as_they_were(plan: Plan, root: Path) -> None:
        """Gives a folder what no store holds as an object: modes and empty folders."""
        for item in plan.items:
            if item.executable:
                path = root / item.target
                make_executable(path if path.exists() else root / item.plain)
        for name in plan.empty_folders:
            with suppress(OSError):  # a name that this file system does not allow
                (root / name).mkdir(parents=True, exist_ok=True)

    def _same_history(self, claims: Iterable[Item]) -> None:
        """Raises Conflict when the target has another run of the same id: its keys would get second bodies."""
        for item in claims:
            if self._target.get(item.target) != b"".join(bytes(piece) for piece in item.pieces()):
                where = f"store {self._target.url}: {item.target}"
                raise Conflict(f"{where}: the run was executed there, too; copy it to another store")

    def _record(self, there: Mapping[str, Meta]) -> dict[str, Held]:
        """The files that an earlier copy wrote and that have not changed since."""
        if self._folder:
            stored = self._target.read(f"{self._run}/gathered.json")
        else:
            self._recorded = [meta.key for meta in self._target.scan(self._records)]
            stored = self._target.read(self._recorded[-1] if self._recorded else f"gathered/{self._run}.json")
        if stored is None:
            return {}
        try:
            copied = decode(stored[0], Copied)
        except msgspec.MsgspecError:
            return {}
        return {
            key: held
            for key, held in copied.files.items()
            if key in there and (there[key].size, there[key].etag) == (held.size, held.etag)
        }

    def _has(self, item: Item) -> bool:
        held = self._held.get(stored_name(item.target))
        return held is not None and held.mark == item.mark

    def _task(self, item: Item) -> Callable[[], None]:
        def task() -> None:
            target = item.target
            try:
                self._send(item, target)
            except BadInput:
                if item.plain in ("", target):
                    raise
                target = item.plain
                self._send(item, target)
            with self._lock:
                self._new[target] = item
                self._sent_files += 1
                self._sent += item.size
                due = time.monotonic() - self._saved > RECORDED
                if due:
                    self._saved = time.monotonic()
            if due:
                self._save()

        return task

    def _send(self, item: Item, target: str) -> None:
        source = partial(lambda item: self._meter.through(item.pieces()), item)
        undamaged(lambda: self._target.send(target, source, item.size, item.sha256))

    def _save(self) -> None:
        """Writes the record of the copied files, with their present etags, which a later call compares."""
        with self._lock:
            new, self._new = self._new, {}
        metas = {meta.key: meta for meta in self._target.scan(self._prefix) if meta.key in new}
        outside = [key for key in new if not key.startswith(self._prefix)]
        metas |= {meta.key: meta for meta in map(self._target.head, outside) if meta is not None}
        added = {stored_name(key): Held(new[key].mark, meta.size, meta.etag) for key, meta in metas.items()}
        with self._lock:
            self._held |= added
            record = Copied(self._store.url, dict(sorted(self._held.items())), time.time())
            body = msgspec.json.encode(record)
            if self._folder:
                self._target.put(f"{self._run}/gathered.json", body)
            else:
                self._write(body)

    def _write(self, body: bytes) -> None:
        """Writes the next record and deletes the one before, unless another gather has written meanwhile."""
        last = self._recorded[-1].removeprefix(self._records).removesuffix(".json") if self._recorded else ""
        number = int(last) if last.isdecimal() else 0
        while True:
            number += 1
            key = f"{self._records}{number:08d}.json"
            if self._target.create(key, body):
                break
        self._target.delete(self._recorded)
        self._recorded = [key]
