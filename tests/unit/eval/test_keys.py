"""Names of keys that others use: each is a key, or is refused because X11 has none."""

from __future__ import annotations

import pytest

from eval.actions.dialects.registry import make_dialect
from eval.actions.keys import NAMED, XDOTOOL, key_name
from eval.desktops.display.keysyms import NAMED_KEYS, keysym_of_key
from tests.support.cases import every_case

# pyautogui.KEYBOARD_KEYS of PyAutoGUI 0.9.54, without the characters that ASCII has
PYAUTOGUI = """
accept add alt altleft altright apps backspace browserback browserfavorites browserforward browserhome
browserrefresh browsersearch browserstop capslock clear convert ctrl ctrlleft ctrlright decimal del delete
divide down end enter esc escape execute f1 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f2 f20 f21 f22 f23 f24 f3
f4 f5 f6 f7 f8 f9 final fn hanguel hangul hanja help home insert junja kana kanji launchapp1 launchapp2
launchmail launchmediaselect left modechange multiply nexttrack nonconvert num0 num1 num2 num3 num4 num5 num6
num7 num8 num9 numlock pagedown pageup pause pgdn pgup playpause prevtrack print printscreen prntscrn prtsc
prtscr return right scrolllock select separator shift shiftleft shiftright sleep space stop subtract tab up
volumedown volumemute volumeup win winleft winright yen command option optionleft optionright
"""
# Playwright, usKeyboardLayout.ts, with the key that each is (X11's name of it)
PLAYWRIGHT = {
    **{"Escape": "Escape", "Backquote": "grave", "Digit1": "1", "Digit0": "0", "Minus": "minus", "Equal": "equal"},
    **{"Backslash": "backslash", "Backspace": "BackSpace", "Tab": "Tab", "KeyQ": "q", "BracketLeft": "bracketleft"},
    **{"BracketRight": "bracketright", "CapsLock": "Caps_Lock", "Semicolon": "semicolon", "Quote": "apostrophe"},
    **{"Enter": "Return", "ShiftLeft": "Shift_L", "KeyZ": "z", "Comma": "comma", "Period": "period", "Slash": "slash"},
    **{
        "ShiftRight": "Shift_R",
        "ControlLeft": "Control_L",
        "MetaLeft": "Super_L",
        "AltLeft": "Alt_L",
        "Space": "space",
    },
    **{"AltRight": "Alt_R", "AltGraph": "ISO_Level3_Shift", "MetaRight": "Super_R", "ContextMenu": "Menu"},
    **{"ControlRight": "Control_R", "PrintScreen": "Print", "ScrollLock": "Scroll_Lock", "Pause": "Pause"},
    **{
        "PageUp": "Page_Up",
        "PageDown": "Page_Down",
        "Insert": "Insert",
        "Delete": "Delete",
        "Home": "Home",
        "End": "End",
    },
    **{"ArrowLeft": "Left", "ArrowUp": "Up", "ArrowRight": "Right", "ArrowDown": "Down"},
    **{"AudioVolumeMute": "XF86AudioMute", "AudioVolumeDown": "XF86AudioLowerVolume"},
    **{"AudioVolumeUp": "XF86AudioRaiseVolume", "MediaTrackNext": "XF86AudioNext"},
    **{"MediaTrackPrevious": "XF86AudioPrev", "MediaPlayPause": "XF86AudioPlay", "NumLock": "Num_Lock"},
    **{"NumpadDivide": "KP_Divide", "NumpadMultiply": "KP_Multiply", "NumpadSubtract": "KP_Subtract"},
    **{"Numpad7": "KP_7", "Numpad0": "KP_0", "NumpadAdd": "KP_Add", "NumpadDecimal": "KP_Decimal"},
    "NumpadEnter": "Return",
}
# keysymdef.h and XF86keysym.h
KEYSYMS = {
    **{"KP_Add": 0xFFAB, "KP_Subtract": 0xFFAD, "KP_Multiply": 0xFFAA, "KP_Divide": 0xFFAF, "KP_Separator": 0xFFAC},
    **{"KP_Decimal": 0xFFAE, "KP_0": 0xFFB0, "KP_9": 0xFFB9, "XF86AudioRaiseVolume": 0x1008FF13, "Print": 0xFF61},
    **{"XF86AudioLowerVolume": 0x1008FF11, "XF86AudioMute": 0x1008FF12, "XF86AudioPlay": 0x1008FF14, "Menu": 0xFF67},
    **{"XF86AudioNext": 0x1008FF17, "XF86AudioPrev": 0x1008FF16, "XF86AudioStop": 0x1008FF15, "XF86Mail": 0x1008FF19},
    **{"ISO_Level3_Shift": 0xFE03, "Mode_switch": 0xFF7E, "Select": 0xFF60, "Execute": 0xFF62, "Cancel": 0xFF69},
    **{"Undo": 0xFF65, "Redo": 0xFF66, "Find": 0xFF68, "Break": 0xFF6B, "Sys_Req": 0xFF15, "Multi_key": 0xFF20},
    **{"Henkan": 0xFF23, "Muhenkan": 0xFF22, "Kanji": 0xFF21, "Hangul": 0xFF31, "Hangul_Hanja": 0xFF34},
    **{"eacute": 0xE9, "Eacute": 0xC9, "ssharp": 0xDF, "ydiaeresis": 0xFF, "yen": 0xA5, "division": 0xF7},
    **{"Return": 0xFF0D, "BackSpace": 0xFF08, "Escape": 0xFF1B, "grave": 0x60, "apostrophe": 0x27, "Super_L": 0xFFEB},
    **{"Control_R": 0xFFE4, "Alt_R": 0xFFEA, "Shift_R": 0xFFE2, "Page_Up": 0xFF55, "Left": 0xFF51, "minus": 0x2D},
    **{"XF86Sleep": 0x1008FF2F, "XF86Search": 0x1008FF1B, "XF86HomePage": 0x1008FF18, "XF86Favorites": 0x1008FF30},
}
# OpenAI's sample application (computers/shared/base_playwright.py) and the names that its models were seen to use
OPENAI = """
/ \\ alt arrowdown arrowleft arrowright arrowup backspace capslock cmd ctrl delete end enter esc home insert
option pagedown pageup shift space super tab win CTRL SHIFT ENTER NUMPAD_ENTER NUMPAD_ADD NUMPAD_5 PAGE_DOWN
META ALTGR
"""
WITHOUT = {"fn", "accept", "final"}  # keys of Windows and of laptops, for which X11 has no keysym


