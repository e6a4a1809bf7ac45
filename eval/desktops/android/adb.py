"""Commands on one Android device, through the `adb` client of this machine.

The client tells an exit status of 0 for some connections that broke in the middle, and of an old device no exit status
at all. So each command ends by printing a word of its own with its exit status: what lacks it is not known to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from eval.desktops.client.failures import (
    ANSWER_LIMIT,
    PAUSES_S,
    AccessRefused,
    BadAnswer,
    Delivery,
    DesktopServerFailed,
    DesktopServerGone,
    ServerTimeout,
)

T = TypeVar("T")

PROGRAM: Final = "adb"
PACKAGE: Final = "adb"
TOLD: Final = 300  # characters of a message that are passed on
# What the client says before anything has reached the device (adb/transport.cpp and adb_client.cpp of Android 10)
NOT_REACHED: Final = re.compile(
    r"device '[^']*' not found|device not found|device offline|no devices/emulators found|cannot connect to daemon|"
    r"failed to check server version|device still (?:authorizing|connecting)"
)
REFUSED: Final = re.compile(r"device unauthorized|failed to authenticate|insufficient permissions|no permissions")
LISTED: Final = re.compile(r"^(\S+)[ \t]+(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class AdbPrinted:
    """What a command on the device printed, and its exit status."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """For a message: the end of both, on one line."""
        return " ".join(f"{self.out} {self.err}".split())[-TOLD:]


def missing_client() -> str | None:
    """A line that names the package, where the client is not installed."""
    return None if shutil.which(PROGRAM) else f"no {PROGRAM}: apt-get install {PACKAGE}"


def listed_devices() -> dict[str, str]:
    """The serial numbers of the devices that the client knows, and the state of each: `device` is ready to be used.

    Raises DesktopServerGone where the client's own server does not answer.
    """
    # it starts its server, which must not keep a pipe of ours open
    subprocess.run([PROGRAM, "start-server"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    done = subprocess.run([PROGRAM, "devices"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DesktopServerGone(f"adb devices: {done.stderr.strip()[-TOLD:]}", Delivery.NOT_SENT)
    lines = done.stdout.partition("List of devices attached")[2]
    return {found[1]: found[2].strip() for found in LISTED.finditer(lines)}


class Adb:
    """One device, by its serial number: `emulator-5554`, or HOST:PORT.

    limit_s     seconds that a command may take
    patience_s  seconds in which a device that is away is tried again
    `delivery` tells how far the last command came, `absences` how often the device was not to be reached.
    """

    def __init__(self, serial: str, *, limit_s: float = 60.0, patience_s: float = 10.0) -> None:
        self.serial = serial
        self.limit_s = limit_s
        self.patience_s = patience_s
        self.delivery = Delivery.NOT_SENT
        self.absences = 0

    async def shell(self, command: str, *, repeat: bool, asked_s: float = 0.0) -> AdbPrinted:
        """Runs a command in the device's shell. `repeat`: doing it twice does no harm. `asked_s`: seconds that the
        command itself asks for, beyond the limit.

        A command that never reached the device is always tried again. Raises DesktopServerGone, ServerTimeout,
        AccessRefused and BadAnswer, but nothing for a command that fails: see `AdbPrinted.code`.
        """
        word = f"end-{secrets.token_hex(6)}"
        # the name of the word is put together there, so that it is not found in an answer that repeats the command
        whole = f'{command}; echo "{word[:5]}""{word[5:]} $?"'
        end = re.compile(rf"{word} (\d+)\s*\Z")

        async def once() -> AdbPrinted:
            _, out, err = await self._client(["shell", whole], asked_s)
            text = out.decode("utf-8", "replace").replace("\r\n", "\n")
            found = end.search(text)
            if found is None:
                raise self._failed(err, "the answer has no end")
            self.delivery = Delivery.CONFIRMED
            return AdbPrinted(int(found[1]), text[: found.start()], err.decode("utf-8", "replace"))

        return await self._tried(once, repeat)

    async def read(self, command: str) -> bytes:
        """What a command prints, byte for byte. It may be run more than once. Whether all of it came is the caller's to
        see. Raises what `shell` raises."""

        async def once() -> bytes:
            code, out, err = await self._client(["exec-out", command])
            if code or not out:
                raise self._failed(err, "no answer")
            self.delivery = Delivery.CONFIRMED
            return out

        return await self._tried(once, repeat=True)

    async def must(self, command: str, *, repeat: bool = True) -> str:
        """What a command prints that has to succeed. Raises DesktopServerFailed, and what `shell` raises."""
        done = await self.shell(command, repeat=repeat)
        if done.code:
            raise DesktopServerFailed(f"{self.serial}: {command[:80]}: status {done.code}: {done.said}")
        return done.out

    async def connect(self) -> None:
        """Makes the client reach the device. Raises DesktopServerGone, AccessRefused, ServerTimeout."""
        await self._run([PROGRAM, "start-server"], quiet=True)
        if self._networked:
            await self._reach()
        await self.must("true")

    # Below

    @property
    def _networked(self) -> bool:
        return bool(re.search(r":\d+$", self.serial))

    async def _tried(self, once: Callable[[], Awaitable[T]], repeat: bool) -> T:
        """Tries again while nobody can have done anything, and more often what may be done twice."""
        end = time.monotonic() + self.patience_s
        tries, sent = 0, False
        while True:
            self.delivery = Delivery.NOT_SENT
            try:
                return await once()
            except (DesktopServerGone, ServerTimeout) as error:
                self.absences += 1
                sent = sent or error.delivery is Delivery.SENT
                error.delivery = self.delivery = Delivery.SENT if sent else Delivery.NOT_SENT
                pause = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
                if (sent and not repeat) or isinstance(error, ServerTimeout) or time.monotonic() + pause > end:
                    raise
            tries += 1
            await asyncio.sleep(pause)
            if self._networked:
                with contextlib.suppress(DesktopServerGone, ServerTimeout):
                    await self._reach()

    async def _reach(self) -> None:
        """Connects a device of the network; one that the client believes to be offline is let go before."""
        _, out, _ = await self._run([PROGRAM, "devices"])
        lines = out.decode("utf-8", "replace").partition("List of devices attached")[2]
        if dict(LISTED.findall(lines)).get(self.serial, "").startswith("offline"):
            await self._run([PROGRAM, "disconnect", self.serial])
        code, out, err = await self._run([PROGRAM, "connect", self.serial])
        said = " ".join((out + err).decode("utf-8", "replace").split())[-TOLD:]
        if REFUSED.search(said):
            raise AccessRefused(self._unauthorised())
        if code or not re.search(r"\bconnected to ", said):
            raise DesktopServerGone(f"{self.serial}: {said}", Delivery.NOT_SENT)

    async def _client(self, words: Sequence[str], asked_s: float = 0.0) -> tuple[int, bytes, bytes]:
        return await self._run([PROGRAM, "-s", self.serial, *words], asked_s=asked_s)

    async def _run(
        self, words: Sequence[str], *, quiet: bool = False, asked_s: float = 0.0
    ) -> tuple[int, bytes, bytes]:
        """The client's exit status, output and errors. It is ended when it takes too long, or when nobody waits."""
        limit_s = self.limit_s + asked_s
        pipe = asyncio.subprocess.DEVNULL if quiet else asyncio.subprocess.PIPE
        try:
            client = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
            )
        except FileNotFoundError:
            raise DesktopServerGone(missing_client() or words[0], Delivery.NOT_SENT) from None
        try:
            async with asyncio.timeout(limit_s):
                out, err = await asyncio.gather(_whole(client.stdout), _whole(client.stderr))
                return await client.wait(), out, err
        except TimeoutError:
            self.delivery = Delivery.SENT
            what = " ".join(words[1:])[:80]
            raise ServerTimeout(f"adb {what}: no answer within {limit_s:g} s", Delivery.SENT) from None
        finally:
            if client.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    client.kill()
                await client.wait()

    def _failed(self, err: bytes, otherwise: str) -> Exception:
        """What the client's words mean, after a command that did not end."""
        said = " ".join(err.decode("utf-8", "replace").split())[-TOLD:]
        if REFUSED.search(said):
            return AccessRefused(self._unauthorised())
        self.delivery = Delivery.NOT_SENT if NOT_REACHED.search(said) else Delivery.SENT
        return DesktopServerGone(f"{self.serial}: {said or otherwise}", self.delivery)

    def _unauthorised(self) -> str:
        return f"{self.serial}: the device does not trust this machine: confirm the question on its screen"


async def _whole(stream: asyncio.StreamReader | None) -> bytes:
    """Everything that comes. Raises BadAnswer for more than ANSWER_LIMIT bytes."""
    pieces = bytearray()
    while stream is not None and (piece := await stream.read(1 << 16)):
        pieces += piece
        if len(pieces) > ANSWER_LIMIT:
            raise BadAnswer(f"the answer has more than {ANSWER_LIMIT} bytes")
    return bytes(pieces)
