"""The environment `linux-desktop`: tasks drawn from the templates, each on a real desktop of its own. See
`LinuxDesktopOptions`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, OracleLost, Work
from eval.benchmarks.linux_desktop.task_files import read
from eval.benchmarks.linux_desktop.template import PROGRAMS, VERSION, Instance
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Score, Task
from eval.desktops.isolation import check_shown
from eval.desktops.judging import home
from eval.desktops.judging.hacked import Hack, HackedScene, guesses
from eval.desktops.session import DesktopOptions
from eval.desktops.stage import DesktopStage
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
            f"{HERE}.environment:InstanceScene",
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
    """A desktop that is judged after every hack (eval.benchmarks.linux_desktop.environment). Raises ConfigError."""
    return desktop_of(_options({**options, "tree": False}), hacked=True)


def solvers(options: Mapping[str, Any]) -> dict[str, Callable[[], Desktop]]:
    """A desktop for each solver of a template."""
    chosen = _options(options)
    return {route: partial(desktop_of, chosen, route) for route in ROUTES}


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


SCATTERED: Final = 40  # other numbers that are tried
ARCHIVES: Final = (b"PK", b"\x1f\x8b")  # how zip and gzip begin


def hacks(instance: Instance, start: Mapping[str, bytes]) -> Iterator[Hack]:
    """Every hack of an instance. `start`: the files of the start state. They may be done
    one after the other on one desktop."""
    targets, text = instance.targets(), instance.instruction
    right = {path: content for path, content in targets.items() if start.get(path) != content}
    elsewhere: dict[str, bytes] = {}
    everywhere: dict[str, bytes] = {}
    for path, content in right.items():
        for other in _near(path):
            if other not in targets and other not in start:
                elsewhere[other] = content
        everywhere |= dict.fromkeys(_candidates(path), content)
    others = {path: content for path, content in start.items() if path in right}
    everything = b"".join(right.values())
    # an archive that stands twice in a file is that archive, and nothing old leaves the right content
    twice = {path: content * 2 for path, content in right.items() if not content.startswith(ARCHIVES)}
    yield Hack("right content twice", twice)
    front = {path: right[path] + old for path, old in others.items() if old}
    yield Hack("right content in front of the old", front)
    if len(right) > 1:
        yield Hack("all contents in every file", dict.fromkeys(right, everything))
    yield Hack("cut short", {path: content[: len(content) // 2] for path, content in right.items()})
    *same, own = guesses(text, start, right, instance.disguise)
    yield from same
    # new files at the end: nothing takes them away again, so after the first all is one thing too many
    yield Hack("all candidates at once", everywhere)
    yield Hack("right content in wrong places", elsewhere)
    yield own


def _candidates(path: str) -> list[str]:
    """The right path, and what else it could be for who does not know: another number, another word, another ending."""
    place = PurePosixPath(path)
    numbers = [re.sub(r"[0-9]+", str(number), place.name) for number in range(1, SCATTERED + 1)]
    words = [f"{word}{place.suffix}" for word in ("result", "answer", "output", "total", "new", "copy")]
    return [path, *(str(place.parent / name) for name in dict.fromkeys((*numbers, *words)) if name != place.name)]


def _near(path: str) -> list[str]:
    """Paths that a lazy judge might take for this one."""
    place = PurePosixPath(path)
    beside = [f"{place.stem}-copy{place.suffix}", f"{place.name}.bak", f"{place.name}~", place.name.upper()]
    folder = place.stem if place.suffix else f"{place.stem}.d"  # a file without an ending stands there itself
    return [str(place.parent / name) for name in beside] + [f"Documents/{place.name}", f"{folder}/{place.name}"]


Route = Literal["oracle", "second", "wrong"]
ROUTES: Final[tuple[Route, ...]] = get_args(Route)


class InstanceScene:
    """One instance. `route`: which of its solvers says what is expected."""

    def __init__(self, instance: Instance, route: Route = "oracle") -> None:
        self.instance = instance
        self.route = route
        self._start: home.Home | None = None
        self._work: Work | None = None
        self._hand: OracleActions | None = None
        self._told: Expected | None = None
        self._count = -1

    async def prepare(self, stage: DesktopStage) -> None:
        await self.instance.prepare(stage)
        self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """The solver's next action, as long as all before were followed; None after another action, and without a tree.

        A solver that does not find its way says FAIL, with the reason.
        """
        if len(done) == self._count:
            return self._told
        followed = self._count < 0 or (self._told is not None and self._told.matches(done[-1]))
        self._count, before = len(done), self._count
        self._told = self._next(tree) if tree is not None and followed and len(done) == before + 1 else None
        return self._told

    def _next(self, tree: Tree) -> Expected:
        try:
            if self._work is None:
                self._hand = OracleActions(tree)
                self._work = self.work(self._hand)
                return next(self._work)
            return self._work.send(tree)
        except StopIteration:
            return Expected(Action(ActionType.DONE))
        except OracleLost as error:
            return Expected(Action(ActionType.FAIL, text=str(error)))

    def work(self, hand: OracleActions) -> Work:
        """What the solver of the route does."""
        made: Work = getattr(self.instance, self.route)(hand)
        return made

    def allowed(self) -> home.Allowed:
        """What of the home may be other than at the start."""
        return self.instance.allowed()

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Who gives up gets 0 where the task can be done; where it cannot, only who gives up gets anything."""
        gave_up = bool(done) and done[-1].type is ActionType.FAIL
        about = self.instance.about
        if gave_up and not about.infeasible:
            return Score(0.0, False, {"gave_up": done[-1].text or True})
        if about.infeasible and not gave_up:
            return Score(0.0, False, {"gave_up": False})
        assert self._start is not None, "prepared before it is judged"
        found = await self.instance.judge(stage)  # first: it waits for what programs still write
        found = replace(found, spoiled=(*found.spoiled, *await home.spoiled(stage, self._start, self.allowed())))
        phases = {phase.name: phase.reached for phase in found.phases}
        detail: dict[str, Any] = {"phases": phases}
        if found.spoiled:
            detail["spoiled"] = list(found.spoiled)
        return Score(found.value, found.success, detail)
