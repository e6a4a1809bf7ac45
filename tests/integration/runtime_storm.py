"""Kills a runtime again and again, at random moments and between two requests to the store, until its run is done; then
looks at what is there. `python -m tests.integration.runtime_storm --trials 300 --seed 1`

Held in every trial: one result, succeeded, with the right content; the command always went on from the newest complete
checkpoint, so no step before it was computed again; never two live commands, a child that forked away included; every
complete checkpoint can be restored.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from launcher.runtime.process.procs import MARK, descendants_with_mark, kill_tree
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.model import Input, Limits, Output, Timing
from tests.integration.runtime.rig import Rig
from tests.support.brief_attempts import survives_a_kill
from tests.support.waiting import HANGS

STEPS = 24
EVERY = 4  # steps between two checkpoints
BEAT = 0.2  # seconds

TRAINER = """
import fcntl, hashlib, json, os, signal, sys, time
from pathlib import Path
journal, every, steps, in_place, forks = Path(sys.argv[1]), *map(int, sys.argv[2:6])
out = Path(os.environ["SLIPWAY_OUTPUTS"])
resume = os.environ["SLIPWAY_RESUME"]
def tell(*words):
    with open(journal, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
lock = open(journal.with_suffix(".lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    tell("TWO COMMANDS")
    sys.exit(9)
state = json.loads((Path(resume) / "state").read_text()) if resume else {"step": 0, "chain": "start"}
tell("start", os.environ["SLIPWAY_ATTEMPT"], state["step"])
if forks and os.fork() == 0:  # it keeps the lock
    os.setsid()
    time.sleep(60)
    os._exit(0)
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
def save():
    name = f"checkpoint-{state['step']}"
    folder = out / "checkpoints" / (name if in_place else "tmp-" + name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_bytes(state["chain"].encode() * 2000)
    (folder / "state").write_text(json.dumps(state))
    if not in_place:
        folder.rename(out / "checkpoints" / name)
while state["step"] < steps:
    state["chain"] = hashlib.sha256(state["chain"].encode()).hexdigest()
    state["step"] += 1
    tell("step", os.environ["SLIPWAY_ATTEMPT"], state["step"])
    time.sleep(0.02)
    if stop or state["step"] % every == 0:
        save()
    if stop:
        sys.exit(0)
(out / "model").mkdir(exist_ok=True)
(out / "model" / "chain").write_text(state["chain"])
"""

# in the runtime's own process: dies before or after its n-th request to the store
KILLER = """
import os, signal, sys
if "launcher.runtime" in sys.orig_argv and os.environ.get("STORM_KILL"):
    number, after = map(int, os.environ["STORM_KILL"].split())
    from launcher.store.file import FileStore
    count = [0]
    def wrap(method):
        def call(*args, **kwargs):
            count[0] += 1
            last = count[0] == number
            if last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return method(*args, **kwargs)
            finally:
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)
        return call
    for name in ("read", "head", "create", "put", "upload", "send", "delete", "folders", "download"):
        setattr(FileStore, name, wrap(getattr(FileStore, name)))
"""


@dataclass
class Trial:
    seed: int
    root: Path
    kills: int = 0
    attempts: int = 0
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        choice = random.Random(self.seed)
        (self.root / "trainer.py").write_text(TRAINER)
        (self.root / "site").mkdir()
        (self.root / "site/sitecustomize.py").write_text(KILLER)
        (self.root / "data").write_text("data")
        journal = self.root / "journal"
        journal.touch()
        in_place, forks, keep = choice.random() < 0.5, choice.random() < 0.3, choice.choice([0, 0, 1, 2])
        command = ("python", str(self.root / "trainer.py"), str(journal), str(EVERY), str(STEPS))
        rig = Rig.of(
            self.root,
            (*command, str(int(in_place)), str(int(forks))),
            inputs={"data": Input(url=(self.root / "data").as_uri())},
            outputs={"model": Output(), "checkpoints": Output(kind="checkpoints", match="checkpoint-*", keep=keep)},
            limits=Limits(grace=0.3),
            timing=Timing(beat=BEAT, stale=6.0, fence=3.0),
        )
        rig.environ["PYTHONPATH"] = str(self.root / "site")
        rig.tuning |= {"quiet": 0.15, "leftovers": 0.1}
        kills = choice.randint(1, 6)
        code = None
        while code not in (0, 78) and self.attempts < 40:
            self.attempts += 1
            harm = self.kills < kills and survives_a_kill(rig.store, rig.run, BEAT)
            code = self.once(rig, choice, journal, harm=harm)
        self.judge(rig, code, journal, keep)

    def once(self, rig: Rig, choice: random.Random, journal: Path, *, harm: bool) -> int | None:
        """Starts the runtime, perhaps kills it; what its command did is held against what was in the store before."""
        newest = max((found.step for found, _ in stored_checkpoints.complete(rig.store, rig.run)), default=0)
        before = len(journal.read_text().splitlines())
        how = choice.choice(["time", "time", "request", "request", "term"]) if harm else ""
        rig.environ["STORM_KILL"] = f"{choice.randint(1, 70)} {choice.randint(0, 1)}" if how == "request" else ""
        delay = choice.uniform(0.0, 1.8)
        process = rig.start()
        try:
            code = process.wait(timeout=delay if how in ("time", "term") else HANGS)
        except subprocess.TimeoutExpired:
            self.kills += 1
            process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
            try:
                code = process.wait(timeout=HANGS)
            except subprocess.TimeoutExpired:
                self.problems.append(f"the runtime hangs after {how or 'nothing'}")
                process.kill()
                code = process.wait()
        else:
            self.kills += how == "request" and code == -signal.SIGKILL
        for line in journal.read_text().splitlines()[before:]:
            words = line.split()
            if words[0] == "start" and int(words[2]) != newest:
                self.problems.append(f"attempt {words[1]} went on from {words[2]}, not from {newest}")
            if words[0] == "step" and int(words[2]) <= newest:
                self.problems.append(f"attempt {words[1]} computed step {words[2]} again, {newest} was complete")
            if words[0] == "TWO":
                self.problems.append(line)
        return code

    def judge(self, rig: Rig, code: int | None, journal: Path, keep: int) -> None:
        import hashlib

        chain = "start"
        for _ in range(STEPS):
            chain = hashlib.sha256(chain.encode()).hexdigest()
        result = rig.result()
        if code != 0 or result is None or result.outcome != "succeeded":
            self.problems.append(f"ended with {code}: {result}")
            return
        if rig.output("model/chain", result.attempt).decode() != chain:
            self.problems.append("the model is wrong")
        results = [key for key in rig.objects() if key.endswith("result.json")]
        if results != ["result.json"]:
            self.problems.append(f"results: {results}")
        computed = {int(line.split()[2]) for line in journal.read_text().splitlines() if line.startswith("step")}
        if computed != set(range(1, STEPS + 1)):
            self.problems.append(f"steps never computed: {sorted(set(range(1, STEPS + 1)) - computed)}")
        kept = list(stored_checkpoints.complete(rig.store, rig.run))
        if not kept or (keep and len(kept) > keep):
            self.problems.append(f"{len(kept)} checkpoints with keep: {keep}")
        for found, _record in kept:
            stored_checkpoints.restore(rig.store, found, self.root / "restored", "main-0")
        mark = f"{self.root} main-0"
        until = time.monotonic() + HANGS
        while descendants_with_mark(mark) and time.monotonic() < until:
            time.sleep(0.02)
        if descendants_with_mark(mark):
            self.problems.append("processes are left")


def run_trial(seed: int) -> Trial:
    root = Path(tempfile.mkdtemp(prefix=f"storm-{seed}-"))
    trial = Trial(seed, root)
    try:
        trial.run()
    except Exception as error:
        trial.problems.append(f"{type(error).__name__}: {error}")
    finally:
        kill_tree(mark=f"{root} main-0", variable=MARK, grace=0)
        if not trial.problems:
            shutil.rmtree(root)
    return trial


def storm(trials: int, seed: int, parallel: int = 4) -> list[Trial]:
    """Every trial, in order; the seed of trial i is `seed + i`."""
    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(run_trial, range(seed, seed + trials)))


def summary(trials: list[Trial], seconds: float) -> str:
    bad = [trial for trial in trials if trial.problems]
    lines = [f"seed {trial.seed}: {'; '.join(trial.problems)} (see {trial.root})" for trial in bad]
    kills, starts = sum(trial.kills for trial in trials), sum(trial.attempts for trial in trials)
    lines.append(f"{len(trials)} trials, {kills} kills, {starts} starts, {len(bad)} failed, {seconds:.0f} s")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill storms on the runtime.")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4)
    options = parser.parse_args()
    began = time.monotonic()
    trials = storm(options.trials, options.seed, options.parallel)
    print(summary(trials, time.monotonic() - began))
    return any(trial.problems for trial in trials)


if __name__ == "__main__":
    sys.exit(main())
