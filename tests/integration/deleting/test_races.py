"""A gc that dies at any request, and submits between any two requests of a gc, and the other way round."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from launcher.backends.base import BackendObservation, Handle, Rendered
from launcher.deleting import guard
from launcher.deleting.choose import DeletionSelection
from launcher.deleting.delete import carry_out
from launcher.deleting.plan import plan_gc
from launcher.errors import Conflict
from launcher.protocol.deleted import read_deleted
from launcher.spec.code.overlay import Overlay
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import Code, ResolvedJob
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import BLOBS, RunKeys, blob, blob_note
from launcher.verbs.overlays import push_overlays
from launcher.verbs.submit import submit
from tests.integration.deleting.stores import DIGEST, OVERLAY, assert_nothing_torn, keys, made, overlay, reader
from tests.support import jobs
from tests.support.crashing import Crashed, CrashingStore

CODE = Code(f"sha256:{DIGEST}")
ALL = DeletionSelection(keep=0)
AT_HAND = {DIGEST: Overlay(Path("nowhere"))}


def collect(store: Store, wanted: DeletionSelection = ALL) -> None:
    carry_out(store, plan_gc(store, wanted, grace=-1.0), verb="gc")


class Recorder:
    """A backend that takes everything."""

    place = "here"

    name = "local"
    place = "here"

    def __init__(self) -> None:
        self.given: list[str] = []

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        return Rendered({run_id(job): "" for job in group}, {run_id(job): run_id(job) for job in group})

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        self.given += [run_id(job) for job in group]
        return {run_id(job): Handle(run_id(job), self.name, run_id(job), run_hash(job)) for job in group}

    def look_up(self, run: str) -> BackendObservation | None:
        return None


def send(store: Store, *group: ResolvedJob) -> list[str]:
    """What reached the backend; raises Conflict."""
    backend = Recorder()
    submit(jobs.group(*group), store, backend, overlays=AT_HAND)  # type: ignore[arg-type]
    return backend.given


@pytest.fixture(autouse=True)
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlay's folder is at hand, and packs to the bytes whose digest it has."""

    def pack(overlay: Overlay, target: Path) -> str:
        target.write_bytes(OVERLAY)
        return DIGEST

    monkeypatch.setattr(Overlay, "pack", pack)


class Turns:
    """A store that calls `act` before its n-th request, once."""

    def __init__(self, under: Store, at: int, act: Callable[[], None]) -> None:
        self.under, self.at, self.act = under, at, act
        self.count = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.under.url

    def now(self) -> float:
        return self.under.now()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.under, name)

        def passed(*arguments: Any) -> Any:
            with self.lock:
                mine = self.count == self.at
                self.count += 1
            if mine:
                self.act()
            answer = call(*arguments)
            return list(answer) if name == "scan" else answer

        return passed


