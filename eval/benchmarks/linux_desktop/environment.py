"""The environment `linux-desktop`: tasks drawn from the templates, each on a real desktop of its own. See
`LinuxDesktopOptions`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.hacks import hacks
from eval.benchmarks.linux_desktop.scene import InstanceScene, Route
from eval.benchmarks.linux_desktop.task_files import read
from eval.benchmarks.linux_desktop.template import PROGRAMS, VERSION, Instance
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Task
from eval.desktops.isolation import check_shown
from eval.desktops.judging.hacked import HackedScene
from eval.desktops.session import DesktopOptions
from eval.environments.desktop import check_here, check_screen, of_this_machine, on_desktop, servers_of, video_folder
from eval.environments.splits import Split, seeds
from eval.identity import TaskParts

if TYPE_CHECKING:
    from eval.desktops.live import TaskScene

HERE: Final = "eval.benchmarks.linux_desktop"
MEMORY: Final = 3 << 30  # bytes of a desktop: a browser and an office program
HOME: Final = 512 << 20
PROCESSES: Final = 512  # threads count: a browser has some 200


class LinuxDesktopOptions(Config, frozen=True):
    """
    split      whose words and numbers tasks are drawn from; the seeds of `train` begin at 0, of `test` at 1000000, of
               `validation` at 2000000
    templates  names, each task in turn of the next one; empty: all. A program stands for all that need no other
    files      a folder of task files (`python -m eval.linux_desktop --write FOLDER`): its tasks, in the order of their
               names, in place of drawn ones; they bring their own split and seeds
    screen     width and height in pixels, of desktops of this machine
    shown      files and folders of this machine that the desktop's programs see, read-only, beside /usr and /etc
    tree       reads the accessibility tree at each step: for prompts that show it, for the expert, and for the episode
    video      a folder that gets a video of each episode; none: no video
    role       desktops of this role of the run in place of this machine's, as in the environment `desktop`
    """

    split: Split = "test"
    templates: list[str] = msgspec.field(default_factory=list)
    files: str | None = None
    screen: tuple[int, int] = (1280, 720)
    shown: Sequence[str] = ()
    tree: bool = True
    video: str | None = None
    role: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a screen on which no window fits, and a template that is not there."""
        check_screen(self.screen, "options.screen")
        check_shown(self.shown, "options.shown", self.role)
        if self.files is not None and self.templates:
            raise ConfigError("options.templates: the files of options.files say which tasks; give one of both")
        self.chosen()

    def chosen(self) -> list[type[Instance]]:
        """The templates. Raises ConfigError."""
        if not self.templates:
            return list(TEMPLATES.values())
        found: dict[str, type[Instance]] = {}
        for name in self.templates:
            some = [each for each in TEMPLATES.values() if name == each.about.name or (name,) == each.about.programs]
            if not some:
                programs = sorted({program for each in TEMPLATES.values() for program in each.about.programs})
                allowed = f"{', '.join(TEMPLATES)}, or a program: {', '.join(programs)}"
                raise ConfigError(f"options.templates: {name!r} is unknown; allowed: {allowed}")
            found |= {each.about.name: each for each in some}
        return list(found.values())


def task_of(template: type[Instance], split: Split, seed: int) -> Task:
    """The task of one instance. Instances of one template are a cluster: they are not independent of each other."""
    about = template.about
    tags = (about.difficulty, *about.programs, *(["infeasible"] if about.infeasible else []))
    text = instance(about.name, split, seed).instruction
    return Task(
        about.name,
        text,
        seed,
        about.max_steps,
        {"split": split, "version": VERSION},
        tags,
        cluster=about.name,
        programs=about.programs,
        difficulty=about.difficulty,
        feasible=not about.infeasible,
    )


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: its template, and all of the desktop."""
    template = TEMPLATES[task.task_id]
    return on_desktop(
        f"{HERE}.environment",
        (
            f"{template.__module__}:{template.__qualname__}",
            f"{HERE}.scene:InstanceScene",
            f"{HERE}.all_templates:instance",
        ),
        [PROGRAMS[name] for name in template.about.programs],
        _options(options).role,
        [f"{HERE}.all_templates:TEMPLATES"],
    )


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks: one of each template with the seed `seed`, then one of each with the next one, and so on. Raises
    ConfigError for a seed of another split."""
    chosen = _options(options)
    if chosen.files is not None:
        return _of_files(Path(chosen.files), count)
    templates = chosen.chosen()
    rounds = seeds(chosen.split, seed, -(-count // len(templates)))
    return [task_of(template, chosen.split, number) for number in rounds for template in templates][:count]


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the version of the templates, and what this machine cannot hide. A
    task set is told by its tasks, wherever its folder lies: two runs have their own copies of one input."""
    told = {"revision": f"templates {VERSION}", **of_this_machine(options)}
    files = _options(options).files
    if files is not None:
        lines = "".join(f"{one.template} {one.split} {one.seed}\n" for one in read(Path(files)))
        told["files"] = hashlib.sha256(lines.encode()).hexdigest()[:12]
    return told


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """Another instance of the task's template. Raises ConfigError for a seed of another split."""
    split: Split = task.options["split"]
    return task_of(TEMPLATES[task.task_id], split, seeds(split, seed, 1)[0])


def _of_files(folder: Path, count: int) -> list[Task]:
    """The first `count` tasks of a folder. Raises ConfigError."""
    files = read(folder)
    if count > len(files):
        raise ConfigError(f"tasks.count: {count}, and {folder} has {len(files)} tasks")
    return [task_of(TEMPLATES[each.template], each.split, each.seed) for each in files[:count]]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError, also for what every task needs and is missing.

    A program of Debian that only some tasks need is looked for when such a task begins: without it the task is
    "not run".
    """
    return desktop_of(_options(options))


def hacker(options: Mapping[str, Any]) -> Desktop:
    """A desktop that is judged after every hack (eval.benchmarks.linux_desktop.hacks). Raises ConfigError."""
    return desktop_of(_options({**options, "tree": False}), hacked=True)


def desktop_of(chosen: LinuxDesktopOptions, route: Route = "oracle", *, hacked: bool = False) -> Desktop:
    """The same, with a solver of one's choice in the place of the expert. hacked: as in `hacker`."""

    def scene(task: Task, seed: int) -> TaskScene:
        drawn = instance(task.task_id, task.options["split"], seed)
        inner = InstanceScene(drawn, route)
        return HackedScene(inner, lambda start: hacks(drawn, start)) if hacked else inner

    if chosen.role is not None:
        from eval.desktops.remote import RemoteDesktop

        video = None if chosen.video is None else Path(chosen.video)
        return RemoteDesktop(scene, servers_of(chosen.role), tree=chosen.tree, video=video)
    check_here()
    from eval.desktops.live import LiveDesktop

    session = DesktopOptions(
        screen=chosen.screen, shown=tuple(chosen.shown), memory=MEMORY, home_size=HOME, processes=PROCESSES
    )
    return LiveDesktop(scene, session, tree=chosen.tree, video=video_folder(chosen.video))


def _options(options: Mapping[str, Any]) -> LinuxDesktopOptions:
    chosen = convert(dict(options), LinuxDesktopOptions, "options")
    chosen.check()
    return chosen
