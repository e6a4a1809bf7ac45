"""Carries out actions on a real display, over one connection that stays open.

Events go through XTest, which a program cannot tell from a person's. Nothing here sleeps a fixed time after an action:
`look` waits until the program has read its events and the screen rests. Not safe for threads: one caller at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from eval.actions import Action, ActionType
from eval.actions.action import waits
from eval.actions.geometry import Screen
from eval.desktop import ActionRefused
from eval.desktops.display.action_kinds import BY_KEYS, CLICKS, SHORTCUTS, SILENT
from eval.desktops.display.connection import LIMIT, STEP, XConnection, reachable
from eval.desktops.display.frames import Camera, Frame
from eval.desktops.display.keyboard import CannotType, PressDelay, XKeyboard
from eval.desktops.display.program_sleep import SOON_S, SleepWatch
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.display.windows import TopWindow, Windows

BUTTON_PRESS, BUTTON_RELEASE, MOTION = 4, 5, 6  # X11 protocol, event numbers
BUTTON_NUMBERS: Final = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL: Final = {"up": 4, "down": 5, "left": 6, "right": 7}
SCROLL_CLICKS: Final = 5  # where an action names no amount
CLICK_PIXELS: Final = 100  # about what programs scroll per click of the wheel
MAX_CLICKS: Final = 1000
MAX_SECONDS: Final = 60.0  # that one action may wait or hold
MAX_TEXT: Final = 100_000  # characters of one action
STILL_S: Final = 0.5  # so long a proof is awaited that the programs have read all; a film never sleeps
KEYS_S: Final = 5.0  # so long at keys whose keycodes are wanted for other characters: a busy program must have them
FOLLOW_S: Final = 0.2  # so long at a corner of a drag
LOOKS: Final = 60  # at the programs, at least, before either time ends: a busy machine may take 50 ms for each
FRAMES_S: Final = 0.034  # two frames: for them where the kernel does not tell who sleeps
DRAG_STEPS: Final = 12  # points of a drag between two points of its path: a program takes one jump for no drag


class ActionStopped(Exception):
    """The action was stopped while it was under way."""


@dataclass(frozen=True)
class Look:
    """What the screen showed. `changed`: whether it differs from the last look; `settled`: whether it came to rest."""

    frame: Frame
    changed: bool
    settled: bool


class Executor:
    """Acts on one desktop and looks at it.

    launch   starts a program by its name, for open_app; None refuses that action
    watch    of the desktop's programs. None, or one whose `asleep` answers None: nobody knows,
             and it is not asked again
    Raises DesktopGone from every method when the X server is gone.
    """

    def __init__(
        self,
        place: RunningDesktop,
        launch: Callable[[str], None] | None = None,
        watch: SleepWatch | None = None,
    ) -> None:
        self.place = place
        self.launch = launch
        self._watch = watch
        self.connection = XConnection(place)
        with reachable(place.display):
            self.pace = PressDelay(self.connection, self._prove)
            self.keyboard = XKeyboard(self.connection, self.pace, self._keys_read, self._pause)
            self.camera = Camera(self.connection)
            self.windows = Windows(self.connection)
        self.screen = Screen(*self.connection.size)
        self.interrupted = threading.Event()  # set by another thread: the present action ends at its next pause
        self._buttons: list[int] = []
        self._unread = False  # whether a click was sent that its program may not have read
        self._last: Frame | None = None
        self._since = time.monotonic()

    def close(self) -> None:
        """Releases what is pressed and closes the connection; also when the X server is gone."""
        try:
            self.release()
        finally:
            self.camera.close()
            self.connection.close()

    def release(self) -> None:
        """Releases every key and button that is down, whoever pressed it, and gives the keyboard's layout back."""
        with reachable(self.place.display):
            self.keyboard.release_all()
            mask = self.connection.x.core.QueryPointer(self.connection.root).reply().mask
            down = [button for button in range(1, 6) if mask >> (7 + button) & 1]
            for button in dict.fromkeys([*self._buttons, *down]):
                self._button(BUTTON_RELEASE, button)
            self._buttons.clear()
            self.keyboard.restore()
            self.connection.sync()

    def sync(self) -> None:
        """Returns when the X server has carried out every action."""
        with reachable(self.place.display):
            self.connection.sync()

    def pointer(self) -> tuple[int, int]:
        """Where the pointer is, in pixels."""
        with reachable(self.place.display):
            reply = self.connection.x.core.QueryPointer(self.connection.root).reply()
            return int(reply.root_x), int(reply.root_y)

    def stacked(self) -> list[tuple[int, int, int, int]]:
        """The places of the windows (left, top, width, height; pixels) with their frames, the lowest window first."""
        with reachable(self.place.display):
            return [self.windows.outer(window) for window in self.windows.listed(stacked=True)]

    def look(
        self, *, settle: bool = True, limit: float = LIMIT, prepare: Callable[[Frame], object] | None = None
    ) -> Look:
        """Takes a picture, with `settle` once the screen rests after the last action, at most `limit` s later.

        prepare  work on a picture that is likely the one, done while the screen is watched for further changes. It may
                 be called several times; the last frame that it got is the one of the Look
        """
        taken: list[tuple[float, Frame]] = []

        def take() -> None:
            # all damage up to here has been read: what is drawn after this picture is told by another one
            taken[:] = [(self.connection.last_damage, self.camera.take())]
            if prepare:
                prepare(taken[0][1])

        with reachable(self.place.display):
            asleep, wait = (self._sleep, self._watch.processor_wait) if self._watch else (None, None)
            settled = settle and self.connection.settle(
                self._since, limit=limit, meanwhile=take, asleep=asleep, processor_wait=wait
            )
            self.connection.pump()
            if settled:
                self._unread = False
                self.pace.rested()
            if not taken or taken[0][0] != self.connection.last_damage or not self.camera.same_pointer(taken[0][1]):
                take()
        frame = taken[0][1]
        changed = frame is not self._last and (self._last is None or frame.rgb != self._last.rgb)
        self._last = frame
        return Look(frame, changed, settled)

    def perform(self, actions: Sequence[Action]) -> None:
        """Does the actions one after the other, without waiting for the screen between them.

        Raises ActionRefused for the first that cannot be done; those before it are done.
        """
        self.interrupted.clear()
        for action in actions:
            with reachable(self.place.display):
                self._check(action)
                try:
                    self._do(action)
                except (CannotType, ActionStopped) as error:
                    raise ActionRefused(f"{action.type}: {error}") from None
                finally:
                    self.connection.x.flush()

    # One action

    def _check(self, action: Action) -> None:
        """Raises ActionRefused for what would be half done."""
        if action.element is not None:
            raise ActionRefused(f"{action.type}: a mark has no place here; give x and y")
        if (action.duration or 0) > MAX_SECONDS:
            raise ActionRefused(f"{action.type}: duration is {action.duration:g} s; {MAX_SECONDS:g} is the most")
        if (action.amount or 0) > MAX_CLICKS:
            raise ActionRefused(f"{action.type}: amount is {action.amount:g}; at most {MAX_CLICKS} are allowed")
        if (action.distance or 0) * max(self.connection.size) / CLICK_PIXELS > MAX_CLICKS:
            raise ActionRefused(f"{action.type}: distance is {action.distance:g}, more than {MAX_CLICKS} clicks")
        if len(action.text or action.url or "") > MAX_TEXT:
            raise ActionRefused(f"{action.type}: the text is longer than {MAX_TEXT} characters")
        if action.type is ActionType.SELECT_MONITOR and action.monitor_id:
            raise ActionRefused(f"select_monitor: there is no monitor {action.monitor_id}, only 0")
        try:
            for name in (*(action.keys or ()), *(action.modifiers or ())):
                self.keyboard.code_of(name)
        except CannotType as error:
            raise ActionRefused(f"{action.type}: {error}") from None

    def _do(self, action: Action) -> None:
        kind = action.type
        self._since = time.monotonic()
        self.pace.begin()
        if kind in SILENT or kind is ActionType.SELECT_MONITOR:
            return
        if kind in BY_KEYS:
            self._read()
        if kind in CLICKS:
            button, count = CLICKS[kind]
            self._click(action, BUTTON_NUMBERS[button or action.button or "left"], count)
        elif kind is ActionType.DRAG:
            self._drag(action)
        elif kind is ActionType.SCROLL:
            self._scroll(action)
        elif kind is ActionType.HOVER:
            with self._modifiers(action):
                self._move(action)
        elif kind is ActionType.TYPE:
            self.keyboard.type(action.text or "")
        elif kind is ActionType.CLICK_AND_TYPE:
            self._click(action, 1, 1)
            self._read()
            self.keyboard.type(action.text or "")
        elif kind in (ActionType.KEY, ActionType.HOTKEY):
            self._chord(action.keys or (), action.duration or 0.0)
        elif kind in SHORTCUTS:
            self._chord(SHORTCUTS[kind])
        elif kind is ActionType.GOTO:
            self._chord(("ctrl", "l"))
            self.connection.ping()
            self.keyboard.type(f"{action.url}\n")
        elif kind is ActionType.KEY_DOWN:
            self.keyboard.press((action.keys or ("",))[0])
        elif kind is ActionType.KEY_UP:
            self.keyboard.release((action.keys or ("",))[0])
        elif kind in (ActionType.MOUSE_DOWN, ActionType.MOUSE_UP):
            self._move(action)
            down = kind is ActionType.MOUSE_DOWN
            if down:
                self._press_next(action)
                self._unread = True
            self._button(BUTTON_PRESS if down else BUTTON_RELEASE, BUTTON_NUMBERS[action.button or "left"])
        elif kind is ActionType.WAIT:
            self._pause(waits(action))
        elif kind is ActionType.OPEN_APP:
            if self.launch is None:
                raise ActionRefused("open_app: no program can be started here")
            self.launch(action.app_name or "")
        else:
            self._window(action)

    def _pause(self, seconds: float) -> None:
        """Sends what is queued, then waits. Raises ActionStopped."""
        self.connection.sync()
        if self.interrupted.wait(seconds):
            raise ActionStopped("it was stopped")

    def _read(self) -> None:
        """Waits until a click that was sent before has been read: GTK asks where the pointer is when it reads a click,
        so a pointer that has moved on takes the click with it; and keys go where the keyboard is when they are sent."""
        if self._unread:
            self._unread = False
            self._prove()

    def _prove(self) -> None:
        """Waits until every program has read what was sent. An answer to a ping is a weaker proof: GTK gave some before
        it had done what came before them."""
        if not self._slept(STILL_S):
            self.connection.clicked()

    def _keys_read(self) -> bool:
        """Waits until the program that has the keyboard has read its keys. Whether that is known. Sleep alone proves
        nothing of a program that sleeps while it works: it answers no ping then."""
        self.connection.sync()
        answered = self.connection.ping(KEYS_S)
        return answered is not False and (self._slept(STILL_S) or bool(answered))

    def _followed(self) -> None:
        """Waits until every program has been told where the pointer is: GTK and browsers tell of one move a frame."""
        if not self._slept(FOLLOW_S, SOON_S):
            self.connection.ping()
            if not self._watch:
                time.sleep(FRAMES_S)

    def _slept(self, limit: float, soon_s: float = 0.0) -> bool:
        """Whether every program slept at some moment within `limit` s, and none of them was to wake within `soon_s`."""
        self.connection.sync()
        end, looks = time.monotonic() + limit, 0
        while self._watch and (looks < LOOKS or time.monotonic() < end):
            if self._sleep(soon_s):
                self.pace.rested()
                return True
            looks += 1
            self.connection.wait_event(STEP)
        return False

    def _sleep(self, soon_s: float = SOON_S) -> bool:
        found = self._watch.asleep(soon_s) if self._watch else None
        if found is None:  # every later proof would wait to its end for an answer that never comes
            self._watch = None
        return bool(found)

    def _motion(self, x: int, y: int) -> None:
        self.connection.xtest.FakeInput(MOTION, 0, 0, self.connection.root, x, y, 0)

    def _move(self, action: Action) -> None:
        if action.point is not None:
            self._read()
            self._motion(*self.screen.from_norm(*action.point))
            if self._buttons:
                self._followed()  # a corner of a drag

    def _button(self, kind: int, button: int) -> None:
        self.connection.xtest.FakeInput(kind, button, 0, self.connection.root, 0, 0, 0)
        if kind == BUTTON_PRESS:
            self._buttons.append(button)
        else:
            self._unread = True
            if button in self._buttons:
                self._buttons.remove(button)

    @contextmanager
    def _modifiers(self, action: Action) -> Iterator[None]:
        """Holds the keys of `modifiers`, and releases those that were not held before."""
        pressed: list[str] = []
        try:
            for name in action.modifiers or ():
                if self.keyboard.code_of(name, combined=True)[0] not in self.keyboard.held:
                    self.keyboard.press(name, combined=True)
                    pressed.append(name)
            yield
        finally:
            for name in reversed(pressed):
                self.keyboard.release(name, combined=True)

    def _press_next(self, action: Action) -> None:
        """A button is pressed next: waits where the program would lose it."""
        self.pace.click(*(self.screen.from_norm(*action.point) if action.point else self.pointer()))

    def _click(self, action: Action, button: int, count: int) -> None:
        self._move(action)
        with self._modifiers(action):
            for _ in range(count):
                self._press_next(action)
                self._button(BUTTON_PRESS, button)
                self._button(BUTTON_RELEASE, button)

    def _drag(self, action: Action) -> None:
        """Moves along the path with the button down. The program gets every corner, and points between them."""
        corners = [*([action.point] if action.point else []), *(action.path or ()), action.end or (0.0, 0.0)]
        pixels = [self.screen.from_norm(x, y) for x, y in corners]
        if action.point is None:
            pixels.insert(0, self.pointer())
        button = BUTTON_NUMBERS[action.button or "left"]
        legs = [_between(*pair) for pair in itertools.pairwise(pixels)]
        pause = (action.duration or 0.0) / sum(map(len, legs))
        self._read()
        with self._modifiers(action):
            self._motion(*pixels[0])
            self._button(BUTTON_PRESS, button)
            try:
                self._prove()
                for leg in legs:
                    for x, y in leg:
                        self._motion(x, y)
                        if pause:
                            self._pause(pause)
                    self._followed()  # also at the end: what it is dropped on must have answered
            finally:
                self._button(BUTTON_RELEASE, button)

    def _scroll(self, action: Action) -> None:
        direction = action.direction or "down"
        clicks = action.amount or SCROLL_CLICKS
        if action.distance is not None:
            side = self.connection.size[direction in ("up", "down")]
            clicks = action.distance * side / CLICK_PIXELS
        self._move(action)
        with self._modifiers(action):
            for _ in range(max(1, round(clicks))):
                self._button(BUTTON_PRESS, WHEEL[direction])
                self._button(BUTTON_RELEASE, WHEEL[direction])

    def _chord(self, keys: Sequence[str], seconds: float = 0.0) -> None:
        """Presses keys one after the other and releases them in the other order; those held before stay held."""
        combined = len(keys) > 1
        held = list(self.keyboard.held)
        pressed = []
        try:
            for name in keys:
                if self.keyboard.code_of(name, combined=combined)[0] not in held:
                    self.keyboard.press(name, combined=combined)
                    pressed.append(name)
            if seconds:
                self._pause(seconds)
        finally:
            for name in reversed(pressed):
                self.keyboard.release(name, combined=combined)

    def _window(self, action: Action) -> None:
        """window_focus, window_move, window_resize, close_app."""
        name = action.app_name if action.type is ActionType.CLOSE_APP else action.window_title
        window: TopWindow | None = self.windows.find(name)
        if window is None:
            raise ActionRefused(
                f"{action.type}: " + (f"no window is called {name!r}" if name else "no window is active")
            )
        width, height = self.connection.size
        if action.type is ActionType.CLOSE_APP:
            self.windows.close(window)
        elif action.type is ActionType.WINDOW_FOCUS:
            self.windows.focus(window)
        elif action.type is ActionType.WINDOW_MOVE:
            self.windows.move(window, *self.screen.from_norm(action.x or 0.0, action.y or 0.0))
        else:
            wide, high = (action.width or 0.0) * width, (action.height or 0.0) * height
            self.windows.resize(window, max(1, round(wide)), max(1, round(high)))


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The points from after `start` up to `end`, at most DRAG_STEPS, none twice."""
    steps = min(DRAG_STEPS, max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1))
    return [
        (round(start[0] + (end[0] - start[0]) * k / steps), round(start[1] + (end[1] - start[1]) * k / steps))
        for k in range(1, steps + 1)
    ]
