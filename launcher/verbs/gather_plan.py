"""Plans the copy of a run: which objects, under which names, in which order. Reads the store, writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec

from launcher.decoding import decode_record
from launcher.errors import NotFound
from launcher.protocol.deleted import why_missing
from launcher.protocol.records import Complete, Exit, Result
from launcher.spec.hashing import decode_job, work_hash
from launcher.store.base import Meta, Store
from launcher.store.layout import LOG, MANIFEST, METRICS, AttemptKeys, RunKeys, live_manifests, live_version, work_run
from launcher.store.logs import list_pieces, read_pieces
from launcher.store.manifest import key_of, read_manifest, true_name
from launcher.store.paths import unescaped
from launcher.store.transfer import Piece

WHAT: Final = ("results", "checkpoints", "logs", "metrics")
_LIVE: Final = ".live"
FILES, MANIFESTS, MARKERS, RECORDS, END, AFTER = range(6)  # the order in which objects are copied

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True)
class Item:
    """One object of the copy. `mark` identifies its content: equal marks mean equal bytes."""

    target: str
    size: int
    mark: str
    stage: int
    pieces: Callable[[], Iterable[Piece]]
    sha256: str | None = None
    plain: str = ""  # used when the folder's file system rejects the name `target`
    executable: bool = False  # in a folder its owner may execute it


@dataclass(frozen=True)
class Plan:
    run: str
    attempt: int | None  # the attempt whose results are copied
    outcome: str  # the outcome of the result, or `running`
    items: tuple[Item, ...]
    notes: tuple[str, ...]
    empty_folders: tuple[str, ...] = ()  # folders without an entry, which only a folder gets

    @property
    def outside(self) -> list[str]:
        """Targets outside the run's own prefix."""
        return [item.target for item in self.items if item.stage == AFTER]


def plan_run(store: Store, run: str, kinds: frozenset[str], *, folder: bool) -> Plan:
    """`folder`: use readable names, not the store's keys. For a run that adopted another run's work, a folder gets the
    other run's files; a store gets only the records, and the other run is copied separately. Raises NotFound for an
    unknown run."""
    planner = _Planner(store, run, kinds, folder)
    plan = planner.plan()
    source = planner.source()
    if source is None or not folder:
        return plan
    other = _Planner(store, source[0], kinds, folder, named=run)
    taken = other.plan()
    items = (*(item for item in taken.items if item.stage < RECORDS), *plan.items)
    notes = (f"the work of {source[0]}, adopted", *taken.notes)
    return Plan(run, taken.attempt, plan.outcome, items, notes, taken.empty_folders)


