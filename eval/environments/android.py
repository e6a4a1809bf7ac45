"""The environment `android`: apps on phones and emulators that `adb` knows. See `AndroidTaskOptions`.

One kind of task so far, `contact`: the contacts app shows an empty contact, and a person with a name and a phone number
is to be saved. What the phone's own store of contacts holds is judged, never a picture: the new contact, and that all
others are as they were. Each task is drawn from its seed; the names of the two splits are different. A contact that
already has the task's name is deleted first, and no other: still, give it a phone that holds nothing of anybody's.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.config import Config, ConfigError, convert
from eval.desktop import Desktop, Expected, Score, SetupFailed, Task
from eval.environments.splits import seeds

if TYPE_CHECKING:
    from eval.desktops.android.phone import Phone
    from eval.desktops.computer import DesktopPool

FIRST: Final = {
    "train": ("Amina", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin"),
    "test": ("Anna", "Boris", "Carla", "David", "Emma", "Felix", "Gina", "Henry", "Irina", "Julia", "Kemal"),
}
LAST: Final = {
    "train": ("Abara", "Bauer", "Costa", "Dahl", "Eriksen", "Fontaine", "Greco", "Haas", "Ito", "Jansen"),
    "test": ("Adler", "Berg", "Conti", "Duarte", "Evans", "Fischer", "Gomez", "Hansen", "Ivanov", "Jung"),
}
VERSION: Final = 2  # of the contacts: a new one for each change of what is asked or how it is judged
MAX_STEPS: Final = 15
NEW: Final = "-a android.intent.action.INSERT -t vnd.android.cursor.dir/contact"
ROWS: Final = "content://com.android.contacts/data --projection display_name:mimetype:data1:data2:data3"
ROW: Final = re.compile(
    r"display_name=(.*), mimetype=vnd\.android\.cursor\.item/(\w+), data1=(.*), data2=(.*), data3=(.*)"
)
APPS_OWN: Final = ("group_membership",)  # kinds of rows that the contacts app adds on its own


class AndroidTaskOptions(Config, frozen=True):
    """
    split     which half of the names tasks are drawn from
    devices   serial numbers, as `adb devices` lists them, or HOST:PORT; none: every device that is ready there. One
              episode at a time runs on each
    tree      reads the accessibility tree at each step: for prompts that show it or marks, and for the episode
    rotation  how the phone is held, in degrees
    """

    split: Literal["train", "test"] = "test"
    devices: tuple[str, ...] | None = None
    tree: bool = True
    rotation: Literal[0, 90, 180, 270] = 0

    def check(self) -> None:
        """Raises ConfigError for a list without devices, and for a serial number that is none."""
        if self.devices is not None and not self.devices:
            raise ConfigError("options.devices: the list is empty; leave it out for every device of `adb devices`")
        for serial in self.devices or ():
            if not re.fullmatch(r"[\w.:\[\]%-]*\w", serial) or serial.startswith("-"):
                raise ConfigError(f"options.devices: {serial!r} is no serial number of `adb devices`")
        if len(set(self.devices or ())) < len(self.devices or ()):
            raise ConfigError("options.devices: a device is named twice")


class ContactScene:
    """A new contact: first name, last name and phone number."""

    def __init__(self, seed: int, split: str) -> None:
        rng = random.Random(f"contact {split} {seed}")
        self.first, self.last = rng.choice(FIRST[split]), rng.choice(LAST[split])
        self.number = f"555{rng.randint(0, 9_999_999):07}"
        self._start: Counter[str] | None = None

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @property
    def instruction(self) -> str:
        return (
            f"The contacts app shows a new contact. Give it the first name {self.first}, the last name {self.last} and "
            f"the phone number {self.number}, nothing else, and save it. Leave all other contacts as they are."
        )

    async def prepare(self, phone: Phone) -> None:
        adb = phone.adb
        where = f"display_name='{self.name}'"
        await adb.must(f'content delete --uri content://com.android.contacts/raw_contacts --where "{where}"')
        self._start = Counter(await _rows(phone))
        found = await adb.shell(f"cmd package resolve-activity --brief {NEW}", repeat=True)
        component = re.search(r"^([\w.]+)/([\w.$]+)\s*$", found.out, re.MULTILINE)
        if component is None:
            raise SetupFailed(f"{adb.serial}: no app makes contacts: {found.said}")
        await adb.must(f"am force-stop {component[1]}")
        started = await adb.shell(f"am start -W -n '{component[0].strip()}' {NEW}", repeat=True)
        if started.code or "Error" in started.out + started.err:
            raise SetupFailed(f"{adb.serial}: the contacts app does not start: {started.said}")

    def expected(self, done: Sequence[Action], tree: Tree | None) -> Expected | None:
        """The expert fills in the fields that AOSP's app calls First name, Last name and Phone, and taps Save."""
        steps: list[Action | str] = []
        for label, text in (("First name", self.first), ("Last name", self.last), ("Phone", self.number)):
            steps += [label, Action(ActionType.TYPE, text=text)]
        steps += ["Save", Action(ActionType.DONE)]
        step = steps[min(len(done), len(steps) - 1)]
        if isinstance(step, Action):
            return Expected(step)
        return None if tree is None else _tap(tree, step)

    async def judge(self, phone: Phone, done: Sequence[Action]) -> Score:
        """Solved when the phone holds this name with this number, once and with nothing else, and every other contact
        is as it was. Who says FAIL has not solved it."""
        if done and done[-1].type is ActionType.FAIL:
            return Score(0.0, False, {"gave_up": done[-1].text or True})
        assert self._start is not None, "prepared before it is judged"
        found = Counter(await _rows(phone))
        if gone := self._start - found:
            return Score(0.0, False, {"spoiled": [f"no more as it was: {row}" for row in gone]})
        new = [ROW.fullmatch(row) for row in (found - self._start).elements()]
        rows = Counter(
            (name, kind, *((given, family) if kind == "name" else (re.sub(r"\D", "", value),)))
            for name, kind, value, given, family in (row.groups() if row else ("", "", "", "", "") for row in new)
            if kind not in APPS_OWN
        )
        solved = rows == Counter([(self.name, "name", self.first, self.last), (self.name, "phone_v2", self.number)])
        return Score(float(solved), solved, {"rows": len(new)})


