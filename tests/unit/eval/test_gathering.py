"""What a person does with mouse and keyboard, as actions. The numbers of keys are those of X11's keysymdef.h."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.desktops.person.action_gatherer import Gatherer, PersonInput, character

SIZE = (1000, 500)
SHIFT, CTRL, ALT, SUPER = 0xFFE1, 0xFFE3, 0xFFE9, 0xFFEB
ENTER, TAB, LEFT, F5 = 0xFF0D, 0xFF09, 0xFF51, 0xFFC2


class Person:
    """Events as a person makes them, one after the other."""

    def __init__(self) -> None:
        self.gatherer = Gatherer(SIZE)
        self.time = 1000
        self.at = (0, 0)
        self.done: list[Action] = []

    def _feed(self, kind: Any, **more: Any) -> None:
        self.time += 10
        self.done += self.gatherer.feed(PersonInput(kind, self.time, *self.at, **more))

    def key(self, plain: int, shifted: int = 0, *, down: bool = True, up: bool = True, state: int = 0) -> None:
        for kind, wanted in (("key down", down), ("key up", up)):
            if wanted:
                self._feed(kind, symbols=(plain, shifted), state=state)

    def write(self, text: str) -> None:
        for letter in text:
            if letter.isupper():
                self.key(SHIFT, up=False)
            self.key(ord(letter.lower()), ord(letter.upper()))
            if letter.isupper():
                self.key(SHIFT, down=False)

    def move(self, *points: tuple[int, int]) -> None:
        for self.at in points:
            self._feed("motion")

    def button(self, code: int, *, down: bool = True, up: bool = True) -> None:
        for kind, wanted in (("button down", down), ("button up", up)):
            if wanted:
                self._feed(kind, code=code)

    def rest(self) -> list[Action]:
        self.done += self.gatherer.rest(5000)
        return self.done


def held(modifiers: Iterable[int], person: Person, work: Any) -> None:
    for each in modifiers:
        person.key(each, up=False)
    work()
    for each in modifiers:
        person.key(each, down=False)


def at(x: int, y: int) -> dict[str, float]:
    return {"x": (x + 0.5) / SIZE[0], "y": (y + 0.5) / SIZE[1]}


def test_letters_are_one_text_and_a_named_key_ends_it() -> None:
    person = Person()
    person.write("Hello Ann")
    assert person.done == []
    person.key(ENTER)
    assert person.done == [Action(ActionType.TYPE, text="Hello Ann"), Action(ActionType.KEY, keys=("enter",))]
    assert not person.gatherer.waiting


def test_a_text_is_whole_when_the_person_rests() -> None:
    person = Person()
    person.write("ab")
    assert person.gatherer.rest(500) == []
    assert person.rest() == [Action(ActionType.TYPE, text="ab")]


def test_caps_lock_and_shift_under_it() -> None:
    person = Person()
    person.key(ord("a"), ord("A"), state=2)
    person.key(ord("1"), ord("!"), state=2)
    held([SHIFT], person, lambda: person.key(ord("b"), ord("B"), state=2))
    assert person.rest() == [Action(ActionType.TYPE, text="A1b")]


def test_other_scripts() -> None:
    person = Person()
    for letter in "ščЖ日":
        person.key(0x1000000 + ord(letter))
    person.key(0xE9, 0xC9)
    assert person.rest() == [Action(ActionType.TYPE, text="ščЖ日é")]


@pytest.mark.parametrize(
    ("modifiers", "plain", "shifted", "action"),
    [
        ([CTRL], ord("s"), ord("S"), Action(ActionType.HOTKEY, keys=("ctrl", "s"))),
        ([SHIFT, CTRL], ord("t"), ord("T"), Action(ActionType.HOTKEY, keys=("ctrl", "shift", "t"))),
        ([ALT], TAB, 0, Action(ActionType.HOTKEY, keys=("alt", "tab"))),
        ([SHIFT], LEFT, 0, Action(ActionType.HOTKEY, keys=("shift", "left"))),
        ([CTRL], ord(" "), 0, Action(ActionType.HOTKEY, keys=("ctrl", "space"))),
        ([SUPER], F5, 0, Action(ActionType.HOTKEY, keys=("win", "f5"))),
        ([], F5, 0, Action(ActionType.KEY, keys=("f5",))),
        ([CTRL, ALT], ENTER, 0, Action(ActionType.DONE)),
        ([ALT, CTRL], 0xFF08, 0, Action(ActionType.FAIL)),
    ],
)
def test_keys_pressed_together(modifiers: list[int], plain: int, shifted: int, action: Action) -> None:
    person = Person()
    held(modifiers, person, lambda: person.key(plain, shifted))
    assert person.rest() == [action]


def test_a_modifier_alone_and_a_move_alone_are_nothing() -> None:
    person = Person()
    person.key(SUPER)
    person.move((5, 5), (900, 400))
    person.key(0)  # a key that X has no name for
    assert person.rest() == []
    assert not person.gatherer.waiting


@pytest.mark.parametrize(
    ("code", "times", "actions"),
    [
        (1, 1, [Action(ActionType.CLICK, **at(30, 40))]),
        (1, 2, [Action(ActionType.DOUBLE_CLICK, **at(30, 40))]),
        (1, 3, [Action(ActionType.TRIPLE_CLICK, **at(30, 40))]),
        (1, 4, [Action(ActionType.TRIPLE_CLICK, **at(30, 40)), Action(ActionType.CLICK, **at(30, 40))]),
        (3, 1, [Action(ActionType.RIGHT_CLICK, **at(30, 40))]),
        (2, 1, [Action(ActionType.MIDDLE_CLICK, **at(30, 40))]),
        (3, 2, [Action(ActionType.DOUBLE_CLICK, **at(30, 40), button="right")]),
        (8, 2, [Action(ActionType.CLICK, **at(30, 40), button="back")] * 2),
        (5, 3, [Action(ActionType.SCROLL, **at(30, 40), direction="down", amount=3.0)]),
        (7, 1, [Action(ActionType.SCROLL, **at(30, 40), direction="right", amount=1.0)]),
        (12, 1, []),
    ],
)
def test_buttons(code: int, times: int, actions: list[Action]) -> None:
    person = Person()
    person.move((30, 40))
    for _ in range(times):
        person.button(code)
    assert person.rest() == actions


def test_two_slow_clicks_and_two_clicks_apart_are_two() -> None:
    person = Person()
    person.move((30, 40))
    person.button(1)
    person.time += 1000
    person.button(1)
    person.move((60, 40))
    person.button(1)
    assert [action.type for action in person.rest()] == [ActionType.CLICK] * 3


def test_a_click_with_a_key_held() -> None:
    person = Person()
    person.move((30, 40))
    held([CTRL], person, lambda: person.button(1))
    assert person.rest() == [Action(ActionType.CLICK, **at(30, 40), modifiers=("ctrl",))]


def test_a_drag_and_one_that_is_bent() -> None:
    straight, bent = Person(), Person()
    for person, way in ((straight, [(55, 11), (100, 10)]), (bent, [(50, 90), (100, 10)])):
        person.move((10, 10))
        person.button(1, up=False)
        person.move(*way)
        person.button(1, down=False)
        person.rest()
    ends = {**at(10, 10), "x2": at(100, 10)["x"], "y2": at(100, 10)["y"]}
    assert straight.done == [Action(ActionType.DRAG, **ends)]
    path = tuple((at(*point)["x"], at(*point)["y"]) for point in ((50, 90), (100, 10)))
    assert bent.done == [Action(ActionType.DRAG, **ends, path=path)]


def test_a_drag_of_a_thousand_points_keeps_few() -> None:
    person = Person()
    person.move((10, 10))
    person.button(1, up=False)
    person.move(*((10 + n // 2, 10 + 100 * (n % 2)) for n in range(1000)))
    person.button(1, down=False)
    (drag,) = person.rest()
    assert drag.path is not None
    assert len(drag.path) <= 100


def test_what_comes_in_another_order_is_told_in_its_order() -> None:
    person = Person()
    person.move((30, 40))
    person.write("a")
    person.button(1)
    person.write("b")
    person.button(4)
    assert [action.type for action in person.rest()] == [
        ActionType.TYPE,
        ActionType.CLICK,
        ActionType.TYPE,
        ActionType.SCROLL,
    ]


@pytest.mark.parametrize(("symbol", "written"), [(0x41, "A"), (0x10020AC, "€"), (0xFFB5, "5"), (0xFF0D, ""), (0, "")])
def test_characters(symbol: int, written: str) -> None:
    assert character(symbol) == written