class _Planner:
    """`named`: the run under whose name a folder gets the files, where it differs from `run`."""

    def __init__(self, store: Store, run: str, kinds: frozenset[str], folder: bool, named: str = "") -> None:
        self.store, self.run, self.kinds, self.folder = store, run, kinds, folder
        self.named = named or run
        self.keys = RunKeys(run)
        self.metas = {meta.key: meta for meta in store.scan(self.keys.prefix)}
        self.items: list[Item] = []
        self.notes: list[str] = []
        self.empty_folders: list[str] = []

    def plan(self) -> Plan:
        if not self.metas:
            raise NotFound(f"no run `{self.run}` in {self.store.url}")
        if self.keys.deleted in self.metas:  # never copied, so that earlier copies stay complete
            raise NotFound(f"{self.run}: {why_missing(self.store, self.run)}")
        result = self._decoded(self.keys.result, Result)
        numbers = sorted({int(number) for number in self._below(self.keys.attempts) if number.isdigit()})
        attempt = result.attempt if result and result.attempt in numbers else numbers[-1] if numbers else None
        if "results" in self.kinds:
            attempt = self._outputs(numbers, attempt)
        if "checkpoints" in self.kinds:
            self._checkpoints(numbers)
        for number in numbers:
            keys = self.keys.attempt(number)
            if "logs" in self.kinds:
                self._streams(keys, keys.prefix + "logs/", LOG, f"logs/{number}/")
            if "metrics" in self.kinds:
                self._streams(keys, keys.prefix + "metrics/", METRICS, f"metrics/{number}/")
        self._records(numbers, result)
        outcome = result.outcome if result else "running"
        return Plan(self.run, attempt, outcome, tuple(self.items), tuple(self.notes), tuple(self.empty_folders))

    def source(self) -> tuple[str, int] | None:
        """(run, attempt) of the work that this run adopted."""
        result = self._decoded(self.keys.result, Result)
        return result.source(self.run) if result is not None and result.adopted is not None else None

    def _outputs(self, numbers: list[int], first: int | None) -> int | None:
        """Plans each output of the result's attempt, or else of the last attempt that has it; returns that attempt."""
        having: dict[str, dict[int, str]] = {}  # output -> attempt -> the key of its manifest
        for number in numbers:
            for name, key in self._manifests(self.keys.attempt(number)).items():
                having.setdefault(name, {})[number] = key
        taken = first
        for name, manifests in sorted(having.items()):
            number = first if first in manifests else max(manifests)
            assert number is not None
            taken = number
            if number != first:
                self.notes.append(f"{name} is of attempt {number}")
            self._tree(self.keys.attempt(number).output(name), manifests[number], f"outputs/{name}/")
        if not having:
            self.notes.append("no complete output yet" if self.keys.result not in self.metas else "no output")
        return taken

    def _manifests(self, keys: AttemptKeys) -> dict[str, str]:
        """Output -> the key of its manifest: the final one, or else the newest version of a live output."""
        prefix = f"{keys.prefix}outputs/"
        finals: dict[str, str] = {}
        versions: dict[str, tuple[int, str]] = {}
        for key in self.metas:
            if not key.startswith(prefix):
                continue
            name, slash, _ = key.removeprefix(prefix).partition("/")
            if not slash and name.endswith(MANIFEST):
                finals[name.removesuffix(MANIFEST)] = key
            elif name.endswith(_LIVE) and key.startswith(live_manifests(keys.output(name.removesuffix(_LIVE)))):
                version = live_version(key) or 0
                versions[name.removesuffix(_LIVE)] = max(
                    (version, key), versions.get(name.removesuffix(_LIVE), (0, ""))
                )
        return {name: key for name, (_, key) in versions.items()} | finals

    def _checkpoints(self, numbers: list[int]) -> None:
        """Plans every complete checkpoint; when two attempts saved the same step, the later attempt's."""
        steps: set[int] = set()
        for number in reversed(numbers):
            keys = self.keys.attempt(number)
            for step in sorted({int(name) for name in self._below(keys.checkpoints) if name.isdigit()} - steps):
                record = self._decoded(keys.checkpoint_complete(step), Complete)
                if record is None:
                    continue
                lists = [keys.checkpoint_manifest(step, member) for member in record.members]
                if lists and not any(key in self.metas for key in lists):
                    # was deleted, but a late request wrote its marker again
                    self.notes.append(f"checkpoint {step} of attempt {number} is deleted")
                    continue
                steps.add(step)
                names: set[str] = set()
                for member in record.members:  # the leader first: of equal names a folder gets the leader's file
                    prefix, manifest = keys.checkpoint_files(step, member), keys.checkpoint_manifest(step, member)
                    names |= self._tree(prefix, manifest, f"checkpoints/{step}/", without=names)
                if not self.folder:
                    self._object(keys.checkpoint_complete(step), MARKERS)

    def _tree(self, prefix: str, manifest_key: str, under: str, without: Iterable[str] = ()) -> set[str]:
        manifest = read_manifest(self.store, manifest_key)
        if manifest is None:
            raise NotFound(f"{manifest_key}: deleted meanwhile")
        if manifest.left_out_count:
            self.notes.append(f"{under.rstrip('/')}: {manifest.left_out_count} left out")
        names = set(manifest.files) - (set(without) if self.folder else set())
        for name in names:
            file = manifest.files[name]
            key = key_of(prefix, name, file.at)
            read, mark = partial(self.store.stream, key), f"sha256:{file.sha256}"
            if not self.folder:
                self.items.append(Item(key, file.size, mark, FILES, read, file.sha256))
                continue
            target, plain = f"{self.named}/{under}{true_name(name, file)}", f"{self.named}/{under}{name}"
            self.items.append(Item(target, file.size, mark, FILES, read, file.sha256, plain, file.executable))
        if not self.folder:
            self._object(manifest_key, MANIFESTS)
        else:
            self.empty_folders += [f"{self.named}/{under}{unescaped(name)}" for name in manifest.empty_folders]
        return names

    def _streams(self, keys: AttemptKeys, prefix: str, suffix: str, under: str) -> None:
        """Plans logs and metrics: piece by piece for a store, as one file per rank for a folder."""
        exits = f"{keys.prefix}exit/"
        ended = {key.removeprefix(exits).removesuffix(".json") for key in self.metas if key.startswith(exits)}
        for member in sorted({*self._below(prefix), *ended}):
            end = self._decoded(keys.exit(member), Exit)
            told = 0 if end is None else end.log if suffix == LOG else end.metrics
            listed = list_pieces(self.store, f"{prefix}{member}/", suffix, told)
            if not listed:
                continue
            if not self.folder:
                for _, _, key in listed:
                    self._object(key, FILES)
                continue
            size = max((first + size for first, size, _ in listed), default=0)
            marks = "".join(f"{first} {size} {self._mark(key)}\n" for first, size, key in listed)
            mark = f"pieces:{hashlib.sha256(marks.encode()).hexdigest()}"
            target = f"{self.named}/{under}{member}{suffix}"
            read = partial(_joined, self.store, f"{prefix}{member}/", suffix, size, told)
            self.items.append(Item(target, size, mark, FILES, read))

    def _records(self, numbers: list[int], result: Result | None) -> None:
        bulk = tuple(
            f"{self.keys.attempt(number).prefix}{kind}/"
            for number in numbers
            for kind in ("outputs", "checkpoints", "logs", "metrics")
        )
        for key in self.metas:
            if key == self.keys.result:
                self._object(key, END)
            elif not key.startswith(bulk) and (not self.folder or key in (self.keys.job, self.keys.cancel)):
                self._object(key, RECORDS)
        own = result is not None and result.outcome == "succeeded" and result.adopted is None
        if own and result is not None and not self.folder and self.keys.job in self.metas:
            key = work_run(result.work or work_hash(decode_job(self.store.get(self.keys.job))), self.run)
            meta = self.store.head(key)
            if meta is not None:
                self.metas[key] = meta
                self._object(key, AFTER)

    def _object(self, key: str, stage: int) -> None:
        """Plans an unchanged copy of an object, under its own key or, in a folder, below the run's folder."""
        target = f"{self.run}/{key.removeprefix(self.keys.prefix)}" if self.folder else key
        size = self.metas[key].size if key in self.metas else 0
        self.items.append(Item(target, size, self._mark(key), stage, partial(self.store.stream, key)))

    def _mark(self, key: str) -> str:
        meta = self.metas.get(key) or self.store.head(key) or Meta(key, 0, 0.0)
        self.metas[key] = meta
        return f"etag:{meta.etag}"

    def _below(self, prefix: str) -> list[str]:
        """The names of the direct subfolders of a prefix."""
        names = (key.removeprefix(prefix).partition("/") for key in self.metas if key.startswith(prefix))
        return sorted({name for name, slash, _ in names if slash})

    def _decoded(self, key: str, kind: type[R]) -> R | None:
        stored = self.store.read(key) if key in self.metas else None
        return decode_record(key, stored[0], kind) if stored is not None else None


def _joined(store: Store, prefix: str, suffix: str, size: int, told: int) -> Iterator[Piece]:
    """The first `size` bytes of a rank's stream; a line in it reports each missing range."""
    for piece in read_pieces(store, prefix, suffix, 0, size, told=told):
        if piece.missing:
            yield f"\n[slipway: {piece.missing} bytes are missing here]\n".encode()
        yield piece.body
