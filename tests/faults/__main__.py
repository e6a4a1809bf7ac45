"""Which tier of tests notices each seeded fault, and which test.

    python -m tests.faults [--tier quick|test|ci] [--named-only] [NAME ...]
    python -m tests.faults --table

A NAME is a package, a fault, or PACKAGE/FAULT. Each fault is applied to a copy of HEAD. The tests that its file names
run first; the whole tier runs only where none of them failed. Outcomes are in build/faults/COMMIT/TIER.jsonl at once,
and the same command goes on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from tests.faults.patches import Fault, Wrong, read_all, resolved
from tests.faults.tree import Tree
from tests.tiers import TIERS, Phase, paths

ROOT: Final = Path(__file__).resolve().parents[2]
# what make quick, make test and .ci/run run
PHASES: Final = {
    "quick": TIERS["quick"],
    "test": TIERS["test"],
    "ci": (*TIERS["test"], *TIERS["ci"], *TIERS["cluster"]),
}
NOT_HERE: Final = "not in this tier"

How = Literal["named", "other", "nothing", "no named", "error"]


@dataclass
class Tried:
    """What noticed a fault: a test that its file names, another, nothing, or (the whole tier did not run) none that it
    names."""

    fault: str
    digest: str
    how: How
    test: str = ""
    why: str = ""
    seconds: float = 0.0


class Column:
    """The outcomes of a tier, and how tests ended without any fault, in a file of which each line is one of them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.tried: dict[str, Tried] = {}
        self.clean: dict[str, str] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # cut off
                continue
            if "clean" in row:
                self.clean[row["clean"]] = row["how"]
            else:
                self.tried[row["fault"]] = Tried(**row)

    def add(self, tried: Tried) -> None:
        self.tried[tried.fault] = tried
        self._write(asdict(tried))

    def add_clean(self, test: str, how: str) -> None:
        self.clean[test] = how
        self._write({"clean": test, "how": how})

    def _write(self, row: dict[str, object]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def done(self, fault: Fault, named_only: bool) -> bool:
        tried = self.tried.get(fault.name)
        if tried is None or tried.digest != fault.digest:
            return False
        return tried.how in ("named", "other", "nothing") or (tried.how == "no named" and named_only)


class Trial:
    """Tries faults with the tests of some phases."""

    def __init__(self, tree: Tree, phases: Sequence[Phase], column: Column) -> None:
        self._tree, self._phases, self._column = tree, phases, column

    def clean(self, tests: Sequence[str]) -> str:
        """Makes sure that tests pass without any fault. Returns what keeps them from it."""
        # one that failed may have failed by chance
        new = [test for test in dict.fromkeys(tests) if self._column.clean.get(test) in (None, "failed")]
        for phase in self._phases:
            ended, wrong = self._tree.pytest(phase.marks, _within(phase, new))
            if wrong:
                return wrong
            for test in new:
                hows = {one.how for one in ended if one.test == test or one.test.startswith((f"{test}[", f"{test}::"))}
                if hows:
                    how = "failed" if "failed" in hows else "passed" if "passed" in hows else "skipped"
                    self._column.add_clean(test, how)
        for test in new:
            if test not in self._column.clean:
                self._column.add_clean(test, NOT_HERE)
        bad = [test for test in tests if self._column.clean.get(test) == "failed"]
        return f"without the fault, too, {', '.join(bad)} fails" if bad else ""

    def run(self, fault: Fault, named_only: bool) -> Tried:
        began = time.monotonic()
        try:
            how, test, why = self._run(fault, named_only)
        except Wrong as wrong:
            how, test, why = "error", "", str(wrong)
        finally:
            self._tree.reset()
        return Tried(fault.name, fault.digest, how, test, why, round(time.monotonic() - began, 1))

    def _run(self, fault: Fault, named_only: bool) -> tuple[How, str, str]:
        named = resolved(fault, self._tree.path)
        if wrong := self.clean(named):
            raise Wrong(f"{fault.file}: {wrong}")
        self._tree.apply(fault)
        named = [test for test in named if self._column.clean[test] == "passed"]
        for phase in self._phases:
            if test := self._failed(fault, phase, _within(phase, named)):
                return "named", test, ""
        if named_only:
            return "no named", "", ""
        for phase in self._phases:
            folders = [path for path in paths(phase) if (self._tree.path / path).exists()]
            how = ("-n", str(phase.workers), "--dist", "worksteal") if phase.workers else ()
            if test := self._failed(fault, phase, folders, *how):
                self._tree.reset()
                if wrong := self.clean([test]):
                    raise Wrong(wrong)
                return "other", test, ""
        return "nothing", "", ""

    def _failed(self, fault: Fault, phase: Phase, tests: Sequence[str], *options: str) -> str:
        """The first test that fails."""
        ended, wrong = self._tree.pytest(phase.marks, tests, "-x", *options)
        if wrong:
            raise Wrong(f"{fault.file}: no test ran\n{wrong}")
        return next((one.test for one in ended if one.how == "failed"), "")


def _within(phase: Phase, tests: Sequence[str]) -> list[str]:
    """The tests that lie in the phase's folders and files."""
    within = tuple(f"{path}{end}" for path in paths(phase) for end in ("/", "::"))
    return [test for test in tests if test.startswith(within)]


def table(faults: Sequence[Fault], columns: dict[str, Column]) -> str:
    """A line for each fault: what noticed it in each tier, and the test of the first tier in which one did."""
    width = max((len(fault.name) for fault in faults), default=0)
    lines = [f"{'fault':{width}} {'area':16} " + " ".join(f"{tier:9}" for tier in columns) + " noticed by"]
    counts = {tier: Counter[str]() for tier in columns}
    errors = []
    for fault in faults:
        words, tests = [], []
        for tier, column in columns.items():
            tried = column.tried.get(fault.name)
            current = tried if tried is not None and tried.digest == fault.digest else None
            words.append(current.how if current else "-")
            counts[tier][words[-1]] += 1
            tests += [current.test] if current and current.test else []
            errors += [f"error ({tier}): {fault.name}: {current.why}"] if current and current.how == "error" else []
        lines.append(
            f"{fault.name:{width}} {fault.area:16} "
            + " ".join(f"{word:9}" for word in words)
            + (f" {tests[0]}" if tests else "")
        )
    for tier, count in counts.items():
        noticed = count["named"] + count["other"]
        rest = ", ".join(f"{how}: {count[how]}" for how in ("nothing", "no named", "error", "-") if count[how])
        lines.append(
            f"{tier}: {noticed} of {len(faults)} noticed, {count['named']} by a named test, {count['other']} by another"
            + (f"; {rest}" if rest else "")
        )
    return "\n".join([*lines, *errors])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Which tests notice each seeded fault.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a package, a fault, or PACKAGE/FAULT")
    parser.add_argument("--tier", choices=[*PHASES], default="test", help="default: test")
    parser.add_argument("--named-only", action="store_true", help="run no whole tier")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table of all tiers")
    args = parser.parse_args(argv)
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    kept = ROOT / "build/faults" / commit
    try:
        faults = read_all(ROOT / "tests/faults", args.names)
        if not args.table:
            column = Column(kept / f"{args.tier}.jsonl")
            todo = [fault for fault in faults if not column.done(fault, args.named_only)]
            tree = Tree(ROOT, commit)
            trial = Trial(tree, PHASES[args.tier], column)
            names = [test for fault in todo for test in _resolvable(fault, tree.path)]
            trial.clean(names)  # in one process; what goes wrong here is told of each fault below
            for fault in todo:
                column.add(one := trial.run(fault, args.named_only))
                print(f"{one.fault}: {one.how} {one.test or one.why} ({one.seconds:.0f} s)", flush=True)
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 2
    columns = {tier: Column(kept / f"{tier}.jsonl") for tier in PHASES if (kept / f"{tier}.jsonl").exists()}
    print(f"\n{table(faults, columns)}")
    tried = [column.tried[fault.name] for column in columns.values() for fault in faults if fault.name in column.tried]
    return int(any(one.how == "error" for one in tried))


def _resolvable(fault: Fault, root: Path) -> list[str]:
    try:
        return resolved(fault, root)
    except Wrong:
        return []


if __name__ == "__main__":
    sys.exit(main())
