"""A connection to a desktop's accessibility bus, on which every answer may come from a hostile program.

jeepney packs and unpacks D-Bus messages. Reading them is ours: the bus lets a program send a message of 1 GB, and a
library that reads whole messages would hold it in memory and unpack it. A message that is too long is thrown away as it
comes, and the call that it answers fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from jeepney.auth import BEGIN, AuthenticationError, Authenticator
from jeepney.low_level import Header, HeaderFields, Message, MessageType
from jeepney.wrappers import DBusAddress, new_method_call

from eval.accessibility.tree import Bounds
from eval.desktop import DesktopGone
from eval.desktops.display.running_desktop import RunningDesktop

FAR: Final = 1 << 16  # pixels; a hidden object has a place of -2^31
Reference = tuple[str, str]  # (name on the bus, path)
FIXED: Final = 16  # bytes at the beginning of a message: they tell how long it is
HEADER: Final = 1 << 16  # bytes of header fields; the bus refuses names above 255 bytes, so only signatures are long
BODY: Final = 1 << 18  # bytes of an answer that are read: 1,024 children are 60 kB
CHUNK: Final = 1 << 16
START_S: Final = 10.0  # seconds; a busy machine starts programs slowly
UNREADABLE: Final = (ValueError, KeyError, IndexError, TypeError, struct.error, RecursionError, OverflowError)
GONE: Final = tuple(f"org.freedesktop.DBus.Error.{name}" for name in ("NoReply", "ServiceUnknown", "NameHasNoOwner"))
DAEMON: Final = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")


class Unanswered(Exception):
    """A program refused a call, gave an answer that cannot be used, or ended. The message says which."""


class UnreadableAnswer(Unanswered):
    """The answer is larger than what is read, or is not of the form that D-Bus asks for."""


class ProgramEnded(Unanswered):
    """The program that was asked has ended."""


def socket_of(place: RunningDesktop) -> Path:
    """The accessibility bus's socket, beside that of the session bus: outside the guest and read-only to it.

    Its address is not asked of the session bus, where a program of the agent could answer. The bus starts a moment
    after its desktop, so this waits for it. Raises DesktopGone.
    """
    address = place.environ["DBUS_SESSION_BUS_ADDRESS"]
    session = Path(address.partition("path=")[2].partition(",")[0])
    end = time.monotonic() + START_S
    while session.exists() and time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := sorted(session.with_name("at-spi").iterdir()):
                return found[0]
        time.sleep(0.01)
    raise DesktopGone(f"the desktop {place.display} has no accessibility bus")


class Bus:
    """One open connection. Calls may overlap; all are of one event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._serials = count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[tuple[Any, ...]]]] = {}
        self._lost: Exception | None = None
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, path: Path) -> Bus:
        """Raises DesktopGone."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=CHUNK)
        except OSError as error:
            raise DesktopGone(f"the accessibility bus does not answer: {error}") from None
        bus: Bus | None = None
        try:
            login = Authenticator()
            for line in login:
                writer.write(line)
                login.feed(await reader.readuntil(b"\r\n"))
            writer.write(BEGIN)
            bus = cls(reader, writer)
            await bus.call(DAEMON, "Hello")
        except BaseException as error:  # also when it takes too long, and the wait is given up
            writer.transport.abort()
            if bus is not None:
                await bus.close()
            if isinstance(error, OSError | EOFError | asyncio.LimitOverrunError | AuthenticationError):
                raise DesktopGone(f"the accessibility bus does not answer: {error}") from None
            raise
        return bus

    async def close(self) -> None:
        """Closes the connection; also one that is lost already."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()

    async def call(
        self, to: DBusAddress, method: str, signature: str | None = None, body: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """The answer's values. Waits for ever: the caller sets the time limit. Raises Unanswered, DesktopGone."""
        if self._lost:
            raise self._lost
        serial = next(self._serials)
        answer: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        self._waiting[serial] = (to.bus_name or "", answer)
        try:
            self._writer.write(new_method_call(to, method, signature, body).serialise(serial))
            return await answer
        finally:
            self._waiting.pop(serial, None)

    async def _read(self) -> None:
        try:
            while True:
                await self._message()
        except (OSError, EOFError, *UNREADABLE) as error:
            self._lost = DesktopGone(f"the accessibility bus is gone: {error}")
            for _, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._lost)

    async def _message(self) -> None:
        start = await self._reader.readexactly(FIXED)
        order = {ord("l"): "<", ord("B"): ">"}[start[0]]
        body_size, _, fields_size = struct.unpack(f"{order}III", start[4:])
        fields_size += -fields_size % 8
        if fields_size > HEADER:
            raise ValueError(f"a message with a header of {fields_size} bytes")
        head = start + await self._reader.readexactly(fields_size)
        if body_size > BODY:
            left = body_size
            while left:
                left -= len(await self._reader.readexactly(min(left, CHUNK)))
            self._fail(head, f"an answer of {body_size} bytes")
            return
        body = await self._reader.readexactly(body_size)
        try:
            self._hear(Message.from_buffer(head + body))
        except UNREADABLE as error:
            self._fail(head, f"an answer that cannot be read: {type(error).__name__}")

    def _fail(self, head: bytes, why: str) -> None:
        """The call that a message without a usable body answers has failed."""
        header, _ = Header.from_buffer(head)
        serial = header.fields.get(HeaderFields.reply_serial, 0)
        _, answer = self._waiting.get(serial, ("", None))
        if answer is not None and not answer.done():
            answer.set_exception(UnreadableAnswer(why))

    def _hear(self, message: Message) -> None:
        fields = message.header.fields
        asked, answer = self._waiting.get(fields.get(HeaderFields.reply_serial, 0), ("", None))
        if answer is None or answer.done():
            return  # a signal, a call, or an answer that nobody waits for
        if asked.startswith(":") and fields.get(HeaderFields.sender) not in (asked, "org.freedesktop.DBus"):
            return  # only who was asked can answer, or the bus in its place
        if message.header.message_type is MessageType.method_return:
            answer.set_result(tuple(message.body))
        elif message.header.message_type is MessageType.error:
            name = str(fields.get(HeaderFields.error_name, "an error"))
            answer.set_exception((ProgramEnded if name in GONE else Unanswered)(name))


