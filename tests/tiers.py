"""The tiers of the tests: what `make quick`, `make test`, `.ci/run` and `make cluster-test` run.

    python -m tests.tiers quick|test|ci|cluster [--measure] [--check]

Prints at the end what the tier took, and per folder what its tests took, out of build/tiers/TIER.jsonl. `--measure`
looks first whether the machine is quiet; `--check` is an error when a folder used more than 1.5 times its budget
(tests/budgets.yaml) of core-seconds. The times of the clock are nobody's limit: a machine may be busy.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.support import outcomes

ROOT: Final = Path(__file__).resolve().parents[1]
BUDGETS: Final = ROOT / "tests/budgets.yaml"
OVER: Final = 1.5


class Phase(NamedTuple):
    """One run of pytest: the folders and marks of its tests, and how many of them run at a time."""

    folders: tuple[str, ...]
    marks: str
    workers: int


UNIT: Final = ("tests/unit", "tests/contract", "tests/smoke")
TIERS: Final[dict[str, tuple[Phase, ...]]] = {
    "quick": (Phase(UNIT, "not nightly and not cluster and not ci", 2),),
    "test": (Phase(("tests",), "not nightly and not cluster and not ci", 3),),
    "ci": (Phase(("tests",), "not nightly and not cluster", 3),),
    "cluster": (Phase(("tests/cluster",), "cluster and not nightly", 2),),
}


def command(phase: Phase, *more: str) -> list[str]:
    """pytest's command line for a phase."""
    how = ("-n", str(phase.workers), "--dist", "worksteal")
    return [sys.executable, "-m", "pytest", "-q", *how, "-m", phase.marks, *more, *phase.folders]


def quiet() -> str:
    """The load, and how long ten core-seconds take here: below .3 and 10.5 s the machine is quiet."""
    load, began = os.getloadavg()[0], time.monotonic()
    end = time.process_time() + 10
    while time.process_time() < end:
        pass
    took = time.monotonic() - began
    verdict = "quiet" if load < 0.3 and took <= 10.5 else "NOT quiet"
    return f"1-minute load {load:.2f}; ten core-seconds took {took:.1f} s: {verdict}"


class Folder(NamedTuple):
    name: str
    tests: int
    seconds: float
    cpu: float
    budget: float | None


def folders(results: Sequence[outcomes.Outcome]) -> list[Folder]:
    """One for each folder of tests, the most core-seconds first."""
    budgets = yaml.safe_load(BUDGETS.read_text(encoding="utf-8"))
    groups: dict[str, list[outcomes.Outcome]] = {}
    for result in results:
        groups.setdefault("/".join(result.test.partition("::")[0].split("/")[1:-1][:2]), []).append(result)
    found = [
        Folder(name, len(group), sum(one.seconds for one in group), sum(one.cpu for one in group), budgets.get(name))
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda folder: -folder.cpu)


def table(found: Sequence[Folder]) -> Iterator[str]:
    yield f"{'folder':34} {'tests':>6} {'seconds':>8} {'core-s':>7} {'budget':>7}"
    total = Folder("all", sum(f.tests for f in found), sum(f.seconds for f in found), sum(f.cpu for f in found), None)
    for folder in (*found, total):
        budget = "" if folder.budget is None else f"{folder.budget:7.0f}"
        yield f"{folder.name:34} {folder.tests:6} {folder.seconds:8.0f} {folder.cpu:7.1f} {budget}".rstrip()


def over(found: Sequence[Folder]) -> list[str]:
    """A line for each folder that is over its budget, or has none."""
    lines = []
    for folder in found:
        if folder.budget is None:
            lines.append(f"{folder.name}: {folder.cpu:.0f} core-seconds, and no budget in tests/budgets.yaml")
        elif folder.cpu > OVER * folder.budget:
            lines.append(
                f"{folder.name}: {folder.cpu:.0f} core-seconds, {OVER} times the budget is {OVER * folder.budget:.0f}"
            )
    return lines


def spent() -> float:
    """Core-seconds of the processes below this one that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one tier of the tests.")
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("--measure", action="store_true", help="say first whether the machine is quiet")
    parser.add_argument("--check", action="store_true", help="an error when a folder is over its budget")
    args = parser.parse_args(argv)
    if args.measure:
        print(quiet(), flush=True)
    file = ROOT / f"build/tiers/{args.tier}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    began, codes = time.monotonic(), []
    for phase in TIERS[args.tier]:
        recorded = command(phase, "-p", "tests.support.outcomes", "--outcomes", str(file))
        codes.append(subprocess.run(recorded, check=False, cwd=ROOT).returncode)
    found = folders(list(outcomes.read(file).values()))
    collecting = outcomes.collecting(file)
    print(*table(found), sep="\n")
    memory = max((one.megabytes for one in collecting), default=0)
    print(
        f"{args.tier}: {time.monotonic() - began:.0f} s, {spent():.0f} core-seconds, "
        f"{sum(one.cpu for one in collecting):.0f} of them collecting (at most {memory} MB a process); "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )
    if args.check and (lines := over(found)):
        print("over budget:", *lines, sep="\n  ")
        codes.append(1)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
