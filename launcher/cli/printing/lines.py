"""Prints the output of programs: whole lines, of several ranks at once, without sequences that move the cursor."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import BinaryIO, Final

import msgspec

from launcher import safe_text
from launcher.cli.printing import output
from launcher.store.logs import Piece

LONGEST: Final = 64 * 1024  # bytes of an incomplete line that are held back; a longer line is printed in parts


class Printer(msgspec.Struct):
    """Writes whole lines to one stream, so that lines of different ranks never mix."""

    out: BinaryIO
    terminal: bool
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    open_line: str | None = None  # the prefix of the line that has no end yet
    closed: bool = False
    parts: dict[str, bytes] = {}  # JSON: prefix -> the beginning of its line

    def write(self, prefix: str, body: bytes) -> None:
        with self.lock:
            if self.closed:
                return
            if self.open_line is not None and self.open_line != prefix:
                self.out.write(b"\n")
                self.open_line = None
            if self.terminal:
                body = safe_text.log(body).encode("utf-8", "replace")
            if prefix:
                mark = (
                    output.paint(f"{safe_text.line(prefix)} │ ", "2").encode()
                    if self.terminal
                    else f"{safe_text.line(prefix)} | ".encode()
                )
                body = self._prefixed(mark, body, self.open_line == prefix)
            self.out.write(body)
            self.open_line = None if body.endswith(b"\n") else prefix
            self.out.flush()

    def prefix(self, run: str, label: str, member: str, members: Sequence[str]) -> str:
        """The prefix for the lines of a rank: just enough to distinguish it from the others that are shown."""
        return "/".join(filter(None, (label, member if len(members) > 1 else "")))

    def missing(self, prefix: str, count: int) -> None:
        """Reports that `count` bytes of a log are not in the store."""
        self.write(prefix, f"[{count} bytes of this log are missing]\n".encode())

    def close(self) -> None:
        """Stops all output: threads that still read must not write while the interpreter ends."""
        with self.lock:
            self.closed = True

    @staticmethod
    def _prefixed(mark: bytes, body: bytes, inside: bool) -> bytes:
        end = body.endswith(b"\n")
        lines = (body[:-1] if end else body).split(b"\n")
        first = lines[0] if inside else mark + lines[0]
        return b"\n".join([first, *(mark + line for line in lines[1:])]) + (b"\n" if end else b"")


class JsonPrinter(Printer):
    """The same as JSON, one document per line: run, name, member, line."""

    def prefix(self, run: str, label: str, member: str, members: Sequence[str]) -> str:
        return json.dumps([run, label or run.rpartition("-")[0], member])

    def write(self, prefix: str, body: bytes) -> None:
        with self.lock:
            if self.closed:
                return
            *lines, rest = (self.parts.pop(prefix, b"") + body).split(b"\n")
            if rest:
                self.parts[prefix] = rest  # a line longer than LONGEST comes in parts
            for line in lines:
                self._put(prefix, {"line": line.decode("utf-8", "replace")})
            self.out.flush()

    def missing(self, prefix: str, count: int) -> None:
        with self.lock:
            if not self.closed:
                self._put(prefix, {"line": "", "missing": count})

    def _put(self, prefix: str, said: dict[str, object]) -> None:
        run, name, member = json.loads(prefix)
        self.out.write(json.dumps({"run": run, "name": name, "member": member, **said}).encode() + b"\n")


class Lines:
    """Turns pieces of one rank's log into whole lines; a line longer than LONGEST is printed in parts."""

    def __init__(self, printer: Printer, prefix: str) -> None:
        self.printer = printer
        self.prefix = prefix
        self.held = bytearray()

    def feed(self, piece: Piece) -> None:
        if piece.missing:
            self.close()
            self.printer.missing(self.prefix, piece.missing)
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
        """Prints a last line without an end, and ends it when others follow."""
        if self.held:
            self.printer.write(self.prefix, bytes(self.held) + (b"\n" if self.prefix else b""))
            self.held.clear()
