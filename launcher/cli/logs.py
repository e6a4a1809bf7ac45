"""`launcher logs`: what a run's ranks printed, from the store, and live from the backend where it can."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from launcher.cli import common
from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.logs import Log, Piece
from launcher.protocol.read import read_run
from launcher.protocol.view import RunView
from launcher.reasons import RULES
from launcher.store.base import Store
from launcher.store.layout import RunKeys

SUMMARY = "Print or follow what a run printed. Durable: the logs of every attempt stay in the store."
EXAMPLE = (
    "launcher logs sft-login-1a2b3c4d5e6f --follow\n"
    "  launcher logs RUN --previous --tail 50      the attempt before the last\n"
    "  launcher logs RUN --role desktop --rank 3"
)

POLL: Final = 0.5  # seconds between two looks at a store in a folder
POLL_REMOTE: Final = 2.0
LONGEST: Final = 64 * 1024  # bytes of a line held back for its end; a longer one is printed in parts
# what a terminal may be shown of a program's output: colours, no other escape sequence, no control character
UNSAFE: Final = re.compile(rb"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="RUN|GROUP", help="a run, a group, or GROUP/NAME")
    parser.add_argument("--role", help="only this role")
    parser.add_argument("--rank", type=int, help="only this rank")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--attempt", type=int, metavar="N", help="this attempt; default: the last")
    which.add_argument("-p", "--previous", action="store_true", help="the attempt before the last")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the runs end")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each rank")
    common.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.selection import select
    from launcher.spec.profile import load_profile
    from launcher.status import backends
    from launcher.store import open_store

    if args.tail is not None and args.tail < 0:
        raise BadInput("--tail: a number of lines is not negative")
    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_store(profile.store)
    chosen = select(store, args.names)
    printer = Printer(sys.stdout.buffer, sys.stdout.isatty())
    backend_of = backends(profile) if args.follow else None
    if args.follow and args.attempt is None and not args.previous:
        names = {one: chosen.names.get(one, one) for one in chosen.runs}
        feeds = [
            Feed(store, one, names[one] if len(chosen.runs) > 1 else "", args.role, args.rank, args.tail, printer)
            for one in chosen.runs
        ]
        return _follow(store, feeds, backend_of)
    printed = False
    for one in chosen.runs:
        view = read_run(store, one)
        label = chosen.names.get(one, one) if len(chosen.runs) > 1 else ""
        number = pick_attempt(view, args.attempt, args.previous)
        if number is None:
            if len(chosen.runs) == 1:
                print(f"{one} has not begun: no attempt yet", file=sys.stderr)
            continue
        members = pick_members(view, number, args.role, args.rank)
        for member in members:
            log = Log(store, RunKeys(one).attempt(number), member)
            if args.tail is not None:
                log.skip_to_tail(args.tail)
            prefix = "/".join(filter(None, (label, member if len(members) > 1 else "")))
            lines = Lines(printer, prefix)
            for piece in log.more():
                printed = True
                lines.feed(piece)
            lines.close()
    if not printed:
        print("no logs yet", file=sys.stderr)
    return 0


def pick_attempt(view: RunView, number: int | None, previous: bool) -> int | None:
    """The attempt to show; None when there is none yet. Raises NotFound for one that is not there."""
    numbers = [attempt.number for attempt in view.attempts]
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
    """The members of an attempt, in the job's order. Raises NotFound for a role or rank that the job has not."""
    attempt = view.attempt(number)
    known = view.job.members() if view.job is not None else sorted(attempt.claims if attempt else ())
    found = [
        member
        for member in known
        if (role is None or member.rpartition("-")[0] == role)
        and (rank is None or member.rpartition("-")[2] == str(rank))
    ]
    if not found:
        raise NotFound(f"{view.run} has no such member; it has {', '.join(known)}")
    return found


@dataclass
class Printer:
    """The one place that writes; whole lines, so that ranks do not cut each other."""

    out: BinaryIO
    terminal: bool
    lock: threading.Lock = field(default_factory=threading.Lock)
    open_line: str | None = None  # the prefix whose line has no end yet

    def write(self, prefix: str, body: bytes) -> None:
        with self.lock:
            if self.open_line is not None and self.open_line != prefix:
                self.out.write(b"\n")
                self.open_line = None
            if self.terminal:
                body = UNSAFE.sub(b"\xef\xbf\xbd", body)
            if prefix:
                mark = common.paint(f"{prefix} │ ", "2").encode() if self.terminal else f"{prefix} | ".encode()
                body = self._prefixed(mark, body, self.open_line == prefix)
            self.out.write(body)
            self.open_line = None if body.endswith(b"\n") else prefix
            self.out.flush()

    @staticmethod
    def _prefixed(mark: bytes, body: bytes, inside: bool) -> bytes:
        end = body.endswith(b"\n")
        lines = (body[:-1] if end else body).split(b"\n")
        first = lines[0] if inside else mark + lines[0]
        return b"\n".join([first, *(mark + line for line in lines[1:])]) + (b"\n" if end else b"")


