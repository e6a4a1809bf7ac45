"""A storm of launchers on Lambda Cloud, in virtual time:

    python -m tests.unit.lambda_labs.storm --trials 2000 --seed 1

In a trial 1, 3 or 8 launchers submit the same two runs, one of one machine and one of two, with the real verbs. Between
any two requests to Lambda or to the store a launcher, a reaper or a `cancel` may be killed for good. Answers are lost
before and after a request took effect, requests arrive late, lists and audit events lag, capacity and quota run out.
Machines fail while they are set up, in the middle of their work, or say nothing. The judge is the ledger of the
stand-in for Lambda Cloud, which also knows which machine worked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from launcher.backends.lambda_labs import access, names
from launcher.backends.lambda_labs.api import EffectUnknown, LambdaApi, _Pace
from launcher.backends.lambda_labs.backend import LambdaBackend
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
from tests.fakes.lambda_cloud.cloud import TYPES, Cloud, Instance, Settings
from tests.fakes.lambda_cloud.server import respond
from tests.support.jobs import group, job
from tests.support.memory_store import MemoryStore
from tests.support.stepping import InTurn, Killed, Stepper

BEGIN: Final = 1_800_000_000.0  # seconds since the epoch
STORM: Final = 2 * 3600.0  # seconds of faults and kills
EVERY: Final = 300.0  # seconds between two runs of a reaper
DEADLINE: Final = 3600.0
WORK: Final = 1200.0  # seconds of work of a run
KEY: Final = "secret_storm"
# a folder's times are a machine's, which anybody may set, so they prove less than a bucket's
URLS: Final = ("file:///lambda/nfs/data/store", "s3://bucket/store")
# how long after `slipway:expires` a machine may live: reap waits 10 min, runs every 5, asks again after 15 looks
LATE: Final = 600.0 + 2 * EVERY + 300.0
MODULES: Final = (
    "launcher.backends.lambda_labs.api",
    "launcher.backends.lambda_labs.backend",
    "launcher.backends.lambda_labs.ending",
    "launcher.backends.lambda_labs.launching",
    "launcher.backends.lambda_labs.accounts",
    "launcher.backends.lambda_labs.records",
    "launcher.protocol.finish",
    "launcher.verbs.cancel",
    "launcher.verbs.leftovers",
    "launcher.verbs.open_run",
    "launcher.verbs.reap",
    "launcher.deleting.guard",
)


def _job(url: str, name: str, replicas: int) -> ResolvedJob:
    image = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")
    return job(
        name,
        store=url,
        backend="lambda",
        options={
            "instance_types": ["gpu_1x_a10", "gpu_1x_h100_pcie"],
            "ssh_key": "laptop",
            "file_systems": ["data"],
            "wait_for_capacity": 1800.0,
        },
        roles={"main": Role(("python", "-c", "pass"), image=image, leader=True, replicas=replicas)},
        limits=Limits(deadline=DEADLINE, grace=30.0),
        timing=Timing(beat=60.0, stale=600.0, fence=400.0),
    )


GROUPS: Final = {url: group(_job(url, "one", 1), _job(url, "two", 2)) for url in URLS}


@dataclass(frozen=True)
class Weather:
    """What a trial does to its processes."""

    launchers: int
    kill: float  # the chance at each request
    fault: float
    list_lag: float
    audit_lag: float
    capacity: int  # machines of each type and region
    quota: int
    cancels: bool
    returns: bool  # the user submits once more after the storm
    sick: float  # the share of machines that fail
    reapers: int

    @classmethod
    def of(cls, dice: random.Random, launchers: int) -> Weather:
        return cls(
            launchers=launchers,
            kill=dice.choice((0.0, 0.01, 0.03, 0.08)),
            fault=dice.choice((0.0, 0.05, 0.2)),
            list_lag=dice.choice((0.0, 5.0, 15.0, 60.0, 400.0)),
            audit_lag=dice.choice((0.0, 10.0, 120.0)),
            capacity=dice.choice((1000, 1000, 2, 1, 0)),
            quota=dice.choice((1000, 1000, 2)),
            cancels=dice.random() < 0.15,
            returns=dice.random() < 0.75,
            sick=dice.choice((0.0, 0.0, 0.2)),
            reapers=dice.choice((1, 2, 3)),
        )


@dataclass
class Verdict:
    """What the ledger says. A trial failed if any of the first five is not 0."""

    worked_twice: int = 0
    past_deadline: int = 0
    lost: int = 0
    left: int = 0  # machines that live at the end
    faults: list[str] = field(default_factory=list)  # errors that are none of the launcher's own
    machines: int = 0
    doubled: int = 0  # machines beyond one for a member that lived at the same time
    doubled_for: float = 0.0  # seconds of the longest-lived of them, from the start of the work of the other
    kills: int = 0
    requests: int = 0
    succeeded: int = 0
    ended: int = 0

    @property
    def good(self) -> bool:
        return not (self.worked_twice or self.past_deadline or self.lost or self.left or self.faults)


class StormCloud(Cloud):
    """The account, whose machines are simulated here."""

    def __init__(self, world: World) -> None:
        super().__init__(KEY, Settings())
        self.world, self.epoch = world, 0.0

    def fault(self, call: str) -> str:
        world = self.world
        if not world.stormy or world.dice.random() >= world.weather.fault:
            return ""
        return world.dice.choice(("drop_before", "drop_after", "500", "unknown", "unknown_after", "429"))

    def launch(self, body: dict[str, Any], now: float) -> str:
        instance_id = super().launch(body, now)
        instance = self.instances[instance_id]
        instance.boot = self.world.dice.uniform(150, 1500)
        SimulatedMachine(self.world, instance).begin()
        return instance_id


class SimulatedMachine:
    """What the user data and the runtime of an instance do, as far as it matters for launching and reaping."""

    def __init__(self, world: World, instance: Instance) -> None:
        self.world, self.instance = world, instance
        self.run, self.member = instance.tag(names.RUN), instance.tag(names.MEMBER)
        self.keys = RunKeys(self.run).attempt(1)
        sick = world.dice.random() < world.weather.sick
        self.fate = world.dice.choice(("setup", "mute", "dies", "boot")) if sick else ""
        self.claimed = self.working = False
        self.seq = 0

    def begin(self) -> None:
        self.instance.failing = self.fate == "boot"
        if self.fate not in ("boot", "mute"):
            self.world.stepper.after(self.instance.boot, self.started)
        lifetime = int(self.instance.tag(names.EXPIRES)) - int(self.instance.tag(names.LAUNCHED))
        self.world.stepper.after(lifetime, self.power_off)

    @property
    def on(self) -> bool:
        return self.instance.terminating is None and not self.instance.off

    def power_off(self) -> None:
        self.instance.off = True

    def started(self) -> None:
        if self.fate == "setup":  # docker could not be installed: it powers off, and is billed
            self.power_off()
        elif self.on:
            self.look()

    def look(self) -> None:
        """The runtime's loop: claim, wait for the others, work, end."""
        if not self.on:
            return
        store, run = self.world.store, RunKeys(self.run)
        if store.head(run.result) is not None or (store.head(run.cancel) is not None and not self.claimed):
            self.finish_cancelled()
            return
        if not self.claimed:
            self.claimed = self.claim()
        if self.claimed:
            self.beat()
            if store.head(run.cancel) is not None:
                self.finish_cancelled()
                return
            if not self.working and all(store.head(self.keys.claim(each)) for each in self.members):
                self.working = True
                store.create(self.keys.formed, msgspec.json.encode(Formed(dict.fromkeys(self.members, ""), "n")))
                self.world.worked.append((self.run, self.member, self.instance.id, self.world.now))
                self.world.stepper.after(WORK, self.done)
                if self.fate == "dies":
                    self.world.stepper.after(self.world.dice.uniform(0, WORK), self.power_off)
        self.world.stepper.after(60.0, self.look)

    def claim(self) -> bool:
        number = self.instance.tag(names.LAUNCH)
        placement = Placement(names.KIND, f"default/{self.run}", host="10.0.0.1", boot="b", container=number)
        record = Claim(placement, self.instance.id, self.world.now)
        return self.world.store.create(self.keys.claim(self.member), msgspec.json.encode(record))

    @property
    def members(self) -> tuple[str, ...]:
        return self.world.jobs[self.run].members()

    def beat(self) -> None:
        self.seq += 1
        body = msgspec.json.encode(Beat(self.seq, "running" if self.working else "waiting"))
        self.world.store.put(self.keys.beat(self.member), body)

    def done(self) -> None:
        if self.on and self.world.store.head(RunKeys(self.run).result) is None:
            self.leave(Reason.SUCCEEDED, "succeeded")
        self.power_off()

    def finish_cancelled(self) -> None:
        if self.claimed and self.world.store.head(RunKeys(self.run).result) is None:
            self.leave(Reason.CANCELLED, "cancelled")
        self.power_off()

    def leave(self, reason: Reason, outcome: str) -> None:
        store = self.world.store
        store.create(self.keys.exit(self.member), msgspec.json.encode(Exit(self.member, reason)))
        if self.member == self.members[0]:
            work = work_hash(self.world.jobs[self.run])
            result = Result(outcome, 1, reason, "", self.world.now, self.instance.id, work)
            store.create(RunKeys(self.run).result, msgspec.json.encode(result))


