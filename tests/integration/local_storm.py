"""kill -9 at random moments: of the submitter, the supervisor, the runtimes, and of everything at once.

    python -m tests.integration.local_storm --trials 300 --seed 1

A trial is one run under fire. Several share a machine (a supervisor), as they would. Each counts steps into a file and
writes checkpoints; afterwards the same submit is done once more, in peace, and then:

- there is exactly one result and it says `succeeded`, from an attempt that did the whole work;
- no two commands of the run were ever alive together (each holds a file lock while it lives);
- every command began at the newest checkpoint that was complete when it began: no step before that was done again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from launcher.backends.base import backend
from launcher.runtime.process import procs
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, Output, ResolvedJob, Timing
from launcher.store import open_store
from launcher.store.layout import RunKeys, work_run
from launcher.verbs.submit import submit
from tests.integration.local.machine import Machine, machine
from tests.integration.runtime.rig import command_of
from tests.support.jobs import group

STEPS = 30
TOGETHER = 10  # runs on one machine
SHOTS = 2  # per trial
BEAT = 0.2  # seconds

SCRIPT = """
import fcntl
me = E["SLIPWAY_RUN"]
lock = open(here / (me + ".lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say(me + ".overlap", "attempt", E["SLIPWAY_ATTEMPT"])
resume = E.get("SLIPWAY_RESUME")
last = int((pathlib.Path(resume) / "at").read_text()) if resume else 0
complete = (here / "store/runs" / me / "attempts").glob("*/checkpoints/*/complete.json")
newest = max((int(path.parent.name) for path in complete), default=0)
say(me + ".starts", E["SLIPWAY_ATTEMPT"], last, newest)
for step in range(last + 1, int(E["STEPS"]) + 1):
    time.sleep(0.08)
    say(me + ".steps", step)
    if step % 3 == 0:
        folder = pathlib.Path(E["SLIPWAY_OUTPUTS"]) / "ckpt" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "at").write_text(str(step))
        (folder / "done").touch()
out = pathlib.Path(E["SLIPWAY_OUTPUTS"]) / "out"
out.mkdir(exist_ok=True)
(out / "done").write_text(me)
"""


@dataclass
class Tally:
    trials: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    attempts: int = 0
    again: int = 0  # steps that were done more than once: since the last complete checkpoint
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        killed = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        return (
            f"{self.trials} trials, {len(self.failures)} failed; killed {killed}; {self.attempts} attempts, "
            f"{self.starts} commands, {self.again} steps computed again (all after the last complete checkpoint)"
        )


def storm(trials: int, seed: int, folder: Path, limit: float | None = None) -> Tally:
    """Runs trials until done, or until `limit` seconds have passed; every failure names its seed."""
    tally = Tally()
    end = time.monotonic() + limit if limit else None
    for batch in range((trials + TOGETHER - 1) // TOGETHER):
        if end is not None and time.monotonic() > end:
            break
        count = min(TOGETHER, trials - batch * TOGETHER)
        path = folder / f"batch-{batch}"
        path.mkdir(parents=True)
        with machine(path) as here:
            failed = _batch(here, count, f"{seed}:{batch}", tally)
        tally.trials += count
        tally.failures += failed
        if not failed:
            shutil.rmtree(path)
    return tally


def _batch(here: Machine, count: int, seed: str, tally: Tally) -> list[str]:
    dice = random.Random(seed)
    outputs = {"out": Output(), "ckpt": Output(kind="checkpoints", match="checkpoint-*", done="done")}
    jobs = [
        here.job(
            f"storm{k}",
            SCRIPT,
            outputs=outputs,
            role={"env": {"STEPS": str(STEPS)}},
            limits=Limits(grace=0.3, retries=60),  # a command that is shot counts as the user's failure
            timing=Timing(beat=BEAT, stale=60.0, fence=40.0),
        )
        for k in range(count)
    ]
    _submit_and_die(here, jobs, dice.uniform(0.0, 0.5))
    hit = 0
    while hit < SHOTS * count:
        hit += _shoot(here, jobs, dice, tally)
        time.sleep(dice.uniform(0.0, 0.2))
    here.submit(*jobs)
    try:
        here.wait(*jobs)
    except AssertionError as error:
        return [f"seed {seed}: {error}"[:3000]]
    return [f"seed {seed}: {one.name}: {wrong}" for one in jobs for wrong in _wrong(here, one, tally)]


def _shoot(here: Machine, jobs: list[ResolvedJob], dice: random.Random, tally: Tally) -> bool:
    """Whether something was hit."""
    what = dice.choices(["submitter", "supervisor", "runtime", "command", "everything"], [12, 14, 50, 20, 4])[0]
    if what == "submitter":
        _submit_and_die(here, jobs, dice.uniform(0.0, 0.4))
    elif what == "supervisor":
        if not here.kill_supervisor():
            return False
    elif what == "everything":
        if here.killable(here.store, BEAT).keys() != here.runtimes().keys():
            return False
        here.power_cut()
    else:
        living = here.killable(here.store, BEAT)
        if not living:
            return False
        name = dice.choice(sorted(living))
        record = living[name]
        target = procs.Process(record.pid, record.start)
        if what == "command":
            below = sorted(command_of(record.pid))
            if not below:
                return False
            target = below[0]
        if not procs.send(target, signal.SIGKILL):
            return False
    tally.kills[what] += 1
    return True


def _submit_and_die(here: Machine, jobs: list[ResolvedJob], after: float) -> None:
    """A submitter of its own, killed after a while wherever it then is."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for target in (1, 2):
                os.dup2(null, target)
            store = open_store(here.store.url)
            submit(group(*jobs), store, backend("local", here.backend.options))
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _wrong(here: Machine, one: ResolvedJob, tally: Tally) -> list[str]:
    run = run_id(one)
    keys = RunKeys(run)
    found = []
    result = here.result(one)
    if result is None or result.outcome != "succeeded":
        return [f"the result is {result}"]
    if here.store.head(keys.attempt(result.attempt).output_manifest("out")) is None:
        found.append(f"attempt {result.attempt} has no output")
    if here.store.head(work_run(result.work, run)) is None:
        found.append("its record in works/ is missing")
    if here.lines(f"{run}.overlap"):
        found.append(f"two commands lived together: {here.lines(f'{run}.overlap')}")
    starts = [tuple(map(int, line.split())) for line in here.lines(f"{run}.starts")]
    for attempt, last, newest in starts:
        if last < newest:
            found.append(f"attempt {attempt} began at step {last} though checkpoint {newest} was complete")
    if len({attempt for attempt, _, _ in starts}) != len(starts):
        found.append(f"an attempt ran its command twice: {starts}")
    steps = Counter(int(line) for line in here.lines(f"{run}.steps"))
    if set(steps) != set(range(1, STEPS + 1)):
        found.append(f"steps done: {sorted(steps)}")
    if here.runtimes():
        found.append(f"still alive: {sorted(here.runtimes())}")
    tally.starts += len(starts)
    tally.attempts += here.attempts(one)
    tally.again += sum(count - 1 for count in steps.values())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    parser.add_argument("--keep", type=Path, help="folder for what a failed trial leaves; default: a temporary one")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="slipway-storm-"))
    began = time.monotonic()
    tally = storm(args.trials, seed, folder)
    for failure in tally.failures:
        print(failure, file=sys.stderr)
    print(f"seed {seed}: {tally}; {time.monotonic() - began:.0f} s")
    if tally.failures:
        print(f"what is left of the failed ones: {folder}", file=sys.stderr)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