@every_case(
    "name", [*PYAUTOGUI.split(), *PLAYWRIGHT, *OPENAI.split(), *KEYSYMS, "\t", "\n", "\r", "~", "U20AC"], ids=repr
)
def test_every_name_is_a_key_or_is_refused_as_x11_has_none(name: str) -> None:
    assert key_name(name) is not None
    assert (keysym_of_key(name) is None) == (name in WITHOUT)


@every_case(("name", "symbol"), KEYSYMS.items())
def test_a_name_of_x11_is_its_keysym(name: str, symbol: int) -> None:
    assert keysym_of_key(name) == symbol


@every_case(("name", "key"), PLAYWRIGHT.items())
def test_a_name_of_playwright_is_the_same_key_as_x11s(name: str, key: str) -> None:
    assert keysym_of_key(name) == keysym_of_key(key)


@pytest.mark.parametrize(
    ("name", "character"),
    {
        "Greek_alpha": "α",
        "Greek_ALPHA": "Α",
        "Cyrillic_ya": "я",
        "Aogonek": "Ą",
        "kana_KA": "カ",
        "EuroSign": "€",
    }.items(),
)
def test_an_x11_name_of_a_character_types_it(name: str, character: str) -> None:
    assert key_name(name) == character
    assert keysym_of_key(name) == (0x1000000 | ord(character))


@pytest.mark.parametrize("name", ["greek_ALPHA", "Terminate_Server", "dead_acute", "emspace", "#", "# X11's"])
def test_what_no_key_writes_is_no_such_name(name: str) -> None:
    assert key_name(name) in (None, "#")


def test_our_names_are_one_for_each_key_and_each_has_a_keysym_but_those_that_x11_lacks() -> None:
    assert {name for name in NAMED if key_name(name) != name} == set()
    assert set(NAMED) - set(NAMED_KEYS) == WITHOUT
    assert {name for name, written in XDOTOOL.items() if key_name(written) != name} == set()


@pytest.mark.parametrize("name", ["NoSuchKey", "\ud800", "", "U110000", "x" * 31])
def test_what_is_no_key_has_no_name(name: str) -> None:
    assert key_name(name) is None


@pytest.mark.parametrize("dialect", ["anthropic-20251124", "openai", "qwen3-vl", "computer_13", "ui-tars-1.5", "dsl"])
def test_each_dialect_writes_and_reads_every_key(dialect: str) -> None:
    from eval.actions import Action, ActionType

    spoken = make_dialect(dialect, 4, False)
    for name in NAMED:
        action = Action(ActionType.KEY, keys=(name,))
        assert spoken.parse(spoken.format(action)) == action