class Lines:
    """Turns pieces of one rank's log into whole lines; a line longer than LONGEST is printed in parts."""

    def __init__(self, printer: Printer, prefix: str) -> None:
        self.printer = printer
        self.prefix = prefix
        self.held = bytearray()

    def feed(self, piece: Piece) -> None:
        if piece.missing:
            self.close()
            note = f"[{piece.missing} bytes of this log are missing]\n"
            self.printer.write(self.prefix, note.encode())
            return
        end = piece.body.rfind(b"\n") + 1
        if end:
            self.printer.write(self.prefix, bytes(self.held) + piece.body[:end])
            self.held.clear()
        self.held += piece.body[end:]
        if len(self.held) > LONGEST:
            self.printer.write(self.prefix, bytes(self.held))
            self.held.clear()

    def close(self) -> None:
        """Prints a last line that has no end, and ends it where others follow."""
        if self.held:
            self.printer.write(self.prefix, bytes(self.held) + (b"\n" if self.prefix else b""))
            self.held.clear()


class Feed:
    """One run that is followed: its last attempt, and those that come."""

    def __init__(
        self,
        store: Store,
        run: str,
        label: str,
        role: str | None,
        rank: int | None,
        tail: int | None,
        printer: Printer,
    ) -> None:
        self.store, self.run, self.label = store, run, label
        self.role, self.rank, self.tail, self.printer = role, rank, tail, printer
        self.attempt = 0
        self.logs: list[tuple[Log, Lines]] = []
        self.done = False
        self.state = ""

    def poll(self) -> None:
        """Prints what is new. The result is read first: what was written before it is then all there."""
        view = read_run(self.store, self.run, full=False)
        number = view.attempts[-1].number if view.attempts else 0
        if number != self.attempt:
            self._drain(close=True)
            if self.attempt:
                print(f"{self.run}: attempt {number}", file=sys.stderr, flush=True)
            self._open(view, number)
        self._drain(close=view.result is not None)
        if view.result is not None:
            self.done, self.state = True, view.result.outcome

    def _open(self, view: RunView, number: int) -> None:
        first = self.attempt == 0
        self.attempt = number
        members = pick_members(view, number, self.role, self.rank)
        self.logs = []
        for member in members:
            log = Log(self.store, RunKeys(self.run).attempt(number), member)
            if first and self.tail is not None:
                log.skip_to_tail(self.tail)
            prefix = "/".join(filter(None, (self.label, member if len(members) > 1 else "")))
            self.logs.append((log, Lines(self.printer, prefix)))

    def _drain(self, close: bool) -> None:
        for log, lines in self.logs:
            for piece in log.more():
                lines.feed(piece)
            if close:
                lines.close()


def _follow(store: Store, feeds: Sequence[Feed], backend_of: object) -> int:
    """Until every run has ended. 0 when all succeeded, otherwise 1."""
    pause = POLL if store.url.startswith("file:") else POLL_REMOTE
    away = False
    while True:
        try:
            for feed in feeds:
                if not feed.done:
                    feed.poll()
            away = False
        except Unreachable as error:
            if not away:
                print(f"launcher logs: {error}; trying on", file=sys.stderr)
            away = True
        if all(feed.done for feed in feeds):
            return 0 if all(feed.state == "succeeded" for feed in feeds) else 1
        time.sleep(pause)


def tail_of_failure(store: Store, run: str, count: int) -> tuple[str, list[str]]:
    """(the member that ended worst in the last attempt, its last lines as printable text)."""
    view = read_run(store, run)
    if not view.attempts:
        return "", []
    last = view.attempts[-1]
    worst = max(last.exits.values(), key=lambda end: RULES[end.reason].severity, default=None)
    members = view.job.members() if view.job is not None else ("main-0",)
    member = worst.member if worst is not None else members[0]
    log = Log(store, RunKeys(run).attempt(last.number), member)
    log.skip_to_tail(count)
    body = bytearray()
    with contextlib.suppress(SlipwayError):
        for piece in _bounded(log.more(), 1 << 20):
            body += piece.body
    text = UNSAFE.sub(b"\xef\xbf\xbd", bytes(body)).decode("utf-8", "replace")
    return member, [line[:400] for line in text.splitlines()[-count:]]


def _bounded(pieces: Iterator[Piece], limit: int) -> Iterator[Piece]:
    total = 0
    for piece in pieces:
        yield piece
        total += len(piece.body)
        if total >= limit:
            return
