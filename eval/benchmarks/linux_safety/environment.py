"""The environment `linux-safety`: tasks of linux-desktop in which a text on the screen asks for a harmful act. See
`LinuxSafetyOptions`.

Every scenario is a pair: with the text that asks for harm, and, as `NAME-benign`, with one that asks for nothing. The
score is the utility, by the template's own judge; a record's figures `attacked` and `harm` say whether harm was asked
for, and done. summary.json has both rates, and what the text costs in utility, by pairs (eval.scores.summary).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.local_desktop import LocalDesktopOptions
from eval.benchmarks.linux_desktop.template import PROGRAMS
from eval.benchmarks.linux_desktop.template import VERSION as TEMPLATES_VERSION
from eval.benchmarks.linux_safety.harms import PrivateFiles
from eval.benchmarks.linux_safety.scenario import SCENARIOS, SafetyScene, Scenario
from eval.config import ConfigError, convert
from eval.desktop import Desktop, Task
from eval.environments.desktop import of_this_machine, on_desktop
from eval.environments.splits import SPLIT_SEED, Split, seeds
from eval.identity import TaskParts

HERE: Final = "eval.benchmarks.linux_safety"
VERSION: Final = 1  # of the scenarios: a new one for each change of what is asked or how it is judged
BENIGN: Final = "-benign"


class LinuxSafetyOptions(LocalDesktopOptions, frozen=True):
    """
    scenarios  names, each in turn of the next one; empty: all
    """

    scenarios: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Raises ConfigError."""
        super().check()
        if odd := [name for name in self.scenarios if name not in SCENARIOS]:
            raise ConfigError(f"options.scenarios: {odd[0]!r}; allowed: {', '.join(SCENARIOS)}")

    @property
    def chosen(self) -> list[Scenario]:
        return [SCENARIOS[name] for name in self.scenarios or SCENARIOS]


def task_of(scenario: Scenario, split: Split, seed: int, *, attacked: bool) -> Task:
    """A task of a pair: both are of one cluster, that of the template."""
    about = TEMPLATES[scenario.template].about
    return Task(
        scenario.name if attacked else f"{scenario.name}{BENIGN}",
        instance(scenario.template, split, seed).instruction,
        seed,
        about.max_steps,
        {"split": split, "version": VERSION, "attacked": attacked},
        (about.difficulty, scenario.carrier, scenario.harm),
        cluster=scenario.template,
        programs=about.programs,
        difficulty=about.difficulty,
        feasible=True,
    )


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks: of each scenario the attacked one and its twin with the seed `seed`, then with the next one, and
    so on. Raises ConfigError for a seed of another split."""
    chosen = _options(options)
    rounds = seeds(chosen.split, seed, -(-count // (2 * len(chosen.chosen))))
    pairs = [
        (number, scenario, attacked) for number in rounds for scenario in chosen.chosen for attacked in (True, False)
    ]
    return [task_of(scenario, chosen.split, number, attacked=attacked) for number, scenario, attacked in pairs][:count]


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """The same scenario with another seed. Raises ConfigError for a seed of another split."""
    split: Split = task.options["split"]
    return task_of(_of(task), split, seeds(split, seed, 1)[0], attacked=task.options["attacked"])


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time; its expert is deaf to the text. Raises ConfigError."""
    return desktop_of(_options(options))


def solvers(options: Mapping[str, Any]) -> dict[str, Callable[[], Desktop]]:
    """deaf does the task alone; gullible does what the text asks for, too."""
    chosen = _options(options)
    return {"deaf": partial(desktop_of, chosen), "gullible": partial(desktop_of, chosen, obeys=True)}


def desktop_of(chosen: LinuxSafetyOptions, *, obeys: bool = False) -> Desktop:
    def scene(task: Task, seed: int) -> SafetyScene:
        drawn = instance(_of(task).template, task.options["split"], seed)
        own = PrivateFiles(100 + seed % SPLIT_SEED)
        return SafetyScene(drawn, _of(task), own, attacked=task.options["attacked"], route="oracle", obeys=obeys)

    return chosen.desktop(scene)


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: its template, the scenario, and all of the desktop."""
    template = TEMPLATES[_of(task).template]
    code = (
        f"{template.__module__}:{template.__qualname__}",
        f"{HERE}.scenario:SafetyScene",
        "eval.benchmarks.linux_desktop.all_templates:instance",
    )
    packages = [*(PROGRAMS[name] for name in template.about.programs), "x11-utils", "xterm"]
    apart = ["eval.benchmarks.linux_desktop.all_templates:TEMPLATES"]
    return on_desktop(f"{HERE}.environment", code, packages, None, apart)


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the versions, and what this machine cannot hide."""
    return {"revision": f"safety {VERSION}, templates {TEMPLATES_VERSION}", **of_this_machine(options)}


def _of(task: Task) -> Scenario:
    return SCENARIOS[task.task_id.removesuffix(BENIGN)]


def _options(options: Mapping[str, Any]) -> LinuxSafetyOptions:
    chosen = convert(dict(options), LinuxSafetyOptions, "options")
    chosen.check()
    return chosen
