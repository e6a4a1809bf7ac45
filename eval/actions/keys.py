"""Names of keys: PyAutoGUI's, which our actions use, and the spellings of others.

Every spelling of a key is read as one name (`Return`, `ENTER` and `enter` are `enter`); a dialect writes its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MODIFIERS: Final = ("ctrl", "alt", "shift", "win", "command")
SIDES: Final = tuple(f"{name}{side}" for name in ("ctrl", "alt", "shift", "win") for side in ("left", "right"))
NAMED: Final = frozenset(
    (
        *("enter", "esc", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"),
        *("up", "down", "left", "right", "capslock", "numlock", "scrolllock", "printscreen", "pause", "apps", "help"),
        *("clear", "fn", "volumeup", "volumedown", "volumemute", "playpause", "nexttrack", "prevtrack", "stop"),
        *("browserback", "browserforward", "browserrefresh", "browserhome", "decimal"),
        *(f"f{number}" for number in range(1, 25)),
        *(f"num{digit}" for digit in range(10)),
        *MODIFIERS,
        *SIDES,
    )
)
# X11's names of the characters that ASCII has beside letters and digits (keysymdef.h), in lower case
KEYSYMS: Final = {
    **{"exclam": "!", "quotedbl": '"', "numbersign": "#", "dollar": "$", "percent": "%", "ampersand": "&"},
    **{"apostrophe": "'", "parenleft": "(", "parenright": ")", "asterisk": "*", "plus": "+", "comma": ","},
    **{"minus": "-", "period": ".", "slash": "/", "colon": ":", "semicolon": ";", "less": "<", "equal": "="},
    **{"greater": ">", "question": "?", "at": "@", "bracketleft": "[", "backslash": "\\", "bracketright": "]"},
    **{"asciicircum": "^", "underscore": "_", "grave": "`", "braceleft": "{", "bar": "|", "braceright": "}"},
    "asciitilde": "~",
}
# other spellings, in lower case and without `_`, `-` and blanks
SPELLINGS: Final = {
    **dict.fromkeys(("return", "kpenter"), "enter"),
    "escape": "esc",
    "spacebar": "space",
    "bksp": "backspace",
    "del": "delete",
    "ins": "insert",
    **dict.fromkeys(("pgup", "prior"), "pageup"),
    **dict.fromkeys(("pgdn", "pgdown", "next"), "pagedown"),
    **{f"arrow{name}": name for name in ("up", "down", "left", "right")},
    **{f"{name}arrow": name for name in ("up", "down", "left", "right")},
    "control": "ctrl",
    "option": "alt",
    **dict.fromkeys(("super", "meta", "windows", "window", "os"), "win"),
    "cmd": "command",
    **{f"{name}l": f"{ours}left" for name, ours in (("control", "ctrl"), ("alt", "alt"), ("shift", "shift"))},
    **{f"{name}r": f"{ours}right" for name, ours in (("control", "ctrl"), ("alt", "alt"), ("shift", "shift"))},
    **{"superl": "winleft", "superr": "winright", "metal": "winleft", "metar": "winright"},
    **dict.fromkeys(("prtsc", "prtscr", "prntscrn", "print"), "printscreen"),
    **dict.fromkeys(("menu", "contextmenu"), "apps"),
    "capital": "capslock",
    **KEYSYMS,
}
# our name -> xdotool's, where they differ
XDOTOOL: Final = {
    **{"enter": "Return", "esc": "Escape", "tab": "Tab", "backspace": "BackSpace", "delete": "Delete"},
    **{"insert": "Insert", "home": "Home", "end": "End", "pageup": "Page_Up", "pagedown": "Page_Down"},
    **{"up": "Up", "down": "Down", "left": "Left", "right": "Right", "capslock": "Caps_Lock", "numlock": "Num_Lock"},
    **{"scrolllock": "Scroll_Lock", "printscreen": "Print", "pause": "Pause", "apps": "Menu", "win": "super"},
    **{"ctrlleft": "Control_L", "ctrlright": "Control_R", "altleft": "Alt_L", "altright": "Alt_R"},
    **{"shiftleft": "Shift_L", "shiftright": "Shift_R", "winleft": "Super_L", "winright": "Super_R", "command": "cmd"},
    **{f"f{number}": f"F{number}" for number in range(1, 25)},
    **{character: name for name, character in KEYSYMS.items()},
}
# our name -> that of OpenAI's computer tool, where it is not just in capitals
OPENAI: Final = {
    **{"up": "ARROWUP", "down": "ARROWDOWN", "left": "ARROWLEFT", "right": "ARROWRIGHT", "command": "CMD"},
}


def key_name(spelling: str) -> str | None:
    """Our name of the key that is spelled so, or None for no key that is known; a character names its own key."""
    if len(spelling) == 1:
        return "space" if spelling == " " else spelling if spelling.isprintable() else None
    if len(spelling) > 30:
        return None
    name = spelling.lower()
    for mark in "_- ":
        name = name.replace(mark, "")
    name = SPELLINGS.get(name, name)
    return name if name in NAMED or len(name) == 1 else None


def spelled(key: str, names: Mapping[str, str], *, capitals: bool = False) -> str | None:
    """How a dialect with these names spells a key of an action; None for no key that is known."""
    if (name := key_name(key)) is None:
        return None
    return names.get(name, name.upper() if capitals else name)
