"""Logs: selects the attempt and the ranks to show, and reads the last lines of a failed rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from launcher import safe_text
from launcher.errors import NotFound, SlipwayError
from launcher.protocol.read import read_run
from launcher.protocol.view import RunView
from launcher.reasons import RULES
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log, Piece


def pick_attempt(view: RunView, number: int | None, previous: bool) -> int | None:
    """The attempt to show; None when there is none yet. Raises NotFound for an unknown number."""
    numbers = [attempt.number for attempt in view.computing]
    if number is not None:
        if number not in numbers:
            has = f"it has {', '.join(map(str, numbers))}" if numbers else "it has none yet"
            raise NotFound(f"{view.run} has no attempt {number}; {has}")
        return number
    if previous:
        if len(numbers) < 2:
            raise NotFound(f"{view.run} has no previous attempt")
        return numbers[-2]
    return numbers[-1] if numbers else None


def pick_members(view: RunView, number: int, role: str | None, rank: int | None) -> list[str]:
    """The members of an attempt, in the job's order. Raises NotFound for a role or rank that the job does not have."""
    attempt = view.attempt(number)
    known = view.job.members() if view.job is not None else sorted(attempt.claims if attempt else ())
    members = [
        member
        for member in known
        if (role is None or member.rpartition("-")[0] == role)
        and (rank is None or member.rpartition("-")[2] == str(rank))
    ]
    if not members:
        raise NotFound(f"{view.run} has no such member; it has {', '.join(known)}")
    return members


def tail_of_failure(store: Store, run: str, count: int) -> tuple[str, list[str]]:
    """(the member with the most severe end in the last attempt, its last lines as printable text)."""
    view = read_run(store, run)
    if not view.computing:
        return "", []
    last = view.computing[-1]
    worst = max(last.exits.values(), key=lambda end: RULES[end.reason].severity, default=None)
    members = view.job.members() if view.job is not None else ("main-0",)
    member = worst.member if worst is not None else members[0]
    log = Log(store, RunKeys(run).attempt(last.number), member)
    log.skip_to_tail(count)
    body = bytearray()
    with contextlib.suppress(SlipwayError):
        for piece in _bounded(log.more(), 1 << 20):
            body += piece.body
    text = safe_text.log(bytes(body), colours=False)
    return member, [line[:400] for line in text.splitlines()[-count:]]


def _bounded(pieces: Iterator[Piece], limit: int) -> Iterator[Piece]:
    total = 0
    for piece in pieces:
        yield piece
        total += len(piece.body)
        if total >= limit:
            return
