"""The environment `linux-chain`: long tasks, each a chain of jobs on one desktop. See `LinuxChainOptions`.

Most jobs are instances of templates of linux-desktop, the others have an event in the middle
(eval.benchmarks.linux_chain.events). All are told at the start. A job's windows open when the one before is done, and
its files stay: each job is a milestone, and the score is the share of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from eval.benchmarks.linux_chain.events import EVENTS
from eval.benchmarks.linux_chain.scene import ChainScene
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.drawing import KINDS, WordPool
from eval.benchmarks.linux_desktop.environment import Route, hacks
from eval.benchmarks.linux_desktop.local_desktop import LocalDesktopOptions
from eval.benchmarks.linux_desktop.template import LARGE, PROGRAMS, Instance
from eval.benchmarks.linux_desktop.template import VERSION as TEMPLATES_VERSION
from eval.config import ConfigError, convert
from eval.desktop import Desktop, Task
from eval.desktops.judging.hacked import HackedScene
from eval.desktops.judging.home import REST
from eval.environments.desktop import of_this_machine, on_desktop
from eval.environments.splits import seeds
from eval.identity import TaskParts

if TYPE_CHECKING:
    from eval.desktops.live import TaskScene

HERE: Final = "eval.benchmarks.linux_chain"
VERSION: Final = 1  # of the chains: a new one for each change of what is asked or how it is judged
MOST_DRAWN: Final = 100  # instances, until one has none of the names of the jobs before
ROUNDS: Final = 4  # through all templates
# what they do is not in files of their own: all files of the home, settings of a program, what a program shows
APART: Final = ("thunar-sort-kinds", "mousepad-settings", "galculator-compute", "gpicview-galculator-sum")
INTRODUCTION: Final = (
    "Do these {count} jobs, one after the other. The windows of a job open as soon as the job before it is done and "
    "saved, and those of the job before close. The files that you have made stay as they are."
)


class LinuxChainOptions(LocalDesktopOptions, frozen=True):
    """
    length     jobs of a chain
    events     three of the jobs have an event: a mail arrives, a file changes, a user answers
    templates  of linux-desktop, from which the other jobs are drawn; empty: all that can be done with small programs
    """

    length: Annotated[int, msgspec.Meta(ge=5, le=20)] = 5
    events: bool = True
    templates: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Raises ConfigError."""
        super().check()
        if odd := [name for name in self.templates if name not in allowed_templates()]:
            raise ConfigError(f"options.templates: {odd[0]!r}; allowed: {', '.join(allowed_templates())}")


def allowed_templates() -> list[str]:
    """The templates that a chain can have: they can be done, with small programs."""
    return [
        name
        for name, template in TEMPLATES.items()
        if not (template.about.infeasible or name in APART or {*LARGE} & {*template.about.programs})
    ]


def drawn(seed: int, options: LinuxChainOptions) -> list[Instance]:
    """The jobs of a chain, in their order. No job has a file of another one. Raises ConfigError."""
    choice = random.Random(f"linux-chain {options.split} {seed} {options.length}")
    jobs: list[Instance] = []
    taken: set[str] = set()

    def add(name: str) -> None:
        """An instance without the names of the jobs before; none where that is not to be had."""
        template = EVENTS.get(name) or TEMPLATES[name]
        for _ in range(MOST_DRAWN):
            job = template.draw(WordPool(name, options.split, choice.randrange(10**9)))
            if taken.isdisjoint(own := names_of(job)):
                jobs.append(job)
                taken.update(own)
                return

    for name in EVENTS if options.events else ():
        add(name)
    others = [*options.templates] or allowed_templates()
    for _ in range(ROUNDS):
        for name in choice.sample(others, len(others)):
            if len(jobs) < options.length:
                add(name)
    if len(jobs) < options.length:
        raise ConfigError(
            f"options.length: {options.length}; these templates give {len(jobs)} jobs with different names"
        )
    choice.shuffle(jobs)
    return jobs


def names_of(job: Instance) -> set[str]:
    """The names of the files and folders of the home that a job may have."""
    paths = {*job.targets(), *job.removed(), *job.allowed().paths, *job.allowed().modes, *getattr(job, "before", ())}
    told = re.findall(r"[\w-]+\.\w{2,4}\b", job.request)
    folders = [text for text in _texts(job.asked()) if text.partition("-")[0] in KINDS["city"]]
    return {PurePosixPath(path).parts[0].lower() for path in (*paths, *told, *folders)}


def _texts(value: Any) -> Iterator[str]:
    """All texts in what was drawn."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def task_of(seed: int, options: LinuxChainOptions) -> Task:
    jobs = drawn(seed, options)
    asked = [f"{number}. {job.request}" for number, job in enumerate(jobs, 1)]
    return Task(
        f"chain-{seed}",
        "\n".join([INTRODUCTION.format(count=len(jobs)), *asked, REST]),
        seed,
        sum(job.about.max_steps for job in jobs),
        {"split": options.split, "version": VERSION},
        programs=tuple(sorted({program for job in jobs for program in job.about.programs})),
        difficulty="hard",
        feasible=True,
    )


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` chains with the seeds from `seed` on. Raises ConfigError for a seed of another split."""
    chosen = _options(options)
    return [task_of(number, chosen) for number in seeds(chosen.split, seed, count)]


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """Another chain. Raises ConfigError for a seed of another split."""
    return tasks(1, seed, options)[0]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError."""
    return desktop_of(_options(options))


def hacker(options: Mapping[str, Any]) -> Desktop:
    """A desktop that is judged after every hack of the first job. Raises ConfigError."""
    return desktop_of(_options({**options, "tree": False}), hacked=True)


def solvers(options: Mapping[str, Any]) -> dict[str, Callable[[], Desktop]]:
    """oracle and second do every job; wrong makes its mistake in the last one."""
    chosen = _options(options)
    routes: tuple[Route, ...] = ("oracle", "second", "wrong")
    return {route: partial(desktop_of, chosen, route) for route in routes}


def desktop_of(chosen: LinuxChainOptions, route: Route = "oracle", *, hacked: bool = False) -> Desktop:
    """The same, with a solver of one's choice in the place of the expert."""

    def scene(task: Task, seed: int) -> TaskScene:
        jobs = drawn(seed, chosen)
        before: Route = "oracle" if route == "wrong" else route
        made = ChainScene(jobs, [*[before] * (len(jobs) - 1), route])
        return HackedScene(made, lambda start: hacks(jobs[0], start)) if hacked else made

    return chosen.desktop(scene)


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a chain is made of: its jobs, and all of the desktop."""
    jobs = {type(job) for job in drawn(task.seed, _options(options))}
    code = (*(f"{job.__module__}:{job.__qualname__}" for job in sorted(jobs, key=str)), f"{HERE}.environment:drawn")
    packages = sorted({PROGRAMS[name] for job in jobs for name in job.about.programs})
    apart = ["eval.benchmarks.linux_desktop.all_templates:TEMPLATES"]
    return on_desktop(f"{HERE}.environment", (*code, f"{HERE}.scene:ChainScene"), packages, None, apart)


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the versions, and what this machine cannot hide."""
    return {"revision": f"chains {VERSION}, templates {TEMPLATES_VERSION}", **of_this_machine(options)}


def _options(options: Mapping[str, Any]) -> LinuxChainOptions:
    chosen = convert(dict(options), LinuxChainOptions, "options")
    chosen.check()
    return chosen
