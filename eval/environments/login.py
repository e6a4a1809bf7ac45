"""The environment `login`: a login form with real pixels. The agent of the demo learns on it and is measured on it.

Pillow draws the screen from a state machine: a click focuses or presses the element under the pointer, typed text
goes to the focused field (a password shows as dots), and "Login" opens the welcome screen. With wrong credentials it
shows an empty form and an error line. "Find" is a field and "Cancel" a button that have nothing to do with the
task. The order of the fields and buttons, their places, sizes and the colours differ from task to task.

An episode is judged by the state in which it ends: solved when the right user is logged in at that moment. Saying
DONE() scores nothing by itself; "Cancel" ends the episode unsolved, "Log out" undoes the login, and FAIL() is never
right.

Splits: a (user, password) pair and a geometry belong to either `train` or `test`, by their digest, and the seeds of the
two are apart (see `tasks`), so no task of one split repeats a pair or a layout of the other.
"""

from __future__ import annotations

import colorsys
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from PIL import Image, ImageDraw, ImageFont

from eval.actions import Action, ActionType
from eval.actions.geometry import Box, Screen
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Observation, Score, Task
from eval.environments import drawn
from eval.environments.splits import seeds

SIZE: Final = 96  # pixels each way
UNIT: Final = 4  # every edge lies on this grid, as in interfaces with spacing tokens
LABEL, ROW, BUTTON = 28, 14, 38  # pixels: width of a label's column, height of a field, width of a button
HINTS: Final = {"user": "name", "pass": "secret", "find": "search"}  # drawn in a field while it is empty
LOGOUT: Final = (24, 60, 72, 74)  # the button on the welcome screen
CHARACTER: Final = 6  # pixels per character of Pillow's built-in bitmap font
LONGEST: Final = 12  # characters that a field takes
MAX_STEPS: Final = 12

# fmt: off
USERS: Final = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kate", "leo", "mona",
    "nina", "oscar", "peggy", "quinn", "rita", "sam", "tina", "uma", "vera", "wendy", "zoe",
)
PASSWORDS: Final = (
    "amber", "apple", "cloud", "coral", "eagle", "lemon", "maple", "olive", "piano", "river", "robot", "stone",
    "tiger", "tulip", "anchor", "bread", "candle", "forest", "garden", "hammer", "island", "jacket", "ladder",
    "mirror",
)
# fmt: on

Split = Literal["train", "test"]
Colour = tuple[int, int, int]
Rect = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are outside


class LoginOptions(Config, frozen=True):
    """
    split    which half of the pairs and layouts tasks are drawn from
    disturb  the chance, before each step, of a disturbance: the focus goes away or to another field, a text is typed
             into "Find", or the form is sent too early or with wrong credentials. When it is not 0, half of the forms
             also start filled in, most of them completely. So training episodes show how to go on from any state
    """

    split: Split = "test"
    disturb: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Where everything lies. `fields` from top to bottom, `buttons` from left to right."""

    fields: Mapping[str, Rect]
    buttons: Mapping[str, Rect]
    panel: Rect
    background: Colour
    card: Colour
    accent: Colour

    @property
    def geometry(self) -> str:
        """All but the colours: two layouts with the same one look alike."""
        return repr((sorted(self.fields.items()), sorted(self.buttons.items())))


def _side(text: str) -> Split:
    """The split that a text belongs to, the same on every machine: a quarter is for evaluation."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] < 64 else "train"


def pairs(split: Split) -> list[tuple[str, str]]:
    """The (user, password) pairs of a split."""
    return [(u, p) for u in USERS for p in PASSWORDS if _side(f"{u} {p}") == split]


