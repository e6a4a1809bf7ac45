"""X11's numbers of keys and characters (keysymdef.h, XF86keysym.h), for our names of keys."""

from __future__ import annotations

from typing import Final

from eval.actions.keys import key_name

NO_SYMBOL: Final = 0
UNICODE: Final = 0x1000000  # from here on: characters outside Latin-1, by code point
VENDOR: Final = 0x10000000  # from here on: keys that a vendor added
SHIFT: Final = 0xFFE1
CAPS_LOCK: Final = 0xFFE5

NAMED_KEYS: Final = {
    **{"enter": 0xFF0D, "esc": 0xFF1B, "tab": 0xFF09, "space": 0x20, "backspace": 0xFF08, "delete": 0xFFFF},
    **{"insert": 0xFF63, "home": 0xFF50, "end": 0xFF57, "pageup": 0xFF55, "pagedown": 0xFF56},
    **{"left": 0xFF51, "up": 0xFF52, "right": 0xFF53, "down": 0xFF54},
    **{"capslock": CAPS_LOCK, "numlock": 0xFF7F, "scrolllock": 0xFF14, "printscreen": 0xFF61, "pause": 0xFF13},
    **{"apps": 0xFF67, "help": 0xFF6A, "clear": 0xFF0B, "decimal": 0xFFAE, "add": 0xFFAB, "subtract": 0xFFAD},
    **{"multiply": 0xFFAA, "divide": 0xFFAF, "separator": 0xFFAC, "select": 0xFF60, "execute": 0xFF62},
    **{"cancel": 0xFF69, "break": 0xFF6B, "begin": 0xFF58, "undo": 0xFF65, "redo": 0xFF66, "find": 0xFF68},
    **{"linefeed": 0xFF0A, "sysreq": 0xFF15, "compose": 0xFF20, "modechange": 0xFF7E, "altgr": 0xFE03},
    **{"kanji": 0xFF21, "nonconvert": 0xFF22, "convert": 0xFF23, "kana": 0xFF2D},
    **{"hangul": 0xFF31, "hanja": 0xFF34, "junja": 0xFF38},
    **{"volumeup": 0x1008FF13, "volumedown": 0x1008FF11, "volumemute": 0x1008FF12, "playpause": 0x1008FF14},
    **{"nexttrack": 0x1008FF17, "prevtrack": 0x1008FF16, "stop": 0x1008FF15},
    **{"browserback": 0x1008FF26, "browserforward": 0x1008FF27, "browserrefresh": 0x1008FF29},
    **{"browserhome": 0x1008FF18, "browserstop": 0x1008FF28, "browsersearch": 0x1008FF1B},
    **{"browserfavorites": 0x1008FF30, "launchmail": 0x1008FF19, "launchmediaselect": 0x1008FF32},
    **{"launchapp1": 0x1008FF33, "launchapp2": 0x1008FF1D, "sleep": 0x1008FF2F, "power": 0x1008FF2A},
    **{"brightnessup": 0x1008FF02, "brightnessdown": 0x1008FF03, "eject": 0x1008FF2C, "micmute": 0x1008FFB2},
    **{"record": 0x1008FF1C, "rewind": 0x1008FF3E},
    **{f"f{number}": 0xFFBD + number for number in range(1, 25)},
    **{f"num{digit}": 0xFFB0 + digit for digit in range(10)},
    **{"shift": SHIFT, "shiftleft": SHIFT, "shiftright": 0xFFE2, "ctrl": 0xFFE3, "ctrlleft": 0xFFE3},
    **{"ctrlright": 0xFFE4, "alt": 0xFFE9, "altleft": 0xFFE9, "altright": 0xFFEA},
    # a desktop of Linux has no command key: what stands in its place opens menus, as it does there
    **{"win": 0xFFEB, "winleft": 0xFFEB, "winright": 0xFFEC, "command": 0xFFEB},
}
CONTROLS: Final = {"\n": 0xFF0D, "\t": 0xFF09, "\b": 0xFF08, "\x1b": 0xFF1B, "\x7f": 0xFFFF}


def keysym_of(character: str) -> int | None:
    """The keysym that a program reads as this character; None for a control character without a key.

    Latin-1 has its own numbers; any other character is UNICODE plus its code point (X11 protocol, appendix A).
    """
    if character in CONTROLS:
        return CONTROLS[character]
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return None
    return code if code < 0x100 else UNICODE | code


def keysym_of_key(name: str) -> int | None:
    """The keysym of a key by any of its spellings, or of the character that names it; None for no key that X has."""
    known = key_name(name)
    if known is None:
        return None
    return keysym_of(known) if len(known) == 1 else NAMED_KEYS.get(known)
