"""Keys as openadapt-capture names them: which are modifiers, which typed text, and what PyAutoGUI calls the others.

The systems differ, and the recorder keeps what each of them says:

- Windows reports AltGr as the left ctrl and the right alt key. A character is recorded with ctrl and alt only where the
  keyboard types one (`ToUnicodeEx`), so it is text. Where ctrl or alt leave no character, the virtual key names it.
- macOS types characters with Option; with command held the character stays Option's, so that a shortcut is named by the
  character that the same key typed elsewhere in the recording. Keys of the numeric pad have a name and no character.
- X11 has names of its own (`ISO_Left_Tab`, `Next`, `KP_Enter`); a dead key types nothing until the next key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MODIFIERS: Final = {
    **dict.fromkeys(("ctrl", "ctrl_l", "ctrl_r", "control"), "ctrl"),
    **dict.fromkeys(("alt", "alt_l", "alt_r", "option"), "alt"),
    **dict.fromkeys(("shift", "shift_l", "shift_r"), "shift"),
    **dict.fromkeys(("cmd", "cmd_l", "cmd_r", "command", "meta", "super", "win"), "cmd"),
    **dict.fromkeys(("alt_gr", "iso_level3_shift", "mode_switch"), "alt_gr"),
    "fn": "fn",  # the key that it changes already has its other name
}
ORDER: Final = ("ctrl", "alt", "alt_gr", "shift", "cmd")
COMPOSING: Final = ("dead_", "multi_key", "compose")  # how the names of keys begin that only change the next one
# the recorder's names (pynput's, macOS's, X11's), in lower case -> PyAutoGUI's; those that are the same stand below
RENAMED: Final = {
    **dict.fromkeys(("page_up", "prior", "kp_prior", "kp_page_up"), "pageup"),
    **dict.fromkeys(("page_down", "next", "kp_next", "kp_page_down"), "pagedown"),
    "caps_lock": "capslock",
    "num_lock": "numlock",
    "scroll_lock": "scrolllock",
    **dict.fromkeys(("print_screen", "print", "sys_req"), "printscreen"),
    "menu": "apps",
    **dict.fromkeys(("return", "kp_enter"), "enter"),
    "escape": "esc",
    **dict.fromkeys(("iso_left_tab", "kp_tab"), "tab"),
    **{f"kp_{name}": name for name in ("home", "end", "up", "down", "left", "right", "insert", "delete")},
    **dict.fromkeys(("media_play_pause", "xf86audioplay", "xf86audiopause"), "playpause"),
    **dict.fromkeys(("media_next", "xf86audionext"), "nexttrack"),
    **dict.fromkeys(("media_previous", "xf86audioprev"), "prevtrack"),
    **dict.fromkeys(("media_volume_up", "xf86audioraisevolume"), "volumeup"),
    **dict.fromkeys(("media_volume_down", "xf86audiolowervolume"), "volumedown"),
    **dict.fromkeys(("media_volume_mute", "xf86audiomute"), "volumemute"),
    "xf86back": "browserback",
    "xf86forward": "browserforward",
    "xf86reload": "browserrefresh",
}
SAME: Final = frozenset(
    [
        *("enter", "esc", "tab", "backspace", "delete", "insert", "home", "end", "pause", "space", "clear", "decimal"),
        *("up", "down", "left", "right", *(f"f{number}" for number in range(1, 25))),
    ]
)
# macOS's names of the numeric pad's keys. `decimal` is a point or a comma, which the recording does not say: a key
PAD: Final = {
    **{f"num{digit}": str(digit) for digit in range(10)},
    **{"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "equals": "="},
}
CONTROL: Final = {"\r": "enter", "\n": "enter", "\t": "tab", "\b": "backspace", "\x1b": "esc", "\x7f": "delete"}
# Windows' virtual keys that are the same on every keyboard (winuser.h)
VIRTUAL: Final = {
    **{str(code): chr(code).lower() for code in (*range(0x30, 0x3A), *range(0x41, 0x5B))},
    **{str(0x60 + digit): str(digit) for digit in range(10)},
    **{str(0x6A): "*", str(0x6B): "+", str(0x6D): "-", str(0x6E): "decimal", str(0x6F): "/"},
    **{str(0xBB): "+", str(0xBC): ",", str(0xBD): "-", str(0xBE): "."},
}
# and those that never type: they need no modifier to be named
VIRTUAL_ALONE: Final = {
    **{str(0x0C): "clear", str(0xA6): "browserback", str(0xA7): "browserforward", str(0xA8): "browserrefresh"},
    **{str(0xAD): "volumemute", str(0xAE): "volumedown", str(0xAF): "volumeup"},
    **{str(0xB0): "nexttrack", str(0xB1): "prevtrack", str(0xB2): "stop", str(0xB3): "playpause"},
}
FUNCTION_KEYS: Final = 0xF704  # AppKit's character of F1; those of F2 to F24 follow


@dataclass(frozen=True)
class InputEvent:
    """One input event: name is click, scroll, press or release; times in seconds, places in the mouse's pixels.

    key   the key's name (enter, ctrl_l, ...) or None; `char` what it typed; `plain` the character without modifiers;
          `code` the system's own number of the key, as text
    """

    name: str
    time: float
    x: float | None = None
    y: float | None = None
    dx: float | None = None
    dy: float | None = None
    button: str | None = None
    pressed: bool | None = None
    key: str | None = None
    char: str | None = None
    plain: str | None = None
    code: str | None = None
    bound: float | None = None

    @property
    def modifier(self) -> str | None:
        """ctrl, alt, shift, cmd, alt_gr or fn; None for another key."""
        return MODIFIERS.get((self.key or "").lower())


class Keyboard:
    """What the keys of one recording mean.

    platform  as the recorder says it: win32, darwin, linux; "" for none
    events    all of the recording: on macOS they tell what a key types without Option
    """

    def __init__(self, platform: str, events: Iterable[InputEvent] = ()) -> None:
        self.platform = platform
        self.letters = _letters(events) if platform == "darwin" else {}

    def named(self, modifier: str) -> str:
        """A modifier under PyAutoGUI's name."""
        if modifier == "cmd":
            return "command" if self.platform == "darwin" else "win"
        return "altright" if modifier == "alt_gr" else modifier

    def composes(self, event: InputEvent) -> bool:
        """Whether the key types nothing itself but changes what the next one types."""
        return event.char is None and (event.key or "").lower().startswith(COMPOSING)

    def text(self, event: InputEvent, held: set[str]) -> str | None:
        """What a press typed with these modifiers held, or None when it is a key or a shortcut."""
        held = held - {"fn"}
        typed = event.char if event.char and event.char.isprintable() else None
        if held <= {"shift"} or "alt_gr" in held:
            if typed is None and event.key is not None:
                return (
                    " " if event.key == "space" else PAD.get(event.key.lower()) if self.platform == "darwin" else None
                )
            return typed
        alt_gr = self.platform == "win32" and {"ctrl", "alt"} <= held <= {"ctrl", "alt", "shift"}
        option = self.platform == "darwin" and {"alt"} <= held <= {"alt", "shift"}
        return typed if alt_gr or option else None

    def key(self, event: InputEvent, held: set[str]) -> str | None:
        """The key under PyAutoGUI's name, or None when the recording does not tell which it was."""
        if event.key:
            name = event.key.lower()
            return RENAMED.get(name) or PAD.get(name) or (name if name in SAME else None)
        if self.platform == "darwin" and "alt" in held:
            return self.letters.get(event.code or "") or next(
                (char.lower() for char in (event.char,) if char and char.isascii() and char.isprintable()), None
            )
        for char in (event.plain, event.char):
            if char is not None and len(char) == 1 and char.isprintable():
                return char.lower()
        if event.char is not None and len(event.char) == 1:
            if 1 <= ord(event.char) <= 26 and "ctrl" in held and self.platform != "linux":
                return chr(ord(event.char) + 96)  # with ctrl held a letter types a control character
            if 0 <= (number := ord(event.char) - FUNCTION_KEYS) < 24:
                return f"f{number + 1}"
            if event.char in CONTROL:
                return CONTROL[event.char]
        if self.platform == "win32":
            with_modifier = held & {"ctrl", "alt", "cmd"}
            return VIRTUAL_ALONE.get(event.code or "") or (VIRTUAL.get(event.code or "") if with_modifier else None)
        return None


def _letters(events: Iterable[InputEvent]) -> dict[str, str]:
    """The number of each key that was pressed without Option -> the character that it typed then."""
    letters: dict[str, str] = {}
    held: set[str] = set()
    for event in events:
        if (modifier := event.modifier) is not None:
            (held.add if event.name == "press" else held.discard)(modifier)
        elif event.name == "press" and event.code and event.char and event.char.isprintable() and "alt" not in held:
            if held <= {"fn"}:
                letters[event.code] = event.char.lower()
            else:
                letters.setdefault(event.code, event.char.lower())
    return letters
