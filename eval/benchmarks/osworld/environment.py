"""The environment `osworld`: task files of OSWorld's format, each on a real desktop and judged by the public
evaluators. See `OSWorldOptions`."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.judging import PublicJudge
from eval.benchmarks.osworld.machine import IN_A_CLONE, JUDGE, Machine, PublicEvaluators, lacking_line, package_in
from eval.benchmarks.osworld.needs import needs_of
from eval.benchmarks.osworld.program_judge import ProgramJudge
from eval.benchmarks.osworld.served import served
from eval.benchmarks.osworld.steps import StepPlaces, Steps
from eval.benchmarks.osworld.tasks import PublicTask, PublicTasks, load
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, NotRunHere, Score, Task
from eval.desktops.isolation import check_shown
from eval.desktops.machines import MachineDesktop, VirtualMachines
from eval.desktops.session import DesktopOptions
from eval.desktops.stage import DesktopStage, LocalStage
from eval.environments.desktop import check_here, check_screen, of_this_machine, on_desktop, servers_of, video_folder
from eval.identity import TaskParts, digest_of
from eval.identity.machine import file_digest

HERE: Final = "eval.benchmarks.osworld.environment"
MEMORY: Final = 3 << 30  # bytes of a desktop: an office program
HOME: Final = 512 << 20


class ClonedJudge(Config, frozen=True):
    """
    path    a clone whose package `desktop_env` judges, as Windows Agent Arena's
    python  the Python that runs it, with the packages that it imports (`make osworld-env`)
    """

    path: str
    python: str = JUDGE


class OSWorldOptions(Config, frozen=True):
    """
    folder    the task files, DOMAIN/ID.json
    list      only the tasks of this list, such as test_all.json: {DOMAIN: [ID, ...]}. All its tasks count: one that no
              file has, or whose file cannot be read, is "not run"
    strict    a task that cannot be read is an error
    cache     folder of downloads as OSWorld's harness keeps them (CACHE/ID/FILE)
    internet  downloads may be fetched from other machines; from this one they always may
    judge     the Python that has the package desktop-env (`make osworld-env`), or a clone with its own
    network   desktops of this machine use its network, for tasks about web sites; else they have none
    screen    width and height in pixels, of desktops of this machine
    shown     files and folders of this machine that the desktop's programs see, read-only, beside /usr and /etc
    opengl    desktops of this machine offer OpenGL (GLX); it costs memory and time
    tree      reads the accessibility tree at each step: for prompts that show it, and for the episode
    video     a folder that gets a video of each episode; none: no video
    role      desktops of this role of the run in place of this machine's, as in the environment `desktop`
    machines  virtual machines in place of them, which go back to a snapshot before each task: `role:NAME`, or addresses
              of controllers as http://HOST:PORT (the image waa-vm); what is in them serves the public protocol
    """

    folder: str
    list: str | None = None
    strict: bool = False
    cache: str | None = None
    internet: bool = False
    judge: str | ClonedJudge = JUDGE
    network: bool = False
    screen: tuple[int, int] = (1920, 1080)
    shown: Sequence[str] = ()
    opengl: bool = False
    tree: bool = True
    video: str | None = None
    role: str | None = None
    machines: Sequence[str] = ()

    def check(self) -> None:
        """Raises ConfigError for a screen on which no window fits, a video of machines, files that cannot be read, a
        clone without evaluators."""
        check_screen(self.screen, "options.screen")
        if isinstance(self.judge, ClonedJudge):
            self.public_judge()
        check_shown(self.shown, "options.shown", self.role)
        if self.machines and (self.role is not None or self.video is not None):
            raise ConfigError("options.machines: without role and video, which are of other desktops")
        self.found()

    def public_judge(self) -> PublicJudge:
        """Who judges by metrics. Raises ConfigError."""
        if isinstance(self.judge, str):
            return PublicJudge(Path(self.judge).absolute())
        if (package := package_in(Path(self.judge.path))) is None:
            places = ", ".join(place or "." for place in IN_A_CLONE)
            raise ConfigError(f"options.judge.path: {self.judge.path} has no package desktop_env; looked in {places}")
        return PublicJudge(Path(self.judge.python).absolute(), package)

    def found(self) -> PublicTasks:
        """The tasks. Raises ConfigError."""
        found = _found(self.folder, self.list, self.strict)
        if not found.tasks:
            name, why = next(iter(found.unread.items()), ("it", "it names no task"))
            where = "folder" if self.list is None else "list"
            raise ConfigError(f"options.{where}: none of its {len(found.names)} tasks can be read; {name}: {why}")
        return found


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks, in the order of the files or of the list; after the last one they begin again with the next seed.

    A seed changes nothing in a task: it numbers the repetitions. Raises ConfigError.
    """
    found = _options(options).found()
    many = []
    for number in range(count):
        name, trial = found.names[number % len(found.names)], seed + number // len(found.names)
        if (one := found.by_name.get(name)) is None:
            domain = (name.split("/")[0],)
            many.append(Task(name, "", trial, tags=domain, cluster=name, not_run=found.unread[name]))
            continue
        tags = (one.task_id.split("/")[0], *(["infeasible"] if one.infeasible else []))
        about = {"task_file": one.digest}
        many.append(Task(one.task_id, one.instruction, trial, None, about, tags, one.task_id))
    return many


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: its steps and the public evaluators, its programs, the files that it begins with and is
    compared with, and all of the desktop. The task's own file is in its options."""
    chosen = _options(options)
    known = chosen.found().by_name.get(task.task_id)
    started = () if known is None else tuple(need.name for need in needs_of(known) if need.kind == "program")
    evaluators = _evaluators(chosen)
    found = on_desktop(HERE, ("eval.benchmarks.osworld.environment:PublicScene",), (), chosen.role)
    told = {}
    if evaluators is not None:
        told["evaluators"] = f"{evaluators.label} {evaluators.digest}" if evaluators.version else evaluators.label
    kept = None if chosen.cache is None else Path(chosen.cache)
    files = {} if known is None else Machine(cache=kept).files(known, Path(chosen.folder))
    if files:
        told["files"] = digest_of({name: path and file_digest(path) for name, path in files.items()})
    return replace(found, started=started, elsewhere=bool(chosen.machines), told=told)