async def _rows(phone: Phone) -> list[str]:
    """What is stored of all contacts: a line for each name, number, address and so on."""
    told = await phone.adb.must(f"content query --uri {ROWS}")
    return [row.rstrip("\n") for row in re.split(r"^Row: \d+ ", told, flags=re.MULTILINE)[1:]]


def _tap(tree: Tree, label: str) -> Expected | None:
    """A tap in the middle of what is called so; None where the screen shows no such thing."""
    node = next((each for each in tree.nodes() if each.bounds and label in _names(each)), None)
    if node is None or node.bounds is None:
        return None
    (left, top, wide, high), (width, height) = node.bounds, tree.screen
    box = (left / width, top / height, wide / width, high / height)
    return Expected(Action(ActionType.CLICK, x=box[0] + box[2] / 2, y=box[1] + box[3] / 2), box)


def _names(node: TreeNode) -> tuple[str, ...]:
    return (node.name, node.text or "")


def tasks(count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
    """`count` tasks with the seeds from `seed` on. Raises ConfigError for a seed of the other split."""
    split = _options(options).split
    return [
        Task(f"contact-{number}", ContactScene(number, split).instruction, number, max_steps=MAX_STEPS)
        for number in seeds(split, seed, count)
    ]


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the scores beside the options: the version of the contacts."""
    return {"revision": f"contacts {VERSION}"}


def desktop(options: Mapping[str, Any]) -> Desktop:
    """A phone, for one episode at a time. Raises ConfigError, also where adb or a device is missing."""
    chosen = _options(options)
    from eval.desktops.android.live import PhoneDesktop

    phones = ready_phones(chosen.devices)
    return PhoneDesktop(
        lambda task, seed: ContactScene(seed, chosen.split), phones, tree=chosen.tree, rotation=chosen.rotation
    )


@cache
def ready_phones(devices: tuple[str, ...] | None) -> DesktopPool:
    """One set for all desktops of an evaluation. Raises ConfigError."""
    from eval.desktops.android.adb import listed_devices, missing_client
    from eval.desktops.computer import DesktopPool

    if line := missing_client():
        raise ConfigError(f"environment: android: {line}")
    if devices is not None:
        return DesktopPool(devices)
    listed = listed_devices()
    ready = [serial for serial, state in listed.items() if state == "device"]
    if not ready:
        others = "".join(f"; {serial} is {state}" for serial, state in listed.items())
        raise ConfigError(f"environment: android: `adb devices` lists no device that is ready{others}")
    return DesktopPool(ready)


def _options(options: Mapping[str, Any]) -> AndroidTaskOptions:
    chosen = convert(dict(options), AndroidTaskOptions, "options")
    chosen.check()
    return chosen
