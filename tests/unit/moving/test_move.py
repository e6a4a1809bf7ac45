"""A run goes from one backend to the next, and whoever moves it may die between any two calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from launcher.backends.base import BackendObservation, Handle, Rendered
from launcher.errors import BadInput, Conflict, NoCapacity, Unreachable
from launcher.protocol.finish import finish
from launcher.protocol.fold import State, fold
from launcher.protocol.read import read_run
from launcher.protocol.records import Claim, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_hash, run_id
from launcher.spec.model import Alternative, Limits, Output, ResolvedJob, at_turn, backend_order
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.userdata.submits import jobs_of
from launcher.verbs import cancel as cancelling
from launcher.verbs.move import move, move_until_placed
from launcher.verbs.reap import reap
from launcher.verbs.retry import group_of
from launcher.verbs.status import read_line
from launcher.verbs.submit import submit
from tests.support.crashing import Crashed, CrashingStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run

NAMES = ("kubernetes", "lambda")


@dataclass
class Cloud:
    """A backend that keeps its objects in memory. It asks the store before and after what it does, so that a process
    that dies at any request of the store dies between any two calls as well."""

    name: str
    turn: int
    inner: Store
    objects: dict[str, bool] = field(default_factory=dict)  # run -> active
    made: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    reason: str = ""
    away: bool = False
    refuses: str = ""
    full: bool = False
    around: Store | None = None
    place: str = "here"

    def _call(self, what: str) -> None:
        if self.away:
            raise Unreachable(f"{self.name} does not answer")
        (self.around or self.inner).head(f"checks/{what}")

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        assert all(job.backend == self.name and job.turn == self.turn for job in group)
        runs = [run_id(job) for job in group]
        return Rendered({f"{run}.yaml": run for run in runs}, {run: f"{run}.yaml" for run in runs})

    def check(self, group: Sequence[ResolvedJob]) -> None:
        if self.refuses:
            raise BadInput(self.refuses)

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        self._call("submit")
        if self.full:
            raise NoCapacity(f"{self.name} has no capacity now")
        for job in group:
            run = run_id(job)
            assert read_run(self.inner, run).turn == self.turn, "it got the run before its turn"
            if run not in self.objects:
                self.made.append(run)
                self.objects[run] = True
        self._call("submitted")
        return {run_id(job): self._handle(run_id(job), run_hash(job)) for job in group}

    def look_up(self, run: str) -> BackendObservation | None:
        self._call("look up")
        if run not in self.objects:
            return None
        job = read_run(self.inner, run).job
        assert job is not None
        handle = self._handle(run, run_hash(job))
        return BackendObservation(handle, self.objects[run], reason=self.reason, evidence=self.reason)

    def cancel(self, handles: Collection[Handle]) -> None:
        self._call("cancel")
        for handle in handles:
            view = read_run(self.inner, handle.run)
            assert view.turn > self.turn or view.cancelled, "it lost the run before the store said so"
            self.objects[handle.run] = False
            self.ended.append(handle.run)
        self._call("cancelled")

    def mine(self) -> list[BackendObservation]:
        return [seen for run in self.objects if (seen := self.look_up(run)) is not None]

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return True

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        return False

    def _handle(self, run: str, hashed: str) -> Handle:
        return Handle(run, self.name, run, hashed)


@dataclass
class Sky:
    """Two clouds, and a run on the first."""

    store: Store
    job: ResolvedJob
    clouds: tuple[Cloud, Cloud]

    @property
    def run(self) -> str:
        return run_id(self.job)

    def backend_of(self, job: ResolvedJob) -> Cloud:
        return self.clouds[NAMES.index(job.backend)]

    def reap(self, store: Store | None = None) -> list[tuple[str, str]]:
        with Cache() as cache:
            rows = reap(store or self.store, self.backend_of, {}, cache=cache)  # type: ignore[arg-type]
        return [(row.did, row.detail) for row in rows if row.run == self.run]

    def at(self, store: Store | None) -> None:
        for cloud in self.clouds:
            cloud.around = store

    def moves(self) -> list[Claim]:
        attempts = read_run(self.store, self.run).attempts
        return [claim for attempt in attempts for claim in attempt.claims.values() if claim.moved_to]


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def several(name: str = "job", **changes: object) -> ResolvedJob:
    lam = Alternative("lambda", {"ssh_key": "mine"})
    outputs = {"out": Output(), "ckpt": Output(kind="checkpoints")}
    given = {"backend": "kubernetes", "alternatives": (lam,), "outputs": outputs, **changes}
    return fake_job(name, **given)


def sky(store: Store, attempts: Sequence[FakeAttempt], *, active: bool | None = True, **changes: object) -> Sky:
    job = several(store=store.url, **changes)
    run = write_run(store, job, attempts, outcome=None)
    made = Sky(store, job, (Cloud(NAMES[0], 0, store), Cloud(NAMES[1], 1, store)))
    if active is not None:
        made.clouds[0].objects[run] = active
    return made


def preempted(store: Store) -> Sky:
    return sky(store, [FakeAttempt(reason=Reason.PREEMPTED, code=143, checkpoints=(3,))])


def waited(store: Store) -> Sky:
    made = sky(store, [], limits=Limits(start_deadline=3600.0))
    old = time.time() - 7200
    os.utime(store.url.removeprefix("file://") + "/" + RunKeys(made.run).job, (old, old))
    made.clouds[0].reason = "unschedulable"
    return made


def no_capacity(store: Store) -> Sky:
    made = sky(store, [], active=False)
    made.clouds[0].reason = "capacity"
    return made


def taken_away(store: Store) -> Sky:
    """The machine is gone, and its leader said nothing before."""
    made = sky(store, [FakeAttempt(ended=None, checkpoints=(3,))], active=None)
    made.clouds[0].dead = lambda placement, seen: placement is not None  # type: ignore[method-assign]
    return made


CASES: dict[str, Callable[[Store], Sky]] = {
    "preempted": preempted,
    "waited too long": waited,
    "no capacity": no_capacity,
    "its machine was taken away": taken_away,
}


def moved_once(made: Sky) -> None:
    first, second = made.clouds
    assert [claim.moved_to for claim in made.moves()] == ["lambda"]
    assert not first.objects.get(made.run)
    assert (second.made, second.objects.get(made.run)) == ([made.run], True)
    assert made.store.read(RunKeys(made.run).result) is None


@pytest.mark.parametrize("case", CASES)
def test_a_reaper_moves_it_once(file_store: Store, case: str) -> None:
    made = CASES[case](file_store)
    ((did, detail),) = made.reap()
    assert did == "moved"
    assert detail.startswith("to lambda: ")
    moved_once(made)
    made.clouds[1].reason = ""
    assert made.reap() == []
    moved_once(made)


@pytest.mark.parametrize("case", CASES)
def test_a_mover_may_die_between_any_two_calls(tmp_path_factory: pytest.TempPathFactory, case: str) -> None:
    from launcher.store import open_store

    died = 0
    while True:
        store = open_store(tmp_path_factory.mktemp("store").as_uri())
        made = CASES[case](store)
        dying = CrashingStore(store, died)
        made.at(dying)
        try:
            made.reap(dying)
            alive = not dying.dead
        except (Crashed, SystemExit):
            alive = False
        made.at(None)
        for _ in range(3):
            made.reap()
        moved_once(made)
        if alive:
            break
        died += 1
    assert died > 10, "the process was killed at every request, and there are more than ten"


@pytest.mark.parametrize("case", CASES)
def test_nobody_who_only_looks_ends_it(file_store: Store, case: str) -> None:
    made = CASES[case](file_store)
    _, line = read_line(file_store, made.run, made.backend_of)  # type: ignore[arg-type]
    assert not line.final
    if case not in ("waited too long", "its machine was taken away"):  # only a reaper counts the time, or asks so soon
        assert line.detail.endswith(f"it may go on at lambda: launcher move {made.run}")
    assert finish(file_store, made.run, backend_active=None, here=lambda placement: True, writer="test") is None


def test_the_last_backend_ends_it(file_store: Store) -> None:
    made = no_capacity(file_store)
    made.reap()
    second = made.clouds[1]
    second.objects[made.run], second.reason = False, "capacity"
    assert made.reap() == [("ended", "failed: capacity")]
    result = msgspec.json.decode(file_store.get(RunKeys(made.run).result), type=Result)
    assert (result.outcome, result.reason, result.attempt) == ("failed", Reason.CAPACITY, 0)


@pytest.mark.parametrize("reason", [Reason.USER_ERROR, Reason.CONFIG_ERROR, Reason.OUT_OF_MEMORY, Reason.DEADLINE])
def test_a_failure_of_the_job_is_no_reason_to_move(file_store: Store, reason: Reason) -> None:
    made = sky(file_store, [FakeAttempt(reason=reason, code=1)], active=False)
    ((did, _),) = made.reap()
    assert did == "ended"
    assert made.moves() == []


def test_a_live_attempt_is_not_moved_by_itself(file_store: Store) -> None:
    made = sky(file_store, [FakeAttempt(ended=None)])
    assert made.reap() == []
    assert made.moves() == []


def test_an_attempt_that_begins_first_wins(file_store: Store) -> None:
    """A late put: the old backend has started attempt 2 between the decision and the put."""
    made = preempted(file_store)
    keys = RunKeys(made.run).attempt(2)

    class Slow(CrashingStore):
        def create(self, key: str, body: bytes) -> bool:
            if key == keys.claim("main-0"):
                file_store.create(key, msgspec.json.encode(Claim(Placement("job", "x"), "n", 1.0)))
            return super().create(key, body)

    ((did, detail),) = made.reap(Slow(file_store))
    assert (did, detail) == ("unknown", f"{made.run} was not moved: attempt 2 has begun meanwhile")
    assert made.clouds[0].objects[made.run]
    assert made.clouds[1].made == []


def test_a_person_moves_a_run_that_runs(file_store: Store) -> None:
    made = sky(file_store, [FakeAttempt(ended=None)])
    done = move(file_store, made.run, made.backend_of, "lambda")  # type: ignore[arg-type]
    assert (done.backend, done.state) == ("lambda", "moved")
    moved_once(made)
    again = move(file_store, made.run, made.backend_of, "lambda")  # type: ignore[arg-type]
    assert again.state == "there"
    with pytest.raises(Conflict, match="is on lambda, the last of its backends"):
        move(file_store, made.run, made.backend_of)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="the last of its backends"):
        move(file_store, made.run, made.backend_of, "kubernetes")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"--to local: .* may run on kubernetes, lambda"):
        move(file_store, made.run, made.backend_of, "local")  # type: ignore[arg-type]


def test_a_backend_that_cannot_take_it_leaves_it_where_it_is(file_store: Store) -> None:
    made = preempted(file_store)
    made.clouds[1].refuses = "no such type"
    assert made.reap() == [("unreachable", "it may go on at lambda: no such type")]
    assert made.moves() == []
    assert made.clouds[0].objects[made.run]


def test_a_first_backend_that_is_cut_off_does_not_hold_the_run(file_store: Store) -> None:
    made = preempted(file_store)
    first, second = made.clouds
    asked = first.look_up
    first.look_up = lambda run: None if first.away else asked(run)  # type: ignore[method-assign]
    done = move(file_store, made.run, lambda job: _cut(made, job))  # type: ignore[arg-type, return-value]
    assert second.objects[made.run]
    assert done.left == (f"kubernetes could not be told that {made.run} has left it: kubernetes does not answer",)
    del first.look_up  # it answers again
    assert made.reap() == [("stopped", "kubernetes still had it; it has moved on")]
    moved_once(made)


def _cut(made: Sky, job: ResolvedJob) -> Cloud:
    cloud = made.backend_of(job)
    if job.turn == 0:
        return Cloud(cloud.name, 0, made.store, away=True)
    return cloud


def test_an_object_that_is_made_late_on_the_old_backend_is_ended(file_store: Store) -> None:
    made = preempted(file_store)
    made.reap()
    made.clouds[0].objects[made.run] = True  # a submitter that slept
    assert made.reap() == [("stopped", "kubernetes still had it; it has moved on")]
    with Cache() as cache:
        made.clouds[0].objects[made.run] = True
        backends = {"kubernetes": made.clouds[0]}
        rows = reap(file_store, lambda job: None, backends, cache=cache, plan=True)  # type: ignore[arg-type]
    assert ("stopped", f"{made.run} still ran; its run has moved to lambda") in [(row.did, row.detail) for row in rows]


def test_the_same_submit_again_gives_it_to_nobody_else(file_store: Store) -> None:
    made = preempted(file_store)
    made.reap()
    (done,) = submit(group_of({made.run: made.job}), file_store, made.clouds[0])  # type: ignore[arg-type]
    assert done.state == "attached"
    assert made.clouds[0].made == []


def test_submit_run_gives_it_to_the_backend_whose_turn_it_is(file_store: Store) -> None:
    made = preempted(file_store)
    made.reap()
    (job,) = jobs_of(file_store, made.run).values()
    assert (job.backend, job.turn) == ("lambda", 1)
    assert run_id(job) == made.run


def test_cancel_ends_it_on_every_backend_that_had_it(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = preempted(file_store)
    made.reap()
    made.clouds[0].objects[made.run] = True

    class Settings:
        def backend_options(self, name: str) -> dict[str, object]:
            return {}

    monkeypatch.setattr(cancelling, "backend_of", lambda job, options: made.backend_of(job))
    (done,) = cancelling.cancel_jobs(file_store, {made.run: made.job}, Settings())  # type: ignore[arg-type]
    assert done.state == "stopping"
    assert made.clouds[0].objects == made.clouds[1].objects == {made.run: False}


def test_cancel_ends_what_a_backend_kept_although_the_run_has_ended_meanwhile(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime writes the final record before the backend that the run has left is asked."""
    made = preempted(file_store)
    made.reap()
    made.clouds[0].objects[made.run] = True
    end = made.clouds[1].cancel

    def ends(handles: Collection[Handle]) -> None:
        end(handles)
        result = Result("cancelled", 3, Reason.CANCELLED, "", 0.0, "n", "runtime")
        file_store.create(RunKeys(made.run).result, msgspec.json.encode(result))

    class Settings:
        def backend_options(self, name: str) -> dict[str, object]:
            return {}

    made.clouds[1].cancel = ends  # type: ignore[method-assign]
    monkeypatch.setattr(cancelling, "backend_of", lambda job, options: made.backend_of(job))
    cancelling.cancel_jobs(file_store, {made.run: made.job}, Settings())  # type: ignore[arg-type]
    assert made.clouds[0].objects == made.clouds[1].objects == {made.run: False}


