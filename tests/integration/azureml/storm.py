"""A storm of launchers on Azure ML, in virtual time:

    python -m tests.integration.azureml.storm --trials 1000 --seed 1

In a trial 1, 3 or 8 launchers submit the same two runs, one of one role and one of two, with the real verbs and the
unmodified SDK, whose transport ends in the stand-in. Between any two requests to Azure or to the store a launcher, a
reaper or a `cancel` may be killed for good; answers are lost before and after a request took effect. Spot nodes are
taken back and come again hours later, images are missing, nodes stop responding. The judge is the stand-in's ledger.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec
import requests
from requests.adapters import BaseAdapter

from launcher.backends.azureml import names
from launcher.backends.azureml.backend import AzureBackend
from launcher.backends.azureml.resources import pipeline
from launcher.backends.azureml.workspace import Workspace
from launcher.errors import SlipwayError, Unreachable
from launcher.protocol.records import Beat, Claim, Exit, Formed, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Image, Limits, ResolvedJob, Role, Timing
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.cancel import cancel_all
from launcher.verbs.reap import reap
from launcher.verbs.submit import submit
from tests.fakes.azureml import cloud as fake
from tests.fakes.azureml.answers import TOKEN, respond
from tests.support.jobs import group, job
from tests.support.memory_store import MemoryStore
from tests.support.stepping import InTurn, Killed, Stepper

BEGIN: Final = 1_800_000_000.0  # seconds since the epoch
STORM: Final = 2 * 3600.0  # seconds of faults and kills
EVERY: Final = 900.0  # seconds between two runs of a reaper
DEADLINE, STALE = 3600.0, 600.0
WORK: Final = 1200.0  # seconds of work of a run
URL: Final = "az://runs/store?account=lab"
PLACE: Final = {"subscription": fake.SUBSCRIPTION, "resource_group": fake.GROUP, "workspace": fake.WORKSPACE}
MODULES: Final = (
    "launcher.backends.azureml.backend",
    "launcher.backends.azureml.pool",
    "launcher.backends.azureml.workspace",
    "launcher.protocol.finish",
    "launcher.verbs.cancel",
    "launcher.verbs.leftovers",
    "launcher.verbs.open_run",
    "launcher.verbs.reap",
    "launcher.deleting.guard",
)


def _job(name: str, tier: str, **roles: Role) -> ResolvedJob:
    return job(
        name,
        store=URL,
        backend="azureml",
        options={**PLACE, "instance_type": "Standard_D2", "tier": tier, "identity": {"kind": "managed"}},
        roles=roles,
        limits=Limits(deadline=DEADLINE, grace=30.0),
        timing=Timing(beat=60.0, stale=STALE, fence=400.0),
    )


_IMAGE: Final = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")
GROUP: Final = group(
    _job("one", "spot", main=Role(("x",), _IMAGE, leader=True)),
    _job("two", "standard", agent=Role(("x",), _IMAGE, leader=True), desk=Role(("x",), _IMAGE)),
)


@dataclass(frozen=True)
class Weather:
    """What a trial does to its processes."""

    launchers: int
    kill: float  # the chance at each request
    fault: float
    cancels: bool
    returns: bool  # the user submits once more after the storm
    spot: float  # the chance that the nodes of a start are taken back
    sick: float  # the share of jobs that fail
    reapers: int

    @classmethod
    def of(cls, dice: random.Random, launchers: int) -> Weather:
        return cls(
            launchers=launchers,
            kill=dice.choice((0.0, 0.02, 0.05, 0.1)),
            fault=dice.choice((0.0, 0.05, 0.2)),
            cancels=dice.random() < 0.15,
            returns=dice.random() < 0.75,
            spot=dice.choice((0.0, 0.3, 0.6)),
            sick=dice.choice((0.0, 0.0, 0.2)),
            reapers=dice.choice((1, 2)),
        )


@dataclass
class Verdict:
    """What the ledger says. A trial failed if any of the first six is not 0."""

    worked_twice: int = 0
    past_limit: int = 0
    lost: int = 0
    left: int = 0  # jobs that are active at the end
    wronged: int = 0  # runs that were given up although nothing was wrong with them
    faults: list[str] = field(default_factory=list)  # errors that are none of the launcher's own
    jobs: int = 0
    kills: int = 0
    requests: int = 0
    preempted: int = 0
    succeeded: int = 0
    ended: int = 0

    @property
    def good(self) -> bool:
        return not (self.worked_twice or self.past_limit or self.lost or self.left or self.wronged or self.faults)


class StormCloud(fake.Cloud):
    """The workspace, whose jobs are simulated here."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.simulated: dict[str, SimulatedJob] = {}

    def fault(self, call: str) -> str:
        world = self.world
        if not world.stormy or world.dice.random() >= world.weather.fault:
            return ""
        return world.dice.choice(("drop_before", "drop_after", "500", "after_503", "429"))

    def put_job(self, name: str, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        answer = super().put_job(name, body, now)
        if name not in self.simulated:
            self.simulated[name] = SimulatedJob(self.world, self.jobs[name])
        return answer

    def cancel(self, name: str, now: float) -> str:
        path = super().cancel(name, now)
        self.world.stepper.after(self.settings.cancel, lambda: self.simulated[name].end("Canceled"))
        return path


class SimulatedJob:
    """What Azure ML and the runtime do with a job, as far as it matters for submitting and reaping."""

    def __init__(self, world: World, shown: fake.StandInJob) -> None:
        self.world, self.shown, self.dice = world, shown, world.dice
        given = shown.body["properties"]["properties"]
        self.run = given[names.RUN]
        self.leads = shown.name == self.run
        # on a pool each rank has a job
        self.member = shown.name.removeprefix(f"{self.run}_") if names.RANKS in given and not self.leads else ""
        self.member = self.member or f"{given[names.ROLE]}-0"
        self.start_number = 0
        self.attempt = 0  # that this start has claimed
        self.working = 0.0  # since when
        self.fate = self.dice.choice(("image", "mute")) if self.dice.random() < world.weather.sick else ""
        world.stepper.after(self.dice.uniform(30, 1800), self.start)

    def start(self) -> None:
        if self.shown.status in (*fake.TERMINAL, "CancelRequested"):
            return
        self.shown.status, self.attempt = "Running", 0
        self.start_number += 1
        number, after = self.start_number, self.world.stepper.after
        self.world.ran.append((self.shown.name, self.world.now))
        if self.fate == "image":
            after(300.0, lambda: self.end("Failed"))
            return
        limit = fake.seconds(self.shown.body["properties"]["limits"]["timeout"])
        after(limit, lambda: self.is_start(number) and self.end("Canceled"))
        spot = self.shown.body["properties"].get("queueSettings", {}).get("jobTier") == "Spot"
        if spot and self.dice.random() < self.world.weather.spot and self.world.stormy:
            after(self.dice.uniform(60, 1.5 * WORK), lambda: self.preempt(number))
        after(self.dice.uniform(60, 600), lambda: self.look(number))

    def is_start(self, number: int) -> bool:
        return number == self.start_number and self.shown.status in ("Running", "NotResponding")

    def stop_working(self) -> None:
        if self.working:
            self.world.worked.append((self.run, self.member, self.working, self.world.now))
        self.working = 0.0

    def preempt(self, number: int) -> None:
        """The nodes are taken back; others come hours later."""
        if self.is_start(number):
            self.stop_working()
            self.world.verdict.preempted += 1
            self.shown.status = "Queued"
            self.world.stepper.after(self.dice.uniform(30, 3 * 3600), self.start)

    def end(self, status: str) -> None:
        if self.shown.status not in fake.TERMINAL:
            self.stop_working()
            self.shown.status = status
            self.world.ended[self.shown.name] = self.world.now

    def look(self, number: int) -> None:
        """The runtime's loop: claim an attempt, wait for the others, work, end."""
        if not self.is_start(number) and self.shown.status != "CancelRequested":
            return
        store, run = self.world.store, RunKeys(self.run)
        if store.head(run.result) is not None or store.head(run.cancel) is not None:
            self.leave(Reason.CANCELLED, "cancelled")
            self.end("Completed")
            return
        if self.fate == "mute" and self.attempt:
            self.shown.status = "NotResponding"
            self.stop_working()
            return
        highest = self.highest()
        if highest > self.attempt:
            self.stop_working()
            self.attempt = 0
        if not self.attempt and (wanted := self.next_attempt(highest)):
            placement = Placement(names.KIND, f"{names.workspace_of(PLACE)}/{self.run}", container=str(number))
            record = Claim(placement, f"{self.shown.name}-{number}", self.world.now)
            if store.create(run.attempt(wanted).claim(self.member), msgspec.json.encode(record)):
                self.attempt = wanted
        if self.attempt:
            keys = run.attempt(self.attempt)
            beat = msgspec.json.encode(Beat(int(self.world.now), "running" if self.working else "waiting"))
            store.put(keys.beat(self.member), beat)
            if not self.working and all(store.head(keys.claim(each)) for each in self.members):
                store.create(keys.formed, msgspec.json.encode(Formed(dict.fromkeys(self.members, ""), "n")))
                self.working = self.world.now
                attempt = self.attempt
                self.world.stepper.after(WORK, lambda: self.done(number, attempt))
        self.world.stepper.after(60.0, lambda: self.look(number))

    @property
    def members(self) -> tuple[str, ...]:
        return self.world.jobs[self.run].members()

    def highest(self) -> int:
        attempts = (
            int(key.split("/")[3]) for key in self.world.objects if key.startswith(f"runs/{self.run}/attempts/")
        )
        return max(attempts, default=0)

    def next_attempt(self, highest: int) -> int:
        """The attempt to claim; 0: wait. One whose members are silent is over."""
        if not highest:
            return 1
        keys = RunKeys(self.run).attempt(highest)
        mine = self.world.store.head(keys.claim(self.member))
        signs = [self.world.store.head(key(each)) for each in self.members for key in (keys.claim, keys.beat)]
        silent = self.world.now - min(
            max((sign.modified for sign in pair if sign is not None), default=self.world.now)
            for pair in zip(signs[::2], signs[1::2], strict=True)
        )
        if silent > STALE:
            return highest + 1
        return 0 if mine is not None else highest

    def done(self, number: int, attempt: int) -> None:
        store = self.world.store
        if self.is_start(number) and self.working and self.attempt == attempt == self.highest():
            self.stop_working()
            if store.head(RunKeys(self.run).result) is None:
                self.leave(Reason.SUCCEEDED, "succeeded")
            if self.leads:
                self.end("Completed")

    def leave(self, reason: Reason, outcome: str) -> None:
        store, run = self.world.store, RunKeys(self.run)
        if not self.attempt or store.head(run.result) is not None:
            return
        store.create(run.attempt(self.attempt).exit(self.member), msgspec.json.encode(Exit(self.member, reason)))
        if self.leads:
            work = work_hash(self.world.jobs[self.run])
            result = Result(outcome, self.attempt, reason, "", self.world.now, self.shown.name, work)
            store.create(run.result, msgspec.json.encode(result))


class Wire(BaseAdapter):
    """The end of the SDK's transport: a request reaches the stand-in of the trial that runs."""

    world: ClassVar[World]

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        world = self.world
        world.request()
        world.sleep(world.dice.uniform(0.05, 0.5))
        content = request.body.encode() if isinstance(request.body, str) else request.body or b""
        method, given = str(request.method), str(request.headers.get("Authorization"))
        answer = respond(world.cloud, world.now, method, str(request.url), given, content)
        world.sleep(world.dice.uniform(0.05, 0.5))
        world.maybe_kill()
        if answer is None:
            raise requests.ConnectionError("connection reset")
        response = requests.Response()
        response.status_code, response.request, response.url = answer.status, request, str(request.url)
        response.headers.update({"Content-Type": "application/json", **answer.headers})
        response.raw = io.BytesIO(b"" if answer.body is None else json.dumps(answer.body).encode())
        return response

    def close(self) -> None:
        pass


class Login:
    def get_token(self, *scopes: str, **options: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken(TOKEN, int(BEGIN * 2))


@cache
def transport() -> Any:
    """The SDK's, over that wire; it waits in virtual time before it repeats a request."""
    from azure.core.pipeline.transport import RequestsTransport

    class StormTransport(RequestsTransport):
        def sleep(self, duration: float) -> None:
            Wire.world.sleep(duration)

    session = requests.Session()
    session.mount("https://", Wire())
    return StormTransport(session=session, session_owner=False)


@cache
def sdk() -> Any:
    """The unmodified client over that wire."""
    from azure.ai.ml import MLClient

    return MLClient(Login(), *PLACE.values(), transport=transport(), retry_total=2, enable_telemetry=False)


@cache
def manager() -> Any:
    return pipeline(Login(), {"retry_total": 2}, transport=transport())


class StormWorkspace(Workspace):
    def _client(self) -> Any:
        return sdk()

    def _manager(self, client: Any) -> Any:
        return manager()


class StormBackend(AzureBackend):
    """A backend of one process. What is rendered never changes, so it is rendered once."""

    rendered: ClassVar[Any] = None

    def __init__(self, world: World) -> None:
        super().__init__({**PLACE, "store": URL, "poll": world.poll})
        self.workspace = self.pool.workspace = StormWorkspace(PLACE)
        self._stores[URL] = world.remote_store()

    def end_unused(self, store: Any, *, plan: bool) -> Iterator[tuple[str, str]]:
        return iter(())  # there are only jobs; test_unused.py kills reapers of the rest

    def render(self, jobs: Any) -> Any:
        if type(self).rendered is None:
            type(self).rendered = super().render(jobs)
        return type(self).rendered


class World:
    """One trial. `poll`: seconds between two looks of a launcher."""

    group: ClassVar[Any] = GROUP
    backend: ClassVar[type[StormBackend]] = StormBackend
    poll: ClassVar[float] = 10.0

    def __init__(self, seed: int, weather: Weather) -> None:
        self.dice, self.weather = random.Random(seed), weather
        self.stepper = Stepper(BEGIN)
        self.cloud = self.new_cloud()
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.store = MemoryStore(URL, lambda: self.now, self.objects)
        self.jobs = {run_id(each): each for each in self.group.runs}
        self.worked: list[tuple[str, str, float, float]] = []  # run, member, from, to
        self.ran: list[tuple[str, float]] = []
        self.ended: dict[str, float] = {}
        self.verdict = Verdict()
        self.stormy = True
        self.accepted = False  # a launcher has told its user that the runs are submitted

    @property
    def now(self) -> float:
        return self.stepper.now

    def new_cloud(self) -> StormCloud:
        return StormCloud(self)

    def sleep(self, seconds: float) -> None:
        self.stepper.sleep(seconds)

    def request(self) -> None:
        self.verdict.requests += 1
        self.maybe_kill()

    def maybe_kill(self) -> None:
        if self.stormy and self.stepper.current is not None and self.dice.random() < self.weather.kill / 2:
            self.verdict.kills += 1
            self.stepper.current.kill()

    def remote_store(self) -> MemoryStore:
        def asked(method: str) -> None:
            self.request()
            self.sleep(self.dice.uniform(0.01, 0.1))
            if self.stormy and self.dice.random() < self.weather.fault / 100:
                raise Unreachable("the store does not answer")

        def answered(method: str) -> None:
            self.maybe_kill()
            if self.stormy and method in ("create", "put") and self.dice.random() < self.weather.fault / 100:
                raise Unreachable("the store does not answer")

        return MemoryStore(URL, lambda: self.now, self.objects, asked, answered)

    # the processes

    def launcher(self, name: str, tries: int) -> None:
        def main() -> None:
            backend = self.backend(self)
            while not once(lambda: submit(self.group, self.remote_store(), backend)):
                self.sleep(self.dice.uniform(30, 300))
                if not self.stormy and name != "user":
                    return
            self.accepted = True

        def watch() -> None:
            if not process.ended:
                self.stepper.after(30.0, watch)
                return
            self.keep(process.error)
            if process.killed and tries > 1 and self.stormy:
                self.stepper.after(self.dice.uniform(1, 600), lambda: self.launcher(name, tries - 1))

        process = self.stepper.start(name, main)
        self.stepper.after(30.0, watch)

    def keep(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Killed):
            self.verdict.faults.append(f"{type(error).__name__}: {error}")

    def reaper(self, number: int) -> None:
        def main() -> None:
            backend = self.backend(self)
            once(lambda: reap(self.remote_store(), lambda job: backend, {"azureml": backend}, cache=NO_CACHE))

        def again() -> None:
            if process.ended:
                self.keep(process.error)
                self.reaper(number)
            else:
                self.stepper.after(60.0, again)

        process = self.stepper.start(f"reaper {number}", main)
        self.stepper.after(EVERY, again)

    def canceller(self) -> None:
        run = self.dice.choice(sorted(self.jobs))
        self.stepper.start(
            "cancel", lambda: void(once(lambda: cancel_all(self.remote_store(), [run], self.backend(self))))
        )

    # the trial

    def go(self) -> Verdict:
        after = self.stepper.after
        for number in range(self.weather.launchers):
            after(self.dice.uniform(0, 60), lambda number=number: self.launcher(f"launcher {number}", 6))  # type: ignore[misc]
        for number in range(self.weather.reapers):
            after(self.dice.uniform(0, EVERY), lambda number=number: self.reaper(number))  # type: ignore[misc]
        if self.weather.cancels:
            after(self.dice.uniform(60, STORM), self.canceller)
        self.stepper.run(BEGIN + STORM)
        self.stormy = False
        if self.weather.returns:
            self.launcher("user", 1)
        self.stepper.run(BEGIN + STORM + 3 * 3600 + 2 * names.lifetime(self.group.runs[0]) + 4 * EVERY)
        self.judge()
        self.stepper.close()
        return self.verdict

    def judge(self) -> None:
        verdict, simulated = self.verdict, self.cloud.simulated
        for number, (run, member, began, ended) in enumerate(self.worked):
            for other in self.worked[:number]:
                verdict.worked_twice += other[:2] == (run, member) and began < other[3] and other[2] < ended
        verdict.jobs = len(self.cloud.ledger_of("created"))
        verdict.worked_twice += verdict.jobs - len({each["name"] for each in self.cloud.ledger_of("created")})
        verdict.left = sum(each.shown.status not in fake.TERMINAL for each in simulated.values())
        last = dict(self.ran)
        limit = names.lifetime(self.group.runs[0]) + self.cloud.settings.cancel + 1.0
        verdict.past_limit = sum(self.ended.get(name, self.now) - began > limit for name, began in last.items())
        for run in self.jobs:
            result = self.store.read(RunKeys(run).result)
            ours = [each for each in simulated.values() if each.run == run]
            verdict.lost += result is None and (run in simulated or self.weather.returns or self.accepted)
            if result is not None:
                outcome = msgspec.json.decode(result[0], type=Result).outcome
                verdict.ended += 1
                verdict.succeeded += outcome == "succeeded"
                cancelled = self.store.head(RunKeys(run).cancel) is not None
                # a launcher that died between two jobs, and nobody who submitted again: the run cannot work
                whole = {each.member for each in ours} == set(self.jobs[run].members())
                well = whole and not cancelled and not any(each.fate for each in ours)
                verdict.wronged += well and outcome != "succeeded"


def once(verb: Callable[[], object]) -> bool:
    """Runs a verb; whether it succeeded. Errors of the launcher are a user's daily bread, others are faults."""
    try:
        verb()
    except SlipwayError:
        return False
    return True


def void(value: object) -> None:
    """For a callback that returns nothing."""


class _NoCache(Cache):
    def __init__(self) -> None:
        super().__init__(Path("/dev/null/none"))


NO_CACHE: Final = _NoCache()


@contextmanager
def in_virtual_time(world: World) -> Iterator[None]:
    """Puts the trial's clock in the place of this machine's, for the modules that a trial runs."""
    changed: list[tuple[object, str, object]] = []

    def put(owner: object, name: str, value: object) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    Wire.world = world
    for name, module in list(sys.modules.items()):
        if name.startswith("launcher."):
            for pool in ("ThreadPoolExecutor", "Threads"):
                if hasattr(module, pool):
                    put(module, pool, InTurn)
            if name in MODULES and hasattr(module, "time"):
                put(module, "time", world.stepper)
    put(AzureBackend, "check", lambda self, jobs: None)  # the stand-in for the store is none that nodes see
    try:
        yield
    finally:
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)


def trial(seed: int, launchers: int, kind: type[World] = World, **changes: Any) -> Verdict:
    world = kind(seed, replace(Weather.of(random.Random(seed), launchers), **changes))
    with in_virtual_time(world):
        return world.go()


def storm(
    trials: int, seed: int, launchers: int, kind: type[World] = World, **changes: Any
) -> tuple[Counter[str], list[tuple[int, Verdict]]]:
    """(sums over the trials, the trials that failed)."""
    sums: Counter[str] = Counter()
    failed = []
    for number in range(seed, seed + trials):
        verdict = trial(number, launchers, kind, **changes)
        if not verdict.good:
            failed.append((number, verdict))
        for name, value in vars(verdict).items():
            sums[name] += len(value) if isinstance(value, list) else value
    return sums, failed


def main(kind: type[World] = World) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--launchers", type=int, nargs="*", default=[1, 3, 8])
    given = parser.parse_args()
    code = 0
    for launchers in given.launchers:
        began = time.monotonic()
        sums, failed = storm(given.trials // len(given.launchers), given.seed, launchers, kind)
        print(f"{launchers} launchers, {time.monotonic() - began:.0f} s:", dict(sums), flush=True)
        for seed, verdict in failed[:10]:
            code = 1
            print(f"  seed {seed}: {verdict}")
    return code


if __name__ == "__main__":
    sys.exit(main())