def _draw_layout(rng: random.Random) -> Layout:
    names = ["user", "pass"]
    rng.shuffle(names)
    if (place := rng.randrange(4)) < 3:  # 3: there is no "Find"
        names.insert(place, "find")
    pitch = rng.choice((16, 16, 20))
    height = len(names) * pitch + 16
    width = UNIT * rng.randint(52 // UNIT, 60 // UNIT)
    left = UNIT * rng.randint(0, (SIZE - LABEL - width) // UNIT)
    top = UNIT * rng.randint(0, (SIZE - 12 - height) // UNIT)  # the last 12 pixels are the error line's
    fields = {}
    for index, name in enumerate(names):
        y = top + index * pitch + 1
        fields[name] = (left + LABEL, y, left + LABEL + width, y + ROW)
    order = ["login", "cancel"]
    rng.shuffle(order)
    y = top + len(names) * pitch + 1
    x = left + UNIT * rng.randint(0, (LABEL + width - 2 * BUTTON - 2) // UNIT)
    buttons = {name: (x + i * (BUTTON + 2), y, x + i * (BUTTON + 2) + BUTTON, y + ROW) for i, name in enumerate(order)}
    hue = colorsys.hsv_to_rgb(rng.uniform(0.5, 0.75), 0.8, 0.75)
    return Layout(
        fields=fields,
        buttons=buttons,
        panel=(left, top, left + LABEL + width, y + ROW + 1),
        background=(rng.randint(205, 245), rng.randint(205, 245), rng.randint(205, 245)),
        card=(rng.randint(240, 255), rng.randint(240, 255), rng.randint(240, 255)),
        accent=(int(255 * hue[0]), int(255 * hue[1]), int(255 * hue[2])),
    )


def layout(seed: int, split: Split) -> Layout:
    """The layout of a task; its geometry belongs to the split."""
    rng = random.Random(f"layout {split} {seed}")
    while _side((drawn := _draw_layout(rng)).geometry) != split:
        pass
    return drawn


def credentials(seed: int, split: Split) -> tuple[str, str]:
    """(user, password) of a task."""
    return random.Random(f"pair {split} {seed}").choice(pairs(split))


@cache
def _font() -> ImageFont.ImageFont:
    return ImageFont.load_default_imagefont()


def _inside(rect: Rect, x: int, y: int) -> bool:
    return rect[0] <= x < rect[2] and rect[1] <= y < rect[3]


@dataclass
class LoginForm:
    """The state machine of the form: it takes clicks at pixels, text and keys, and draws itself."""

    layout: Layout
    user: str
    password: str
    screen: Literal["form", "welcome", "cancelled"] = "form"
    focus: str | None = None
    selected: bool = False  # the focused field's text, as after clicking into it: typing replaces it
    error: str = ""
    text: dict[str, str] = field(default_factory=lambda: {"user": "", "pass": "", "find": ""})

    def click(self, x: int, y: int) -> None:
        if self.screen != "form":
            if self.screen == "welcome" and _inside(LOGOUT, x, y):
                self.screen, self.focus, self.error = "form", None, ""
                self.text = dict.fromkeys(self.text, "")
            return
        hit = next((n for n, r in {**self.layout.fields, **self.layout.buttons}.items() if _inside(r, x, y)), None)
        self.focus_on(hit if hit in self.text else None)
        if hit == "login":
            self.send()
        elif hit == "cancel":
            self.screen = "cancelled"

    def focus_on(self, name: str | None) -> None:
        self.focus = name
        self.selected = name is not None and bool(self.text[name])

    def type(self, text: str) -> None:
        if self.screen == "form" and self.focus is not None:
            before = "" if self.selected else self.text[self.focus]
            self.text[self.focus] = (before + text)[:LONGEST]
            self.selected = False

    def key(self, name: str) -> None:
        """enter sends the form, tab goes to the next field, backspace deletes; other keys do nothing."""
        if self.screen != "form" or self.focus is None:
            return
        if name in ("enter", "return"):
            self.send()
        elif name == "tab":
            names = list(self.layout.fields)
            self.focus_on(names[(names.index(self.focus) + 1) % len(names)])
        elif name == "backspace":
            self.text[self.focus] = "" if self.selected else self.text[self.focus][:-1]
            self.selected = False

    def send(self) -> None:
        if (self.text["user"], self.text["pass"]) == (self.user, self.password):
            self.screen = "welcome"
        elif self.text["user"] and self.text["pass"]:
            self.refuse()
        else:
            self.error = "Fill in all"

    def refuse(self) -> None:
        """Wrong credentials: both fields are emptied, so that an agent that misread one can start again."""
        self.error = "Wrong login"
        self.focus_on(None)
        self.text["user"] = self.text["pass"] = ""

    def expert(self) -> tuple[Action, Rect | None]:
        """What to do in this state, and the rectangle that a click must hit."""
        if self.screen != "form":
            return Action(ActionType.DONE if self.screen == "welcome" else ActionType.FAIL), None
        for name, value in (("user", self.user), ("pass", self.password)):
            if self.text[name] == value:
                continue
            if self.focus == name and (self.selected or not self.text[name]):
                return Action(ActionType.TYPE, text=value), None
            return self._click(self.layout.fields[name])
        return self._click(self.layout.buttons["login"])

    def marks(self) -> dict[int, Box]:
        """What can be clicked, numbered from 1: fields from top to bottom, then buttons from left to right."""
        if self.screen == "form":
            rects = [*self.layout.fields.values(), *self.layout.buttons.values()]
        else:
            rects = [LOGOUT] if self.screen == "welcome" else []
        return {number: normalised(rect) for number, rect in enumerate(rects, 1)}

    def _click(self, rect: Rect) -> tuple[Action, Rect]:
        x, y = (rect[0] + rect[2]) / 2 / SIZE, (rect[1] + rect[3]) / 2 / SIZE
        return Action(ActionType.CLICK, x=x, y=y), rect

    def draw(self) -> Image.Image:
        """The screen, SIZE x SIZE, RGB."""
        image = Image.new("RGB", (SIZE, SIZE), self.layout.background)
        canvas = ImageDraw.Draw(image)
        if self.screen == "form":
            canvas.rectangle(_filled(self.layout.panel), fill=self.layout.card)
            for name, rect in self.layout.fields.items():
                self._draw_field(canvas, name, rect)
            for name, rect in self.layout.buttons.items():
                self._draw_button(canvas, name, rect)
            canvas.text((4, SIZE - 12), self.error, fill=(200, 20, 20), font=_font())
        else:
            good = self.screen == "welcome"
            ink = (20, 90, 40) if good else (120, 20, 20)
            canvas.rectangle(
                (8, 16, SIZE - 9, SIZE - 17), fill=(225, 245, 225) if good else (245, 225, 225), outline=ink
            )
            canvas.text((12, 24), "Welcome" if good else "Cancelled", fill=ink, font=_font())
            if good:
                canvas.text((12, 36), self.user, fill=ink, font=_font())
                canvas.rectangle(_filled(LOGOUT), fill=(225, 225, 225), outline=(120, 120, 120))
                canvas.text((LOGOUT[0] + 3, LOGOUT[1] + 1), "Log out", fill=(60, 60, 60), font=_font())
        return image

    def _draw_field(self, canvas: ImageDraw.ImageDraw, name: str, rect: Rect) -> None:
        left, top, _, bottom = rect
        focused = self.focus == name
        shown = self.text[name][: (rect[2] - left - 8) // CHARACTER]
        end = left + 3 + CHARACTER * len(shown)
        canvas.text((left - LABEL + 1, top + 1), name.capitalize(), fill=(40, 40, 40), font=_font())
        canvas.rectangle(
            _filled(rect),
            fill=(255, 246, 190) if focused else (255, 255, 255),
            outline=self.layout.accent if focused else (150, 150, 150),
            width=2 if focused else 1,
        )
        if focused and self.selected:
            canvas.rectangle((left + 2, top + 2, end, bottom - 3), fill=(160, 200, 255))
        if not shown:
            canvas.text((left + 5, top + 1), HINTS[name], fill=(165, 165, 165), font=_font())
        elif name == "pass":
            for x in range(left + 4, end, CHARACTER):
                canvas.ellipse((x, top + 5, x + 3, top + 8), fill=(20, 20, 20))
        else:
            drawn = shown.encode("latin-1", "replace").decode("latin-1")  # Pillow's own font has no other characters
            canvas.text((left + 3, top + 1), drawn, fill=(20, 20, 20), font=_font())
        if focused and not self.selected:
            canvas.line((end + 1, top + 3, end + 1, bottom - 4), fill=(0, 0, 0))

    def _draw_button(self, canvas: ImageDraw.ImageDraw, name: str, rect: Rect) -> None:
        main = name == "login"
        canvas.rectangle(
            _filled(rect),
            fill=self.layout.accent if main else (225, 225, 225),
            outline=self.layout.accent if main else (120, 120, 120),
        )
        text = name.capitalize()
        left = (rect[0] + rect[2] - CHARACTER * len(text)) // 2
        canvas.text((left, rect[1] + 1), text, fill=(255, 255, 255) if main else (60, 60, 60), font=_font())


def _filled(rect: Rect) -> Rect:
    """The rectangle as Pillow takes it: right and bottom inside."""
    return rect[0], rect[1], rect[2] - 1, rect[3] - 1


class LoginDesktop:
    """eval.desktop.Desktop over a LoginForm."""

    def __init__(self, options: LoginOptions) -> None:
        self.options = options
        self.given_up = False
        self.rng = random.Random()

    async def reset(self, task: Task, seed: int) -> Observation:
        self.form = LoginForm(layout(seed, self.options.split), *credentials(seed, self.options.split))
        self.given_up = False
        self.rng = random.Random(f"disturb {self.options.split} {seed}")
        if self.options.disturb and self.rng.random() < 0.5:
            self.form.text["user"] = self.form.user
            if self.rng.random() < 0.7:
                self.form.text["pass"] = self.form.password
        return self._observe()

    async def step(self, action: Action) -> Observation:
        """Clicks, TYPE and KEY do what they do on a real screen; any other action does nothing, or is refused."""
        drawn.check(action)
        if action.type in (ActionType.CLICK, ActionType.DOUBLE_CLICK, ActionType.TRIPLE_CLICK) and action.point:
            self.form.click(*Screen(SIZE, SIZE).from_norm(*action.point))
        elif action.type is ActionType.TYPE and action.text is not None:
            self.form.type(action.text)
        elif action.type is ActionType.KEY and action.keys:
            self.form.key(action.keys[0])
        elif action.type is ActionType.FAIL:
            self.given_up = True
        return self._observe()

    def _observe(self) -> Observation:
        if self.rng.random() < self.options.disturb:
            self._meddle()
        action, rect = self.form.expert()
        return Observation(
            image=self.form.draw(),
            screen=(SIZE, SIZE),
            marks=self.form.marks(),
            expected=Expected(action, None if rect is None else normalised(rect)),
            done=self.form.screen == "cancelled",
        )

    def _meddle(self) -> None:
        form, dice = self.form, self.rng.random()
        if form.screen != "form":
            return
        if dice < 0.35:
            form.focus_on(None)
        elif dice < 0.7:
            form.focus_on(self.rng.choice(list(form.layout.fields)))
        elif dice < 0.85 and "find" in form.layout.fields:
            form.text["find"] = self.rng.choice(USERS + PASSWORDS)
            form.focus_on("find")
        elif dice < 0.93:
            form.refuse()
        elif not (form.text["user"] and form.text["pass"]):
            form.focus_on(None)
            form.send()

    async def score(self) -> Score:
        solved = self.form.screen == "welcome" and not self.given_up
        return Score(float(solved), solved, {"screen": self.form.screen, "given_up": self.given_up})

    async def close(self) -> None:
        pass


def normalised(rect: Rect) -> Box:
    """The box in which a point presses `rect`, normalised. Right and bottom edge lie just outside."""
    left, top, right, bottom = rect
    return left / SIZE, top / SIZE, (right - left) / SIZE - 1e-9, (bottom - top) / SIZE - 1e-9


def instruction(user: str, password: str) -> str:
    return f'Log in as "{user}" with the password "{password}".'


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    chosen = convert(dict(options), LoginOptions, "options")
    if not 0.0 <= chosen.disturb < 1.0:
        raise ConfigError("options.disturb must be from 0 to below 1")
    return [
        Task(
            f"login-{number}",
            instruction(*credentials(number, chosen.split)),
            number,
            # a disturbed episode takes longer, and nobody is measured on it
            max_steps=MAX_STEPS if not chosen.disturb else 4 * MAX_STEPS,
        )
        for number in seeds(chosen.split, seed, count)
    ]


def redraw(task: Task, seed: int, options: Mapping[str, Any]) -> Task:
    """Another form. Raises ConfigError for a seed of the other split."""
    return tasks(1, seed, options)[0]


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A desktop for one episode at a time. Raises ConfigError."""
    return LoginDesktop(convert(dict(options), LoginOptions, "options"))
