"""Breadth-first over every state, so that a trace to a broken property is a shortest one.

python -m tests.contract.protocol.explore                  every configuration, all rules
python -m tests.contract.protocol.explore NAME             those whose name begins so
python -m tests.contract.protocol.explore ablate [RULE]    each rule left out in turn, with the shortest trace
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from launcher.protocol.facts import Rules
from launcher.protocol.rules import ALL, Rule
from tests.contract.protocol.configs import ABLATIONS, CONFIGS, NIGHTLY
from tests.contract.protocol.model import Model
from tests.contract.protocol.states import Config, State

NO_END = "NO END CAN BE REACHED"


@dataclass
class Found:
    """What an exploration found: property -> the shortest trace to where it breaks."""

    states: int = 0
    seconds: float = 0.0  # of the processor
    capped: bool = False
    broken: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        said = "holds" if not self.broken else "BROKEN: " + "; ".join(self.broken)
        return f"{self.states:8d} states {self.seconds:6.1f} s{' (not all)' if self.capped else ''}  {said}"


def explore(config: Config, rules: Rules = ALL, *, most: int = 3_000_000, first: bool = False) -> Found:
    """Explores a configuration. `most`: states after which it gives up; `first`: stop at the first broken property."""
    begun = time.process_time()
    model = Model(config, rules)
    found = Found()
    prefix, initial = _begin(model)
    states: list[State] = [initial]
    numbers: dict[State, int] = {states[0]: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    back: list[list[int]] = [[]]
    where: dict[str, tuple[int, str]] = {}
    at = 0
    while at < len(states) and not (first and where):
        for label, after, good, broken in model.next(states[at]):
            number = numbers.get(after)
            if number is None:
                number = numbers[after] = len(states)
                states.append(after)
                came.append((at, label))
                back.append([])
            if good and number != at:
                back[number].append(at)
            for name in broken:
                where.setdefault(name, (at, label))
        at += 1
        if len(states) > most:
            found.capped = True
            break
    if not found.capped and not (first and where):
        stuck = _stuck(model, states, back)
        if stuck is not None:
            where[NO_END] = came[stuck]
    found.broken = {name: prefix + _trace(came, *place) for name, place in where.items()}
    found.states, found.seconds = len(states), time.process_time() - begun
    return found


def _begin(model: Model) -> tuple[list[str], State]:
    state, labels = model.initial(), []
    for wanted in model.c.begin:
        label, state = next((label, after) for label, after, _, _ in model.next(state) if label.startswith(wanted))
        labels.append(label)
    return labels, state


def _stuck(model: Model, states: Sequence[State], back: Sequence[Sequence[int]]) -> int | None:
    """The first state from which no end is reachable without a further fault."""
    reaches = bytearray(len(states))
    stack = [number for number, state in enumerate(states) if model.over(state)]
    for number in stack:
        reaches[number] = 1
    while stack:
        for number in back[stack.pop()]:
            if not reaches[number]:
                reaches[number] = 1
                stack.append(number)
    return next((number for number, reached in enumerate(reaches) if not reached), None)


def _trace(came: Sequence[tuple[int, str]], at: int, label: str) -> list[str]:
    lines = [label] if label else []
    while at > 0:
        at, label = came[at]
        lines.append(label)
    return lines[::-1]


def _print(name: str, found: Found) -> None:
    print(f"{name:58s} {found}", flush=True)
    for prop, trace in found.broken.items():
        print(f"   {prop}")
        for number, line in enumerate(trace, 1):
            print(f"   {number:4d}  {line}")


def main(args: Sequence[str]) -> int:
    bad = 0
    if args[:1] == ["ablate"]:
        wanted = [Rule[args[1]]] if len(args) > 1 else list(Rule)
        for rule in wanted:
            config = ABLATIONS[rule]
            print(f"{rule.name}: {rule.value}")
            _print("   with it", explore(config))
            found = explore(config, ALL - {rule}, most=400_000, first=True)
            _print("   without it", found)
            bad += not found.broken
        return bad
    for name, config in {**CONFIGS, **NIGHTLY}.items():
        if not args or name.startswith(args[0]):
            found = explore(config)
            _print(name, found)
            bad += bool(found.broken)
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
