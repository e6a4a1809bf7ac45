"""Recordings that openadapt-capture's own code made (tests/support/openadapt_recorder.py), through our importer.

The expected values are what the person typed and how far the wheel went, not what our rules say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval.episodes import read_episode
from tests.support.needs import need_library
from tests.unit.training.ingest.material import report
from training.data.ingest.registry import OpenAdaptConfig
from training.data.ingest.run import ingest

need_library("xcb", "libxcb.so.1")  # the recorder loads it
RECORDER = Path(__file__).parents[3] / "support" / "openadapt_recorder.py"
AT = [100, 50]


class Strokes:
    """What a person does at a keyboard, as the events of one system; a stroke takes a tenth of a second."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.time = 1.0

    def add(self, **event: Any) -> None:
        self.events.append({"t": round(self.time, 3), **event})
        self.time += 0.01

    def key(self, **key: Any) -> None:
        self.add(**key, down=True)
        self.add(**key, down=False)
        self.time += 0.08

    def held(self, modifiers: list[dict[str, Any]], **key: Any) -> None:
        for modifier in modifiers:
            self.add(**modifier, down=True)
        self.key(**key)
        for modifier in modifiers:
            self.add(**modifier, down=False)

    def scroll(self, *deltas: tuple[float, float], every: float = 0.016) -> None:
        for dx, dy in deltas:
            self.add(scroll=[dx, dy], at=AT)
            self.time += every - 0.01

    def rest(self) -> None:
        self.time += 2.0


ALT_GR = [{"vk": 0xA2}, {"vk": 0xA5}]  # Windows reports the left ctrl key with AltGr
CTRL = [{"vk": 0xA2}]
OPTION = [{"flags": 58}]
COMMAND = [{"flags": 55}]


def german_address() -> Strokes:
    """user@web.de on a German keyboard under Windows, then a price."""
    strokes = Strokes()
    for letter in "USER":
        strokes.key(vk=ord(letter))
    strokes.held(ALT_GR, vk=ord("Q"))
    for vk in (ord("W"), ord("E"), ord("B"), 0xBE, ord("D"), ord("E")):
        strokes.key(vk=vk)
    strokes.key(vk=0x0D)
    strokes.key(vk=0x61)
    strokes.key(vk=0x60)
    strokes.held(ALT_GR, vk=ord("E"))
    return strokes


def windows_shortcuts() -> Strokes:
    strokes = Strokes()
    strokes.held(CTRL, vk=ord("C"))
    strokes.held(CTRL, vk=ord("1"))  # the next tab; ToUnicodeEx knows no text for it
    strokes.held([{"vk": 0xA2}, {"vk": 0xA4}], vk=ord("T"))
    strokes.held([{"vk": 0xA2}], vk=0xBD)  # a smaller page
    strokes.held(ALT_GR, vk=0x2E)
    for modifier in ALT_GR:  # on its own
        strokes.add(**modifier, down=True)
    for modifier in ALT_GR:
        strokes.add(**modifier, down=False)
    return strokes


def dead_key() -> Strokes:
    """A dead key under Windows: the recorder keeps neither its character nor the next one's."""
    strokes = Strokes()
    strokes.key(vk=ord("A"))
    strokes.key(vk=0xDC)
    strokes.key(vk=ord("E"))
    strokes.key(vk=ord("B"))
    return strokes


def mac_address() -> Strokes:
    strokes = Strokes()
    for keycode, letter in ((32, "u"), (1, "s"), (14, "e"), (15, "r")):
        strokes.key(keycode=keycode, text=letter)
    strokes.held(OPTION, keycode=37, text="@")
    for keycode, letter in ((13, "w"), (14, "e"), (11, "b"), (47, "."), (2, "d"), (14, "e")):
        strokes.key(keycode=keycode, text=letter)
    return strokes


def mac_numpad() -> Strokes:
    """12+3 on the numeric keypad, then its Enter key."""
    strokes = Strokes()
    for keycode, letter in ((83, "1"), (84, "2"), (69, "+"), (85, "3"), (76, "\x03")):
        strokes.key(keycode=keycode, text=letter)
    return strokes


def mac_shortcuts() -> Strokes:
    strokes = Strokes()
    strokes.key(keycode=37, text="l")
    strokes.rest()
    strokes.held(COMMAND, keycode=8, text="c")
    strokes.held([*OPTION, *COMMAND], keycode=37, text="¬")  # the same key as the l before
    strokes.held(OPTION, keycode=123, text="\uf702")
    strokes.held([{"flags": 63}], keycode=117, text="\uf728")  # fn and backspace are the delete key
    return strokes


def linux_keys() -> Strokes:
    strokes = Strokes()
    alt_gr = [{"keycode": 108, "keysym": "ISO_Level3_Shift"}]
    strokes.key(keycode=38, keysym="a", text="a")
    strokes.held(alt_gr, keycode=24, keysym="at", text="@")
    strokes.key(keycode=21, keysym="dead_acute")
    strokes.key(keycode=26, keysym="e", text="é")
    strokes.key(keycode=104, keysym="KP_Enter", text="\r")
    strokes.held([{"keycode": 50, "keysym": "Shift_L"}], keycode=23, keysym="ISO_Left_Tab")
    strokes.key(keycode=117, keysym="Next")
    strokes.key(keycode=107, keysym="Print")
    return strokes


def trackpad(*deltas: tuple[float, float]) -> Strokes:
    strokes = Strokes()
    strokes.scroll(*deltas)
    return strokes


