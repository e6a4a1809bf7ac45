"""The storm of launchers (storm.py) for runs on a pool, in virtual time:

    python -m tests.integration.azureml.pool_storm --trials 1000 --seed 1

A run of one rank and one of three, each rank on a compute instance of its own. Launchers, reapers and a `cancel` are
killed between any two requests; answers are lost before and after they took effect; Azure has no quota for a while, or
cannot make an instance that it has accepted; its lists lag. Azure stops what is idle, as it was told when it was made.

The stand-in judges beside the jobs: never more instances than ranks, none left in the end, none billed for longer than
the budget of its run pays for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from launcher.backends.azureml import names
from launcher.backends.azureml.backend import AzureBackend
from launcher.spec.model import Image, Limits, ResolvedJob, Role, Timing
from launcher.verbs.cancel import cancel_all
from tests.integration.azureml.storm import (
    DEADLINE,
    EVERY,
    PLACE,
    STALE,
    STORM,
    URL,
    StormBackend,
    StormCloud,
    Verdict,
    World,
    main,
    once,
)
from tests.support.jobs import group, job

TICK: Final = 30.0  # seconds between two looks of Azure at its instances
LAG: Final = 90.0  # seconds until a list shows an instance
_IMAGE: Final = Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}")


def _pooled(name: str, ranks: int) -> ResolvedJob:
    return job(
        name,
        store=URL,
        backend="azureml",
        options={**PLACE, "pool": {"size": "Standard_D8_v3", "instances": ranks}, "identity": {"kind": "user"}},
        roles={"agent": Role(("x",), _IMAGE, leader=True, replicas=ranks)},
        limits=Limits(deadline=DEADLINE, grace=30.0),
        timing=Timing(beat=60.0, stale=STALE, fence=400.0),
    )


RUNS: Final = (_pooled("single", 1), _pooled("three", 3))


class PoolCloud(StormCloud):
    """Its lists show an instance late."""

    def all_computes(self) -> dict[str, Any]:
        answer = super().all_computes()
        young = {name for name, each in self.made.there.items() if self.world.now - each.created < LAG}
        return {"value": [each for each in answer["value"] if each["name"] not in young]}


class PoolBackend(StormBackend):
    rendered: ClassVar[Any] = None

    def end_unused(self, store: Any, *, plan: bool) -> Iterator[tuple[str, str]]:
        return AzureBackend.end_unused(self, store, plan=plan)


@dataclass
class PoolVerdict(Verdict):
    """`too_many`, `instances_left`, `too_long`: a trial failed if any is not 0."""

    too_many: int = 0
    instances_left: int = 0
    too_long: int = 0
    made: int = 0
    started: int = 0
    hours: float = 0.0

    @property
    def good(self) -> bool:
        return super().good and not (self.too_many or self.instances_left or self.too_long)


class PoolWorld(World):
    group: ClassVar[Any] = group(*RUNS)
    backend: ClassVar[type[StormBackend]] = PoolBackend
    poll: ClassVar[float] = 60.0

    def new_cloud(self) -> StormCloud:
        cloud = PoolCloud(self)
        cloud.made.quota = self.dice.choice((2, 1000, 1000))
        cloud.made.failing = self.dice.choice((0, 0, 0, 1))
        cloud.made.making = self.dice.uniform(120.0, 900.0)
        return cloud

    def go(self) -> Verdict:
        self.verdict = PoolVerdict()
        self.stepper.after(TICK, self.tick)
        self.stepper.after(self.dice.uniform(600, 5400), self.grant)
        self.stepper.after(STORM + 7200.0, self.obey)
        return super().go()

    def grant(self) -> None:
        self.cloud.made.quota = 1000

    def obey(self) -> None:
        """A user cancels the runs of which Azure could not make an instance, as `submit` has said."""
        spoiled = [each for each in self.cloud.made.there.values() if each.state == "CreateFailed"]
        for run in sorted({each.body["tags"][names.TAG] for each in spoiled}):
            act = partial(cancel_all, self.remote_store(), [run], self.backend(self))
            self.stepper.start(f"user cancels {run}", partial(tried, act))

    def tick(self) -> None:
        self.cloud.made.advance(self.now)
        for lost in self.cloud.lost_jobs():
            self.cloud.simulated[lost.name].end("Failed")
        self.stepper.after(TICK, self.tick)

    def judge(self) -> None:
        super().judge()
        verdict, made = self.verdict, self.cloud.made
        assert isinstance(verdict, PoolVerdict)
        ours = {
            names.instance_name(names.workspace_of(PLACE), run, member): self.jobs[run]
            for run in self.jobs
            for member in self.jobs[run].members()
        }
        entries = self.cloud.ledger_of("made")
        starts = [each["name"] for each in self.cloud.ledger_of("instance") if each["state"] == "Starting"]
        verdict.made, verdict.started = len(entries), len(starts)
        verdict.too_many = max(made.most - len(ours), 0) + sum(each["name"] not in ours for each in entries)
        verdict.instances_left = len(made.there)
        for name, one in ours.items():
            seconds = made.seconds(name, self.now)
            verdict.hours += seconds / 3600
            # a budget pays for one submit that was interrupted; each further one may leave it idle once more
            again = max(starts.count(name) + sum(each["name"] == name for each in entries) - 1, 0)
            # until a reaper has come, and Azure has stopped or deleted it
            late = 3 * EVERY + 2 * made.changing
            verdict.too_long += seconds > names.pool_seconds(one) + again * names.idle({}) + late


def tried(act: Callable[[], object]) -> None:
    once(act)


if __name__ == "__main__":
    sys.exit(main(PoolWorld))
