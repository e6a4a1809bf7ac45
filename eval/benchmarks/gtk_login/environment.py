"""The environment `gtk-login`: the login form as a program in GTK 3 on a real desktop of 96 x 96 pixels.

It has the layouts, colours, names and passwords of the drawn environment `login`, and its splits: a pair of name and
password and a layout belong to either `train` or `test`. Everything else is real: an X server, a window manager, GTK's
own fields, letters, caret and selection, clicks and keys. The program keeps its state in a file. The judge asks it
whether the right user is logged in, and compares the rest of the home with the start (`judging.home`). The expert,
which sees what a password field holds, goes on from the program's file.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.gtk_forms.environment import GTK_PACKAGES, check_gtk
from eval.config import Config, ConfigError, convert
from eval.desktop import BrokenByAgent, Desktop, Expected, Observation, Score, SetupFailed, Task, WrappedScreen
from eval.desktops.judging import home
from eval.desktops.session import DesktopOptions
from eval.desktops.stage import DesktopStage
from eval.environments import login
from eval.environments.desktop import check_here, of_this_machine, on_desktop, servers_of
from eval.environments.login import LABEL, LOGOUT, LONGEST, MAX_STEPS, SIZE, LoginForm, Split
from eval.environments.splits import seeds
from eval.identity import TaskParts

HERE: Final = "eval.benchmarks.gtk_login.environment"
VERSION: Final = 2  # of the tasks: a new one for each change of what is asked or how it is judged
REST: Final = "Leave all files as they are."
SHOWN_S: Final = 60.0  # seconds in which the program must have drawn the form
PAUSE_S: Final = 0.05
FOLDER: Final = ".login"
PROGRAM, SHOWN, STATE = f"{FOLDER}/program.py", f"{FOLDER}/form.json", f"{FOLDER}/state.json"
CHANGES: Final = home.Allowed({STATE, f"{FOLDER}/state.new"})  # the program writes the new one, and renames it
BESIDE: Final = Action(ActionType.CLICK, x=1.0, y=1.0)  # the last row has the error line alone


class GtkLoginOptions(Config, frozen=True):
    """
    split    which half of the pairs and layouts tasks are drawn from
    disturb  the chance, before each step, that something meddles, by clicks and keys: the keyboard goes away or to
             another field, a text is typed into "Find", or the form is sent too early or with wrong credentials. When
             it is not 0, half of the forms also start filled in, most of them completely. So training episodes show how
             to go on from any state
    tree     reads the accessibility tree at each step, for prompts that show it
    role     desktops of this role of the run in place of this machine's; its servers need --screen 96x96
    """

    split: Split = "test"
    disturb: float = 0.0
    tree: bool = False
    role: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a chance that is none."""
        if not 0.0 <= self.disturb < 1.0:
            raise ConfigError("options.disturb must be from 0 to below 1")


