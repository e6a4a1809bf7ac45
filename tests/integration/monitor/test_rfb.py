"""The viewer's side of VNC against servers of the test, honest and not. DES is compared with OpenSSL's."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes

from launcher.monitor.server.live.rfb import NoDesktop, RfbScreen, encrypted
from tests.support.vnc import answered

PIXEL = struct.Struct("<4B")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def test_des_is_openssl_s() -> None:
    chance = random.Random(20)
    for _ in range(60):
        key, block = chance.randbytes(8), chance.randbytes(8)
        cipher = Cipher(TripleDES(key * 3), modes.ECB()).encryptor()  # three times the same key is DES
        assert encrypted(block, key) == cipher.update(block) + cipher.finalize()


class Server:
    """One end of a WebSocket, as a server sees it."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def shake(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.channel.recv(1)
        (key,) = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key")]
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        lines = (b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade")
        self.channel.sendall(b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + accept, b"", b""]))

    def say(self, payload: bytes, kind: int = 2) -> None:
        size = len(payload)
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
        self.channel.sendall(bytes([0x80 | kind]) + length + payload)

    def hear(self) -> bytes:
        head = self.channel.recv(6, socket.MSG_WAITALL)
        return self.channel.recv(head[1] & 0x7F, socket.MSG_WAITALL)

    def begin(self, width: int, height: int, password: str = "") -> None:
        self.shake()
        self.say(b"RFB 003.008\n")
        assert self.hear() == b"RFB 003.008\n"
        self.say(b"\x01\x02" if password else b"\x01\x01")
        assert self.hear() == (b"\x02" if password else b"\x01")
        if password:
            challenge = bytes(range(16))
            self.say(challenge)
            right = self.hear() == answered(challenge, password)
            self.say(struct.pack(">I", not right))
            if not right:
                return
        else:
            self.say(bytes(4))
        assert self.hear() == b"\x01"
        self.say(struct.pack(">HH16sI", width, height, bytes(16), 4) + b"name")
        assert self.hear()[0] == 0  # how pixels are written
        assert self.hear()[0] == 2  # the encodings
        assert self.hear() == struct.pack(">BBHHHH", 3, 0, 0, 0, width, height)


@contextmanager
def serving(talk: Callable[[Server], None]) -> Iterator[int]:
    """A server that talks so to its first caller."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            channel, _ = listener.accept()
            with channel:
                talk(Server(channel))
                channel.recv(1000)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(10.0)


def rectangle(x: int, y: int, width: int, height: int, body: bytes, encoding: int = 0) -> bytes:
    return struct.pack(">HHHHi", x, y, width, height, encoding) + body


def update(*rectangles: bytes) -> bytes:
    return struct.pack(">BxH", 0, len(rectangles)) + b"".join(rectangles)


def rows(png: bytes) -> list[bytes]:
    """The rows of a PNG of three bytes a pixel and no filter, by its chunks."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + body),)
        parts[name] = body
        at += 12 + size
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    data = zlib.decompress(parts[b"IDAT"])
    assert len(data) == height * (1 + 3 * width)
    return [data[row * (1 + 3 * width) + 1 : (row + 1) * (1 + 3 * width)] for row in range(height)]


def test_a_screen_is_drawn_piece_by_piece_and_resized() -> None:
    red, blue, green = PIXEL.pack(255, 0, 0, 7), PIXEL.pack(0, 0, 255, 9), PIXEL.pack(0, 255, 0, 0)

    def talk(server: Server) -> None:
        server.begin(3, 2, "word")
        server.say(update(rectangle(0, 0, 3, 2, red * 6)))
        assert server.hear() == struct.pack(">BBHHHH", 3, 1, 0, 0, 3, 2)  # what changes from now on
        server.say(b"\x02")  # a bell
        server.say(struct.pack(">BxxxI", 3, 4) + b"text")
        server.say(b"", 9)  # a ping
        whole = update(rectangle(1, 1, 2, 1, blue * 2))
        server.say(whole[:7])  # a message may lie in two frames
        server.say(whole[7:])
        assert [server.hear()[:2], server.hear()[:2]] == [b"", b"\x03\x01"]  # the pong comes first
        server.say(update(rectangle(0, 0, 1, 1, b"", -223)))
        assert server.hear() == struct.pack(">BBHHHH", 3, 0, 0, 0, 1, 1)
        server.say(update(rectangle(0, 0, 1, 1, green)))
        server.hear()

    with serving(talk) as port:
        screen = RfbScreen(port, "word")
        assert screen.changed()
        assert rows(screen.png()) == [b"\xff\0\0" * 3, b"\xff\0\0" * 3]
        assert [screen.changed() for _ in range(3)] == [False, False, True]
        assert rows(screen.png()) == [b"\xff\0\0" * 3, b"\xff\0\0" + b"\0\0\xff" * 2]
        assert screen.changed()
        assert screen.changed()
        assert rows(screen.png()) == [b"\0\xff\0"]
        screen.close()


def test_a_screen_on_which_nothing_changes_is_asked_again() -> None:
    go = threading.Event()

    def talk(server: Server) -> None:
        server.begin(1, 1)
        go.wait(10.0)
        server.say(update(rectangle(0, 0, 1, 1, bytes(4))))

    with serving(talk) as port:
        screen = RfbScreen(port, "", patience=0.2)
        with pytest.raises(TimeoutError):
            screen.changed()
        go.set()
        assert screen.changed()
        screen.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (update(rectangle(2, 0, 2, 1, bytes(8))), "not asked for"),  # beside the screen
        (update(rectangle(0, 1, 1, 2, bytes(8))), "not asked for"),  # below it
        (update(rectangle(0, 0, 1, 1, bytes(4), 16)), "not asked for"),  # an encoding nobody offered
        (update(rectangle(0, 0, 60_000, 60_000, b"", -223)), "3,600,000,000|60,000 x 60,000 pixels"),
        (struct.pack(">BxxxI", 3, 2**31), "no VNC server sends"),  # a text of 2 GB
        (b"\x99", "no VNC server sends"),
        (b"\x00\x00\x00", "stopped within a message"),
    ],
)
def test_a_server_that_lies_is_left(said: bytes, words: str) -> None:
    def talk(server: Server) -> None:
        server.begin(3, 2)
        server.say(said)

    with serving(talk) as port:
        screen = RfbScreen(port, "", patience=0.3)
        with pytest.raises(NoDesktop, match=words):
            screen.changed()
        screen.close()


def test_a_wrong_password_and_something_else_at_the_port() -> None:
    with (
        serving(lambda server: server.begin(3, 2, "other")) as port,
        pytest.raises(NoDesktop, match="refused the pass"),
    ):
        RfbScreen(port, "word")

    def page(server: Server) -> None:
        server.channel.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with serving(page) as port, pytest.raises(NoDesktop, match="does not speak VNC"):
        RfbScreen(port, "word")

    def large(server: Server) -> None:
        with contextlib.suppress(IndexError, OSError):  # the viewer has left
            server.begin(65_535, 65_535)

    with serving(large) as port, pytest.raises(NoDesktop, match="65,535 x 65,535"):
        RfbScreen(port, "")
