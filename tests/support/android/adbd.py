"""The phone's end of adb's protocol over TCP (system/core/adb/protocol.txt of AOSP), with connections that break."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from types import TracebackType

from tests.support.android.device import Device

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
VERSION, MAXDATA = 0x01000001, 256 * 1024  # this version needs no checksums
TOKEN = 1
STDOUT, STDERR, EXIT = 1, 2, 3  # packets of shell_v2


class Adbd:
    """Serves a Device on 127.0.0.1. Use as a context manager.

    trusted  whether the device lets this machine in; else it asks for keys for ever
    mute     it takes connections and says nothing
    cut      (text of a command, bytes): the connection ends after so many bytes of that command's answer, once
    """

    def __init__(self, device: Device, *, features: str = "shell_v2,cmd", trusted: bool = True) -> None:
        self.device = device
        self.features = features
        self.trusted = trusted
        self.mute = False
        self.cut: tuple[str, int] | None = None
        self._listener: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self.port = 0

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Adbd:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.device.go.set()
        self.vanish()

    def listen(self) -> None:
        """Takes connections, again on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def vanish(self) -> None:
        """Ends every connection and takes no more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop()

    def drop(self) -> None:
        """Ends every connection, as a cable that is pulled out."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._sockets.append(connection)
                threading.Thread(target=_Connection(self, connection).serve, daemon=True).start()


class _Connection:
    def __init__(self, adbd: Adbd, connection: socket.socket) -> None:
        self.adbd = adbd
        self.socket = connection
        self.sending = threading.Lock()
        self.okays: dict[int, queue.Queue[bool]] = {}

    def serve(self) -> None:
        with contextlib.suppress(OSError, EOFError), self.socket:
            while True:
                command, one, two, size, _, _ = struct.unpack("<6I", self._read(24))
                self._heard(command, one, two, self._read(size))
        for each in self.okays.values():
            each.put(False)

    def _heard(self, command: int, one: int, two: int, data: bytes) -> None:
        if self.adbd.mute:
            return
        if command in (CNXN, AUTH):
            if self.adbd.trusted:
                banner = f"device::ro.product.name=slip;ro.product.model=Slip;features={self.adbd.features}"
                self._send(CNXN, VERSION, MAXDATA, banner.encode())
            elif not (command == AUTH and one == 3):  # after the public key it waits for a person
                self._send(AUTH, TOKEN, 0, os.urandom(20))
        elif command == OPEN:
            service = data.rstrip(b"\0").decode()
            self.okays[one] = queue.Queue()
            threading.Thread(target=self._service, args=(one, service), daemon=True).start()
        elif command == OKAY and one:
            self.okays[two].put(True) if two in self.okays else None
        elif command == CLSE and two in self.okays:
            self.okays[two].put(False)

    def _service(self, stream: int, service: str) -> None:
        """`stream` is the number of the stream at both ends."""
        kind, _, line = service.partition(":")
        with contextlib.suppress(OSError, EOFError):
            if kind.split(",")[0] not in ("shell", "exec"):
                self._send(CLSE, 0, stream)
                return
            self._send(OKAY, stream, stream)
            code, out, err, both = self.adbd.device.command(line)
            cut = self.adbd.cut
            if cut and cut[0] in line:
                self.adbd.cut = None
            else:
                cut = None
            if "v2" in kind.split(","):
                packets = [(STDOUT, out), (STDERR, err), (EXIT, bytes([code & 255]))]
                answer = b"".join(struct.pack("<BI", number, len(data)) + data for number, data in packets if data)
            else:
                answer = both
            if cut:
                answer = answer[: cut[1]]
            for start in range(0, len(answer), 16384):
                self._send(WRTE, stream, stream, answer[start : start + 16384])
                if not self.okays[stream].get():
                    return
            if cut:
                self.adbd.drop()
            else:
                self._send(CLSE, stream, stream)

    def _send(self, command: int, one: int, two: int, data: bytes = b"") -> None:
        head = struct.pack("<6I", command, one, two, len(data), sum(data) & 0xFFFFFFFF, command ^ 0xFFFFFFFF)
        with self.sending:
            self.socket.sendall(head + data)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
