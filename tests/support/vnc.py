"""A VNC client over noVNC's WebSocket (RFC 6143 in RFC 6455), as a browser is one: it logs in, types and points."""

from __future__ import annotations

import base64
import secrets
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes

CONTROL, ALT, END, RETURN = 0xFFE3, 0xFFE9, 0xFF57, 0xFF0D  # keysyms; of printable ASCII it is the code
VERSION: Final = b"RFB 003.008\n"


def websocket(port: int, path: str = "/websockify") -> socket.socket:
    """A WebSocket connection to noVNC's path (RFC 6455, chapter 4); QEMU's is `/`."""
    channel = socket.create_connection(("127.0.0.1", port), timeout=60)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    lines = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade")
    more = (f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: binary")
    channel.sendall("\r\n".join([*lines, *more, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += channel.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")
    return channel


def frame(channel: socket.socket) -> bytes:
    """The payload of the next message, shorter than 126 bytes."""
    head = channel.recv(2, socket.MSG_WAITALL)
    return channel.recv(head[1] & 0x7F, socket.MSG_WAITALL)


def send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(bytes([0x82, 0x80 | len(payload), 0, 0, 0, 0]) + payload)


def answered(challenge: bytes, password: str) -> bytes:
    """VNC's password: DES of the challenge, each byte of the key with its bits in the other order (7.2.2)."""
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in password.encode()[:8].ljust(8, b"\0"))
    cipher = Cipher(TripleDES(key * 3), modes.ECB()).encryptor()  # three times the same key is DES
    return cipher.update(challenge) + cipher.finalize()


class VncPerson:
    """Somebody at a view of a desktop. Raises AssertionError when the server lets them not in."""

    def __init__(self, port: int, password: str) -> None:
        self._channel, self._unread = websocket(port), b""
        assert self._read(12).startswith(b"RFB 003.00")
        send(self._channel, VERSION)
        kinds = self._read(self._read(1)[0])
        assert 2 in kinds
        send(self._channel, b"\x02")
        send(self._channel, answered(self._read(16), password))
        assert self._read(4) == b"\0\0\0\0"
        send(self._channel, b"\x01")  # others may look on, too
        self.width, self.height, _, name = struct.unpack(">HH16sI", self._read(24))
        self._read(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def _read(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._unread += frame(self._channel)
        read, self._unread = self._unread[:count], self._unread[count:]
        return read

    def press(self, *keysyms: int) -> None:
        """All down, then all up."""
        for keysym, down in (*((each, 1) for each in keysyms), *((each, 0) for each in reversed(keysyms))):
            send(self._channel, struct.pack(">BBxxI", 4, down, keysym))

    def type(self, text: str) -> None:
        for character in text:
            self.press(ord(character))

    def point(self, x: float, y: float, buttons: Sequence[int] = ()) -> None:
        """Moves to fractions of the screen, with these buttons down (1 is the left one)."""
        mask = sum(1 << (button - 1) for button in buttons)
        place = (round(x * (self.width - 1)), round(y * (self.height - 1)))
        send(self._channel, struct.pack(">BBHH", 5, mask, *place))
