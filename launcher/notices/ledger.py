"""Who tells what, in the store, so that any number of senders tell it once.

A sender takes a try with a create-only record, sends, and writes how it went with another. So of several senders one
sends. A sender that dies in between leaves a try without an end: after OVERTAKEN seconds the next one takes the next
try, because a message that comes twice does less harm than one that never comes (at least once). Every try carries the
same key, by which a receiver can tell that it has the message already.

    runs/<run>/notices/<event>/<channel>/<try>/begun.json, ended.json
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

import msgspec

from launcher.clock import boottime
from launcher.decoding import decode_record
from launcher.errors import NotFound
from launcher.notices.events import Notice
from launcher.store.base import Store
from launcher.store.layout import NoticeKeys, RunKeys

VERSION: Final = 2  # of the records
TRIES: Final = 5
PAUSE: Final = 60.0  # seconds after the first failed try; four times as long after each further one
OVERTAKEN: Final = 900.0  # seconds after which a try without an end counts as its sender's death
PROMPT: Final = OVERTAKEN / 3  # a sender that was held up for longer does not send any more

SENT, UNSENT, BUSY, GIVEN_UP, BEFORE = "sent", "unsent", "busy", "given up", "sent before"


class NoticeBegun(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody is about to send. `version` 2 says what is told, under which key and how (the channel's way); a record
    of before has none of it."""

    by: str
    time: float
    nonce: str
    version: int = 1
    key: str = ""
    text: str = ""
    way: str = ""


class NoticeEnded(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a try went. `message`: why nothing was sent; no address of a receiver is in it."""

    sent: bool
    time: float
    nonce: str
    message: str = ""


class NoticeTry(msgspec.Struct, frozen=True):
    """The newest try of a notice by a channel. Times are the store's."""

    number: int
    begun: float
    ended: float | None = None
    sent: bool = False


class NoticeRecord(msgspec.Struct, frozen=True):
    """Everything that the store has of one try."""

    event: str
    channel: str
    number: int
    begun: NoticeBegun
    ended: NoticeEnded | None


Tries = Mapping[tuple[str, str], NoticeTry]  # (event, channel) -> its newest try
Place = tuple[str, str, int]  # event, channel, number of the try


def recorded_tries(store: Store, run: str) -> dict[Place, bool]:
    """The tries of a run, by one listing; True for those that have ended."""
    found: dict[Place, bool] = {}
    for meta in store.scan(RunKeys(run).notices):
        if (part := _part(run, meta.key)) is not None:
            place, ended = part
            found[place] = found.get(place, False) or ended
    return found


def read_notice(store: Store, run: str, place: Place) -> NoticeRecord:
    """Raises NotFound, Unreachable, and SlipwayError for a damaged record."""
    keys = NoticeKeys(run, *place)
    begun = decode_record(keys.begun, store.get(keys.begun), NoticeBegun)
    try:
        ended = decode_record(keys.ended, store.get(keys.ended), NoticeEnded)
    except NotFound:
        ended = None
    return NoticeRecord(*place, begun, ended)


def _part(run: str, key: str) -> tuple[Place, bool] | None:
    """(the try, whether the record is of its end); None for what is no record."""
    parts = key.removeprefix(RunKeys(run).notices).split("/")
    if len(parts) != 4 or not parts[2].isascii() or not parts[2].isdecimal() or len(parts[2]) > 9:
        return None
    if parts[3] not in ("begun.json", "ended.json"):
        return None
    return (parts[0], parts[1], int(parts[2])), parts[3] == "ended.json"


def tries(store: Store, run: str) -> dict[tuple[str, str], NoticeTry]:
    """What has been told of a run: one listing, and a request for each newest try that has ended."""
    begun: dict[tuple[str, str], dict[int, float]] = {}
    ends: dict[tuple[str, str, int], float] = {}
    for meta in store.scan(RunKeys(run).notices):
        if (part := _part(run, meta.key)) is None:
            continue
        (event, channel, number), over = part
        if over:
            ends[event, channel, number] = meta.modified
        else:
            begun.setdefault((event, channel), {})[number] = meta.modified
    found = {}
    for (event, channel), numbers in begun.items():
        last = max(numbers)
        ended = ends.get((event, channel, last))
        sent = False
        if ended is not None:
            key = NoticeKeys(run, event, channel, last).ended
            sent = decode_record(key, store.get(key), NoticeEnded).sent
        found[event, channel] = NoticeTry(last, numbers[last], ended, sent)
    return found


def due(last: NoticeTry | None, now: float) -> int | str:
    """The number of the try that is due at `now`, the store's time; a text says why none is."""
    if last is None:
        return 1
    if last.sent:
        return BEFORE
    if last.ended is None:
        return last.number + 1 if now - last.begun > OVERTAKEN else BUSY
    if last.number >= TRIES:
        return GIVEN_UP
    return last.number + 1 if now - last.ended > PAUSE * 4 ** (last.number - 1) else BUSY


def send_notice(
    store: Store,
    notice: Notice,
    channel: str,
    send: Callable[[Notice], str],
    known: Tries,
    clock: Callable[[], float] = boottime,
    way: str = "",
) -> tuple[str, str]:
    """Sends a notice by a channel if that is due. `send` returns what went wrong, "" if nothing did. Returns (what was
    done: sent, unsent, busy, given up, sent before; why). `way`, the channel's, is noted. Raises Unreachable when
    the store does not answer."""
    number = due(known.get((notice.event, channel)), store.now())
    if isinstance(number, str):
        return number, ""
    keys, nonce, began = NoticeKeys(notice.run, notice.event, channel, number), uuid4().hex, clock()
    by = f"{socket.gethostname()} {os.getpid()}"
    mine = NoticeBegun(by, time.time(), nonce, VERSION, notice.key, notice.text, way)
    if not store.create(keys.begun, msgspec.json.encode(mine)):
        return BUSY, ""
    if clock() - began > PROMPT:  # this machine slept: another sender may be at the next try by now
        return BUSY, "this machine was suspended; the next pass sends it"
    fault = send(notice)
    store.create(keys.ended, msgspec.json.encode(NoticeEnded(not fault, time.time(), nonce, fault)))
    if not fault:
        return SENT, ""
    return (GIVEN_UP if number >= TRIES else UNSENT), fault