def read_references(found: Any) -> list[Reference]:
    """The references in an answer, without those that stand for nothing."""
    if not isinstance(found, list):
        return []
    pairs = [pair for pair in found if isinstance(pair, tuple) and len(pair) == 2]
    return [
        (name, path)
        for name, path in pairs
        if isinstance(name, str) and isinstance(path, str) and name and not path.endswith("/null")
    ]


def read_bounds(found: Any) -> Bounds | None:
    if not isinstance(found, tuple) or len(found) != 4 or not all(isinstance(number, int) for number in found):
        return None
    left, top, width, height = found
    if width <= 0 or height <= 0 or max(abs(left), abs(top), width, height) > FAR:
        return None
    return left, top, width, height


def read_value(found: dict[str, Any]) -> tuple[float, float, float, float] | None:
    names = ("CurrentValue", "MinimumValue", "MaximumValue", "MinimumIncrement")
    numbers = [found.get(name) for name in names]
    if not isinstance(numbers[0], int | float):
        return None
    current, low, high, step = (float(number) if isinstance(number, int | float) else 0.0 for number in numbers)
    return current, low, high, step


LAUNCHER, SESSION_BUS, X_SERVER = "accessibility bus", "session bus", "X server"  # as eval.desktops.keeping calls them
REGISTRY: Final = "at-spi2-registr"  # the name of a process has at most 15 characters
BUSY_SHARE: Final = 0.5  # of the time, running or waiting for a processor
WORKED_S: Final = 0.1  # seconds of a processor; the two calls take a thousandth
CONNECTIONS: Final = 128  # a desktop with ten programs has some thirty; the two others take 256


class BusWatch:
    """How much the accessibility bus and its registry of one desktop have worked since now: evidence that programs keep
    the buses from answering. `processes`: those of the session, name to process id.

    What the evaluation itself asks of the bus before it knows any program are two small calls. A bus that works all of
    the time for which these two wait, or that holds more than a hundred connections, is busy with the programs. A bus
    that hardly worked, as on a machine without a free processor, is no evidence.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._since = time.monotonic()
        self._before = {pid: _work(pid) for pid in self._pids()}

    def evidence(self) -> str | None:
        """What the programs of the desktop do to the bus; None: nothing that was seen."""
        elapsed = time.monotonic() - self._since
        for pid, name in self._pids().items():
            ran, waited = (now - old for now, old in zip(_work(pid), self._before.get(pid, (0.0, 0.0)), strict=True))
            if name != X_SERVER and ran >= WORKED_S and ran + waited >= BUSY_SHARE * elapsed:
                return f"the programs of the desktop kept the {name} busy for {ran + waited:.1f} of {elapsed:.1f} s"
            held = _open_files(pid)
            if held >= CONNECTIONS:
                return f"the programs of the desktop hold {held} connections to the {name}"
        return None

    def _pids(self) -> dict[int, str]:
        """What answers: the bus, which its launcher started, the registry, which was left to the keeper, and the X
        server and the session bus, without which the registry does not start. An X server draws, so it may be busy."""
        launcher, keeper = self._processes.get(LAUNCHER, 0), self._processes.get("keeper", 0)
        registries = [pid for pid in _children(keeper) if _name(pid) == REGISTRY]
        named = {self._processes[name]: name for name in (SESSION_BUS, X_SERVER) if name in self._processes}
        return {**dict.fromkeys(_children(launcher), LAUNCHER), **dict.fromkeys(registries, "registry"), **named}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:
        pass  # it has ended
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _work(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process ran, and waited for a processor (proc(5), schedstat)."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
