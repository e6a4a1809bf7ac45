"""Runs on a store behind a network that drops, doubles, cuts and delivers late, killed at random moments.

    python -m tests.integration.store_storm --trials 300 --seed 1

A trial is one run on the real S3 server behind the fault proxy; several share a machine (a supervisor) and the proxy.
kill -9 hits submitters, supervisors, runtimes and everything at once. The faults go on until every run has its result;
then what is late still comes, and the judge (tests/integration/store_judge.py) looks. Readers gather runs meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from launcher.backends.base import backend
from launcher.errors import SlipwayError
from launcher.runtime.process import procs
from launcher.spec.hashing import decode_job, encode_job, run_id
from launcher.spec.model import Limits, Output, ResolvedJob, Timing
from launcher.store import Store, open_store
from launcher.store.layout import RunKeys
from launcher.verbs.submit import submit
from tests.integration.local.machine import Machine, machine
from tests.integration.store_judge import COMMAND, EVERY, STEPS, Problem, Told, glance, judge
from tests.support.faultproxy import DELAYS, FaultProxy, Kind
from tests.support.jobs import group
from tests.support.s3 import ENVIRONMENT, S3Server, running

TOGETHER = 10  # runs on one machine
SHOTS = 2  # per trial
BEAT = 0.3  # seconds
PATIENCE = 240.0  # seconds until a run that has no result counts as lost
RATES: Mapping[Kind, float] = {
    Kind.LATE: 0.05,
    Kind.DOUBLE: 0.03,
    Kind.DROP_BEFORE: 0.01,
    Kind.DROP_AFTER: 0.02,
    Kind.ERROR_500: 0.01,
    Kind.ERROR_500_AFTER: 0.01,
    Kind.SLOW_DOWN: 0.01,
    Kind.TRUNCATE: 0.01,
    Kind.CUT_BODY: 0.02,
    Kind.SLOW: 0.02,
    Kind.LAG: 0.1,
}
OUTPUTS = {
    "model": Output(),
    "live": Output(sync="live"),
    "ckpt": Output(kind="checkpoints", match="checkpoint-*", done="done"),
}


@dataclass
class Tally:
    """What happened in the trials so far. `wrong`: the runs of which something was not as promised, by seed."""

    trials: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    looks: int = 0  # of readers, while the runs went on
    commands: int = 0
    problems: list[tuple[str, Problem]] = field(default_factory=list)

    def runs(self, *kinds: str) -> int:
        """How many runs have a problem of these kinds."""
        return len({(seed, problem.run) for seed, problem in self.problems if problem.kind in kinds})

    def table(self) -> str:
        rows = [
            ("trials", self.trials),
            *((f"killed: {what}", count) for what, count in sorted(self.kills.items())),
            ("commands started", self.commands),
            ("requests", self.requests),
            ("readers in the middle", self.looks),
            *((f"fault: {what}", count) for what, count in sorted(self.faults.items())),
            ("runs with a key of two bodies", self.runs("doubled")),
            ("runs damaged", self.runs("damaged")),
            ("runs lost", self.runs("lost")),
            ("runs with two commands", self.runs("two commands")),
        ]
        return "\n".join(f"{name:32} {count:8}" for name, count in rows)

    def explain(self) -> str:
        return "\n".join(f"seed {seed}: {problem}" for seed, problem in self.problems)


def storm(
    server: S3Server,
    trials: int,
    seed: int,
    folder: Path,
    *,
    rates: Mapping[Kind, float] = RATES,
    shots: int = SHOTS,
) -> Tally:
    """Runs the trials, `TOGETHER` at a time; batch b has the seed `seed:b`. What a failed one leaves is in `folder`."""
    tally = Tally()
    for batch in range(-(-trials // TOGETHER)):
        count = min(TOGETHER, trials - batch * TOGETHER)
        path = folder / f"batch-{batch}"
        path.mkdir(parents=True)
        found = _batch(server, path, count, f"{seed}:{batch}", tally, rates, shots)
        tally.trials += count
        tally.problems += [(f"{seed}:{batch}", problem) for problem in found]
        if not found:
            shutil.rmtree(path)
    return tally


def again(server: S3Server, name: str, count: int, folder: Path, rates: Mapping[Kind, float]) -> Tally:
    """One batch once more, by the seed that a failure prints."""
    tally = Tally(trials=count)
    folder.mkdir(parents=True, exist_ok=True)
    tally.problems = [(name, problem) for problem in _batch(server, folder, count, name, tally, rates, SHOTS)]
    return tally


def _batch(
    server: S3Server, path: Path, count: int, seed: str, tally: Tally, rates: Mapping[Kind, float], shots: int
) -> list[Problem]:
    dice = random.Random(seed)
    bucket = server.bucket()
    quiet = open_store(server.url(bucket))
    with FaultProxy(server.port, seed=dice.randrange(1 << 32)) as proxy, _credentials():
        with machine(path, store=server.url(bucket, endpoint=proxy.endpoint), cpus=4) as here:
            # one in each batch is large enough to be sent in parts
            jobs = [_job(here, f"storm{number}", 500 if number else 300_000) for number in range(count)]
            with proxy.storm(rates), _Submitters(here, jobs) as submitters:
                submitters.start_and_kill(dice.uniform(0.0, 2.0))
                hit, seen = 0, list[Problem]()
                while hit < shots * count and not _ended(quiet, jobs):
                    hit += _shoot(here, quiet, submitters, dice, tally)
                    seen += _look(quiet, dice.choice(jobs), path, tally)
                    time.sleep(dice.uniform(0.0, 0.7))
                submitters.insist()
                missing = _wait(here, quiet, jobs)
            proxy.settle()
        tally.requests += len(proxy.seen)
        tally.faults.update(kind.value for _, kind in proxy.seen if kind)
        found = seen + [Problem("lost", run, "no result, or it is still in the queue") for run in missing]
        lag = DELAYS[Kind.LAG][1] if rates.get(Kind.LAG) else 0.0
        for job in jobs:
            run = run_id(job)
            told = Told.read(path / f"{run}.told")
            tally.commands += len(told.of("start"))
            found += judge(run, quiet, f"{bucket}/store", proxy.ledger, told, lag, path / "gathered")
        elsewhere = proxy.ledger.two_bodies(without=f"{bucket}/store/runs/")
        found += [Problem("doubled", "store", line.removeprefix(f"{bucket}/store/")) for line in elsewhere]
        if found:
            proxy.ledger.write(path / "requests.jsonl")
        return found


def _job(here: Machine, name: str, size: int) -> ResolvedJob:
    """`size` of its final output, in units of 32 bytes."""
    return here.job(
        name,
        COMMAND,
        outputs=OUTPUTS,
        role={"env": {"STEPS": str(STEPS), "EVERY": str(EVERY), "SIZE": str(size)}},
        limits=Limits(grace=0.5, retries=60),
        timing=Timing(beat=BEAT, stale=90.0, fence=60.0),
    )


@contextmanager
def _credentials() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _submit(bodies: Sequence[bytes], store: str, options: Mapping[str, object], environ: Mapping[str, str]) -> None:
    """A submitter, in a process of its own."""
    os.environ.update(environ)
    null = os.open(os.devnull, os.O_RDWR)
    for target in (1, 2):
        os.dup2(null, target)
    submit(group(*map(decode_job, bodies)), open_store(store), backend("local", dict(options)))


class _Submitters:
    """Submitters of these jobs, forked from a process without threads: one that has talked to S3 has some."""

    def __init__(self, here: Machine, jobs: Sequence[ResolvedJob]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["launcher.backends.local.backend", "obstore", __spec__.name])
        environ = {name: os.environ[name] for name in (*ENVIRONMENT, "SLIPWAY_TUNING")}
        self._arguments = ([encode_job(job) for job in jobs], here.store.url, here.backend.options, environ)
        self._all: list[ForkServerProcess] = []

    def __enter__(self) -> _Submitters:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
            process.join()

    def start(self) -> ForkServerProcess:
        process = self._context.Process(target=_submit, args=self._arguments)
        process.start()
        self._all.append(process)
        return process

    def start_and_kill(self, after: float) -> None:
        """Killed after `after` seconds, wherever it then is."""
        process = self.start()
        process.join(after)
        process.kill()
        process.join()

    def insist(self) -> None:
        """Submits until a submit has succeeded, as a user would in the end."""
        for _ in range(20):
            process = self.start()
            process.join(PATIENCE)
            if process.exitcode == 0:
                return
        raise SlipwayError("20 submits failed")


def _shoot(here: Machine, quiet: Store, submitters: _Submitters, dice: random.Random, tally: Tally) -> bool:
    """Whether something was hit."""
    what = dice.choices(["submitter", "supervisor", "runtime", "everything"], [14, 14, 68, 4])[0]
    if what == "submitter":
        submitters.start_and_kill(dice.uniform(0.0, 1.0))
    elif what == "supervisor":
        if not here.kill_supervisor():
            return False
        submitters.start()  # somebody comes, and with that the next supervisor
    elif what == "everything":
        if here.killable(quiet, BEAT).keys() != here.runtimes().keys():
            return False
        here.power_cut()
        submitters.start()
    else:
        living = here.killable(quiet, BEAT)
        if not living:
            return False
        record = living[dice.choice(sorted(living))]
        if not procs.send(procs.Process(record.pid, record.start), signal.SIGKILL):
            return False
    tally.kills[what] += 1
    return True


def _look(quiet: Store, job: ResolvedJob, path: Path, tally: Tally) -> list[Problem]:
    """A reader in the middle of it all."""
    run = run_id(job)
    if quiet.head(RunKeys(run).job) is None:
        return []
    tally.looks += 1
    return glance(run, quiet, path / f"{run}.told", path / f"seen-{tally.looks}")


def _ended(quiet: Store, jobs: Sequence[ResolvedJob]) -> bool:
    return all(quiet.head(RunKeys(run_id(job)).result) for job in jobs)


def _wait(here: Machine, quiet: Store, jobs: Sequence[ResolvedJob]) -> list[str]:
    """Waits for the ends; gives the runs that have none in time."""
    until = time.monotonic() + PATIENCE
    while True:
        queued = set(here.state.queued())
        left = [run_id(job) for job in jobs if run_id(job) in queued]
        left += [run for run in map(run_id, jobs) if not quiet.head(RunKeys(run).result)]
        if not left or time.monotonic() > until:
            return sorted(set(left))
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", default=None, help="a number; default: a random one. N:B repeats batch B of seed N")
    parser.add_argument(
        "--rate", action="append", default=[], metavar="FAULT=RATE", help=f"of {', '.join(RATES)}; of all requests"
    )
    parser.add_argument("--keep", type=Path, help="folder for what a failed trial leaves; default: a temporary one")
    args = parser.parse_args()
    given = (item.partition("=") for item in args.rate)
    rates = {**RATES, **{Kind(kind): float(rate) for kind, _, rate in given}}
    seed = args.seed or str(random.SystemRandom().randrange(1 << 32))
    folder = args.keep or Path(tempfile.mkdtemp(prefix="slipway-storm-"))
    began = time.monotonic()
    with running() as server:
        if ":" in seed:
            tally = again(server, seed, min(args.trials, TOGETHER), folder, rates)
        else:
            tally = storm(server, args.trials, int(seed), folder, rates=rates)
    print(tally.table())
    if tally.problems:
        print(f"{tally.explain()}\nwhat is left of the failed ones: {folder}", file=sys.stderr)
    print(f"seed {seed}, {time.monotonic() - began:.0f} s")
    return bool(tally.problems)


if __name__ == "__main__":
    from tests.integration import store_storm  # the submitters know it by that name

    __spec__ = None  # type: ignore[assignment]  # and need not run this file a second time

    sys.exit(store_storm.main())
