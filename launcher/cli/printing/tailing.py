"""Follows logs until runs end: live from the backend where it can, otherwise from the pieces in the store."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from launcher import safe_text
from launcher.backends.base import Backend, Handle
from launcher.cli.printing.lines import Lines, Printer
from launcher.errors import SlipwayError, Unreachable
from launcher.protocol.read import read_run
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log, Piece
from launcher.verbs.ask_backend import BackendOf
from launcher.verbs.logs import pick_members
from launcher.verbs.status import read_line

POLL: Final = 0.5  # seconds between two readings of a store in a folder
POLL_REMOTE: Final = 2.0


class MemberFilter(msgspec.Struct, frozen=True):
    """Which members of a run are followed; `tail`: the number of lines to begin with, None for all."""

    role: str | None = None
    rank: int | None = None
    tail: int | None = None


class Feed:
    """One run that is followed: its last attempt and later ones."""

    def __init__(self, store: Store, run: str, label: str, choice: MemberFilter, printer: Printer) -> None:
        self.store, self.run, self.label, self.choice, self.printer = store, run, label, choice, printer
        self.attempt = 0
        self.began = 0  # the attempt whose live streams were opened
        self.logs: list[tuple[Log, Lines]] = []
        self.threads: list[threading.Thread] = []  # live streams, one for each member
        self.broken: dict[str, int] = {}  # member -> the byte of its log at which its live stream broke
        self.state = ""  # the outcome, once the run has ended

    def begin(self, backend_of: BackendOf) -> None:
        """Opens the backend's live streams, if it has an active object of the run."""
        view = read_run(self.store, self.run, full=False)
        backend = backend_of(view.placed) if view.placed is not None and view.result is None else None
        if backend is None:
            return
        try:
            observation = backend.look_up(self.run)
        except SlipwayError:
            return
        if observation is None or not observation.active:
            return
        self.began = number = view.computing[-1].number if view.computing else 0
        members = pick_members(view, number, self.choice.role, self.choice.rank)
        for member in members:
            log = Log(self.store, RunKeys(self.run).attempt(number), member)
            if number and self.choice.tail is not None:
                log.skip_to_tail(self.choice.tail)
            lines = Lines(self.printer, self._prefix(member, members))
            arguments = (backend, observation.handle, member, log, lines)
            self.threads.append(threading.Thread(target=self._stream, args=arguments, daemon=True))
        for thread in self.threads:
            thread.start()

    def _stream(self, backend: Backend, handle: Handle, member: str, log: Log, lines: Lines) -> None:
        """Prints a member's live output. The store gets the same bytes, so offsets are equal."""
        role, _, rank = member.rpartition("-")
        skip = given = log.position
        try:
            for chunk in backend.logs(handle, role, int(rank), False):
                if skip < len(chunk):
                    lines.feed(Piece(0, chunk[skip:]))
                    given += len(chunk) - skip
                skip = max(0, skip - len(chunk))
        except SlipwayError as error:
            print(safe_text.line(f"{self.run}: {error}; continuing from the store"), file=sys.stderr)
            self.broken[member] = given
        lines.close()

    def poll(self, backend_of: BackendOf) -> None:
        """Prints new pieces from the store, or waits for the end of live streams."""
        if self.threads:
            if any(thread.is_alive() for thread in self.threads):
                return
            if not self.broken:
                line = read_line(self.store, self.run, backend_of)[1]
                self.state = line.state if line.final else ""
                return
            self.threads = []
        # the result is read first: everything written before it is then visible
        view = read_run(self.store, self.run, full=False)
        number = view.computing[-1].number if view.computing else 0
        if number != self.attempt:
            self._drain(close=True)
            if self.attempt:
                print(f"{self.run}: attempt {number}", file=sys.stderr, flush=True)
            first, self.attempt = self.attempt == 0, number
            members = pick_members(view, number, self.choice.role, self.choice.rank)
            self.logs = [
                (
                    Log(self.store, RunKeys(self.run).attempt(number), member),
                    Lines(self.printer, self._prefix(member, members)),
                )
                for member in members
            ]
            for log, _ in self.logs:
                if first and self.broken:
                    # nothing of a later attempt has been printed yet
                    if number <= max(1, self.began):
                        log.position = self.broken.get(log.member, log.size())
                elif first and self.choice.tail is not None:
                    log.skip_to_tail(self.choice.tail)
        self._drain(close=view.result is not None)
        if view.result is not None:
            self.state = view.result.outcome

    def _prefix(self, member: str, members: Sequence[str]) -> str:
        return self.printer.prefix(self.run, self.label, member, members)

    def _drain(self, close: bool) -> None:
        for log, lines in self.logs:
            for piece in log.more():
                lines.feed(piece)
            if close:
                lines.close()


def follow(feeds: Sequence[Feed], backend_of: BackendOf) -> int:
    """Follows until every run has ended. Returns 0 when all succeeded, otherwise 1."""
    try:
        return _follow(feeds, backend_of)
    finally:
        for feed in feeds:
            feed.printer.close()


def _follow(feeds: Sequence[Feed], backend_of: BackendOf) -> int:
    for feed in feeds:
        feed.begin(backend_of)
    pause = POLL if all(feed.store.url.startswith("file:") for feed in feeds) else POLL_REMOTE
    away = False
    while True:
        try:
            for feed in feeds:
                if not feed.state:
                    feed.poll(backend_of)
            away = False
        except Unreachable as error:
            if not away:
                print(safe_text.line(f"launcher logs: {error}; trying again"), file=sys.stderr)
            away = True
        if all(feed.state for feed in feeds):
            return 0 if all(feed.state == "succeeded" for feed in feeds) else 1
        time.sleep(pause)