class LoginScene:
    """One form, its expert and its judge. `form` mirrors what the program's file says."""

    def __init__(self, form: LoginForm) -> None:
        self.form = form
        self.stage: DesktopStage
        self._start: home.Home | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        self.stage = stage
        await stage.write_file(PROGRAM, _program())
        await stage.write_file(SHOWN, written(self.form))
        await stage.start(["/usr/bin/python3", PROGRAM, SHOWN, STATE])
        await stage.windows(1)
        end = time.monotonic() + SHOWN_S
        while True:
            try:
                await stage.read_file(STATE)
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise SetupFailed(f"the form is not drawn after {SHOWN_S:g} s") from None
                await asyncio.sleep(PAUSE_S)
            else:
                break
        self._start = await home.read_home(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None  # GtkLoginDesktop asks `form`, once it has read the program's file

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Solved when the right user is logged in, and the rest of the home as it was. Who says FAIL has not solved
        it."""
        await self.read()
        given_up = bool(done) and done[-1].type is ActionType.FAIL
        solved = self.form.screen == "welcome" and not given_up
        assert self._start is not None, "prepared before it is judged"
        score = Score(float(solved), solved, {"screen": self.form.screen, "given_up": given_up})
        return await home.judged(stage, self._start, CHANGES, score)

    async def read(self) -> None:
        """Brings `form` to what the program's file says. Raises BrokenByAgent where that is not the program's."""
        try:
            state = json.loads(await self.stage.read_file(STATE))
            self.form.screen, self.form.focus = state["screen"], state["focus"]
            self.form.selected, self.form.text = state["selected"], {**self.form.text, **state["text"]}
        except (ValueError, TypeError, LookupError, FileNotFoundError) as error:  # the agent can write it, too
            raise BrokenByAgent(f"{STATE} is not what the form's program writes: {error}") from None


class GtkLoginDesktop(WrappedScreen):
    """eval.desktop.Desktop over a real one. It knows what is right on each screen, and meddles where it is asked to."""

    def __init__(self, options: GtkLoginOptions) -> None:
        self.options = options
        self.scene: LoginScene
        self.rng = random.Random()
        if options.role is not None:
            from eval.desktops.remote import RemoteDesktop

            super().__init__(RemoteDesktop(self._make, servers_of(options.role), tree=options.tree))
        else:
            from eval.desktops.live import LiveDesktop

            super().__init__(LiveDesktop(self._make, DesktopOptions(screen=(SIZE, SIZE)), tree=options.tree))

    def _make(self, task: Task, seed: int) -> LoginScene:
        self.rng = random.Random(f"disturb {self.options.split} {seed}")
        form = LoginForm(login.layout(seed, self.options.split), *login.credentials(seed, self.options.split))
        if self.options.disturb and self.rng.random() < 0.5:
            form.text["user"] = form.user
            if self.rng.random() < 0.7:
                form.text["pass"] = form.password
        self.scene = LoginScene(form)
        return self.scene

    async def seen(self, observation: Observation) -> Observation:
        """With what an expert does then; after what meddles."""
        form = self.scene.form
        await self.scene.read()
        if form.screen == "form" and self.rng.random() < self.options.disturb:
            for action in meddling(form, self.rng):
                observation = await self._chosen().step(action)
            await self.scene.read()
        right, rect = form.expert()
        return replace(
            observation,
            marks=form.marks(),
            expected=Expected(right, None if rect is None else login.normalised(rect)),
            done=form.screen == "cancelled",
        )


def meddling(form: LoginForm, rng: random.Random) -> list[Action]:
    """What somebody does who meddles with this form."""
    dice, fields = rng.random(), form.layout.fields

    def typed(name: str, text: str) -> list[Action]:
        return [_press(fields[name]), Action(ActionType.TYPE, text=text)]

    if dice < 0.35:
        return [BESIDE]
    if dice < 0.7:
        return [_press(fields[rng.choice(list(fields))])]
    if dice < 0.85 and "find" in fields:
        return typed("find", rng.choice(login.USERS + login.PASSWORDS))
    if dice < 0.93:
        return [*typed("user", rng.choice(login.USERS)), *typed("pass", "x"), _press(form.layout.buttons["login"])]
    if not (form.text["user"] and form.text["pass"]):
        return [_press(form.layout.buttons["login"])]
    return []


def _press(rect: login.Rect) -> Action:
    return Action(ActionType.CLICK, x=(rect[0] + rect[2]) / 2 / SIZE, y=(rect[1] + rect[3]) / 2 / SIZE)


def written(form: LoginForm) -> bytes:
    """The file that `program` reads."""
    layout = form.layout
    fields = [
        {"name": name, "label": name.capitalize(), "hint": login.HINTS[name], "text": form.text[name], "rect": rect}
        for name, rect in layout.fields.items()
    ]
    buttons = [{"name": name, "label": name.capitalize(), "rect": rect} for name, rect in layout.buttons.items()]
    colours = {"background": layout.background, "card": layout.card, "accent": layout.accent}
    shown = {
        "size": [SIZE, SIZE],
        "user": form.user,
        "password": form.password,
        "longest": LONGEST,
        "label_width": LABEL,
        "panel": layout.panel,
        "fields": fields,
        "buttons": buttons,
        "logout": LOGOUT,
        "colours": {name: "#{:02x}{:02x}{:02x}".format(*colour) for name, colour in colours.items()},
    }
    return json.dumps(shown).encode()


@cache
def _program() -> bytes:
    return files("eval.benchmarks.gtk_login").joinpath("program.py").read_bytes()


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    chosen = _options(options)
    return [
        Task(
            f"gtk-login-{number}",
            f"{login.instruction(*login.credentials(number, chosen.split))} {REST}",
            number,
            # a disturbed episode takes longer, and nobody is measured on it
            max_steps=MAX_STEPS if not chosen.disturb else 4 * MAX_STEPS,
        )
        for number in seeds(chosen.split, seed, count)
    ]


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the version of the tasks, and what this machine cannot hide."""
    return {"revision": f"tasks {VERSION}", **of_this_machine(options)}


def parts(task: Task, options: Mapping[str, Any]) -> TaskParts:
    """What a task is made of: its form, the form's program, and all of the desktop."""
    return on_desktop(HERE, ("LoginScene",), GTK_PACKAGES, _options(options).role)


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """Another form. Raises ConfigError for a seed of the other split."""
    return tasks(1, seed, options)[0]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A real desktop, for one episode at a time. Raises ConfigError, also for what is not installed."""
    chosen = _options(options)
    if chosen.role is None:
        check_here()
        check_gtk("gtk-login")
    return GtkLoginDesktop(chosen)


def _options(options: Mapping[str, Any]) -> GtkLoginOptions:
    chosen = convert(dict(options), GtkLoginOptions, "options")
    chosen.check()
    return chosen
