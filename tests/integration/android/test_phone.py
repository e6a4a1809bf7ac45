"""What an agent does on a phone, and how it looks at it: through the real `adb`, on a small phone of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eval.accessibility.tree import TreeNode
from eval.accessibility.visible import marks_of
from eval.actions import Action, ActionType
from eval.desktop import ActionRefused
from eval.desktops.android.phone import CANNOT, Phone
from eval.desktops.client.failures import Delivery
from tests.support.android.adbd import Adbd
from tests.support.android.device import IME, LATIN, Device
from tests.support.android.serving import adb

NOTES = Action(ActionType.OPEN_APP, app_name="com.example.notes")
LIST = Action(ActionType.OPEN_APP, app_name="settings")
FIELD = Action(ActionType.CLICK, x=0.5, y=0.3)


@asynccontextmanager
async def phone(adbd: Adbd, **options: float) -> AsyncIterator[Phone]:
    found = await Phone.connect(adbd.serial, **options)
    try:
        await found.prepare()
        yield found
    finally:
        await found.close()


def on(adbd: Adbd, work: Callable[[Phone], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        async with phone(adbd) as found:
            return await work(found)

    return asyncio.run(whole())


def node_of(nodes: Any, role: str, name: str | None = None) -> TreeNode:
    return next(each for each in nodes if each.role == role and name in (None, each.name))


TEXTS = [
    "plain words",
    "'single' \"double\" `back` \\back\\slash",
    "$HOME $(id) ${x} && || ; | > < & * ? [a] {b} ~ # !",
    "%s 100%sure %%s % s %",
    "-n --help",
    " two  blanks at both ends ",
    "one\ntwo\tthree\r\nfour\n",
    "äöü ß é, Ελληνικά, Кириллица",
    "漢字 かな 한글 😀👩‍👩‍👧",
    "naïve: $(é) 'ü' \"漢\"",
    "x" * 1000,
    "",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:20]))
def test_a_text_arrives_as_it_is(adbd: Adbd, text: str) -> None:
    on(adbd, lambda phone: phone.act([NOTES, FIELD, Action(ActionType.TYPE, text=text)]))
    assert adbd.device.screen.fields.get("note", "") == text.replace("\r\n", "\n")


def test_without_adbkeyboard_what_no_key_types_is_refused_and_nothing_is_typed(server: None) -> None:
    with Adbd(Device(keyboard=False)) as adbd:
        adb("connect", adbd.serial)

        async def work(phone: Phone) -> None:
            await phone.act([NOTES, FIELD, Action(ActionType.TYPE, text="plain $x")])
            with pytest.raises(ActionRefused, match=r"ASCII only, not U\+00E9: it has no ADBKeyBoard"):
                await phone.act([Action(ActionType.TYPE, text="caf\xe9")])

        on(adbd, work)
        assert adbd.device.screen.fields["note"] == "plain $x"


def test_taps_presses_and_swipes_are_where_they_should_be(adbd: Adbd) -> None:
    screen = adbd.device.screen
    actions = [
        Action(ActionType.CLICK, x=0.5, y=0.25),
        Action(ActionType.CLICK, x=1.0, y=1.0),
        Action(ActionType.DOUBLE_CLICK, x=0.0, y=0.0),
        Action(ActionType.RIGHT_CLICK, x=0.25, y=0.5),
        Action(ActionType.DRAG, x=0.25, y=0.5, x2=0.75, y2=0.5),
        Action(ActionType.DRAG, x=0.5, y=0.5, x2=0.5, y2=0.5, duration=2.0),
        Action(ActionType.DRAG, x=0.1, y=0.1, x2=0.9, y2=0.9, path=((0.9, 0.1),)),
        Action(ActionType.BACK),
        Action(ActionType.KEY, keys=("home",)),
        Action(ActionType.KEY, keys=("recents",)),
        Action(ActionType.KEY, keys=("volumeup",), duration=1.0),
        Action(ActionType.HOTKEY, keys=("ctrl", "a")),
    ]
    on(adbd, lambda phone: phone.act(actions))
    assert screen.heard == [
        ("tap", 180, 160),
        ("tap", 359, 639),
        ("tap", 0, 0),
        ("tap", 0, 0),
        ("swipe", 90, 320, 90, 320, 1000),
        ("swipe", 90, 320, 270, 320, 500),
        ("swipe", 180, 320, 180, 320, 2000),
        ("path", (36, 64), (324, 64), (324, 576), (324, 576)),
        ("key", 4),
        ("key", 3),
        ("key", 187),
        ("held", 24),
        ("keys", 113, 29),
    ]


@pytest.mark.parametrize(
    ("action", "moved"),
    [
        (Action(ActionType.SCROLL, direction="down", distance=0.5), 320),
        (Action(ActionType.SCROLL, direction="down", x=0.5, y=0.99, amount=1), 64),
        (Action(ActionType.SCROLL, direction="down", distance=1.5), 960),
    ],
)
def test_a_scroll_shows_what_is_below(adbd: Adbd, action: Action, moved: int) -> None:
    async def work(phone: Phone) -> None:
        before = await phone.act([LIST])
        after = await phone.act([action])
        assert after.changed
        assert after.image.tobytes() != before.image.tobytes()
        assert abs(adbd.device.screen.offset - moved) <= 3  # a pixel for each end of a swipe
        back = Action(ActionType.SCROLL, direction="up", distance=2.0)
        assert (await phone.act([back])).image.tobytes() == before.image.tobytes()

    on(adbd, work)


REFUSED = [
    *[
        (action, why)
        for action, why in [
            (Action(ActionType.HOVER, x=0.5, y=0.5), "no pointer"),
            (Action(ActionType.CURSOR_POSITION), "no pointer"),
            (Action(ActionType.MIDDLE_CLICK, x=0.5, y=0.5), "no buttons"),
            (Action(ActionType.MOUSE_DOWN), "no buttons"),
            (Action(ActionType.MOUSE_UP), "no buttons"),
            (Action(ActionType.KEY_DOWN, keys=("shift",)), "no key can be held"),
            (Action(ActionType.KEY_UP, keys=("shift",)), "no key can be held"),
            (Action(ActionType.FORWARD), "no forward button"),
            (Action(ActionType.REFRESH), "no refresh button"),
            (Action(ActionType.WINDOW_FOCUS, window_title="x"), "no windows"),
            (Action(ActionType.WINDOW_MOVE, x=0.5, y=0.5), "no windows"),
            (Action(ActionType.WINDOW_RESIZE, width=0.5, height=0.5), "no windows"),
        ]
    ],
    (Action(ActionType.CLICK), "give x and y"),
    (Action(ActionType.CLICK, element=3), "a mark has no place here"),
    (Action(ActionType.CLICK, x=0.5, y=0.5, modifiers=("shift",)), "no keys are held with it"),
    (Action(ActionType.CLICK, x=0.5, y=0.5, button="back"), "no buttons"),
    (Action(ActionType.SELECT_MONITOR, monitor_id=1), "no screen 1; only 0"),
    (Action(ActionType.WAIT, duration=1e9), "60 is the most"),
    (Action(ActionType.SCROLL, direction="down", distance=1e300), "screens at once"),
    (Action(ActionType.TYPE, text="x" * 10_001), "longer than 10000 characters"),
    (Action(ActionType.TYPE, text="a\0b"), "U\\+0000"),
    (Action(ActionType.KEY, keys=("$(reboot)",)), "no key"),
    (Action(ActionType.KEY, keys=("printscreen",)), "no key"),
    (Action(ActionType.GOTO, url="tel:112"), "no address of the web"),
    (Action(ActionType.GOTO, url="file:///sdcard/x"), "no address of the web"),
    (Action(ActionType.GOTO, url="http://[x"), "no address of the web"),
    (Action(ActionType.OPEN_APP, app_name="'; reboot; '"), "no app is called"),
    (Action(ActionType.OPEN_APP, app_name="browser"), "more than one app .* com.example.browser, com.other.browser"),
]


def test_what_a_phone_has_not_is_refused_in_words_and_nothing_happens(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        for action, why in REFUSED:
            with pytest.raises(ActionRefused, match=why):
                await phone.act([action])

    on(adbd, work)
    assert not adbd.device.screen.heard
    assert {action.type for action, _ in REFUSED} >= set(CANNOT)


def test_an_old_android_says_which_gesture_it_lacks(server: None) -> None:
    with Adbd(Device(old=True)) as adbd:
        adb("connect", adbd.serial)

        async def work(phone: Phone) -> None:
            with pytest.raises(ActionRefused, match="too old for `input motionevent`"):
                await phone.act([Action(ActionType.DRAG, x=0.1, y=0.1, x2=0.9, y2=0.9, path=((0.9, 0.1),))])
            with pytest.raises(ActionRefused, match="too old for `input keycombination`"):
                await phone.act([Action(ActionType.HOTKEY, keys=("ctrl", "a"))])

        on(adbd, work)


def test_apps_open_and_close_and_the_web_opens(adbd: Adbd) -> None:
    screen = adbd.device.screen

    async def work(phone: Phone) -> None:
        await phone.act([Action(ActionType.OPEN_APP, app_name="Contacts")])
        assert screen.app == "com.android.contacts/.activities.PeopleActivity"
        await phone.act([Action(ActionType.CLOSE_APP, app_name="contacts")])
        assert screen.app == "com.android.launcher/.Home"
        url = "https://example.org/a?b='c'&d=$(e);f#g"
        await phone.act([Action(ActionType.GOTO, url=url)])
        assert (screen.app, screen.url) == ("com.example.browser/.Main", url)
        await phone.act([Action(ActionType.GOTO, url="example.org")])
        assert screen.url == "https://example.org"

    on(adbd, work)


def test_the_screen_is_as_the_phone_is_held_and_the_phone_gets_its_own_settings_back(adbd: Adbd) -> None:
    device = adbd.device

    async def work() -> None:
        async with phone(adbd) as found:
            assert (found.screen.width, found.screen.height) == (360, 640)
            assert device.settings["secure", "default_input_method"] == IME
            await found.prepare(rotation=90)
            shown = await found.act([Action(ActionType.CLICK, x=0.999, y=0.999)])
            assert shown.image.size == (640, 360)
            assert device.screen.heard == [("tap", 639, 359)]
            device.screen.rotation = 0  # an app turns the screen by itself
            assert (await found.look()).image.size == (360, 640)
            assert (found.screen.width, found.screen.height) == (360, 640)

    asyncio.run(work())
    assert device.settings == {
        ("system", "accelerometer_rotation"): "1",
        ("system", "user_rotation"): "0",
        ("secure", "default_input_method"): LATIN,
    }


def test_a_look_waits_for_rest_and_says_where_there_is_none(adbd: Adbd) -> None:
    async def work() -> None:
        async with phone(adbd, settle_s=0.3) as found:
            assert (await found.look()).settled
            assert not (await found.look()).changed
            adbd.device.screen.restless = True
            restless = await found.look()
            assert (restless.settled, restless.changed) == (False, True)

    asyncio.run(work())


def test_the_tree_holds_what_a_person_would_use_and_no_password(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        await phone.act([NOTES, Action(ActionType.CLICK, x=0.5, y=0.89)])
        await phone.act([Action(ActionType.TYPE, text="1234"), FIELD, Action(ActionType.TYPE, text='a "<&> b')])
        tree = await phone.accessibility()
        entry, secret = node_of(tree.nodes(), "entry"), node_of(tree.nodes(), "password text")
        assert (entry.text, entry.bounds) == ('a "<&> b', (0, 48, 360, 496))
        assert {"focused", "editable", "showing", "enabled"} <= set(entry.states)
        assert (secret.text, secret.name) == (None, "")
        assert len(marks_of(tree)) == 2
        await phone.act([LIST])
        tree = await phone.accessibility()
        assert node_of(tree.nodes(), "push button", "Setting 3").bounds == (0, 48 + 3 * 48, 360, 48)
        assert marks_of(tree)[1] == (0.0, 48 / 640, 1.0, 48 / 640)
        assert tree.screen == (360, 640)
        assert not adbd.device.files  # nothing is left there

    on(adbd, work)


def test_a_screen_that_never_rests_has_no_tree_and_the_tree_says_why(adbd: Adbd) -> None:
    adbd.device.idle = False
    tree = on(adbd, lambda phone: phone.accessibility())
    assert (tree.applications, tree.cut) == ([], ["uiautomator: ERROR: could not get idle state."])


def test_what_was_done_is_confirmed(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        await phone.act([FIELD])
        assert phone.delivery is Delivery.CONFIRMED

    on(adbd, work)