class StormApi(LambdaApi):
    """The real client over a wire without sockets."""

    def __init__(self, world: World) -> None:
        super().__init__("http://storm")
        self._pace = _Pace(1.0)  # a process of its own
        self.world = world

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        world, content = self.world, json.dumps(body).encode() if body is not None else b""
        world.request()

        def arrive() -> tuple[int, Any] | None:
            return respond(world.cloud, world.now, method, path, f"Bearer {KEY}", content)

        if world.stormy and world.dice.random() < world.weather.fault / 10:  # it is still on its way
            world.stepper.after(world.dice.uniform(0, 29), lambda: world.late(arrive))
            world.sleep(30.0 if world.dice.random() < 0.5 else 1.0)
            raise EffectUnknown("timed out")
        world.sleep(world.dice.uniform(0.05, 0.5))
        answer = arrive()
        world.sleep(world.dice.uniform(0.05, 0.5))
        world.maybe_kill()
        if answer is None:
            raise EffectUnknown("connection reset")
        status, value = answer
        text = json.dumps(value).encode()
        if status >= 400:
            raise self._fault(status, text, "application/json")
        return text


class StormBackend(LambdaBackend):
    """A backend of one process. What is rendered never changes, so it is rendered once."""

    rendered: ClassVar[dict[str, Any]] = {}

    def __init__(self, world: World) -> None:
        super().__init__({**world.group.runs[0].options, "store": world.url})
        self._api = StormApi(world)
        self._stores[world.url] = world.remote_store()

    def render(self, jobs: Any) -> Any:
        url = jobs[0].store
        if url not in self.rendered:
            self.rendered[url] = super().render(jobs)
        return self.rendered[url]


