"""A phone's screen, buttons and apps as a DesktopComputer (eval.desktops.computer), over adb."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from PIL import Image

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.actions.action import asks
from eval.actions.geometry import Screen
from eval.desktop import ActionRefused, BadFrame, DesktopGone, SetupFailed
from eval.desktops.android import gestures
from eval.desktops.android.adb import Adb
from eval.desktops.android.gestures import IME, keycode, needs_keyboard, typing_commands
from eval.desktops.android.tree import tree_of
from eval.desktops.client.failures import BadAnswer, Delivery, DesktopServerFailed
from eval.desktops.computer import ShownScreen
from eval.episodes.pictures import opened

PNG: Final = b"\x89PNG\r\n\x1a\n"
NOISE: Final = 4096  # bytes of warnings that a device may print before the picture
TRIES: Final = 3  # for a picture that cannot be read
POLL_S: Final = 0.1
BOOT_S: Final = 120.0
UNLOCK_S: Final = 5.0
LOCKED: Final = re.compile(r"(?:mShowingLockscreen|mDreamingLockscreen|isKeyguardShowing|mKeyguardShowing)=true")
WAIT_S: Final = 1.0  # of a wait that names no duration
MAX_S: Final = 60.0  # that one action may wait or last
MAX_TEXT: Final = 10_000  # characters of one action; each some milliseconds on the device
DUMP: Final = "/data/local/tmp/slipway-views.xml"
WAKE, BACK = 224, 4  # android.view.KeyEvent
LAUNCHERS: Final = (
    "cmd package query-activities --brief -a android.intent.action.MAIN -c android.intent.category.LAUNCHER"
)
COMPONENT: Final = re.compile(r"^\s*([A-Za-z][\w.]*)/(\.?[\w.$]+)\s*$", re.MULTILINE)
SILENT: Final = frozenset(
    {ActionType.SCREENSHOT, ActionType.ZOOM, ActionType.DONE, ActionType.FAIL, ActionType.CALL_USER}
)
CANNOT: Final = {
    ActionType.HOVER: "a touch screen has no pointer",
    ActionType.CURSOR_POSITION: "a touch screen has no pointer",
    ActionType.MIDDLE_CLICK: "a touch screen has no buttons",
    ActionType.MOUSE_DOWN: "a touch screen has no buttons; a drag moves a finger",
    ActionType.MOUSE_UP: "a touch screen has no buttons; a drag moves a finger",
    ActionType.KEY_DOWN: "no key can be held on a phone between two actions",
    ActionType.KEY_UP: "no key can be held on a phone between two actions",
    ActionType.FORWARD: "a phone has no forward button; use the browser's menu",
    ActionType.REFRESH: "a phone has no refresh button; use the browser's menu",
    ActionType.WINDOW_FOCUS: "a phone has no windows; open the app",
    ActionType.WINDOW_MOVE: "a phone has no windows",
    ActionType.WINDOW_RESIZE: "a phone has no windows",
}


class Phone:
    """One device. `screen` has its width and height in pixels as it is held now.

    settle_s  how long to wait at most until two pictures in a row are equal
    `delivery` tells how far the last command came.
    """

    def __init__(self, adb: Adb, boot: str, settle_s: float = 2.0) -> None:
        self.adb = adb
        self._boot = boot
        self._settle_s = settle_s
        self._last: bytes | None = None
        self._absences = adb.absences
        self._before: dict[str, str] = {}  # what `prepare` changed, as commands that change it back
        self._unicode = False
        self.screen = Screen(1, 1)

    @property
    def delivery(self) -> Delivery:
        return self.adb.delivery

    @classmethod
    async def connect(
        cls, serial: str, *, settle_s: float = 2.0, limit_s: float = 60.0, patience_s: float = 10.0
    ) -> Phone:
        """Waits until the device has started. Raises InfraError."""
        adb = Adb(serial, limit_s=limit_s, patience_s=patience_s)
        await adb.connect()
        end = time.monotonic() + BOOT_S
        while (await adb.must("getprop sys.boot_completed")).strip() != "1":
            if time.monotonic() > end:
                raise SetupFailed(f"{serial}: the device has not started within {BOOT_S:g} s")
            await asyncio.sleep(1.0)
        phone = cls(adb, await _boot(adb), settle_s)
        phone.screen = await phone.size()
        return phone

    # The device

    async def size(self) -> Screen:
        """Width and height in pixels, as the device is held now. Raises BadAnswer."""
        printed = await self.adb.must("wm size; dumpsys input")
        sizes: dict[str, str] = dict(re.findall(r"(Physical|Override) size: (\d{1,5}x\d{1,5})", printed))
        turned = re.search(r"SurfaceOrientation: ([0-3])", printed) or re.search(r"orientation=([0-3])", printed)
        if not sizes:
            raise BadAnswer(f"{self.adb.serial}: wm size: {printed[:200]!r}")
        width, height = map(int, (sizes.get("Override") or sizes["Physical"]).split("x"))
        return Screen(height, width) if turned and turned[1] in "13" else Screen(width, height)

    async def prepare(self, rotation: int = 0) -> None:
        """Wakes and unlocks the device, holds it at `rotation` (degrees), and takes ADBKeyBoard where it is installed.

        `close` gives the device back its own rotation and keyboard. Raises SetupFailed for a device with a lock.
        """
        await self._wake()
        kept = {}
        for name in ("accelerometer_rotation", "user_rotation"):
            value = (await self.adb.must(f"settings get system {name}")).strip()
            if value.isdigit():
                kept[name] = f"settings put system {name} {value}"
        self._before = {**kept, **self._before}
        await self.adb.must("settings put system accelerometer_rotation 0")
        await self.adb.must(f"settings put system user_rotation {rotation // 90}")
        if IME in (await self.adb.must("ime list -s -a")).split():
            method = (await self.adb.must("settings get secure default_input_method")).strip()
            if method != IME and "/" in method:
                self._before.setdefault("keyboard", f"ime set {shlex.quote(method)}")
            await self.adb.must(f"ime enable {IME}")
            await self.adb.must(f"ime set {IME}")
            self._unicode = True
        self.screen = await self.size()

    async def _wake(self) -> None:
        if "mWakefulness=Awake" not in await self.adb.must("dumpsys power"):
            await self.adb.must(f"input keyevent {WAKE}")
        await self.adb.must("wm dismiss-keyguard")
        end = time.monotonic() + UNLOCK_S
        while LOCKED.search(await self.adb.must("dumpsys window")):
            if time.monotonic() > end:
                raise SetupFailed(f"{self.adb.serial}: the screen is locked; take the PIN or pattern away")
            await asyncio.sleep(POLL_S)

    # DesktopComputer

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        for action in actions:
            await self._do(action)
        return await self.look()

    async def look(self) -> ShownScreen:
        """The screen once two pictures in a row are equal, or after `settle_s`. Raises BadFrame."""
        before, end = self._last, time.monotonic() + self._settle_s
        picture = await self._picture()
        if picture.getbbox() is None and "mWakefulness=Awake" not in await self.adb.must("dumpsys power"):
            await self._wake()  # it went dark while nobody touched it
            picture = await self._picture()
        settled = False
        while not settled and time.monotonic() < end:
            await asyncio.sleep(POLL_S)
            following = await self._picture()
            settled, picture = _same(following, picture), following
        if self.adb.absences != self._absences:  # it was away: as it was, or started anew?
            if await _boot(self.adb) != self._boot:
                raise DesktopGone(f"{self.adb.serial}: the device was started anew")
            self._absences = self.adb.absences
        self.screen = Screen(*picture.size)
        self._last = picture.tobytes()
        return ShownScreen(picture, None, self._last != before, settled)

    async def accessibility(self) -> Tree:
        """What uiautomator tells of the screen. It waits for a screen that rests, and tells nothing of one that never
        does, as a video: `Tree.cut` says so."""
        reading = f"rm -f {DUMP}; uiautomator dump {DUMP} && cat {DUMP}; rm -f {DUMP}"
        printed = await self.adb.shell(reading, repeat=True)
        dump = printed.out if "<hierarchy" in printed.out else printed.said
        return tree_of(dump, (self.screen.width, self.screen.height))

    async def release(self) -> None:
        """Nothing: no key and no finger stays down between two actions."""

    async def answers(self) -> bool:
        """Whether the device does a command. What was given up ended with its client, or goes on to its end."""
        return (await self.adb.shell("true", repeat=True)).code == 0

    async def close(self) -> None:
        """Gives the device back its rotation and keyboard; also a device that is gone already."""
        before, self._before = self._before, {}
        for command in before.values():
            await self.adb.shell(command, repeat=True)

    # One action

    async def _do(self, action: Action) -> None:
        kind = action.type
        self._check(action)
        if kind in SILENT or kind is ActionType.SELECT_MONITOR:
            return
        if kind is ActionType.WAIT:
            await asyncio.sleep(WAIT_S if action.duration is None else action.duration)
        elif kind is ActionType.TYPE:
            await self._type(action)
        elif kind is ActionType.CLICK_AND_TYPE:
            await self._input(gestures.of(action, self.screen), action)
            await self._type(action)
        elif kind is ActionType.KEY:
            held = "--longpress " if (action.duration or 0) >= gestures.LONG_S else ""
            await self._input([f"input keyevent {held}{self._codes(action)[0]}"], action)
        elif kind is ActionType.HOTKEY:
            await self._input([f"input keycombination {' '.join(map(str, self._codes(action)))}"], action)
        elif kind is ActionType.BACK:
            await self._input([f"input keyevent {BACK}"], action)
        elif kind is ActionType.GOTO:
            await self._goto(action.url or "")
        elif kind is ActionType.OPEN_APP:
            package, activity = await self._app(action.app_name or "")
            await self._start(f"am start -W -n {shlex.quote(f'{package}/{activity}')}", action)
        elif kind is ActionType.CLOSE_APP:
            package, _ = await self._app(action.app_name or "")
            await self._input([f"am force-stop {shlex.quote(package)}"], action)
        else:
            await self._input(gestures.of(action, self.screen), action)

    def _check(self, action: Action) -> None:
        """Raises ActionRefused for what would be half done, or cannot be done."""
        kind = action.type
        if (why := CANNOT.get(kind)) is not None:
            raise ActionRefused(f"{kind}: {why}")
        if action.element is not None:
            raise ActionRefused(f"{kind}: a mark has no place here; give x and y")
        if action.modifiers or action.button not in (None, "left"):
            raise ActionRefused(f"{kind}: a finger has no buttons, and no keys are held with it")
        if (action.duration or 0) > MAX_S:
            raise ActionRefused(f"{kind}: duration is {action.duration:g} s; {MAX_S:g} is the most")
        if action.monitor_id:
            raise ActionRefused(f"{kind}: there is no screen {action.monitor_id}; only 0")
        text = action.text or ""
        if kind in (ActionType.TYPE, ActionType.CLICK_AND_TYPE):
            if len(text) > MAX_TEXT:
                raise ActionRefused(f"{kind}: the text is longer than {MAX_TEXT} characters")
            if not self._unicode and (wrong := needs_keyboard(text)):
                raise ActionRefused(
                    f"{kind}: this phone takes ASCII only, not U+{ord(wrong):04X}: it has no ADBKeyBoard"
                )
            if "\0" in text:
                raise ActionRefused(f"{kind}: U+0000 is no character that can be typed")
        for name in action.keys or ():
            if keycode(name) is None:
                raise ActionRefused(f"{kind}: a phone has no key {name!r}")

    def _codes(self, action: Action) -> list[int]:
        return [code for name in action.keys or () if (code := keycode(name)) is not None]

    async def _type(self, action: Action) -> None:
        for command in typing_commands(action.text or ""):
            await self._input([command], action)

    async def _input(self, commands: Sequence[str], action: Action) -> None:
        """Runs commands at once, in one shell, and never twice. Raises ActionRefused for what this Android lacks."""
        done = await self.adb.shell(" && ".join(commands), repeat=False, asked_s=asks(action))
        if done.code and re.search(r"[Uu]nknown (?:command|option)", done.said):
            words = " ".join(commands[0].split()[:2])
            raise ActionRefused(f"this phone's Android is too old for `{words}`")
        if done.code:
            raise DesktopServerFailed(f"{self.adb.serial}: {commands[0][:80]}: status {done.code}: {done.said}")

    async def _start(self, command: str, action: Action) -> None:
        done = await self.adb.shell(command, repeat=False)
        if done.code or re.search(r"^Error", done.out + done.err, re.MULTILINE):
            raise ActionRefused(f"{action.type}: the phone could not start it: {done.said}")

    async def _goto(self, url: str) -> None:
        bare = "://" not in url and re.match(r"(?:[\w-]+\.[\w.-]+|localhost)(?:[:/?#]|$)", url)  # and no tel:112
        whole = f"https://{url}" if bare else url
        try:
            parts = urlsplit(whole)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.netloc or "\0" in whole:
            raise ActionRefused(f"goto: {url[:200]!r} is no address of the web")
        await self._start(
            f"am start -W -a android.intent.action.VIEW -d {shlex.quote(whole)}", Action(ActionType.GOTO, url=url)
        )

    async def _app(self, name: str) -> tuple[str, str]:
        """Package and activity of an app: by its package, or a part of it such as `settings`. Raises ActionRefused."""
        apps: list[tuple[str, str]] = COMPONENT.findall(await self.adb.must(LAUNCHERS))
        wanted = "".join(name.lower().split())
        whole = {app[0]: app for app in apps if wanted in (app[0].lower(), "/".join(app).lower())}
        parts = {app[0]: app for app in apps if wanted in app[0].lower().split(".")}
        if len(found := whole or parts) == 1:
            return next(iter(found.values()))
        if found:
            raise ActionRefused(f"more than one app is called {name[:80]!r}: {', '.join(found)}")
        shown = ", ".join(sorted({package for package, _ in apps})[:60])
        raise ActionRefused(f"no app is called {name[:80]!r}; there are {shown}")

    # Pictures

    async def _picture(self) -> Image.Image:
        for attempt in range(TRIES):
            try:
                return self._read(await self.adb.read("screencap -p"))
            except BadFrame:
                if attempt + 1 == TRIES:
                    raise
            await asyncio.sleep(POLL_S)
        raise AssertionError

    def _read(self, data: bytes) -> Image.Image:
        """Raises BadFrame."""
        start = data.find(PNG, 0, NOISE)
        if start < 0:
            raise BadFrame(f"{self.adb.serial}: no PNG, but {data[:80]!r}")
        image = opened(data[start:], f"{self.adb.serial}: a picture that cannot be read", formats=["PNG"])
        size, known = sorted(image.size), sorted((self.screen.width, self.screen.height))
        if size != known:
            raise BadFrame(f"{self.adb.serial}: a picture of {image.size}; the screen has {tuple(known)}")
        return image


def _same(one: Image.Image, other: Image.Image) -> bool:
    return one.size == other.size and one.tobytes() == other.tobytes()


async def _boot(adb: Adb) -> str:
    """Another one after each start of the device."""
    return (await adb.must("cat /proc/sys/kernel/random/boot_id")).strip()
