"""Names of keys: PyAutoGUI's, which our actions use, and the spellings of others: X11, xdotool and with it Anthropic,
Playwright, OpenAI.

Every spelling of a key is read as one name (`Return`, `ENTER` and `enter` are `enter`); a dialect writes its own. A
name that is known need not be a key of a desktop: X11 has none for `fn`, and a desktop refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

MODIFIERS: Final = ("ctrl", "alt", "shift", "win", "command", "altgr")
SIDES: Final = tuple(f"{name}{side}" for name in ("ctrl", "alt", "shift", "win") for side in ("left", "right"))
NAMED: Final = frozenset(
    (
        *("enter", "esc", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"),
        *("up", "down", "left", "right", "capslock", "numlock", "scrolllock", "printscreen", "pause", "apps", "help"),
        *("clear", "fn", "volumeup", "volumedown", "volumemute", "playpause", "nexttrack", "prevtrack", "stop"),
        *("browserback", "browserforward", "browserrefresh", "browserhome", "decimal"),
        *("browserstop", "browsersearch", "browserfavorites", "launchmail", "launchmediaselect", "launchapp1"),
        *("launchapp2", "sleep", "power", "brightnessup", "brightnessdown", "eject", "micmute", "record", "rewind"),
        *("add", "subtract", "multiply", "divide", "separator", "select", "execute", "cancel", "break", "begin"),
        *("undo", "redo", "find", "linefeed", "sysreq", "compose", "convert", "nonconvert", "kana", "kanji"),
        *("hangul", "hanja", "junja", "modechange", "accept", "final"),
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
# X11's names of the characters of Latin-1 above ASCII, in their order from 0xA0 on. These alone depend on capitals
_LATIN: Final = """
nobreakspace exclamdown cent sterling currency yen brokenbar section diaeresis copyright ordfeminine
guillemotleft notsign hyphen registered macron degree plusminus twosuperior threesuperior acute mu paragraph
periodcentered cedilla onesuperior masculine guillemotright onequarter onehalf threequarters questiondown
Agrave Aacute Acircumflex Atilde Adiaeresis Aring AE Ccedilla Egrave Eacute Ecircumflex Ediaeresis Igrave
Iacute Icircumflex Idiaeresis ETH Ntilde Ograve Oacute Ocircumflex Otilde Odiaeresis - Oslash Ugrave Uacute
Ucircumflex Udiaeresis Yacute THORN ssharp agrave aacute acircumflex atilde adiaeresis aring ae ccedilla
egrave eacute ecircumflex ediaeresis igrave iacute icircumflex idiaeresis eth ntilde ograve oacute ocircumflex
otilde odiaeresis division oslash ugrave uacute ucircumflex udiaeresis yacute thorn ydiaeresis
"""
# `multiply`, X11's for 0xD7, is the keypad's
LATIN: Final = {name: chr(0xA0 + place) for place, name in enumerate(_LATIN.split()) if name != "-"} | {
    "EuroSign": "\u20ac"
}
_KEYPAD: Final = {
    **{name: name for name in ("add", "subtract", "multiply", "divide", "separator", "decimal", "begin")},
    **{"comma": "separator", "dot": "decimal", "enter": "enter", "equal": "=", "space": "space", "tab": "tab"},
    **{name: name for name in ("home", "end", "up", "down", "left", "right", "insert", "delete", "pageup", "pagedown")},
    **{"prior": "pageup", "next": "pagedown", "parenleft": "(", "parenright": ")", "backspace": "backspace"},
    **{str(digit): f"num{digit}" for digit in range(10)},
    **{f"f{number}": f"f{number}" for number in range(1, 5)},
}
_MEDIA: Final = {
    **{"volumeup": ("raisevolume", "volumeup"), "volumedown": ("lowervolume", "volumedown")},
    **{"volumemute": ("mute", "volumemute"), "playpause": ("play", "pause"), "stop": ("stop",)},
    **{"nexttrack": ("next",), "prevtrack": ("prev",), "micmute": ("micmute",), "record": ("record",)},
    **{"rewind": ("rewind",), "launchmediaselect": ("media",)},
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
    **{f"{pad}{name}": ours for pad in ("kp", "numpad") for name, ours in _KEYPAD.items()},
    **{f"{maker}audio{name}": ours for maker in ("xf86", "") for ours, all_ in _MEDIA.items() for name in all_},
    **{"mediatracknext": "nexttrack", "mediatrackprevious": "prevtrack", "mediastop": "stop"},
    **{"mediaplaypause": "playpause", "mediaplay": "playpause", "mediapause": "playpause", "play": "playpause"},
    **{f"xf86{name}": f"browser{name}" for name in ("back", "forward", "refresh", "stop", "search", "favorites")},
    **{"xf86homepage": "browserhome", "xf86reload": "browserrefresh", "xf86mail": "launchmail"},
    **{"xf86calculator": "launchapp2", "xf86mycomputer": "launchapp1"},
    **{
        "launchmediaplayer": "launchmediaselect",
        "launchapplication1": "launchapp1",
        "launchapplication2": "launchapp2",
    },
    **{"xf86sleep": "sleep", "xf86poweroff": "power", "xf86eject": "eject"},
    **{"xf86monbrightnessup": "brightnessup", "xf86monbrightnessdown": "brightnessdown"},
    **dict.fromkeys(("altgraph", "isolevel3shift"), "altgr"),
    **{"modeswitch": "modechange", "multikey": "compose", "hanguel": "hangul", "optionleft": "altleft"},
    **{"optionright": "altright", "controlleft": "ctrlleft", "controlright": "ctrlright", "metaleft": "winleft"},
    **{"metaright": "winright", "osleft": "winleft", "osright": "winright", "controlormeta": "ctrl"},
    **{"henkan": "convert", "henkanmode": "convert", "muhenkan": "nonconvert", "kanamode": "kana", "kanalock": "kana"},
    **{"hangulhanja": "hanja", "hanjamode": "hanja", "hanguljeonja": "junja", "junjamode": "junja"},
    **{"hangulmode": "hangul", "kanjimode": "kanji", "finalmode": "final", "again": "redo"},
    **{"backquote": "`", "quote": "'", "quoteleft": "`", "quoteright": "'", "hash": "#", "pound": "#"},
    **{"intlbackslash": "\\", "intlyen": "\u00a5", "isolefttab": "tab", "backtab": "tab"},
    **{f"digit{digit}": str(digit) for digit in range(10)},
    **{f"key{letter}": letter for letter in "abcdefghijklmnopqrstuvwxyz"},
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
    **{f"num{digit}": f"KP_{digit}" for digit in range(10)},
    **{name: f"KP_{name.capitalize()}" for name in ("add", "subtract", "multiply", "divide", "separator", "decimal")},
    **{"altgr": "ISO_Level3_Shift", "volumeup": "XF86AudioRaiseVolume", "volumedown": "XF86AudioLowerVolume"},
    **{"volumemute": "XF86AudioMute", "playpause": "XF86AudioPlay", "nexttrack": "XF86AudioNext"},
    **{"prevtrack": "XF86AudioPrev", "stop": "XF86AudioStop"},
    **{character: name for name, character in KEYSYMS.items()},
}
# our name -> that of OpenAI's computer tool, where it is not just in capitals
OPENAI: Final = {
    **{"up": "ARROWUP", "down": "ARROWDOWN", "left": "ARROWLEFT", "right": "ARROWRIGHT", "command": "CMD"},
}


CONTROLS: Final = {" ": "space", "\t": "tab", "\n": "enter", "\r": "enter", "\b": "backspace", "\x1b": "esc"}
# as XStringToKeysym reads it: U20AC
CODE_POINT: Final = re.compile(r"U(0?[0-9A-Fa-f]{4,5})")


def key_name(spelling: str) -> str | None:
    """Our name of the key that is spelled so, or None for no key that is known; a character names its own key."""
    if len(spelling) == 1:
        return CONTROLS.get(spelling, spelling) if spelling in CONTROLS or spelling.isprintable() else None
    if len(spelling) > 30:
        return None
    if spelling in LATIN:
        return LATIN[spelling]
    if (code := CODE_POINT.fullmatch(spelling)) is not None and (character := chr(int(code[1], 16))).isprintable():
        return character
    name = spelling.lower()
    for mark in "_- ":
        name = name.replace(mark, "")
    name = SPELLINGS.get(name, name)
    return name if name in NAMED or len(name) == 1 else _x11_characters().get(spelling)


@cache
def _x11_characters() -> dict[str, str]:
    """X11's names of the characters outside Latin-1, such as `Greek_alpha`; capitals count."""
    text = files("eval.actions").joinpath("x11_characters.txt").read_text("ascii")
    pairs = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: chr(int(code, 16)) for name, code in pairs}


def spelled(key: str, names: Mapping[str, str], *, capitals: bool = False) -> str | None:
    """How a dialect with these names spells a key of an action; None for no key that is known."""
    if (name := key_name(key)) is None:
        return None
    return names.get(name, name.upper() if capitals else name)
