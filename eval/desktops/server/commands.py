"""Runs a command on the desktop, as its user and within its limits, and gives what it printed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from eval.desktop import BrokenByAgent
from eval.desktops.reading import read_file
from eval.desktops.server.errors import Failed, NoSuchThing, TooLarge
from eval.desktops.server.files import write_below
from eval.desktops.session import DesktopSession
from eval.desktops.wire import FILE_LIMIT

OUTPUT_LIMIT: Final = 8 << 20  # bytes of each of the two outputs
KILL_AFTER_S: Final = 2  # seconds that a command has to end once it was asked to
GRACE_S: Final = 30.0
FILE_S: Final = 60.0
STARTED_FAILED: Final = 127
TIMED_OUT: Final = (124, 137)  # coreutils' timeout: it ended the command, or had to kill it
# The outputs are opened by the shell inside, with the rights of the desktop's user
SCRIPT: Final = 'exec >"$1" 2>"$2"; cd "$3" || exit 126; shift 3; exec timeout -k "$@"'


@dataclass(frozen=True)
class CommandOutput:
    """What a command left. `status`: its exit code, minus the signal that ended it; None: it ran past its time."""

    stdout: str
    stderr: str
    status: int | None


async def run(
    session: DesktopSession,
    argv: Sequence[str],
    *,
    limit_s: float,
    folder: PurePosixPath | None = None,
    environ: Mapping[str, str] | None = None,
) -> CommandOutput:
    """Runs a command to its end, at most `limit_s` seconds, in `folder` (the home without one).

    Raises NoSuchThing for a program that is not there, TooLarge, Failed, NotOffered where the machine cannot keep a
    shell within limits, and what `session.check` raises.
    """
    temporary, inside = _temporary(session)
    name = f"command-{secrets.token_hex(8)}"
    outputs = [f"{name}.out", f"{name}.err"]
    where = str(folder or session.place.home_inside)
    wrapped = ["sh", "-c", SCRIPT, "sh", *(f"{inside}/{output}" for output in outputs), where]
    began = time.monotonic()
    program = await session.run([*wrapped, str(KILL_AFTER_S), f"{limit_s:.3f}", *argv], environ)
    ended = asyncio.ensure_future(program.wait())
    failed = asyncio.ensure_future(session.failed())
    try:
        await asyncio.wait((ended, failed), timeout=limit_s + GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            session.check()
            raise Failed(f"the command did not end within {limit_s:g} s")
        status = ended.result()
        texts = [await asyncio.to_thread(_read, temporary, output) for output in outputs]
    finally:
        ended.cancel()
        failed.cancel()
        for output in outputs:
            with contextlib.suppress(OSError):
                (temporary / output).unlink()
    if status == STARTED_FAILED and texts[1].startswith("timeout: failed to run command"):
        raise NoSuchThing(f"no such program: {argv[0]}")
    past = status in (*TIMED_OUT, -9) and time.monotonic() - began >= limit_s
    return CommandOutput(texts[0], texts[1], None if past else status)


async def run_script(
    session: DesktopSession,
    interpreter: Sequence[str],
    script: str,
    *,
    limit_s: float,
    folder: PurePosixPath | None = None,
) -> CommandOutput:
    """Runs a script of any length, which the desktop's user can read. Raises what `run` raises."""
    temporary, inside = _temporary(session)
    name = f"script-{secrets.token_hex(8)}"
    await asyncio.to_thread(write_below, temporary, PurePosixPath(name), script.encode(), 0o644)
    try:
        return await run(session, [*interpreter, f"{inside}/{name}"], limit_s=limit_s, folder=folder)
    finally:
        with contextlib.suppress(OSError):
            (temporary / name).unlink()


async def read_as_guest(session: DesktopSession, path: str, limit: int = FILE_LIMIT) -> bytes:
    """A plain file that the desktop's user may read, wherever it lies. Raises NoSuchThing, TooLarge and as `run`."""
    temporary, inside = _temporary(session)
    name = f"file-{secrets.token_hex(8)}"
    copy = ["sh", "-c", '[ -f "$1" ] && head -c "$2" -- "$1" >"$3"', "sh", path, str(limit + 1), f"{inside}/{name}"]
    try:
        output = await run(session, copy, limit_s=FILE_S)
        if output.status != 0:
            raise NoSuchThing(f"{path}: {output.stderr.strip() or 'no such file'}")
        return await asyncio.to_thread(read_file, temporary, name, limit)
    except BrokenByAgent as error:
        raise TooLarge(str(error)) from None
    finally:
        with contextlib.suppress(OSError):
            (temporary / name).unlink()


async def write_as_guest(session: DesktopSession, path: str, data: bytes) -> None:
    """Writes a file where the desktop's user may. Raises Failed, what `run` raises."""
    temporary, inside = _temporary(session)
    name = f"file-{secrets.token_hex(8)}"
    await asyncio.to_thread(write_below, temporary, PurePosixPath(name), data, 0o644)
    put = ["sh", "-c", 'mkdir -p -- "$(dirname -- "$2")" && cat -- "$1" >"$2"', "sh", f"{inside}/{name}", path]
    try:
        output = await run(session, put, limit_s=FILE_S)
    finally:
        with contextlib.suppress(OSError):
            (temporary / name).unlink()
    if output.status != 0:
        raise Failed(f"{path}: {output.stderr.strip() or 'cannot be written'}")


def _temporary(session: DesktopSession) -> tuple[Path, str]:
    """The folder for temporary files of the desktop's programs, as seen from here and by them."""
    place = session.place
    if place.root == Path("/"):
        return place.home.parent / "tmp", str(place.home.parent / "tmp")
    return place.root / "tmp", "/tmp"


def _read(folder: Path, name: str) -> str:
    try:
        return read_file(folder, name, OUTPUT_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except BrokenByAgent as error:
        if "bytes" in str(error):
            raise TooLarge(f"the command printed more than {OUTPUT_LIMIT} bytes") from None
        raise Failed(f"what the command printed cannot be read: {error}") from None
