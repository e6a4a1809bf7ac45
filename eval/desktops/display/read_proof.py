"""When the programs of a display have read what was sent to them."""

from __future__ import annotations

import time
from typing import Final

from eval.desktops.display.connection import STEP, XConnection
from eval.desktops.display.keyboard import PressDelay
from eval.desktops.display.program_sleep import SOON_S, SleepWatch

STILL_S: Final = 0.5  # so long a proof is awaited that the programs have read all; a film never sleeps
KEYS_S: Final = 5.0  # so long at keys whose keycodes are wanted for other characters: a busy program must have them
FOLLOW_S: Final = 0.2  # so long at a corner of a drag
LOOKS: Final = 60  # at the programs, at least, before either time ends: a busy machine may take 50 ms for each
FRAMES_S: Final = 0.034  # two frames: for them where the kernel does not tell who sleeps


class ReadProof:
    """Waits for it, on one connection.

    watch   of the desktop's programs; None where nobody knows whether they sleep
    unread  whether a click was sent that its program may not have read
    """

    def __init__(self, connection: XConnection, watch: SleepWatch | None) -> None:
        self.connection = connection
        self.pace = PressDelay(connection, self.wait_read)
        self.unread = False
        self.watch = watch

    def read(self) -> None:
        """Waits until a click that was sent before has been read: GTK asks where the pointer is when it reads a click,
        so a pointer that has moved on takes the click with it; and keys go where the keyboard is when they are sent."""
        if self.unread:
            self.unread = False
            self.wait_read()

    def wait_read(self) -> None:
        """Waits until every program has read what was sent. An answer to a ping is a weaker proof: GTK gave some before
        it had done what came before them."""
        if not self._slept(STILL_S):
            self.connection.clicked()

    def keys_read(self) -> bool:
        """Waits until the program that has the keyboard has read its keys. Whether that is known. Sleep alone proves
        nothing of a program that sleeps while it works: it answers no ping then."""
        self.connection.sync()
        answered = self.connection.ping(KEYS_S)
        return answered is not False and (self._slept(STILL_S) or bool(answered))

    def followed(self) -> None:
        """Waits until every program has been told where the pointer is: GTK and browsers tell of one move a frame."""
        if not self._slept(FOLLOW_S, SOON_S):
            self.connection.ping()
            if not self.watch:
                time.sleep(FRAMES_S)

    def _slept(self, limit: float, soon_s: float = 0.0) -> bool:
        """Whether every program slept at some moment within `limit` s, and none of them was to wake within `soon_s`."""
        self.connection.sync()
        end, looks = time.monotonic() + limit, 0
        while self.watch and (looks < LOOKS or time.monotonic() < end):
            if self.asleep(soon_s):
                self.pace.rested()
                return True
            looks += 1
            self.connection.wait_event(STEP)
        return False

    def asleep(self, soon_s: float = SOON_S) -> bool:
        found = self.watch.asleep(soon_s) if self.watch else None
        if found is None:  # every later proof would wait to its end for an answer that never comes
            self.watch = None
        return bool(found)
