"""Texts and keys for Android's `input`, which types what a keyboard has, and for ADBKeyBoard, which types the rest."""

from __future__ import annotations

import base64
import re
import shlex
import string
from typing import Final

from eval.actions.keys import key_name

PIECE: Final = 400  # characters of one command: the device's own commands have an end
IME: Final = "com.android.adbkeyboard/.AdbIME"  # github.com/senzhk/ADBKeyBoard
ENTER, TAB = 66, 61
# android.view.KeyEvent; a phone's own buttons come first, and `home` is its button, not the key of a keyboard
BUTTONS: Final = {"home": 3, "back": 4, "recents": 187, "appswitch": 187, "search": 84, "menu": 82}
KEYCODES: Final = {
    **{"enter": ENTER, "tab": TAB, "space": 62, "backspace": 67, "delete": 112, "esc": 111, "insert": 124, "end": 123},
    **{"pageup": 92, "pagedown": 93, "up": 19, "down": 20, "left": 21, "right": 22, "capslock": 115, "numlock": 143},
    **{"scrolllock": 116, "pause": 121, "apps": 82, "help": 259, "clear": 28, "volumeup": 24, "volumedown": 25},
    **{"volumemute": 164, "playpause": 85, "nexttrack": 87, "prevtrack": 88, "stop": 86, "browserback": 4},
    **{"browserforward": 125, "browserrefresh": 285, "browserhome": 3, "decimal": 158, "fn": 119},
    **{"ctrl": 113, "ctrlleft": 113, "ctrlright": 114, "alt": 57, "altleft": 57, "altright": 58},
    **{"shift": 59, "shiftleft": 59, "shiftright": 60, "win": 117, "winleft": 117, "winright": 118, "command": 117},
    **{f"f{number}": 130 + number for number in range(1, 13)},
    **{f"num{digit}": 144 + digit for digit in range(10)},
    **{str(digit): 7 + digit for digit in range(10)},
    **{letter: 29 + place for place, letter in enumerate(string.ascii_lowercase)},
    **{",": 55, ".": 56, "`": 68, "-": 69, "=": 70, "[": 71, "]": 72, "\\": 73, ";": 74, "'": 75, "/": 76, "@": 77},
    **{"+": 81, "*": 17, "#": 18},
}


def keycode(name: str) -> int | None:
    """Android's number of a key or button; None for one that it has not."""
    if (button := BUTTONS.get(name.lower())) is not None:
        return button
    known = key_name(name)
    return None if known is None else KEYCODES.get(known.lower())


def typing_commands(text: str) -> list[str]:
    """The commands that type a text, one after the other. A line break is the enter key, a tab the tab key."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    commands = []
    for run in re.findall(r"\n|\t|[ -~]+|[^\n\t -~]+", text):
        if run in "\n\t":
            key = ENTER if run == "\n" else TAB
            commands.append(f"input keyevent {key}")
            continue
        for start in range(0, len(run), PIECE):
            part = run[start : start + PIECE]
            commands += _keyed(part) if part.isascii() and part.isprintable() else [_committed(part)]
    return commands


def needs_keyboard(text: str) -> str | None:
    """The first character that `input` cannot type; None where it can type all."""
    return next((each for each in text if not (" " <= each <= "~" or each in "\n\t\r")), None)


def _keyed(text: str) -> list[str]:
    """`input text` reads %s as a blank, and has no way to write these two characters: they go in two commands."""
    pieces = re.split(r"(?<=%)(?=s)", text)
    return [f"input text {shlex.quote(piece.replace(' ', '%s'))}" for piece in pieces]


def _committed(text: str) -> str:
    """The keyboard takes a text in base64, which no shell between here and there can change."""
    return f"am broadcast -a ADB_INPUT_B64 --es msg {base64.b64encode(text.encode()).decode()}"
