"""A button of galculator takes its next press 100 ms after it was read; no press waits for another button's time."""

from __future__ import annotations

import pytest

from tests.support.needs import need_library

need_library("xcb", "libxcb.so.1")  # the keyboard of a display loads it

from eval.desktops.display import keyboard  # noqa: E402
from eval.desktops.display.keyboard import PressDelay  # noqa: E402

HOLD = 0.105
A, B, C = (100, 100), (200, 100), (300, 100)


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Windows:
    """A display with one window."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients_changed = True

    def pump(self) -> None:
        pass

    def client_classes(self) -> list[str]:
        return ["mousepad", self.name.lower()]

    def active_window(self) -> int:
        return 7

    def window_at_pointer(self) -> int:
        return 7

    def text(self, window: int, name: str) -> str:
        assert (window, name) == (7, "WM_CLASS")
        return self.name


class Presses:
    """Presses at given times, and how long each was held back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "Galculator") -> None:
        self.clock, self.proofs = Clock(), 0
        monkeypatch.setattr(keyboard, "time", self.clock)
        self.pace = PressDelay(Windows(name), self.prove)  # type: ignore[arg-type]

    def prove(self) -> None:
        self.proofs += 1

    def at(self, seconds: float, button: tuple[int, int] | str, *, read: bool = True) -> float:
        """How long the press waits that is sent `seconds` after the start; with `read` it is read at once."""
        self.clock.now = max(self.clock.now, 1000.0 + seconds)
        before = self.clock.now
        self.pace.begin()
        if isinstance(button, str):
            self.pace.key(ord(button))
        else:
            self.pace.click(*button)
        waited = self.clock.now - before
        if read:
            self.pace.rested()
        return round(waited, 6)


def test_the_same_button_waits_for_the_rest_of_its_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    presses = Presses(monkeypatch)
    assert presses.at(0, A) == 0
    assert presses.at(0.06, B) == 0
    assert presses.at(0.11, A) == 0  # B's time is not over yet
    assert presses.at(0.15, B) == round(0.06 + HOLD - 0.15, 6)
    assert presses.at(0.17, C) == 0


def test_keys_have_a_time_each(monkeypatch: pytest.MonkeyPatch) -> None:
    presses = Presses(monkeypatch)
    assert [presses.at(0.03 * number, each) for number, each in enumerate("1234")] == [0, 0, 0, 0]
    assert presses.at(0.12, "1") == 0
    assert presses.at(0.13, "1") == round(0.12 + HOLD - 0.13, 6)
    assert presses.at(0.24, "4") == 0


def test_a_click_waits_for_every_key_and_a_key_for_every_click(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows which button lies where."""
    presses = Presses(monkeypatch)
    presses.at(0, "1")
    presses.at(0.05, "2")
    assert presses.at(0.06, A) == round(0.05 + HOLD - 0.06, 6)
    assert presses.at(0.16, "3") == 0.1  # the click was sent at .155


def test_a_press_that_is_not_known_to_be_read_is_proved_first(monkeypatch: pytest.MonkeyPatch) -> None:
    presses = Presses(monkeypatch)
    presses.at(0, A, read=False)
    assert presses.at(5, A, read=False) == HOLD  # it was read now, for all that is known
    assert presses.proofs == 2
    presses.pace.rested()
    assert presses.at(7, A) == 0
    assert presses.proofs == 2  # more than a second later every button is up


def test_no_other_program_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    presses = Presses(monkeypatch, "mousepad")
    assert [presses.at(0, button) for button in (A, A, "1", "1", A)] == [0] * 5
    assert presses.proofs == 0