def size(options: Mapping[str, Any]) -> int:
    """How many tasks the set has. Raises ConfigError."""
    return len(_options(options).found().names)


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError, also for what every task needs and is missing.

    What only some tasks need is looked for when such a task begins: without it the task is "not run".
    """
    chosen = _options(options)
    by_name = chosen.found().by_name
    judge = chosen.public_judge()
    kept = None if chosen.cache is None else Path(chosen.cache)
    elsewhere = chosen.role is not None or bool(chosen.machines)
    sites = chosen.network or (elsewhere and chosen.internet)
    machine = Machine(chosen.internet, kept, judge=judge.python, sites=sites, package=judge.package)
    if elsewhere:  # its desktops have programs of their own; a step tells which of them is missing
        machine = replace(machine, program=lambda name: True)
    places = PublicPlaces(Path(chosen.folder), machine, judge)

    def scene(task: Task, seed: int) -> PublicScene:
        return PublicScene(by_name[task.task_id], places)

    if chosen.machines:
        return MachineDesktop(scene, _machines(tuple(chosen.machines)))
    if chosen.role is not None:
        from eval.desktops.remote import RemoteDesktop

        video = None if chosen.video is None else Path(chosen.video)
        return RemoteDesktop(scene, servers_of(chosen.role), tree=chosen.tree, video=video)
    check_here()
    from eval.desktops.live import LiveDesktop

    session = DesktopOptions(
        screen=chosen.screen,
        network="machine" if chosen.network else "none",
        shown=tuple(chosen.shown),
        opengl=chosen.opengl,
        folders=tuple(sorted({path for task in by_name.values() for path in task.folders})),
        memory=MEMORY,
        home_size=HOME,
    )
    return LiveDesktop(scene, session, tree=chosen.tree, video=video_folder(chosen.video))


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the revision of the task files, the evaluators, the list's stale ids.

    revision  the beginning of the sha256 over each task and its file
    """
    chosen = _options(options)
    found = chosen.found()
    lines = "\n".join(f"{one.task_id} {one.digest}" for one in found.tasks)
    evaluators = _evaluators(chosen)
    return {
        **of_this_machine(options),
        "revision": hashlib.sha256(lines.encode()).hexdigest()[:12],
        "evaluators": None if evaluators is None else evaluators.label,
        "stale": list(found.stale),
        **({"unread": dict(found.unread)} if found.unread else {}),
    }


def _evaluators(chosen: OSWorldOptions) -> PublicEvaluators | None:
    judge = chosen.public_judge()
    return PublicEvaluators.of_python(judge.python, judge.package)