class World:
    """One trial."""

    def __init__(self, seed: int, weather: Weather) -> None:
        self.dice, self.weather = random.Random(seed), weather
        self.stepper = Stepper(BEGIN)
        self.url = self.dice.choice(URLS)
        self.group = GROUPS[self.url]
        self.cloud = StormCloud(self)
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.store = MemoryStore(self.url, lambda: self.now, self.objects)
        self.jobs = {run_id(each): each for each in self.group.runs}
        self.worked: list[tuple[str, str, str, float]] = []
        self.verdict = Verdict()
        self.stormy = True

    @property
    def now(self) -> float:
        return self.stepper.now

    def sleep(self, seconds: float) -> None:
        self.stepper.sleep(seconds)

    def request(self) -> None:
        self.verdict.requests += 1
        self.maybe_kill()

    def maybe_kill(self) -> None:
        if self.stormy and self.stepper.current is not None and self.dice.random() < self.weather.kill / 2:
            self.verdict.kills += 1
            self.stepper.current.kill()

    def late(self, arrive: Callable[[], object]) -> None:
        if self.stormy:
            arrive()

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

        return MemoryStore(self.url, lambda: self.now, self.objects, asked, answered)

    # the processes

    def once(self, verb: Callable[[], object]) -> bool:
        """Runs a verb; whether it succeeded. Errors of the launcher are a user's daily bread, others are faults."""
        try:
            verb()
        except SlipwayError:
            return False
        return True

    def launcher(self, name: str, tries: int) -> None:
        def main() -> None:
            backend = StormBackend(self)
            while not self.once(lambda: submit(self.group, self.remote_store(), backend)):
                self.sleep(self.dice.uniform(30, 300))
                if not self.stormy and name != "user":
                    return

        def watch() -> None:
            if process.ended:
                self.keep(process.error)
                if process.killed and tries > 1 and self.stormy:
                    self.stepper.after(self.dice.uniform(1, 600), lambda: self.launcher(name, tries - 1))
                return
            self.stepper.after(30.0, watch)

        process = self.stepper.start(name, main)
        self.stepper.after(30.0, watch)

    def keep(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Killed):
            self.verdict.faults.append(f"{type(error).__name__}: {error}")

    def reaper(self, number: int) -> None:
        def main() -> None:
            backend = StormBackend(self)
            self.once(lambda: reap(self.remote_store(), lambda job: backend, {"lambda": backend}, cache=NO_CACHE))

        process = self.stepper.start(f"reaper {number}", main)

        def again() -> None:
            if process.ended:
                self.keep(process.error)
                self.reaper(number)
            else:
                self.stepper.after(30.0, again)

        self.stepper.after(EVERY, again)

    def canceller(self) -> None:
        run = self.dice.choice(sorted(self.jobs))

        def main() -> None:
            self.once(lambda: cancel_all(self.remote_store(), [run], StormBackend(self)))

        self.stepper.start("cancel", main)

    # the trial

    def go(self) -> Verdict:
        weather, settings = self.weather, self.cloud.settings
        settings.list_lag, settings.audit_lag, settings.quota = weather.list_lag, weather.audit_lag, weather.quota
        settings.capacity = {name: dict.fromkeys(("us-east-1", "us-west-1"), weather.capacity) for name in TYPES}
        for number in range(weather.launchers):
            delay = self.dice.uniform(0, 60)
            self.stepper.after(delay, lambda number=number: self.launcher(f"launcher {number}", 6))  # type: ignore[misc]
        for number in range(weather.reapers):
            self.stepper.after(self.dice.uniform(0, EVERY), lambda number=number: self.reaper(number))  # type: ignore[misc]
        if weather.cancels:
            self.stepper.after(self.dice.uniform(60, STORM), self.canceller)
        self.stepper.run(BEGIN + STORM)
        self.stormy = False
        settings.list_lag = settings.audit_lag = 0.0
        settings.quota = 1000
        settings.capacity = {name: dict.fromkeys(("us-east-1", "us-west-1"), 1000) for name in TYPES}
        if weather.returns:
            self.launcher("user", 1)
        self.stepper.run(BEGIN + 2 * STORM + 3 * names.MARGIN + DEADLINE + LATE)
        self.judge()
        self.stepper.close()
        return self.verdict

    def judge(self) -> None:
        verdict = self.verdict
        workers: dict[tuple[str, str], set[str]] = {}
        for run, member, instance, _ in self.worked:
            workers.setdefault((run, member), set()).add(instance)
        verdict.worked_twice = sum(len(each) - 1 for each in workers.values())
        first = {(run, member): at for run, member, _, at in reversed(self.worked)}
        living: dict[tuple[str, str], list[Instance]] = {}
        for each in self.cloud.instances.values():
            verdict.machines += 1
            end = each.terminating or self.now
            verdict.left += each.terminating is None
            verdict.past_deadline += end > int(each.tag(names.EXPIRES)) + LATE
            member = (each.tag(names.RUN), each.tag(names.MEMBER))
            living.setdefault(member, []).append(each)
            others = workers.get(member, set())
            if member in first and each.id not in others:
                verdict.doubled_for = max(verdict.doubled_for, end - max(first[member], each.launched))
        for machines in living.values():
            for each in machines:
                before = [other for other in machines if other.number < each.number]
                verdict.doubled += any((other.terminating or self.now) > each.launched for other in before)
        for run in self.jobs:
            result = self.store.read(RunKeys(run).result)
            launched = any(key[0] == run for key in living)
            if result is not None:
                verdict.ended += 1
                verdict.succeeded += msgspec.json.decode(result[0], type=Result).outcome == "succeeded"
            verdict.lost += result is None and (launched or self.weather.returns)


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

    for name, module in list(sys.modules.items()):
        if name.startswith("launcher."):
            for pool in ("ThreadPoolExecutor", "Threads"):
                if hasattr(module, pool):
                    put(module, pool, InTurn)
            if name in MODULES and hasattr(module, "time"):
                put(module, "time", world.stepper)
            if name in MODULES and hasattr(module, "boottime"):
                put(module, "boottime", world.stepper.monotonic)
    put(os, "environ", {**os.environ, "LAMBDA_API_KEY": KEY})
    put(access, "check", lambda jobs, folders: None)  # the credentials of the store are not tried here
    put(access, "access", lambda job: {})
    put(access, "_signed", lambda action, job, key, given: f"https://bucket.example.com/{key}?signed")
    try:
        yield
    finally:
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)


