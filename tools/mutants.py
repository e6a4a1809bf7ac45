"""Mutants of the protocol's decisions: each a single change of the source, for which some test has to fail.

    python tools/mutants.py [--seconds N] [--sample N] [--from-line N] [--since COMMIT] [FILE ...]

It prints every survivor, and the score.

A mutant runs in a fork of a process that has loaded the tests' libraries but nothing of the protocol: one to three
seconds of a core each. The small systems of the exhaustive check come first, then the unit tests of that file.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
UNIT = ["tests/unit/protocol"]
TESTS = {  # file -> (whether the exhaustive check calls it, its unit tests)
    "launcher/protocol/facts.py": (True, UNIT),
    "launcher/protocol/decide.py": (True, UNIT),
    "launcher/protocol/reaping.py": (True, UNIT),
    "launcher/protocol/steps.py": (False, ["tests/contract/protocol/test_rounds.py"]),
    "launcher/protocol/fold.py": (False, UNIT),
    "launcher/protocol/view.py": (False, UNIT),
    "launcher/runtime/process/verdict.py": (
        False,
        ["tests/unit/runtime/test_command.py", "tests/unit/runtime/test_verdict_words.py"],
    ),
}
SMALL = 1500  # the most states that a system of the exhaustive check may have
# A mutant that does not end counts as found. Its computing is limited, not the clock: the machine may be busy.
LIMIT = 120  # seconds of a core
WAIT = 3600  # seconds of the clock, for a mutant that waits and computes nothing
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "EXIT_AGAIN": "EXIT_NEVER", "EXIT_NEVER": "EXIT_AGAIN",
         "EXIT_DONE": "EXIT_AGAIN", "EXIT_PREEMPTED": "EXIT_NEVER"}  # fmt: skip


def changes(node: ast.AST) -> Iterator[Any]:
    """Functions that each change a copy of the node in place."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if type(op) in SWAPS:
                    yield lambda new, at=at, op=op: new.ops.__setitem__(at, SWAPS[type(op)]())
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPS:
            yield lambda new: setattr(new, "op", SWAPS[type(new.op)]())
        case ast.Constant(value=bool()):
            yield lambda new: setattr(new, "value", not new.value)
        case ast.Constant(value=int() | float()):
            yield lambda new: setattr(new, "value", new.value + 1)
        case ast.Name(id=name) if name in NAMES:
            yield lambda new: setattr(new, "id", NAMES[new.id])
        case ast.Attribute(value=ast.Name(id="Reason")):
            yield lambda new: setattr(new, "attr", "USER_ERROR" if new.attr != "USER_ERROR" else "LOST")
        case ast.If() | ast.While() | ast.IfExp():
            yield lambda new: setattr(new, "test", ast.UnaryOp(ast.Not(), new.test))
        case ast.UnaryOp(op=ast.Not()):
            yield lambda new: (
                setattr(new, "op", ast.Not()),
                setattr(new, "operand", ast.UnaryOp(ast.Not(), new.operand)),
            )


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line number, the changed line, the whole changed source) of every mutant."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    for number, node in enumerate(nodes):
        if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float)):
            continue
        for change in changes(node):
            new = copy.deepcopy(tree)
            target = list(ast.walk(new))[number]
            change(target)
            ast.fix_missing_locations(new)
            yield node.lineno, ast.unparse(target).replace("\n", " ")[:90], ast.unparse(new)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from its changed source."""

    def __init__(self, module: str, source: str) -> None:
        self.module, self.source = module, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def exec_module(self, module: Any) -> None:
        exec(compile(self.source, self.module, "exec"), module.__dict__)


def survives(file: str, module: str, source: str) -> bool:
    import pytest

    explored, tests = TESTS[file]
    child = os.fork()
    if child == 0:
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            signal.alarm(WAIT)
            sys.meta_path.insert(0, Finder(module, source))
            try:
                code = int(explored and broken()) or int(
                    pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", *tests])
                )
            except BaseException:
                code = 9
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def broken() -> bool:
    """Whether a small system breaks a property, or leaving out its rule breaks none."""
    from launcher.protocol.rules import ALL
    from tests.contract.protocol.configs import ABLATIONS, CONFIGS
    from tests.contract.protocol.explore import explore

    if any(explore(system, most=SMALL, first=True).broken for system in (*ABLATIONS.values(), *CONFIGS.values())):
        return True
    small = {rule: system for rule, system in ABLATIONS.items() if not explore(system, most=SMALL).capped}
    return any(not explore(system, ALL - {rule}, first=True).broken for rule, system in small.items())


def changed_lines(file: str, since: str) -> set[int]:
    """The numbers of the lines of a file that a commit did not have so."""
    command = ["git", "diff", "--unified=0", since, "--", file]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines: set[int] = set()
    for first, count in re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", text, re.MULTILINE):
        lines.update(range(int(first), int(first) + int(count or 1)))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=list(TESTS))
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--sample", type=int, default=0, help="only so many of each file, chosen by a fixed seed")
    parser.add_argument("--from-line", type=int, default=1, help="only mutants of this line and those after it")
    parser.add_argument("--since", metavar="COMMIT", help="only mutants of lines that changed since then")
    args = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import msgspec  # noqa: F401 - loaded once, for every fork
    import yaml  # noqa: F401

    begun = time.monotonic()
    for file in args.files:
        module = file.removesuffix(".py").replace("/", ".")
        source = Path(file).read_text()
        if not survives(file, module, source):
            print(f"{file}: its tests fail as it is")
            return 2
        lines = changed_lines(file, args.since) if args.since else None
        every = [
            mutant
            for mutant in mutants(source)
            if mutant[0] >= args.from_line and (lines is None or mutant[0] in lines)
        ]
        chosen = every if not args.sample else random.Random(1).sample(every, min(args.sample, len(every)))
        killed, done = 0, 0
        for line, change, changed in sorted(chosen):
            if time.monotonic() - begun > args.seconds:
                break
            done += 1
            if survives(file, module, changed):
                print(f"{file}:{line}: {change}", flush=True)
            else:
                killed += 1
        print(f"{file}: {killed} of {done} killed, of {len(every)} mutants", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
