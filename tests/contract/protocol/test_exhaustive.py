"""Every state of small systems, reached through the very functions that launcher and runtime call: the properties of
docs/explanation/protocol.md hold, and leaving out any one rule breaks one of them."""

from __future__ import annotations

import pytest

from launcher.protocol.rules import ALL, Rule
from tests.contract.protocol.configs import ABLATIONS, CONFIGS, NIGHTLY
from tests.contract.protocol.explore import NO_END, explore

PROPERTIES = {
    "TWO LIVE COMMANDS",
    "SUCCEEDED WITHOUT A COMPLETE ATTEMPT",
    "RESULT CONTRADICTS A COMPLETE ATTEMPT",
    "A COMMAND STARTED AFTER CANCEL",
    "A COMMAND STARTED AFTER THE RESULT",
    "COMPLETE WORK IS COMPUTED AGAIN",
    "WORK THAT ANOTHER RUN HAS DONE IS COMPUTED AGAIN",
    "STEPS BEFORE THE LAST CHECKPOINT ARE COMPUTED AGAIN",
    "ATTEMPT AFTER A REASON THAT IS NEVER TRIED AGAIN",
    "MORE ATTEMPTS THAN RETRIES ALLOW",
    "UNBOUNDED ATTEMPTS",
    "AN ATTEMPT BEYOND THE BUDGET",
    "A HEALTHY ATTEMPT WAS SUPERSEDED",
    "AN ATTEMPT OF TWO PLACEMENTS",
    "ENDED THOUGH ITS BACKEND STILL HAS IT",
    "ENDED THOUGH WHAT APPLIED IT MAKES IT AGAIN",
    "AN EXIT TELLS OF THE COMMAND WHAT OTHERS DID TO IT",
    "GAVE UP THOUGH NOBODY ELSE RUNS",
    "A COMMAND STARTED AT A BACKEND THAT THE RUN HAS LEFT",
    "A BACKEND GOT THE RUN BEFORE ITS TURN",
    "GAVE UP BEFORE THE LAST BACKEND",
    NO_END,
}


def show(name: str, broken: dict[str, list[str]], again: str) -> str:
    lines = [f"{name}; see it again: python -m tests.contract.protocol.explore {again}"]
    for prop, trace in broken.items():
        lines += [prop, *(f"{number:4d}  {line}" for number, line in enumerate(trace, 1))]
    return "\n".join(lines)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_properties_hold(name: str) -> None:
    found = explore(CONFIGS[name])
    assert not found.broken, show(name, found.broken, f"'{name}'")
    assert not found.capped


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NIGHTLY)
def test_the_properties_hold_in_larger_systems(name: str) -> None:
    found = explore(NIGHTLY[name])
    assert not found.broken, show(name, found.broken, f"'{name}'")
    assert not found.capped


@pytest.mark.parametrize("rule", list(Rule), ids=lambda rule: rule.name)
def test_no_rule_can_be_left_out(rule: Rule) -> None:
    config = ABLATIONS[rule]
    whole = explore(config)
    assert not whole.broken, show(f"with every rule, in the configuration of {rule.name}", whole.broken, "ablate")
    without = explore(config, ALL - {rule}, first=True)
    print(show(f"without {rule.name} ({rule.value})", without.broken, f"ablate {rule.name}"))
    assert without.broken
    assert set(without.broken) <= PROPERTIES
