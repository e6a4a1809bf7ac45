"""Carries out actions on a real display, over one connection that stays open.

Events go through XTest, which a program cannot tell from a person's. Nothing here sleeps a fixed time after an action:
`look` waits until the program has read its events and the screen rests. Not safe for threads: one caller at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from eval.actions import Action, ActionType
from eval.actions.action import SILENT, waits
from eval.actions.geometry import Screen
from eval.desktop import ActionRefused
from eval.desktops.display.connection import LIMIT, XConnection, reachable
from eval.desktops.display.frames import Camera, Frame
from eval.desktops.display.keyboard import CannotType, XKeyboard
from eval.desktops.display.pointer import BUTTON_NUMBERS, BUTTON_PRESS, BUTTON_RELEASE, CLICK_PIXELS, XPointer
from eval.desktops.display.program_sleep import SleepWatch
from eval.desktops.display.read_proof import ReadProof
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.display.windows import TopWindow, Windows

MAX_CLICKS: Final = 1000
MAX_SECONDS: Final = 60.0  # that one action may wait or hold
MAX_TEXT: Final = 100_000  # characters of one action
# (button, None: the one that the action names; presses)
CLICKS: Final = {
    ActionType.CLICK: (None, 1),
    ActionType.DOUBLE_CLICK: (None, 2),
    ActionType.TRIPLE_CLICK: (None, 3),
    ActionType.RIGHT_CLICK: ("right", 1),
    ActionType.MIDDLE_CLICK: ("middle", 1),
}
SHORTCUTS: Final = {
    ActionType.BACK: ("alt", "left"),
    ActionType.FORWARD: ("alt", "right"),
    ActionType.REFRESH: ("f5",),
}
BY_KEYS: Final = frozenset(
    {
        *SHORTCUTS,
        ActionType.TYPE,
        ActionType.KEY,
        ActionType.HOTKEY,
        ActionType.KEY_DOWN,
        ActionType.KEY_UP,
        ActionType.GOTO,
    }
)


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
        self.connection = XConnection(place)
        with reachable(place.display):
            self.proof = ReadProof(self.connection, watch)
            self.keyboard = XKeyboard(self.connection, self.proof.pace, self.proof.keys_read, self._pause)
            self.mouse = XPointer(self.connection, self.keyboard, self.proof, self._pause)
            self.camera = Camera(self.connection)
            self.windows = Windows(self.connection)
        self.screen = Screen(*self.connection.size)
        self.interrupted = threading.Event()  # set by another thread: the present action ends at its next pause
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
            self.mouse.release_all()
            self.keyboard.restore()
            self.connection.sync()

    def sync(self) -> None:
        """Returns when the X server has carried out every action."""
        with reachable(self.place.display):
            self.connection.sync()

    def pointer(self) -> tuple[int, int]:
        """Where the pointer is, in pixels."""
        with reachable(self.place.display):
            return self.mouse.position()

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
            watch = self.proof.watch
            asleep, wait = (self.proof.asleep, watch.processor_wait) if watch else (None, None)
            settled = settle and self.connection.settle(
                self._since, limit=limit, meanwhile=take, asleep=asleep, processor_wait=wait
            )
            self.connection.pump()
            if settled:
                self.proof.unread = False
                self.proof.pace.rested()
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
        self.proof.pace.begin()
        if kind in SILENT or kind is ActionType.SELECT_MONITOR:
            return
        if kind in BY_KEYS:
            self.proof.read()
        if kind in CLICKS:
            button, count = CLICKS[kind]
            self.mouse.click(action, BUTTON_NUMBERS[button or action.button or "left"], count)
        elif kind is ActionType.DRAG:
            self.mouse.drag(action)
        elif kind is ActionType.SCROLL:
            self.mouse.scroll(action)
        elif kind is ActionType.HOVER:
            with self.mouse.keys_held(action):
                self.mouse.move(action)
        elif kind is ActionType.TYPE:
            self.keyboard.type(action.text or "")
        elif kind is ActionType.CLICK_AND_TYPE:
            self.mouse.click(action, 1, 1)
            self.proof.read()
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
            self.mouse.move(action)
            down = kind is ActionType.MOUSE_DOWN
            if down:
                self.mouse.press_next(action)
                self.proof.unread = True
            self.mouse.button(BUTTON_PRESS if down else BUTTON_RELEASE, BUTTON_NUMBERS[action.button or "left"])
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
