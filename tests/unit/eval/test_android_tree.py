"""What a phone's views are in a tree, and that no dump ends an evaluation."""

from __future__ import annotations

import pytest

from eval.desktops.android.gestures import keycode, typing_commands
from eval.desktops.android.tree import DEEPEST, MOST_NODES, tree_of

SCREEN = (1080, 2400)


def node(inner: str = "", **given: str) -> str:
    words = {"class": "android.view.View", "bounds": "[0,0][1080,2400]", "package": "p", **given}
    attributes = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in words.items())
    return f"<node {attributes}>{inner}</node>"


def dump(inner: str) -> str:
    return f'UI hierchary dumped to: /x\n<?xml version="1.0"?><hierarchy rotation="0">{inner}</hierarchy>\n'


@pytest.mark.parametrize(
    ("given", "role", "name", "text"),
    [
        ({"class": "android.widget.Button", "text": "OK"}, "push button", "OK", None),
        (
            {"class": "android.widget.ImageButton", "content_desc": "Back"},
            "push button",
            "Back",
            None,
        ),
        ({"class": "android.widget.EditText", "text": "typed", "hint": "Name"}, "entry", "Name", "typed"),
        ({"class": "android.widget.EditText", "text": "••••", "password": "true"}, "password text", "", None),
        ({"class": "android.widget.Switch", "checkable": "true", "checked": "true"}, "toggle button", "", None),
        ({"class": "android.widget.TextView", "text": "only read"}, "label", "only read", None),
        ({"class": "android.widget.TextView", "text": "tapped", "clickable": "true"}, "push button", "tapped", None),
        ({"class": "com.acme.Shiny"}, "panel", "", None),
        ({"class": "com.acme.Shiny", "long_clickable": "true"}, "push button", "", None),
    ],
)
def test_a_view_is_what_a_desktop_calls_it(given: dict[str, str], role: str, name: str, text: str | None) -> None:
    found = list(tree_of(dump(node(**given)), SCREEN).nodes())[2]
    assert (found.role, found.name, found.text) == (role, name, text)


def test_a_row_is_called_what_its_parts_say() -> None:
    label = node(**{"class": "android.widget.TextView", "text": "Bluetooth"})
    below = node(**{"class": "android.widget.TextView", "text": "On"})
    found = list(tree_of(dump(node(node(label) + below, clickable="true")), SCREEN).nodes())[2]
    assert (found.role, found.name) == ("push button", "Bluetooth, On")


def test_places_are_pixels_and_windows_lie_in_their_order() -> None:
    tree = tree_of(dump(node(bounds="[10,20][110,220]", package="a") + node(bounds="[0,0][0,0]", package="b")), SCREEN)
    assert [each.name for each in tree.applications] == ["a", "b"]
    assert tree.windows == [(10, 20, 100, 200)]
    assert tree.screen == SCREEN


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("", "no answer"),
        ("ERROR: could not get idle state.", "could not get idle state"),
        (dump(node("<node")), "cannot be read"),
        (dump(node())[:-20], "cannot be read"),
        (dump(node(text="&nothing;")), "cannot be read"),
        (dump("<node>" * (DEEPEST + 50) + "</node>" * (DEEPEST + 50)), "50 views more"),
        (dump(node(node() * (MOST_NODES + 9))), "10 views more"),
        ("<!DOCTYPE x [<!ENTITY a 'aa'>]>" + dump(node(text="&a;")), "cannot be read"),
    ],
)
def test_what_cannot_be_read_or_is_too_much_is_told(told: str, why: str) -> None:
    tree = tree_of(told, SCREEN)
    assert len(tree.cut) == 1
    assert why in tree.cut[0]
    assert sum(1 for _ in tree.nodes()) <= MOST_NODES + 2


def test_odd_attributes_end_nothing() -> None:
    odd = node(bounds="[9999999,0][x]", text="x" * 9000, **{"class": ""})
    found = list(tree_of(dump(odd), SCREEN).nodes())[2]
    assert (found.bounds, len(found.name)) == (None, 2000)


def test_a_long_text_is_typed_in_commands_that_a_device_takes() -> None:
    for text in ("x" * 10_000, "漢" * 10_000, "%s" * 3000, "'" * 5000, "a漢" * 300, "a\n" * 300):
        commands = typing_commands(text)
        assert all(len(each) < 4000 for each in commands)


def test_the_buttons_of_a_phone_come_before_the_keys_of_a_keyboard() -> None:
    # android.view.KeyEvent: KEYCODE_HOME 3, BACK 4, ENTER 66, DEL (backspace) 67, A 29, APP_SWITCH 187, F12 142
    keys = ("home", "back", "Return", "backspace", "A", "recents", "f12", "nosuchkey", "f13")
    assert [keycode(each) for each in keys] == [3, 4, 66, 67, 29, 187, 142, None, None]
