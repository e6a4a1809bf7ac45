"""Looking on a running desktop: the page of noVNC, and the VNC protocol as RFC 6143 has it."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import socket
import urllib.request
from pathlib import Path

import pytest

from eval.desktops.session import DesktopSession
from eval.desktops.viewing import missing_viewers, start_view
from tests.support.desktops import left, run
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _viewers() -> None:
    if missing := missing_viewers():
        message = f"{', '.join(missing)}: install with `make desktop-tools`"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def websocket(port: int) -> socket.socket:
    """A WebSocket connection to noVNC's path (RFC 6455, chapter 4)."""
    channel = socket.create_connection(("127.0.0.1", port), timeout=60)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    lines = ("GET /websockify HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade")
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


def test_a_person_can_look_on_with_the_sessions_password_only(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start() as session:
            view = await start_view(session)
            page = await asyncio.to_thread(urllib.request.urlopen, view.url, timeout=60)
            with page:
                assert b"noVNC" in page.read()
            with await asyncio.to_thread(websocket, view.port) as channel:
                assert frame(channel).startswith(b"RFB 003.00")
                send(channel, b"RFB 003.008\n")
                assert frame(channel) == b"\x01\x02"  # one kind of security: VNC's password
                send(channel, b"\x02")
                assert len(frame(channel)) == 16
                send(channel, bytes(16))  # not the challenge encrypted with the password
                assert frame(channel)[:4] == b"\0\0\0\1"  # refused
            other = await start_view(session, control=True)
            assert (other.password, other.port) != (view.password, view.port)
            session.check()

    run(work())
    until(lambda: not left(folder), lambda: left(folder))
