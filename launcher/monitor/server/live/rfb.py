"""A viewer's side of VNC (RFC 6143) inside a WebSocket (RFC 6455), as websockify and QEMU offer it: it looks, and sends
neither keys nor pointer. What the server says is not trusted: sizes are bounded, rectangles lie on the screen."""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from launcher.errors import SlipwayError

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


# The block cipher DES (FIPS 46-3), which VNC's password asks for (RFC 6143, 7.2.2) and Python has not. It protects
# nothing by itself: what uses it here stays on this machine or in a tunnel of the backend.

# FIPS 46-3: bits are counted from 1, the first is the highest
INITIAL: Final = [column + 8 * row for column in (58, 60, 62, 64, 57, 59, 61, 63) for row in range(0, -8, -1)]
EXPAND: Final = [(4 * row + column - 1) % 32 + 1 for row in range(8) for column in range(6)]
MIX: Final = (
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
)  # fmt: skip
FIRST_CHOICE: Final = (
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
)  # fmt: skip
SECOND_CHOICE: Final = (
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
)  # fmt: skip
ROTATED: Final = (1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1)
# a row of hexadecimal digits for each of the four rows of each box
BOXES: Final = tuple(
    tuple(int(digit, 16) for digit in box)
    for box in (
        "E4D12FB83A6C59070F74E2D1A6CB953841E8D62BFC973A50FC8249175B3EA06D",
        "F18E6B34972DC05A3D47F28EC01A69B50E7BA4D158C6932FD8A13F42B67C05E9",
        "A09E63F51DC7B428D709346A285ECBF1D6498F30B12C5AE71AD069874FE3B52C",
        "7DE3069A1285BC4FD8B56F03472C1AE9A690CB7DF13E52843F06A1D8945BC72E",
        "2C417AB6853FD0E9EB2C47D150FA3986421BAD78F9C5630EB8C71E2D6F09A453",
        "C1AF92680D34E75BAF427C9561DE0B389EF528C3704A1DB6432C95FABE17608D",
        "4B2EF08D3C975A61D0B7491AE35C2F8614BDC37EAF6805926BD814A7950FE23C",
        "D2846FB1A93E50C71FD8A374C56B0E927B419CE206ADF35821E74A8DFC90356B",
    )
)


def encrypted(block: bytes, key: bytes) -> bytes:
    """One block of 8 bytes, with a key of 8 bytes."""
    bits = _chosen(_bits(block), INITIAL)
    left, right = bits[:32], bits[32:]
    for subkey in _subkeys(key):
        mixed = [a ^ b for a, b in zip(_chosen(right, EXPAND), subkey, strict=True)]
        left, right = right, [a ^ b for a, b in zip(left, _substituted(mixed), strict=True)]
    last = right + left
    # the inverse of the first permutation
    out = [0] * 64
    for at, bit in zip(INITIAL, last, strict=True):
        out[at - 1] = bit
    return int("".join(map(str, out)), 2).to_bytes(8, "big")


def _bits(data: bytes) -> list[int]:
    return [byte >> shift & 1 for byte in data for shift in range(7, -1, -1)]


def _chosen(bits: Sequence[int], places: Sequence[int]) -> list[int]:
    return [bits[place - 1] for place in places]


def _subkeys(key: bytes) -> list[list[int]]:
    halves = _chosen(_bits(key), FIRST_CHOICE)
    c, d = halves[:28], halves[28:]
    keys = []
    for count in ROTATED:
        c, d = c[count:] + c[:count], d[count:] + d[:count]
        keys.append(_chosen(c + d, SECOND_CHOICE))
    return keys


def _substituted(mixed: Sequence[int]) -> list[int]:
    found: list[int] = []
    for number, box in enumerate(BOXES):
        a, b, c, d, e, f = mixed[6 * number : 6 * number + 6]
        value = box[16 * (2 * a + f) + (8 * b + 4 * c + 2 * d + e)]
        found += [value >> shift & 1 for shift in (3, 2, 1, 0)]
    return _chosen(found, MIX)