def test_a_person_sees_where_it_is_and_why(file_store: Store) -> None:
    made = preempted(file_store)
    made.reap()
    view, line = read_line(file_store, made.run)
    assert (line.backend, line.state, line.attempt, line.attempts) == ("lambda", "starting", 1, 1)
    assert line.detail == "moved to lambda: preempted"
    status = fold(view)
    assert status.state is State.STARTING
    assert not status.stale
    assert line.checkpoint == 3


def test_the_store_keeps_the_job_as_it_was_written(file_store: Store) -> None:
    job = several(store=file_store.url)
    there = at_turn(job, 1)
    (done,) = submit(group_of({run_id(job): there}), file_store, Cloud("lambda", 1, file_store))  # type: ignore[arg-type]
    assert file_store.get(RunKeys(run_id(job)).job) == encode_job(job)
    assert backend_order(job) == NAMES
    assert done.state == "attached"  # it is the first backend's turn


def test_a_backend_without_capacity_passes_it_on(file_store: Store) -> None:
    made = sky(file_store, [], active=None)
    made.clouds[0].full = True
    with pytest.raises(NoCapacity) as refused:
        submit(group_of({made.run: made.job}), file_store, made.clouds[0])  # type: ignore[arg-type]
    moved = move_until_placed(file_store, made.run, made.backend_of, refused.value)  # type: ignore[arg-type]
    assert moved.backend == "lambda"
    moved_once(made)
    assert made.moves()[0].why == "kubernetes has no capacity now"


def test_no_backend_has_capacity(file_store: Store) -> None:
    """The last says so, and the next reaper asks it again."""
    made = sky(file_store, [], active=None)
    made.clouds[1].full = True
    with pytest.raises(NoCapacity, match="lambda has no capacity now"):
        move_until_placed(file_store, made.run, made.backend_of, NoCapacity("kubernetes has none"))  # type: ignore[arg-type]
    assert made.reap() == [("unsubmitted", "lambda has no capacity now")]
    made.clouds[1].full = False
    assert made.reap() == [("moved", "lambda did not have it yet")]
    moved_once(made)
