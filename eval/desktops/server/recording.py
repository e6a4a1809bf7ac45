"""One video at a time for clients of the public protocol, from /start_recording to /end_recording."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import Final

from eval.desktops.server.errors import Failed, NotOfferedHere, Refused
from eval.desktops.session import DesktopSession
from eval.desktops.video import command_of, missing_recorder

FRAMES_PER_SECOND: Final = 10
BEGIN_S: Final = 60.0  # until the first piece of the file is there
END_S: Final = 15.0  # that the recorder has to complete the file


class Recording:
    """A recorder of a session's desktop. It runs beside the session, with the server's rights."""

    def __init__(self, session: DesktopSession) -> None:
        self._session = session
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._recorder: asyncio.subprocess.Process | None = None

    @property
    def _file(self) -> Path:
        assert self._folder
        return Path(self._folder.name, "recording.mp4")

    async def start(self) -> None:
        """Returns when the file has begun. Raises Refused, NotOfferedHere, Failed."""
        if self._recorder is not None and self._recorder.returncode is None:
            raise Refused("Recording is already in progress.")
        if missing := missing_recorder():
            raise NotOfferedHere(missing)
        await self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="slipway-recording-")
        place = self._session.place
        self._recorder = await asyncio.create_subprocess_exec(
            *command_of(self._session, self._file, FRAMES_PER_SECOND),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "XAUTHORITY": str(place.xauthority)},
            start_new_session=True,  # Ctrl-C at a terminal is for the server
        )
        try:
            async with asyncio.timeout(BEGIN_S):
                while not (self._file.exists() and self._file.stat().st_size):
                    if self._recorder.returncode is not None:
                        raise Failed("Failed to start recording: the recorder ended")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.close()
            raise Failed(f"Failed to start recording: no picture within {BEGIN_S:g} s") from None

    async def end(self) -> Path:
        """The complete file, which stays until the next recording or `close`. Raises Refused, Failed."""
        if self._recorder is None:
            raise Refused("No recording in progress to stop.")
        await self._stop()
        if not self._file.exists() or not self._file.stat().st_size:
            raise Failed("Recording failed. The output file is missing or empty.")
        return self._file

    async def _stop(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        with contextlib.suppress(ProcessLookupError):
            recorder.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(END_S):
                await recorder.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                recorder.kill()
            await recorder.wait()

    async def close(self) -> None:
        """Ends a recording and forgets its file."""
        await self._stop()
        folder, self._folder = self._folder, None
        if folder:
            folder.cleanup()
