"""What only `make nightly` runs, in parts that do not disturb each other, and a table of what came of them.

    python -m tests.nightly [PART ...] [--again] [--list]

A part that fails stops no other. The exit code is 1 when a test was red, or a part has no tests. What can not run on a
machine is left out with its reason. How each test ended is in build/nightly/COMMIT/PART.jsonl at once: the same command
goes on after an interruption, and runs only what has not passed at this commit yet.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.support import outcomes

ROOT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = ("-n", "2", "--dist", "worksteal")


class Part(NamedTuple):
    """The marks of a part's tests, how many of them run at a time, and their environment beside this process's."""

    marks: str
    how: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})


# What keeps the machine to itself comes one by one, and last: then nothing of the other parts is left running.
PARTS: Final[dict[str, Part]] = {
    "machine": Part("nightly and not cluster and not alone", SHARED),
    "cluster": Part("nightly and cluster and not alone", SHARED),
    # the cluster tests of CI, on the oldest and on the newest versions (tools/cluster/oldest, tools/cluster/newest)
    "cluster-oldest": Part("cluster and not nightly", SHARED, {"SLIPWAY_CLUSTER_SET": "oldest"}),
    "cluster-newest": Part("cluster and not nightly", SHARED, {"SLIPWAY_CLUSTER_SET": "newest"}),
    "alone": Part("nightly and not cluster and alone"),
    "cluster-alone": Part("nightly and cluster and alone"),
}


@dataclass
class Done:
    """What came of a part. `red` has a line for each test that failed; `left_out` counts reasons of skipped ones."""

    part: str
    passed: int = 0
    red: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def found(self) -> int:
        return self.passed + len(self.red) + self.left_out.total()


def run(part: str, folder: Path, tests: Sequence[str] = ("tests",)) -> Done:
    """Runs what has not passed yet of a part. `folder` keeps how its tests ended."""
    marks, how, environment = PARTS[part]
    folder.mkdir(parents=True, exist_ok=True)
    file, before = folder / f"{part}.jsonl", folder / f"{part}.passed"
    passed = [test for test, outcome in outcomes.read(file).items() if outcome.how == "passed"]
    before.write_text("\n".join(passed), encoding="utf-8")
    began = time.monotonic()
    print(f"== {part}: pytest -m {marks!r}" + (f"; {len(passed)} passed before" if passed else ""), flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *how, "-m", marks, "-p", "tests.support.outcomes"]
    command += ["--outcomes", str(file), "--leave-out", str(before), *tests]
    code = subprocess.run(command, check=False, env={**os.environ, **environment}).returncode
    done = read(part, file)
    done.seconds = time.monotonic() - began
    if code not in (0, 1, 5):  # red tests, or none, are in the file
        done.red.append(f"pytest itself ended with exit code {code}")
    return done


def read(part: str, file: Path) -> Done:
    """What a file of outcomes says."""
    done = Done(part)
    for outcome in outcomes.read(file).values():
        if outcome.how == "failed":
            done.red.append(f"{outcome.test}: {outcome.why}")
        elif outcome.how == "skipped":
            done.left_out[outcome.why or "without a reason"] += 1
        else:
            done.passed += 1
    return done


def kept(root: Path = ROOT) -> Path:
    """The folder of this commit's outcomes; emptied when files were changed since the commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    folder = root / "build/nightly" / git("rev-parse", "--short=12", "HEAD")
    if git("status", "--porcelain", "--untracked-files=no"):
        folder = folder.with_name(f"{folder.name}-changed")
        shutil.rmtree(folder, ignore_errors=True)
    return folder


def table(parts: Sequence[Done]) -> str:
    lines = [f"{'part':14} {'passed':>7} {'red':>5} {'left out':>9} {'seconds':>8}"]
    for done in parts:
        lines.append(
            f"{done.part:14} {done.passed:7} {len(done.red):5} {done.left_out.total():9} {done.seconds:8.0f}"
            + ("" if done.found else "   no tests")
        )
    lines += [f"red: {text}" for done in parts for text in done.red]
    lines += [f"left out ({done.part}, {count}): {why}" for done in parts for why, count in done.left_out.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The nightly tests, part after part.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"default: {', '.join(PARTS)}")
    parser.add_argument("--list", action="store_true", help="print the parts and the marks of their tests")
    parser.add_argument("--again", action="store_true", help="run what has passed at this commit as well")
    args = parser.parse_args(argv)
    if args.list:
        for name, (marks, how, environment) in PARTS.items():
            given = "".join(f"; {key}={value}" for key, value in environment.items())
            print(f"{name}: {marks}; {'two at a time' if how else 'one by one'}{given}")
        return 0
    folder = kept()
    if args.again:
        shutil.rmtree(folder, ignore_errors=True)
    done = [run(part, folder) for part in args.parts or PARTS]
    print(f"\n{table(done)}")
    return int(any(part.red or not part.found for part in done))


if __name__ == "__main__":
    sys.exit(main())
