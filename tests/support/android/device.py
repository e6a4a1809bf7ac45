"""The phone: its settings and commands, over a Screen. What a real one prints is printed here."""

from __future__ import annotations

import base64
import itertools
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from tests.support.android import shell
from tests.support.android.screen import ACTIVITIES, EDITOR, NATURAL, Screen

IME, LATIN = "com.android.adbkeyboard/.AdbIME", "com.android.inputmethod.latin/.LatinIME"
Answer = tuple[int, bytes, bytes]


def said(text: str = "", code: int = 0, err: str = "") -> Answer:
    return code, text.encode(), err.encode()


class Device:
    """One phone. A test sets what is wrong with it:

    pictures  what the next calls of screencap print instead of a PNG of the screen
    hold      commands that hold this text wait until `go` is set
    old       an Android without `input motionevent` and `input keycombination`
    """

    def __init__(self, *, keyboard: bool = True, old: bool = False) -> None:
        self.screen = Screen()
        self.lock = threading.RLock()
        self.commands: list[str] = []
        self.pictures: list[bytes] = []
        self.hold = ""
        self.held, self.go = threading.Event(), threading.Event()
        self.old = old
        self.boot = secrets.token_hex(16)
        self.booted = True
        self.idle = True
        self.files: dict[str, bytes] = {}
        self.methods = [LATIN, *([IME] if keyboard else [])]
        self.settings = {
            ("system", "accelerometer_rotation"): "1",
            ("system", "user_rotation"): "0",
            ("secure", "default_input_method"): LATIN,
        }
        self._motion: list[tuple[int, int]] = []

    def reboot(self) -> None:
        self.boot = secrets.token_hex(16)
        self.screen = Screen()

    def command(self, line: str) -> tuple[int, bytes, bytes, bytes]:
        """What a line of shell prints: see `shell.run`."""
        self.commands.append(line)
        if self.hold and self.hold in line:
            self.held.set()
            self.go.wait()
        with self.lock:
            return shell.run(line, self._program)

    def _program(self, words: list[str]) -> Answer:
        programs: dict[str, Callable[[list[str]], Answer]] = {
            "echo": lambda args: said(" ".join(args) + "\n"),
            "true": lambda args: said(),
            "sleep": self._sleep,
            "cat": self._cat,
            "rm": self._rm,
            "getprop": lambda args: said("1\n" if self.booted and args == ["sys.boot_completed"] else "\n"),
            "settings": self._settings,
            "wm": self._wm,
            "dumpsys": self._dumpsys,
            "input": self._input,
            "am": self._am,
            "cmd": self._cmd,
            "ime": self._ime,
            "content": self._content,
            "screencap": self._screencap,
            "uiautomator": self._uiautomator,
        }
        if words[0] not in programs:
            return said(code=127, err=f"/system/bin/sh: {words[0]}: inaccessible or not found\n")
        return programs[words[0]](words[1:])

    def _sleep(self, args: list[str]) -> Answer:
        time.sleep(float(args[0]))
        return said()

    def _cat(self, args: list[str]) -> Answer:
        if args == ["/proc/sys/kernel/random/boot_id"]:
            return said(self.boot + "\n")
        if args[0] in self.files:
            return 0, self.files[args[0]], b""
        return said(code=1, err=f"cat: {args[0]}: No such file or directory\n")

    def _rm(self, args: list[str]) -> Answer:
        self.files.pop(args[1], None)
        return said()

    def _settings(self, args: list[str]) -> Answer:
        verb, space, name, *value = args
        if verb == "get":
            return said(self.settings.get((space, name), "null") + "\n")
        self.settings[space, name] = value[0]
        if self.settings["system", "accelerometer_rotation"] == "0":
            self.screen.rotation = int(self.settings["system", "user_rotation"])
        return said()

    def _wm(self, args: list[str]) -> Answer:
        if args == ["size"]:
            return said(f"Physical size: {NATURAL[0]}x{NATURAL[1]}\n")
        return said()  # dismiss-keyguard does nothing to a lock with a code

    def _dumpsys(self, args: list[str]) -> Answer:
        if args == ["power"]:
            return said(f"POWER MANAGER\n  mWakefulness={'Awake' if self.screen.awake else 'Asleep'}\n")
        if args == ["input"]:
            return said(
                f"  Viewport: orientation={self.screen.rotation}\n  SurfaceOrientation: {self.screen.rotation}\n"
            )
        return said(f"  mDreamingLockscreen={'true' if self.screen.locked else 'false'}\n")

    def _input(self, args: list[str]) -> Answer:
        screen, what, rest = self.screen, args[0], args[1:]
        if what == "tap":
            screen.tap(*map(int, rest))
        elif what == "swipe":
            x1, y1, x2, y2, ms = map(int, rest)
            screen.swipe(x1, y1, x2, y2, ms)
        elif what == "keyevent":
            if rest[0] == "--longpress":
                screen.heard.append(("held", int(rest[1])))
            else:
                screen.key(int(rest[0]))
        elif what == "text":
            return self._text(rest[0])
        elif what == "motionevent" and not self.old:
            kind, point = rest[0], (int(rest[1]), int(rest[2]))
            self._motion = [point] if kind == "DOWN" else [*self._motion, point]
            if kind == "UP":
                screen.heard.append(("path", *self._motion))
        elif what == "keycombination" and not self.old:
            screen.combination(tuple(map(int, rest)))
        else:
            return said("Error: Unknown command: " + what + "\nUsage: input [<source>] <command> [<arg>...]\n", 255)
        return said()

    def _text(self, text: str) -> Answer:
        """As InputShellCommand.sendText of AOSP reads it: %s is a blank. It has keys for ASCII only."""
        if not text.isascii():
            return said(code=255, err="java.lang.NullPointerException: Attempt to get length of null array\n")
        out, escaped = "", False
        for char in text:
            if escaped and char == "s":
                out, escaped = out[:-1] + " ", False
                continue
            out, escaped = out + char, char == "%"
        self.screen.write(out)
        return said()

    def _am(self, args: list[str]) -> Answer:
        given = {name: value for name, value in itertools.pairwise(args) if name.startswith("-")}
        if args[0] == "force-stop":
            self.screen.stop(args[1])
            return said()
        if args[0] == "broadcast":
            action = given["-a"]
            if action == "ADB_INPUT_B64" and self.settings["secure", "default_input_method"] == IME:
                self.screen.write(base64.b64decode(args[-1]).decode())
            sent = f"Broadcasting: Intent {{ act={action} flg=0x400000 (has extras) }}"
            return said(f"{sent}\nBroadcast completed: result=0\n")
        component, url = given.get("-n", ""), given.get("-d", "")
        if url and not component:
            component = "com.example.browser/.Main"
        package, _, activity = component.partition("/")
        starting = f"Starting: Intent {{ cmp={component} }}\n"
        if component != EDITOR and ACTIVITIES.get(package) != activity:
            return said(f"{starting}Error type 3\nError: Activity class {{{component}}} does not exist.\n")
        self.screen.start(component, url)
        return said(f"{starting}Status: ok\nLaunchState: COLD\nActivity: {component}\nComplete\n")

    def _cmd(self, args: list[str]) -> Answer:
        if args[:2] == ["package", "query-activities"]:
            found = "".join(f"  {package}/{activity}\n" for package, activity in ACTIVITIES.items())
            return said(f"{len(ACTIVITIES)} activities found:\n  Activity #0:\n    priority=0 isDefault=false\n{found}")
        if args[:2] == ["package", "resolve-activity"]:
            return said(f"priority=0 preferredOrder=0 match=0x608000 specificIndex=-1 isDefault=true\n{EDITOR}\n")
        return said(code=255, err=f"cmd: Can't find service: {args[0]}\n")

    def _ime(self, args: list[str]) -> Answer:
        if args[0] == "list":
            return said("".join(f"{method}\n" for method in self.methods))
        if args[1] not in self.methods:
            return said(code=255, err=f"Unknown id: {args[1]}\n")
        if args[0] == "set":
            self.settings["secure", "default_input_method"] = args[1]
        return said(f"Input method {args[1]} selected for user #0\n")

    def _content(self, args: list[str]) -> Answer:
        if args[0] == "delete":
            name = (re.search(r"display_name='([^']*)'", args[args.index("--where") + 1]) or [""])[1]
            self.screen.contacts = [each for each in self.screen.contacts if each["display_name"] != name]
            return said()
        wanted = args[args.index("--projection") + 1].split(":")
        rows = [
            ", ".join(f"{name}={row[name]}" for name in wanted) for each in self.screen.contacts for row in _rows(each)
        ]
        return said("".join(f"Row: {number} {row}\n" for number, row in enumerate(rows)) or "No result found.\n")

    def _screencap(self, args: list[str]) -> Answer:
        return 0, self.pictures.pop(0) if self.pictures else self.screen.png(), b""

    def _uiautomator(self, args: list[str]) -> Answer:
        if not self.idle:
            return said(code=1, err="ERROR: could not get idle state.\n")
        self.files[args[1]] = self.screen.dump().encode()
        return said(f"UI hierchary dumped to: {args[1]}\n")


def _rows(contact: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The rows that a phone stores of a contact."""
    values = {"name": contact["display_name"], **contact}
    for kind, value in values.items():
        if kind not in ("display_name", "first", "last"):
            more = (contact["first"], contact["last"]) if kind == "name" else ("NULL", "NULL")
            yield {
                "display_name": contact["display_name"],
                "mimetype": f"vnd.android.cursor.item/{kind}",
                **dict(zip(("data1", "data2", "data3"), (value, *more), strict=True)),
            }
