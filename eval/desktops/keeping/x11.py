"""As much of the X protocol as it takes to see that a server and its window manager are ready, and to notice their end.

X Window System Protocol, version 11: chapter 8 (connection setup) and the requests InternAtom, ChangeWindowAttributes
and GetProperty. Little-endian; the cookie is MIT-MAGIC-COOKIE-1.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

COOKIE_NAME: Final = b"MIT-MAGIC-COOKIE-1"
FAMILY_WILD: Final = 0xFFFF
PROPERTY_CHANGES: Final = 0x400000
_PROPERTY_NOTIFY: Final = 28


class XGone(Exception):
    """The X server closed the connection, or refused it."""


def authority(cookie: bytes) -> bytes:
    """An X authority file that gives `cookie` to any display (Xau(3): family, address, number, name, data)."""
    fields = (b"", b"", COOKIE_NAME, cookie)
    return struct.pack(">H", FAMILY_WILD) + b"".join(struct.pack(">H", len(part)) + part for part in fields)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


class XWatch:
    """A connection to the X server behind the Unix socket `path`. `root` is the first screen's root window."""

    def __init__(self, path: str, cookie: bytes, timeout: float = 10.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self._changed: set[int] = set()
        try:
            self.socket.connect(path)
            setup = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(COOKIE_NAME), len(cookie))
            self.socket.sendall(setup + _padded(COOKIE_NAME) + _padded(cookie))
            status, _, _, length = struct.unpack("<BBHxxH", self._read(8))
            body = self._read(4 * length)
        except OSError as error:
            raise XGone(str(error)) from error
        if status != 1:
            raise XGone(f"the X server refused the connection: {body!r}")
        vendor, formats = struct.unpack_from("<H", body, 16)[0], body[21]
        self.root = int(struct.unpack_from("<I", body, 32 + vendor + -vendor % 4 + 8 * formats)[0])

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except OSError as error:
                raise XGone(str(error)) from error
            if not piece:
                raise XGone("the X server closed the connection")
            data += piece
        return data

    def _send(self, request: bytes) -> None:
        try:
            self.socket.sendall(request)
        except OSError as error:
            raise XGone(str(error)) from error

    def _packet(self) -> tuple[int, bytes]:
        head = self._read(32)
        if head[0] == 1:
            return 1, head + self._read(4 * int(struct.unpack_from("<I", head, 4)[0]))
        if head[0] & 0x7F == _PROPERTY_NOTIFY:
            self._changed.add(int(struct.unpack_from("<I", head, 8)[0]))
        return head[0] & 0x7F, head

    def _reply(self) -> bytes:
        while True:
            kind, packet = self._packet()
            if kind == 1:
                return packet
            if kind == 0:
                raise XGone(f"the X server answered with error {packet[1]}")

    def atom(self, name: str) -> int:
        """The number of an atom."""
        data = name.encode()
        self._send(struct.pack("<BBHHxx", 16, 0, 2 + (len(data) + 3) // 4, len(data)) + _padded(data))
        return int(struct.unpack_from("<I", self._reply(), 8)[0])

    def watch_root(self) -> None:
        """Asks for an event when a property of the root window changes."""
        self._send(struct.pack("<BxHIII", 2, 4, self.root, 0x800, PROPERTY_CHANGES))

    def property(self, atom: int) -> tuple[int, ...]:
        """The root window's property as 32-bit numbers; empty where there is none."""
        self._send(struct.pack("<BBHIIIII", 20, 0, 6, self.root, atom, 0, 0, 4096))
        reply = self._reply()
        size = reply[1]
        count = struct.unpack_from("<I", reply, 16)[0]
        return struct.unpack_from(f"<{count}I", reply, 32) if size == 32 else ()

    def wait_for(self, atom: int) -> tuple[int, ...]:
        """Waits until the root window has the property, and gives it. Call `watch_root` before."""
        while not (value := self.property(atom)):
            self._changed.discard(atom)
            while atom not in self._changed:
                self._packet()
        return value

    def changes(self) -> set[int]:
        """The atoms of the properties that changed since the last call; reads one packet, if there is one."""
        if not self._changed:
            self._packet()
        changed, self._changed = self._changed, set()
        return changed
