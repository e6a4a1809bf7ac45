"""Actions on a real Xvfb: what an X client receives, what a real editor holds, what the picture shows."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from eval.actions import Action
from eval.desktop import ActionRefused, DesktopGone
from tests.support.needs import TOOLS

pytest.importorskip("xcffib", reason=TOOLS["desktop"].reason, exc_type=OSError)  # libxcb comes with them

from eval.desktops.display.executor import Executor
from eval.desktops.display.program_sleep import SleepWatch
from tests.support.event_window import EventWindow
from tests.support.plain_desktop import PlainDesktop, plain_desktop, wait_until

SIZE = (1280, 800)
SHIFT, CONTROL = 1, 4  # masks of the X11 protocol


@pytest.fixture(scope="module")
def desktop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainDesktop]:
    with plain_desktop(tmp_path_factory.mktemp("desktop")) as running:
        yield running


@pytest.fixture
def executor(desktop: PlainDesktop) -> Iterator[Executor]:
    acting = Executor(desktop.place)
    yield acting
    acting.close()


@pytest.fixture
def window(desktop: PlainDesktop) -> Iterator[EventWindow]:
    recording = EventWindow(desktop)
    yield recording
    recording.close()


def at(x: int, y: int) -> dict[str, float]:
    """The centre of a pixel, normalised, as a model's frame gives it."""
    return {"x": (x + 0.5) / SIZE[0], "y": (y + 0.5) / SIZE[1]}


def buttons(window: EventWindow) -> list[tuple[str, int, int, int]]:
    return [event for event in window.read() if event[0] in ("press", "release")]


@pytest.mark.parametrize(
    ("action", "button", "count"),
    [
        ({"type": "click"}, 1, 1),
        ({"type": "double_click"}, 1, 2),
        ({"type": "triple_click"}, 1, 3),
        ({"type": "right_click"}, 3, 1),
        ({"type": "middle_click"}, 2, 1),
        ({"type": "click", "button": "back"}, 8, 1),
        ({"type": "click", "button": "forward"}, 9, 1),
        ({"type": "double_click", "button": "right"}, 3, 2),
    ],
)
@pytest.mark.parametrize("point", [(0, 0), (1279, 799), (640, 123)])
def test_a_click_lands_on_its_pixel(
    executor: Executor, window: EventWindow, action: dict[str, str], button: int, count: int, point: tuple[int, int]
) -> None:
    executor.perform([Action.from_json({**action, **at(*point)})])
    executor.connection.sync()
    assert buttons(window) == [("press", button, *point), ("release", button, *point)] * count


def test_a_click_without_a_point_is_where_the_pointer_is(executor: Executor, window: EventWindow) -> None:
    executor.perform([Action.from_json({"type": "hover", **at(77, 88)}), Action.from_json({"type": "click"})])
    executor.connection.sync()
    assert buttons(window) == [("press", 1, 77, 88), ("release", 1, 77, 88)]
    assert executor.pointer() == (77, 88)


def test_modifiers_are_held_during_the_click_only(executor: Executor, window: EventWindow) -> None:
    executor.perform([Action.from_json({"type": "click", "modifiers": ["ctrl", "shift"], **at(5, 5)})])
    executor.perform([Action.from_json({"type": "click", **at(5, 5)})])
    executor.connection.sync()
    states = [state for name, _, state in window.states() if name == "press"]
    assert states == [SHIFT | CONTROL, 0]


def test_a_drag_goes_through_its_path_with_the_button_down(executor: Executor, window: EventWindow) -> None:
    corners = [(100, 100), (300, 100), (300, 400), (101, 401)]
    (start, *middle, end) = [((x + 0.5) / SIZE[0], (y + 0.5) / SIZE[1]) for x, y in corners]
    drag = Action(type="drag", x=start[0], y=start[1], path=tuple(middle), x2=end[0], y2=end[1], button="middle")  # type: ignore[arg-type]
    executor.perform([drag])
    executor.connection.sync()
    events = window.read()
    first = events.index(("press", 2, 100, 100))
    last = events.index(("release", 2, 101, 401))
    points = [event[2:] for event in events[first + 1 : last]]
    assert [point for point in points if point in corners] == corners[1:]
    assert len(points) > 20  # between the corners too
    assert len([event for event in events if event[0] in ("press", "release")]) == 2


