"""A viewer's side of VNC (RFC 6143) inside a WebSocket (RFC 6455), as websockify and QEMU offer it: it looks, and sends
neither keys nor pointer. What the server says is not trusted: sizes are bounded, rectangles lie on the screen."""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import struct
import zlib
from typing import Final

from launcher.errors import SlipwayError
from launcher.monitor.server.live.des import encrypted

VERSION: Final = b"RFB 003.008\n"
NO_PASSWORD, VNC_PASSWORD = 1, 2  # RFC 6143, 7.1.2
RAW, DESKTOP_SIZE = 0, -223  # 7.7.1, 7.8.2
# 32 bits a pixel, of which 24 count; red is the first byte, so a row is R G B and one byte that says nothing
PIXELS: Final = struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
MOST_PIXELS: Final = 40_000_000
LONGEST: Final = 1_000_000  # bytes of a text that the server may send
CLOSE, PING, PONG, BINARY = 8, 9, 10, 2  # RFC 6455, 5.2
ACCEPT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


class NoDesktop(SlipwayError):
    """The desktop cannot be seen."""


class RfbScreen:
    """A connection to a desktop's screen. Raises NoDesktop, OSError; also when `close` is called from elsewhere."""

    def __init__(self, port: int, password: str, patience: float = 5.0) -> None:
        self._channel = socket.create_connection(("127.0.0.1", port), timeout=patience)
        self._unread = bytearray()
        try:
            self._upgrade(port)
            self._begin(password)
        except BaseException:
            self._channel.close()
            raise

    def close(self) -> None:
        self._channel.close()

    # -- the WebSocket

    def _upgrade(self, port: int) -> None:
        key = base64.b64encode(secrets.token_bytes(16))
        lines = ("GET /websockify HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade")
        more = (f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: binary")
        self._channel.sendall("\r\n".join([*lines, *more, "", ""]).encode())
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):
            byte = self._channel.recv(1)
            if not byte or len(head) > 16_384:
                raise NoDesktop("what listens at the port `vnc` does not speak VNC in a WebSocket")
            head += byte
        wanted = base64.b64encode(hashlib.sha1(key + ACCEPT).digest())
        if not head.startswith(b"HTTP/1.1 101") or wanted not in head:
            raise NoDesktop("what listens at the port `vnc` does not speak VNC in a WebSocket")

    def _received(self, count: int) -> bytes:
        """Exactly `count` bytes of the channel."""
        data = bytearray()
        while len(data) < count:
            piece = self._channel.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise NoDesktop("the desktop ended the connection")
            data += piece
        return bytes(data)

    def _frame(self) -> None:
        """Adds the next message's bytes to what is unread."""
        first, second = self._received(2)
        size, kind = second & 0x7F, first & 0x0F
        if size == 126:
            (size,) = struct.unpack(">H", self._received(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._received(8))
        if size > 4 * MOST_PIXELS or second & 0x80:
            raise NoDesktop("the desktop sent a message that no VNC server sends")
        payload = self._received(size)
        if kind == CLOSE:
            raise NoDesktop("the desktop ended the connection")
        if kind == PING:
            self._send(payload, PONG)
        elif kind != PONG:
            self._unread += payload

    def _send(self, payload: bytes, kind: int = BINARY) -> None:
        """One short message; a mask of zeros leaves it as it is."""
        assert len(payload) < 126
        self._channel.sendall(bytes([0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    def _read(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._frame()
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    # -- VNC

    def _begin(self, password: str) -> None:
        if not self._read(12).startswith(b"RFB 003.00"):
            raise NoDesktop("what listens at the port `vnc` does not speak VNC in a WebSocket")
        self._send(VERSION)
        kinds = self._read(self._read(1)[0])
        if NO_PASSWORD in kinds:
            self._send(bytes([NO_PASSWORD]))
        elif VNC_PASSWORD in kinds:
            self._send(bytes([VNC_PASSWORD]))
            # each byte of the key has its bits in the other order
            key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in password.encode()[:8].ljust(8, b"\0"))
            challenge = self._read(16)
            self._send(encrypted(challenge[:8], key) + encrypted(challenge[8:], key))
        else:
            raise NoDesktop("the desktop asks for a way to log in that the monitor does not know")
        if self._read(4) != b"\0\0\0\0":
            raise NoDesktop("the desktop refused the password")
        self._send(b"\x01")  # others may look on, too
        width, height, _, name = struct.unpack(">HH16sI", self._read(24))
        self._read(_short(name))
        self._resize(width, height)
        self._send(b"\0\0\0\0" + PIXELS)
        self._send(struct.pack(">BxHii", 2, 2, RAW, DESKTOP_SIZE))
        self._ask(whole=True)

    def _resize(self, width: int, height: int) -> None:
        if not 0 < width * height <= MOST_PIXELS:
            raise NoDesktop(f"the desktop has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are shown")
        self.width, self.height = width, height
        self._pixels = bytearray(4 * width * height)

    def _ask(self, *, whole: bool = False) -> None:
        self._send(struct.pack(">BBHHHH", 3, not whole, 0, 0, self.width, self.height))

    def changed(self) -> bool:
        """Waits for the server's next word; whether the screen is another after it. It is asked for the next change.
        Raises TimeoutError where none came; it may be called again."""
        kind = self._read(1)[0]  # nothing may come for long
        try:
            return self._heard(kind)
        except TimeoutError:
            raise NoDesktop("the desktop stopped within a message") from None

    def _heard(self, kind: int) -> bool:
        if kind == 0:
            self._update()
            return True
        if kind == 1:
            (colours,) = struct.unpack(">xxxH", self._read(5))
            self._read(6 * colours)
        elif kind == 3:
            (length,) = struct.unpack(">xxxI", self._read(7))
            self._read(_short(length))
        elif kind != 2:
            raise NoDesktop("the desktop sent a message that no VNC server sends")
        return False

    def _update(self) -> None:
        (count,) = struct.unpack(">xH", self._read(3))
        resized = False
        for _ in range(count):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self._read(12))
            if encoding == DESKTOP_SIZE:
                self._resize(width, height)
                resized = True
            elif encoding != RAW or x + width > self.width or y + height > self.height:
                raise NoDesktop("the desktop sent a picture that was not asked for")
            else:
                data, at = self._read(4 * width * height), 4 * (y * self.width + x)
                for row in range(height):
                    start = at + 4 * row * self.width
                    self._pixels[start : start + 4 * width] = data[4 * row * width : 4 * (row + 1) * width]
        self._ask(whole=resized)

    def png(self) -> bytes:
        """The screen as it was told last (PNG, 11.2: IHDR, IDAT, IEND; rows without a filter)."""
        pixels, width = self._pixels, self.width
        colours = bytearray(3 * width * self.height)
        for channel in range(3):
            colours[channel::3] = pixels[channel::4]
        rows = b"".join(b"\0" + colours[start : start + 3 * width] for start in range(0, len(colours), 3 * width))
        head = struct.pack(">IIBBBBB", width, self.height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
            for name, body in parts
        )


def _short(length: int) -> int:
    if length > LONGEST:
        raise NoDesktop("the desktop sent a message that no VNC server sends")
    return length
