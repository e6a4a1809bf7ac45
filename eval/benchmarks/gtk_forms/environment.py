"""The environment `gtk-forms`: one small form in GTK 3 on a real desktop of 128 x 96 pixels. See `GtkFormsOptions`.

Ten kinds of tasks (`forms`): buttons, boxes, radios, switches, fields to fill and to change, a list, menus, counters,
pages. The screen is small so that a model of a million weights can learn to work on it, on a CPU. Everything else is
as on a large one: an X server, a window manager, GTK, real clicks and keys. The program keeps its state in a file; the
judge compares the whole of it with what was asked for, and the rest of the home with the start (`judging.home`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.gtk_forms.expert import next_action
from eval.benchmarks.gtk_forms.forms import HEIGHT, KINDS, WIDTH, GtkForm, form, written
from eval.config import Config, ConfigError, convert
from eval.desktop import BrokenByAgent, Desktop, Expected, Score, SetupFailed, Task
from eval.desktops.judging import home
from eval.desktops.session import DesktopOptions
from eval.desktops.stage import DesktopStage
from eval.environments.desktop import check_here, of_this_machine, on_desktop, servers_of
from eval.environments.splits import Split, seeds
from eval.identity import TaskParts

HERE: Final = "eval.benchmarks.gtk_forms.environment"
GTK_PACKAGES: Final = ("libgtk-3-0", "gir1.2-gtk-3.0", "python3-gi")
VERSION: Final = 2  # of the forms: a new one for each change of what is asked or how it is judged
MAX_STEPS: Final = 8
TREE_S: Final = 30.0  # seconds in which the tree must show the form; programs fill it after the picture is there
PAUSE_S: Final = 0.05
FOLDER: Final = ".form"
PROGRAM, SHOWN, STATE = f"{FOLDER}/program.py", f"{FOLDER}/form.json", f"{FOLDER}/state.json"
CHANGES: Final = home.Allowed({STATE, f"{FOLDER}/state.new"})  # the program writes the new one, and renames it


class GtkFormsOptions(Config, frozen=True):
    """
    split  whose forms tasks are drawn from; the seeds of `train` begin at 0, of `test` at 1000000, of `validation` at
           2000000
    kinds  of forms, each task in turn of the next one; empty: all ten
    tree   reads the accessibility tree at each step: for the expert, and for prompts that show it
    role   desktops of this role of the run in place of this machine's; its servers need --screen 128x96
    """

    split: Split = "test"
    kinds: list[str] = msgspec.field(default_factory=list)
    tree: bool = True
    role: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a kind that is not there."""
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(f"options.kinds: {kind!r} is unknown; allowed: {', '.join(KINDS)}")


class FormScene:
    """One form, its expert and its judge."""

    def __init__(self, form: GtkForm) -> None:
        self.form = form
        self._start: home.Home | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(PROGRAM, _program())
        await stage.write_file(SHOWN, written(self.form))
        await stage.start(["/usr/bin/python3", PROGRAM, SHOWN, STATE])
        await stage.windows(1)
        end = time.monotonic() + TREE_S
        while next_action(self.form, await stage.tree()).action.type is ActionType.FAIL:
            if time.monotonic() > end:
                raise SetupFailed(f"the form is not in the accessibility tree after {TREE_S:g} s")
            await asyncio.sleep(PAUSE_S)
        self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None if tree is None else next_action(self.form, tree)

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Solved when the form is in the state that was asked for, and the rest of the home as it was. Who says FAIL
        has not solved it."""
        if done and done[-1].type is ActionType.FAIL:
            return Score(0.0, False, {"gave_up": done[-1].text or True})
        try:
            state = json.loads(await stage.read_file(STATE))
            if odd := sorted(state.keys() ^ self.form.goal.keys()):
                raise ValueError(f"it names {', '.join(odd)}, or does not")
            wrong = sorted(name for name, value in self.form.goal.items() if state[name] != value)
        except (ValueError, TypeError, AttributeError, FileNotFoundError) as error:  # the agent can write it, too
            raise BrokenByAgent(f"{STATE} is not what the form's program writes: {error}") from None
        assert self._start is not None, "prepared before it is judged"
        return await home.judged(stage, self._start, CHANGES, Score(float(not wrong), not wrong, {"wrong": wrong}))


@cache
def _program() -> bytes:
    return files("eval.benchmarks.gtk_forms").joinpath("program.py").read_bytes()


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks: one of each kind with the seed `seed`, then one of each with the next one, and so on. Raises
    ConfigError for a seed of another split."""
    chosen = _options(options)
    kinds = chosen.kinds or list(KINDS)
    rounds = seeds(chosen.split, seed, -(-count // len(kinds)))
    drawn = [(kind, number) for number in rounds for kind in kinds][:count]
    return [_task(kind, chosen.split, number) for kind, number in drawn]


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: forms of its kind, the forms' program, and all of the desktop."""
    drawn = f"{form.__module__}:{KINDS[task.options['kind']].__name__}"
    role = _options(options).role
    return on_desktop(HERE, ("FormScene", "_task", drawn), GTK_PACKAGES, role, [f"{form.__module__}:KINDS"])


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """Another form of the same kind. Raises ConfigError for a seed of another split."""
    split = _options(options).split
    return _task(task.options["kind"], split, seeds(split, seed, 1)[0])


def _task(kind: str, split: Split, seed: int) -> Task:
    return Task(f"{kind}-{seed}", form(kind, split, seed).instruction, seed, MAX_STEPS, {"kind": kind}, (kind,))


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the version of the forms, and what this machine cannot hide."""
    return {"revision": f"forms {VERSION}", **of_this_machine(options)}


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError, also for what is not installed."""
    chosen = _options(options)

    def scene(task: Task, seed: int) -> FormScene:
        return FormScene(form(task.options["kind"], chosen.split, seed))

    if chosen.role is not None:
        from eval.desktops.remote import RemoteDesktop

        return RemoteDesktop(scene, servers_of(chosen.role), tree=chosen.tree)
    check_here()
    check_gtk("gtk-forms")
    from eval.desktops.live import LiveDesktop

    return LiveDesktop(scene, DesktopOptions(screen=(WIDTH, HEIGHT)), tree=chosen.tree)


@cache
def check_gtk(environment: str) -> None:
    """Raises ConfigError, for an environment of this name, where the system's Python has no GTK 3."""
    import subprocess

    code = "import gi; gi.require_version('Gtk', '3.0')"
    if subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True).returncode:
        raise ConfigError(f"environment: {environment}: apt-get install python3-gi gir1.2-gtk-3.0")


def _options(options: Mapping[str, Any]) -> GtkFormsOptions:
    chosen = convert(dict(options), GtkFormsOptions, "options")
    chosen.check()
    return chosen