@pytest.mark.parametrize(
    ("action", "button", "clicks"),
    [
        ({"direction": "up", "amount": 3}, 4, 3),
        ({"direction": "down", "amount": 1}, 5, 1),
        ({"direction": "left", "amount": 2}, 6, 2),
        ({"direction": "right", "amount": 2.4}, 7, 2),
        ({"direction": "down", "distance": 0.5}, 5, 4),  # 400 pixels
        ({"direction": "down", "amount": 0.01}, 5, 1),
    ],
)
def test_the_wheel(
    executor: Executor, window: EventWindow, action: dict[str, object], button: int, clicks: int
) -> None:
    executor.perform([Action.from_json({"type": "scroll", **action, **at(9, 9)})])
    executor.connection.sync()
    assert [event[1] for event in window.read() if event[0] == "press"] == [button] * clicks


def test_keys_and_hotkeys(executor: Executor, window: EventWindow) -> None:
    executor.perform(
        [
            Action.from_json({"type": "key", "keys": ["Return"]}),
            Action.from_json({"type": "hotkey", "keys": ["ctrl", "shift", "T"]}),
            Action.from_json({"type": "key", "keys": ["f24"]}),  # no key of the layout
            Action.from_json({"type": "key", "keys": ["?"]}),  # with shift
        ]
    )
    executor.connection.sync()
    pressed = [window.keysym(event[1]) for event in window.read() if event[0] == "key press"]
    assert pressed == [0xFF0D, 0xFFE3, 0xFFE1, ord("t"), 0xFFD5, 0xFFE1, ord("/")]
    assert len([event for event in window.read() if event[0] == "key release"]) == len(pressed)


def test_what_is_held_is_released_at_the_end(desktop: PlainDesktop, window: EventWindow) -> None:
    acting = Executor(desktop.place)
    acting.perform([Action.from_json({"type": "key_down", "keys": [key]}) for key in ("ctrl", "a", "capslock")])
    acting.perform([Action.from_json({"type": "mouse_down", "button": b, **at(4, 4)}) for b in ("left", "back")])
    acting.connection.x.disconnect()  # it dies with everything held
    following = Executor(desktop.place)
    following.release()
    reply = following.connection.x.core.QueryPointer(following.connection.root).reply()
    assert (bytes(following.connection.x.core.QueryKeymap().reply().keys), reply.mask) == (bytes(32), 0)
    window.clear()
    following.perform([Action.from_json({"type": "key_down", "keys": ["shift"]})])
    following.close()
    assert [event[0] for event in window.read()] == ["key press", "key release"]


def test_a_key_that_was_held_stays_held_through_other_actions(executor: Executor, window: EventWindow) -> None:
    actions = [{"type": "key_down", "keys": ["ctrl"]}, {"type": "hotkey", "keys": ["ctrl", "c"]}]
    executor.perform([Action.from_json(a) for a in [*actions, {"type": "click", "modifiers": ["ctrl"], **at(2, 2)}]])
    executor.perform([Action.from_json({"type": "click", **at(3, 3)})])
    executor.connection.sync()
    assert [state & CONTROL for name, _, state in window.states() if name == "press"] == [CONTROL, CONTROL]
    executor.perform([Action.from_json({"type": "key_up", "keys": ["ctrl"]})])