# a swipe of two fingers downwards, as they drift: 21 lines
SWIPE = [(0, -1), (0, -2), (1, -3), (1, -1), (1, 0), (0, 0), (-1, -4), (0, -5), (1, 0), (0, -3), (0, -2), (0, 0)]

RECORDINGS: dict[str, tuple[str, Strokes]] = {
    "german-address": ("win32", german_address()),
    "windows-shortcuts": ("win32", windows_shortcuts()),
    "dead-key": ("win32", dead_key()),
    "mac-address": ("darwin", mac_address()),
    "mac-numpad": ("darwin", mac_numpad()),
    "mac-shortcuts": ("darwin", mac_shortcuts()),
    "linux-keys": ("linux", linux_keys()),
    "mac-swipe": ("darwin", trackpad(*SWIPE)),
    "mac-sideways": ("darwin", trackpad((2, 0), (3, -1), (2, 0))),
    "windows-swipe": ("win32", trackpad((0, -30), (12, 0), (0, -60), (0, -90), (-6, 0), (0, -60))),
    "linux-wheel": ("linux", trackpad((0, -3), (1, 0), (0, -2))),
    "windows-sideways": ("win32", trackpad((120, 0), (240, 0))),
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """(folder, what openadapt-capture's own reader says of each recording in it)."""
    folder = tmp_path_factory.mktemp("recordings")
    wanted = [
        {"name": name, "platform": system, "events": strokes.events} for name, (system, strokes) in RECORDINGS.items()
    ]
    done = subprocess.run(
        [sys.executable, RECORDER, folder],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        env={**os.environ, "LOGURU_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"},
    )
    if "No module named 'openadapt_capture'" in done.stderr:
        pytest.skip("needs openadapt-capture: pip install -e '.[dev]', or make dev")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def ingested(folder: Path, out: Path) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """((type, text | keys | direction and amount) of each step, the report)."""
    ingest(OpenAdaptConfig(recording=str(folder)), out)
    actions = []
    for step in read_episode(next(path for path in out.iterdir() if path.is_dir())).steps:
        assert step.action is not None
        action = step.action
        values = (action.text, action.keys, action.direction, action.amount)
        actions.append((action.type.value, *(value for value in values if value is not None)))
    return actions, report(out)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("german-address", [("type", "user@web.de"), ("key", ("enter",)), ("type", "10€")]),
        ("windows-shortcuts", [
            ("hotkey", ("ctrl", "c")), ("hotkey", ("ctrl", "1")), ("hotkey", ("ctrl", "alt", "t")),
            ("hotkey", ("ctrl", "-")), ("hotkey", ("ctrl", "alt", "delete"))]),
        ("dead-key", [("type", "a"), ("type", "b")]),
        ("mac-address", [("type", "user@web.de")]),
        ("mac-numpad", [("type", "12+3"), ("key", ("enter",))]),
        ("mac-shortcuts", [
            ("type", "l"), ("hotkey", ("command", "c")), ("hotkey", ("alt", "command", "l")),
            ("hotkey", ("alt", "left")), ("key", ("delete",))]),
        ("linux-keys", [
            ("type", "a@é"), ("key", ("enter",)), ("hotkey", ("shift", "tab")), ("key", ("pagedown",)),
            ("key", ("printscreen",))]),
        ("mac-swipe", [("scroll", "down", 21.0)]),
        ("mac-sideways", [("scroll", "left", 7.0)]),
        ("windows-swipe", [("scroll", "down", 2.0)]),
        ("linux-wheel", [("scroll", "down", 5.0)]),
        ("windows-sideways", [("scroll", "right", 3.0)]),
    ],
)  # fmt: skip
def test_what_a_person_did_is_what_the_episode_says(
    recordings: tuple[Path, dict[str, Any]], tmp_path: Path, name: str, expected: list[tuple[Any, ...]]
) -> None:
    assert ingested(recordings[0] / name, tmp_path)[0] == expected


@pytest.mark.parametrize(
    ("name", "dropped", "notes"),
    [
        ("german-address", {}, {}),
        ("windows-shortcuts", {"lone_modifier": 2}, {}),
        ("dead-key", {"unknown_key": 2}, {}),
        ("linux-keys", {"composing_key": 1}, {}),
        ("mac-swipe", {}, {"scroll_drift_lines": 5}),
        ("mac-sideways", {}, {"scroll_drift_lines": 1}),
        ("mac-numpad", {}, {}),
    ],
)
def test_what_is_dropped_is_counted_and_shown(
    recordings: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    dropped: dict[str, int],
    notes: dict[str, int],
) -> None:
    _, counts = ingested(recordings[0] / name, tmp_path)
    assert (counts["steps"]["dropped"], counts["notes"]) == (dropped, notes)
    shown = capsys.readouterr().out
    assert all(f"{count:>7}  {reason}" in shown for reason, count in {**dropped, **notes}.items())


@pytest.mark.parametrize("name", ["mac-swipe", "windows-swipe", "linux-wheel"])
def test_a_scroll_goes_as_far_as_the_recorders_own_reader_says(
    recordings: tuple[Path, dict[str, Any]], tmp_path: Path, name: str
) -> None:
    lines = sum(action["dy"] for action in recordings[1][name] if action["type"].endswith("MOUSE_SCROLL"))
    assert ingested(recordings[0] / name, tmp_path)[0] == [("scroll", "down", -lines)]