class Beside:
    """Something that runs in a thread of its own until it has ended, or waits for an intent."""

    def __init__(self, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        self.act, self.error, self.answer = act, None, None  # type: Callable[[], object], BaseException | None, object
        self.idle = threading.Event()
        self.thread = threading.Thread(target=self._run)
        rest = guard.time.sleep
        monkeypatch.setattr(guard.time, "sleep", lambda seconds: (self.idle.set(), rest(0.001)))

    def _run(self) -> None:
        try:
            self.answer = self.act()
        except Conflict as error:
            self.error = error
        finally:
            self.idle.set()

    def go(self) -> None:
        self.thread.start()
        self.idle.wait()

    def end(self) -> None:
        if self.thread.ident is None:
            self.thread.start()
        self.thread.join()


def scene(folder: Path) -> tuple[Store, ResolvedJob, ResolvedJob]:
    """An old run, an overlay that nobody refers to, and a job that would read both."""
    store = FileStore(folder, sync=False)
    overlay(store)
    job = made(store)
    return store, job, reader(job, code=CODE)


def assert_fair(store: Store, upstream: ResolvedJob, job: ResolvedJob, beside: Beside) -> None:
    """Either the submit went through, and all that it needs is there for good, or it was told no."""
    assert_nothing_torn(store, upstream)
    if beside.error is None:
        assert beside.answer == [run_id(job)]
        assert store.get(blob(DIGEST)) == OVERLAY
        assert read_deleted(store, run_id(upstream)) is None
        collect(store)  # and no later gc takes it
        assert store.get(blob(DIGEST)) == OVERLAY
        assert read_deleted(store, run_id(upstream)) is None
    else:
        assert read_deleted(store, run_id(upstream)) is not None
        assert "deleted" in str(beside.error)


def test_a_submit_between_any_two_requests_of_a_gc(tmp_path: Path) -> None:
    at, ended = 0, False
    outcomes = set()
    while not ended:
        with pytest.MonkeyPatch.context() as patch:
            store, upstream, job = scene(tmp_path / f"s{at}")
            beside = Beside(lambda store=store, upstream=upstream, job=job: send(store, upstream, job), patch)  # type: ignore[misc]
            turns = Turns(store, at, beside.go)
            collect(turns)  # type: ignore[arg-type]
            ended = turns.count <= at
            beside.end()
            assert_fair(store, upstream, job, beside)
            outcomes.add(beside.error is None)
            at += 1
    assert outcomes == {True, False}
    assert at > 15


def test_a_gc_between_any_two_requests_of_a_submit(tmp_path: Path) -> None:
    at, ended = 0, False
    outcomes = set()
    while not ended:
        with pytest.MonkeyPatch.context() as patch:
            store, upstream, job = scene(tmp_path / f"s{at}")
            turns = Turns(store, at, lambda store=store: collect(store))  # type: ignore[misc]
            beside = Beside(lambda turns=turns, upstream=upstream, job=job: send(turns, upstream, job), patch)  # type: ignore[misc]
            beside.end()
            ended = turns.count <= at
            assert_fair(store, upstream, job, beside)
            outcomes.add(beside.error is None)
            at += 1
    assert outcomes == {True, False}


def test_an_overlay_alone_is_never_missing_after_a_submit(tmp_path: Path) -> None:
    """Nothing is told no for an overlay: it is waited for, and put again."""
    at, ended = 0, False
    while not ended:
        with pytest.MonkeyPatch.context() as patch:
            store = FileStore(tmp_path / f"s{at}", sync=False)
            overlay(store)
            job = jobs.job("new", code=CODE)
            beside = Beside(lambda store=store, job=job: send(store, job), patch)  # type: ignore[misc]
            turns = Turns(store, at, beside.go)
            collect(turns)  # type: ignore[arg-type]
            ended = turns.count <= at
            beside.end()
            assert beside.error is None
            assert store.get(blob(DIGEST)) == OVERLAY
            at += 1


def test_a_push_beside_a_gc(tmp_path: Path) -> None:
    """A push has no job.json that speaks for it: it makes the overlay young, or waits and puts it again."""
    at, ended = 0, False
    while not ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("launcher.verbs.overlays.RENEWED", -1.0)
            store = FileStore(tmp_path / f"s{at}", sync=False)
            overlay(store)
            for key in (blob(DIGEST), blob_note(DIGEST)):
                os.utime(store.root / key, (1e9, 1e9))
            job = jobs.job("new", code=CODE)

            def push(store: Store = store, job: ResolvedJob = job) -> object:
                return push_overlays(store, [job], AT_HAND)

            beside = Beside(push, patch)
            turns = Turns(store, at, beside.go)
            carry_out(turns, plan_gc(turns, DeletionSelection(), grace=86400.0), verb="gc")  # type: ignore[arg-type]
            ended = turns.count <= at
            beside.end()
            assert beside.error is None
            assert store.get(blob(DIGEST)) == OVERLAY
            at += 1


@pytest.mark.parametrize("inside", ["submit", "gc"])
def test_an_adoption_beside_a_gc(tmp_path: Path, inside: str) -> None:
    """A run takes over the results of another one, which go at this moment: it keeps them, or computes itself."""
    at, ended = 0, False
    outcomes = set()
    while not ended:
        with pytest.MonkeyPatch.context() as patch:
            store = FileStore(tmp_path / f"s{at}", sync=False)
            old = made(store)
            new = jobs.changed(old, labels={"team": "x"})
            if inside == "submit":
                turns = Turns(store, at, lambda store=store: collect(store))  # type: ignore[misc]
                beside = Beside(lambda turns=turns, new=new: send(turns, new), patch)  # type: ignore[misc]
            else:
                beside = Beside(lambda store=store, new=new: send(store, new), patch)  # type: ignore[misc]
                turns = Turns(store, at, beside.go)
                collect(turns)  # type: ignore[arg-type]
            beside.end()
            ended = turns.count <= at
            assert beside.error is None
            adopted = beside.answer == []
            if adopted and read_deleted(store, run_id(new)) is None:
                assert read_deleted(store, run_id(old)) is None
            assert_nothing_torn(store, old)
            outcomes.add(adopted)
            at += 1
    assert outcomes == {True, False}


def test_two_gcs_at_once(tmp_path: Path) -> None:
    at, ended = 0, False
    while not ended:
        store, upstream, _ = scene(tmp_path / f"s{at}")
        turns = Turns(store, at, lambda store=store: collect(store))  # type: ignore[misc]
        collect(turns)  # type: ignore[arg-type]
        ended = turns.count <= at
        assert keys(store) == {*RunKeys(run_id(upstream)).tombstone}
        at += 1


@pytest.mark.ci
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_gc_goes_on_at_the_next_call(tmp_path: Path, when: Any) -> None:
    """kill -9 of a real process, at every request in turn."""
    at, killed = 0, True
    while killed:
        store, upstream, _ = scene(tmp_path / f"s{at}")

        def die() -> NoReturn:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        child = os.fork()
        if child == 0:
            try:
                collect(CrashingStore(store, at, when, die))  # type: ignore[arg-type]
            finally:
                os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert_nothing_torn(store, upstream)
        collect(store)
        assert keys(store) == {*RunKeys(run_id(upstream)).tombstone}
        at += 1
    assert at > 15


@pytest.mark.parametrize("when", ["before", "after"])
def test_on_any_store_a_gc_may_be_cut_off(store: Store, when: Any) -> None:
    """The same in one process, at every third request, on each kind of store."""
    at, cut = 0, True
    while cut:
        overlay(store, b"%d" % at)
        job = made(store, "made", config={"at": at})
        crashing = CrashingStore(store, at, when)
        with pytest.MonkeyPatch.context() as patch:
            # a process that died, though this one lives
            patch.setattr("launcher.deleting.guard.void", lambda *_: True)
            with suppress(Crashed):
                collect(crashing)  # type: ignore[arg-type]
            cut = crashing.dead
            assert_nothing_torn(store, job)
            collect(store)
        tombstone = RunKeys(run_id(job)).tombstone
        assert keys(store, RunKeys(run_id(job)).prefix) == {*tombstone}
        assert keys(store, BLOBS) == set()
        assert keys(store, "works/") == set()
        at += 3


def test_what_a_submit_asks_does_not_grow_with_its_readers(tmp_path: Path) -> None:
    """A matrix of readers: of what the same submit brings nothing is asked, of what is done already once."""
    store = FileStore(tmp_path / "store", sync=False)
    upstream = made(store)
    readers = [reader(upstream, f"reader-{number}", config={"seed": number}) for number in range(50)]
    counted = Turns(store, -1, lambda: None)
    guard.guard(counted, [upstream, *readers], [], lambda: None)  # type: ignore[arg-type]
    assert counted.count == 0
    guard.guard(counted, readers, [upstream], lambda: None)  # type: ignore[arg-type]
    assert counted.count == 5  # works/ and deleted.json, before and after a look at the intents
    guard.guard(counted, [], [upstream], lambda: None)  # type: ignore[arg-type]
    assert counted.count == 5


def test_a_failed_submit_can_be_made_again(tmp_path: Path) -> None:
    """After `no`, nothing of the job runs; once the upstream is computed again it goes through."""
    store, upstream, job = scene(tmp_path / "store")
    collect(store)
    with pytest.raises(Conflict, match="launcher retry made-"):
        send(store, upstream, job)
    assert store.head(RunKeys(run_id(job)).job) is None  # said before anything was written
    made(store, fresh=1)
    assert send(store, upstream, job) == [run_id(job)]