@pytest.mark.parametrize(
    ("action", "part"),
    [
        ({"type": "key", "keys": ["fn"]}, "there is no key 'fn'"),
        ({"type": "hotkey", "keys": ["ctrl", "hyperdrive"]}, "hyperdrive"),
        ({"type": "type", "text": "a\x00b"}, "U\\+0000"),
        ({"type": "wait", "duration": 1e9}, "60 is the most"),
        ({"type": "scroll", "direction": "up", "amount": 1e300}, "at most 1000"),
        ({"type": "scroll", "direction": "up", "distance": 1e300}, "more than 1000"),
        ({"type": "click", "element": 3}, "mark"),
        ({"type": "open_app", "app_name": "mousepad"}, "no program can be started"),
        ({"type": "window_focus", "window_title": "nowhere"}, "nowhere"),
        ({"type": "select_monitor", "monitor_id": 2}, "only 0"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_pressed(
    executor: Executor, window: EventWindow, action: dict[str, object], part: str
) -> None:
    with pytest.raises(ActionRefused, match=part):
        executor.perform([Action.from_json(action)])
    executor.connection.sync()
    assert window.read() == []


def test_a_picture_holds_the_pointer_and_says_what_changed(executor: Executor, window: EventWindow) -> None:
    executor.perform([Action.from_json({"type": "hover", **at(600, 400)})])
    first = executor.look()
    assert first.frame.pointer == (600, 400)
    assert not executor.look().changed
    box = (590, 390, 630, 430)  # the window is black, so all that is bright is the pointer
    assert max(high for _, high in first.frame.image().crop(box).getextrema()) > 100  # type: ignore[misc]
    executor.perform([Action.from_json({"type": "hover", **at(100, 100)})])
    second = executor.look()
    assert second.changed
    assert second.frame.image().crop(box).getbbox() is None
    assert second.settled


def test_pictures_as_files(executor: Executor, window: EventWindow) -> None:
    frame = executor.look().frame
    png = Image.open(io.BytesIO(frame.encode("png")))
    assert png.format == "PNG"
    assert png.convert("RGB").tobytes() == frame.rgb
    for form in ("webp", "jpeg"):
        picture = Image.open(io.BytesIO(frame.encode(form)))  # type: ignore[arg-type]
        assert (picture.format, picture.size) == (form.upper(), SIZE)


def test_a_picture_without_shared_memory_is_the_same(
    desktop: PlainDesktop, window: EventWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Executor(desktop.place)
    monkeypatch.setattr("eval.desktops.display.frames.Camera._attach", lambda self: None)
    plain = Executor(desktop.place)
    assert shared.camera._address is not None
    assert plain.camera._address is None
    assert shared.look().frame == plain.look().frame
    shared.close()
    plain.close()


# A real program

TEXTS = {
    "ascii": "The quick brown fox; `~!@#$%^&*()_+-=[]{}|\\:\"',.<>/? 0123456789\n\tEnd",
    "accents": "Żółć, naïve façade; Ünïcödé ß æøå ñ ¿qué? €10 “quoted” — dash",
    "greek-cyrillic": "Καλημέρα κόσμε, Привет мир, Ґанок",
    "cjk": "你好，世界。日本語のテキスト 한국어 텍스트",
    "emoji": "ok 😀👍🏽 👩‍👩‍👧 🇪🇺 ❤️ done",
    "upper": "ÉÈÊ éèê ŻżŹź ΑΩ αω",
}


@pytest.fixture(scope="module")
def editor(desktop: PlainDesktop) -> Iterator[Path]:
    """A file that is open in mousepad, the active window."""
    path = desktop.place.home / "note.txt"
    path.write_text("")
    process = desktop.start("mousepad", "--disable-server", str(path))
    acting = Executor(desktop.place)
    wait_until(lambda: acting.windows.find("note.txt") is not None)
    opened = acting.windows.find("note.txt")
    assert opened is not None
    wait_until(lambda: acting.windows.focus(opened))
    acting.look()
    acting.close()
    yield path
    process.kill()


def text_after(executor: Executor, path: Path, text: str) -> str:
    """What the editor's file holds after the text was typed over everything and saved."""
    before = path.read_text()
    executor.perform(
        [
            Action.from_json({"type": "hotkey", "keys": ["ctrl", "a"]}),
            Action.from_json({"type": "key", "keys": ["delete"]}),
            Action.from_json({"type": "type", "text": text}),
            Action.from_json({"type": "hotkey", "keys": ["ctrl", "s"]}),
        ]
    )
    executor.look()
    wait_until(lambda: path.read_text() not in (before, ""))
    return path.read_text().removesuffix("\n")


@pytest.mark.parametrize("name", list(TEXTS))
def test_text_is_read_back_as_it_was_typed(executor: Executor, editor: Path, name: str) -> None:
    assert text_after(executor, editor, TEXTS[name]) == TEXTS[name]


def test_a_long_text_of_every_script(executor: Executor, editor: Path) -> None:
    """Three times as many different characters as there are spare keycodes, mixed with plain ones."""
    rng = random.Random(7)
    characters = [chr(0x4E00 + i) for i in range(300)] + list("abcXYZ 123") * 20
    rng.shuffle(characters)
    text = "".join(characters).strip()
    assert text_after(executor, editor, text) == text


def test_a_text_while_caps_lock_is_on(executor: Executor, editor: Path) -> None:
    executor.perform([Action.from_json({"type": "key", "keys": ["capslock"]})])
    text = "Mixed CASE é É 1!"
    try:
        executor.perform([Action.from_json({"type": "type", "text": "x"})])
        assert text_after(executor, editor, text) == text
    finally:
        executor.perform([Action.from_json({"type": "key", "keys": ["capslock"]})])


def test_the_layout_is_the_same_after_an_episode(desktop: PlainDesktop, editor: Path) -> None:
    def layout(acting: Executor) -> list[int]:
        return list(acting.connection.x.core.GetKeyboardMapping(8, 248).reply().keysyms)

    first = Executor(desktop.place)
    before = layout(first)
    for _ in range(3):
        first.perform([Action.from_json({"type": "type", "text": "".join(chr(0x5000 + i) for i in range(150))})])
    assert layout(first) != before
    first.close()
    second = Executor(desktop.place)
    assert layout(second) == before
    second.close()


def test_a_window_that_closed_meanwhile_is_left_out(
    executor: Executor, editor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of windows and a question about one of them are two requests: it may close between them."""
    numbers, gone = executor.connection.numbers, 0x1F00001
    monkeypatch.setattr(
        executor.connection,
        "numbers",
        lambda window, name: [gone, *numbers(window, name)] if name == "_NET_CLIENT_LIST" else numbers(window, name),
    )
    assert gone not in [window.number for window in executor.windows.listed()]
    assert executor.connection.text(gone, "WM_CLASS") == ""
    executor.perform([Action.from_json({"type": "window_focus", "window_title": "note.txt"})])


def test_windows_are_moved_and_resized_by_their_title(executor: Executor, editor: Path) -> None:
    executor.perform(
        [
            Action.from_json({"type": "window_resize", "window_title": "note.txt", "width": 0.5, "height": 0.5}),
            Action.from_json({"type": "window_move", "window_title": "note.txt", "x": 0.25, "y": 0.25}),
        ]
    )

    def placed() -> bool:
        opened = executor.windows.find("note.txt")
        assert opened is not None
        print(opened)
        return opened.box == (320, 200, 640, 400)

    wait_until(placed)


def test_a_display_that_is_killed_is_the_infrastructures_failure(tmp_path: Path) -> None:
    with plain_desktop(tmp_path) as desktop:
        acting = Executor(desktop.place)
        acting.look()
        desktop.processes[0].kill()
        desktop.processes[0].wait()
        with pytest.raises(DesktopGone, match=desktop.place.display):
            acting.look()
        with pytest.raises(DesktopGone):
            acting.perform([Action.from_json({"type": "click", **at(1, 1)})])
        with pytest.raises(DesktopGone):
            acting.close()
        with pytest.raises(DesktopGone):
            Executor(desktop.place)


def watching(asleep: Callable[[float], bool | None], monkeypatch: pytest.MonkeyPatch) -> SleepWatch:
    """A watch of no program that answers as `asleep` does."""
    watch = SleepWatch(list)
    monkeypatch.setattr(watch, "asleep", asleep)
    return watch


def test_a_slow_look_at_the_programs_is_no_reason_for_a_weaker_proof(
    desktop: PlainDesktop, window: EventWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine ten looks took half a second: then clicks went on before they were read: wrong sums."""
    told: list[str] = []

    def asleep(soon_s: float = 0.0) -> bool:
        time.sleep(0.1)
        told.append("look")
        return len(told) % 10 == 0

    acting = Executor(desktop.place, watch=watching(asleep, monkeypatch))
    try:
        monkeypatch.setattr(acting.connection, "clicked", lambda: told.append("ping"))
        acting.perform([Action.from_json({"type": "click", **at(x, 50)}) for x in (50, 150)])
        acting.sync()
        assert told == ["look"] * 10
        assert len(buttons(window)) == 4
    finally:
        acting.close()


def test_a_kernel_that_stops_telling_is_not_asked_again(
    desktop: PlainDesktop, window: EventWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setuid program on the desktop: each proof waited to its end, so every click took that long."""
    looks: list[float] = []

    def asleep(soon_s: float = 0.0) -> bool | None:
        looks.append(soon_s)
        return True if len(looks) == 1 else None

    acting = Executor(desktop.place, watch=watching(asleep, monkeypatch))
    try:
        for x in (50, 150, 50, 150):
            acting.perform([Action.from_json({"type": "click", **at(x, 50)})])
            acting.look()
        assert len(looks) == 2
        assert len(buttons(window)) == 8
    finally:
        acting.close()