def trial(seed: int, launchers: int, **changes: Any) -> Verdict:
    weather = Weather.of(random.Random(seed), launchers)
    world = World(seed, replace(weather, **changes))
    with in_virtual_time(world):
        return world.go()


def storm(trials: int, seed: int, launchers: int, **changes: Any) -> tuple[Counter[str], list[tuple[int, Verdict]]]:
    """(sums over the trials, the trials that failed)."""
    sums: Counter[str] = Counter()
    failed = []
    for number in range(seed, seed + trials):
        verdict = trial(number, launchers, **changes)
        if not verdict.good:
            failed.append((number, verdict))
        for name in ("worked_twice", "past_deadline", "lost", "left", "machines", "doubled", "kills", "requests"):
            sums[name] += getattr(verdict, name)
        sums["ended"] += verdict.ended
        sums["succeeded"] += verdict.succeeded
        sums["faults"] += len(verdict.faults)
        sums["longest duplicate, s"] = max(sums["longest duplicate, s"], round(verdict.doubled_for))
    return sums, failed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--launchers", type=int, nargs="*", default=[1, 3, 8])
    given = parser.parse_args()
    code = 0
    for launchers in given.launchers:
        began = time.monotonic()
        sums, failed = storm(given.trials // len(given.launchers), given.seed, launchers)
        print(f"{launchers} launchers, {time.monotonic() - began:.0f} s:", dict(sums), flush=True)
        for seed, verdict in failed[:10]:
            code = 1
            print(f"  seed {seed}: {replace(verdict, faults=sorted(set(verdict.faults))[:3])}")
    return code


if __name__ == "__main__":
    sys.exit(main())
