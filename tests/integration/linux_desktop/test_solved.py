"""Every template on real desktops: its oracle and its second route solve it, its mistake does not."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.environment import ROUTES, LinuxDesktopOptions, desktop_of, task_of
from eval.benchmarks.linux_desktop.template import LARGE
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.needs import lacking

SEED = 1_000_000


SAMPLE = "web-shop-order"  # of the templates with large programs, the one that CI tries


def sampled() -> set[str]:
    """The templates that CI tries, so many that each small program is in one; every night all are tried. LibreOffice
    and Chromium take minutes where the machine is busy."""
    found, seen = {SAMPLE}, set(LARGE)
    for name, template in sorted(TEMPLATES.items(), key=lambda one: len(one[1].about.programs)):
        programs = set(template.about.programs)
        if not programs & set(LARGE) and programs - seen and not template.about.infeasible:
            seen |= programs
            found.add(name)
    return found


def test_the_sample_has_every_small_program() -> None:
    programs = {one for each in TEMPLATES.values() if not each.about.infeasible for one in each.about.programs}
    assert {one for name in sampled() for one in TEMPLATES[name].about.programs} >= programs - set(LARGE)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in sampled() else [pytest.mark.nightly]) for name in TEMPLATES]
)
def test_its_two_ways_solve_it_and_its_mistake_does_not(name: str, tmp_path: Path) -> None:
    if missing := [program for program in TEMPLATES[name].about.programs if not shutil.which(program)]:
        lacking("office" if set(LARGE) & set(missing) else "desktop", f"no {', '.join(missing)}")
    task = replace(task_of(TEMPLATES[name], "test", SEED), max_steps=200)  # on a busy machine the oracle waits long
    found = {}
    for route in ROUTES:
        (result,) = asyncio.run(
            rollout(
                ScriptedAgent(Dsl(4)),
                lambda route=route: desktop_of(LinuxDesktopOptions(), route),
                [task],
                out=tmp_path / route,
                benchmark="linux-desktop",
                environment="linux-desktop",
                limits=RolloutLimits(attempts=1),
                keep_episodes=0,
            )
        )
        record = result.record
        found[route] = (record.outcome, record.score, record.success, record.error)
    assert found == {
        "oracle": ("scored", 1.0, True, None),
        "second": ("scored", 1.0, True, None),
        "wrong": ("scored", 0.0, False, None),
    }
