"""How far a request to a desktop came, and what its failures mean: for servers, and for phones."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from eval.desktop import DesktopGone, DesktopTimeout, InfraError

ANSWER_LIMIT: Final = 128 << 20
PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)  # before each further try; the last one stays


class Delivery(StrEnum):
    """How far a request came. SENT: the server may have done it, or may still do it; nobody knows."""

    NOT_SENT = "not sent"
    SENT = "sent"
    CONFIRMED = "confirmed"


class DesktopServerGone(DesktopGone):
    """The server cannot be reached, or its connection broke."""

    def __init__(self, message: str, delivery: Delivery) -> None:
        super().__init__(message)
        self.delivery = delivery

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.delivery})"


class ServerTimeout(DesktopTimeout):
    """The server did not answer in time."""

    def __init__(self, message: str, delivery: Delivery) -> None:
        super().__init__(message)
        self.delivery = delivery

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.delivery})"


class ServerReset(DesktopGone):
    """The server's desktop is not the one that this client began with: it was reset or started anew."""


class AccessRefused(InfraError):
    """The token is wrong, or the server does not offer what was asked for."""


class BadAnswer(InfraError):
    """An answer that is not what the protocol says."""


class DesktopServerFailed(InfraError):
    """The server tried, and failed."""


class AnswerTooLarge(DesktopServerFailed):
    """The server neither takes nor gives so many bytes."""
