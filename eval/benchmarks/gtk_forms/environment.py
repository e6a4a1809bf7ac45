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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
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


DONE: Final = Expected(Action(ActionType.DONE))


def next_action(form: GtkForm, tree: Tree) -> Expected:
    """The expert's next action from the state that the tree shows, however it came to it; FAIL where the tree does not
    show what it needs."""
    try:
        return next(_RULES[form.kind](form, tree), DONE)
    except LookupError as error:
        return Expected(Action(ActionType.FAIL, text=f"not to be seen: {error}"))


Steps = Iterator[Expected]


def _node(tree: Tree, role: str, name: str) -> TreeNode:
    for node in tree.nodes():
        if node.role == role and node.name == name and "showing" in node.states and node.bounds:
            return node
    raise LookupError(f"{role} {name}")


def _click(tree: Tree, role: str, name: str, kind: ActionType = ActionType.CLICK) -> Expected:
    """A click into the middle of what is shown of an element."""
    bounds = _node(tree, role, name).bounds
    assert bounds is not None
    (left, top, wide, high), (width, height) = bounds, tree.screen
    right, bottom = min(width, left + wide), min(height, top + high)
    left, top = max(0, left), max(0, top)
    box = (left / width, top / height, (right - left) / width - 1e-9, (bottom - top) / height - 1e-9)
    return Expected(Action(kind, x=(left + right) / 2 / width, y=(top + bottom) / 2 / height), box)


def _has(tree: Tree, role: str, name: str, state: str) -> bool:
    return state in _node(tree, role, name).states


def _asked(form: GtkForm, kind: str) -> dict[str, Any]:
    """The elements of a kind, with the state that they must have at the end."""
    elements = list(form.shown["elements"] or ())
    for page in form.shown["pages"] or ():
        elements += page["elements"]
    return {element["name"]: form.goal[element["name"]] for element in elements if element["kind"] == kind}


def _told(tree: Tree, name: str) -> bool:
    """Whether the form tells that this was pressed or chosen last."""
    return any(node.role == "label" and node.name == f"{name} done" for node in tree.nodes())


def _pressed(form: GtkForm, tree: Tree) -> Steps:
    for name, times in _asked(form, "button").items():
        if times and not _told(tree, name):
            yield _click(tree, "push button", name)


def _set(kind: str, role: str) -> Callable[[GtkForm, Tree], Steps]:
    def rule(form: GtkForm, tree: Tree) -> Steps:
        for name, value in _asked(form, kind).items():
            if _has(tree, role, name, "checked") != value and (value or kind != "radio"):
                yield _click(tree, role, name)

    return rule


def _written(form: GtkForm, tree: Tree) -> Steps:
    for name, word in _asked(form, "entry").items():
        entry = _node(tree, "text", name)
        if (entry.text or "") == word:
            continue
        if "focused" in entry.states:
            yield Expected(Action(ActionType.TYPE, text=word))
        yield _click(tree, "text", name, ActionType.TRIPLE_CLICK if entry.text else ActionType.CLICK)


def _selected(form: GtkForm, tree: Tree) -> Steps:
    if not _has(tree, "list item", form.goal["rows"], "selected"):
        yield _click(tree, "list item", form.goal["rows"])
    if not _told(tree, "Open"):
        yield _click(tree, "push button", "Open")


def _chosen(form: GtkForm, tree: Tree) -> Steps:
    asked = next(name for name, times in form.goal.items() if times)
    menu, item = asked.split("/")
    if _told(tree, asked):
        return
    if not _has(tree, "menu", menu, "selected"):
        yield _click(tree, "menu", menu)
    yield _click(tree, "menu item", item)


def _counted(form: GtkForm, tree: Tree) -> Steps:
    labels = [node for node in tree.nodes() if node.role == "label" and node.name.isdigit() and node.bounds]
    labels.sort(key=lambda node: node.bounds[1] if node.bounds else 0)  # from top to bottom, as the form was drawn
    asked = _asked(form, "count")
    if len(labels) != len(asked):
        raise LookupError(f"{len(asked)} numbers")
    for now, (name, value) in zip((int(node.name) for node in labels), asked.items(), strict=True):
        if now != value:
            yield _click(tree, "push button", f"{name} {'+' if value > now else '-'}")


def _turned(form: GtkForm, tree: Tree) -> Steps:
    for page in form.shown["pages"]:
        for element in page["elements"]:
            if form.goal[element["name"]]:
                if not _has(tree, "page tab", page["name"], "selected"):
                    yield _click(tree, "page tab", page["name"])
                if not _has(tree, "check box", element["name"], "checked"):
                    yield _click(tree, "check box", element["name"])


_RULES: Final[dict[str, Callable[[GtkForm, Tree], Steps]]] = {
    "press": _pressed,
    "tick": _set("check", "check box"),
    "choose": _set("radio", "radio button"),
    "switch": _set("switch", "toggle button"),
    "write": _written,
    "replace": _written,
    "select": _selected,
    "menu": _chosen,
    "count": _counted,
    "page": _turned,
}