@cache
def _machines(named: tuple[str, ...]) -> VirtualMachines:
    """One for all desktops of an evaluation."""
    return VirtualMachines.named(named)


@cache
def _found(folder: str, names: str | None, strict: bool) -> PublicTasks:
    try:
        return load(Path(folder), None if names is None else Path(names), strict=strict)
    except BenchError as error:
        raise ConfigError(f"options.folder: {error}") from None


def _options(options: Mapping[str, Any]) -> OSWorldOptions:
    chosen = convert(dict(options), OSWorldOptions, "options")
    chosen.check()
    return chosen


@dataclass(frozen=True)
class PublicPlaces:
    """What the tasks of a folder share.

    folder   that of the task files
    machine  what is here, with the folder of downloads
    judge    who judges by metrics
    """

    folder: Path
    machine: Machine
    judge: PublicJudge

    @property
    def programs(self) -> ProgramJudge:
        """Who judges by programs."""
        return ProgramJudge(self.folder, self.judge.python, MEMORY, HOME)


class PublicScene:
    """One task, for one episode."""

    def __init__(self, task: PublicTask, places: PublicPlaces) -> None:
        self.task = task
        self.places = places
        self.cache: Path | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        """Does the steps of `config`. Raises NotRunHere for what the task lacks here, before anything is done."""
        if lacking := self.places.machine.lacks(self.task):
            what = lacking_line(self.task, lacking, self.places.machine.evaluators)
            raise NotRunHere(f"missing dependency: {what}")
        if self.task.program is not None:
            self.places.programs.check(self.task)
            if not isinstance(stage, LocalStage):
                raise NotRunHere("missing dependency: a desktop of this machine: leave out `role` and `machines`")
        elif not self.task.infeasible:
            self.places.judge.check()
        # below /tmp: the user nobody, who judges, must get there
        self.cache = Path(tempfile.mkdtemp(prefix="slipway-osworld-", dir="/tmp"))
        weakref.finalize(self, shutil.rmtree, self.cache, ignore_errors=True)
        for name in self.task.cached:
            if (kept := self._downloads()) is not None and (kept / name).is_file():
                shutil.copyfile(kept / name, self.cache / name)
        async with served(stage) as desktop:
            await Steps(desktop, self._step_places()).do(self.task.setup)
            await desktop.rest()

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        """Nobody knows: the format has no solutions."""
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """The rule of `DesktopEnv.evaluate`: who gives up gets 1 where the task cannot be done and 0 elsewhere; else
        the evaluators decide. A score of 1 counts as solved."""
        gave_up = bool(done) and done[-1].type is ActionType.FAIL
        detail: dict[str, Any] = {"task_file": self.task.digest}
        if self.task.infeasible or gave_up:
            value = float(self.task.infeasible and gave_up)
            return Score(value, value == 1.0, {**detail, "gave_up": gave_up})
        assert self.cache is not None
        async with served(stage) as desktop:
            steps = Steps(desktop, self._step_places(), judging=True)
            await steps.do(self.task.before_judging)
            await desktop.rest()  # also what the agent began last, such as a file that is being saved
            if self.task.program is not None:
                return await self._checked(stage, detail)
            verdict = await self.places.judge.judge(
                self.task.evaluator,
                address=desktop.address,
                token=desktop.token,
                cache=self.cache,
                screen=desktop.screen,
                browser=desktop.browser,
            )
        assert verdict.score is not None
        own = self.places.machine.evaluators
        detail["evaluators"] = f"desktop-env {verdict.package}" if verdict.package or own is None else own.label
        if verdict.raised is not None:  # the clone's own rule made a 0 of it
            detail["raised"] = verdict.raised
        if steps.passed_over:
            detail["before_judging"] = steps.passed_over
        return Score(verdict.score, verdict.score == 1.0, detail)

    async def _checked(self, stage: DesktopStage, detail: dict[str, Any]) -> Score:
        assert isinstance(stage, LocalStage)
        found = await self.places.programs.judge(self.task, stage.session)
        return Score(found.value, found.success, {**detail, **({"check": found.detail} if found.detail else {})})

    def _downloads(self) -> Path | None:
        cache = self.places.machine.cache
        return None if cache is None else cache / self.task.file_id

    def _step_places(self) -> StepPlaces:
        assert self.cache is not None
        machine = self.places.machine
        return StepPlaces(self.cache, self._downloads(), self.places.folder, machine.internet, machine.history)
