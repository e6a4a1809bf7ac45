"""One desktop as the server offers it, without HTTP: batches with ids, looks, commands, windows, reset."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionError
from eval.desktop import ActionRefused, DesktopGone
from eval.desktops.computer import ANSWERS_S, LocalComputer
from eval.desktops.display.running_desktop import NotOffered, ProgramNotStarted
from eval.desktops.server.errors import Failed, NoSuchThing, NotAllowed, NotOfferedHere, Refused, RequestConflict
from eval.desktops.session import DesktopSession
from eval.desktops.video import command_of, missing_recorder
from eval.desktops.wire import (
    MAX_ACTIONS,
    MAX_WAIT_S,
    ActionBatch,
    Answer,
    DesktopStatus,
    PictureForm,
    Seen,
    WantedPicture,
)

T = TypeVar("T")
ANSWERS_KEPT: Final = 16  # whole answers, with their pictures
IDS_KEPT: Final = 10_000


@dataclass(frozen=True)
class Permissions:
    """What clients may do beside looking and acting.

    commands   run commands and start programs, as the desktop's user; also needs a session that offers terminals
    files      home: read and write below the desktop's home; guest: also whatever its user may elsewhere; off
    downloads  have the server fetch a URL into a file of the desktop: the server has the machine's network
    browser    start a browser with a debugging port, which is then a port of this machine, not of the desktop
    """

    commands: bool = True
    files: Literal["off", "home", "guest"] = "home"
    downloads: bool = False
    browser: bool = False


class DesktopService:
    """A session and a connection to its display. One action or look at a time, in the order in which they came."""

    def __init__(self, session: DesktopSession, permissions: Permissions) -> None:
        self.session = session
        self.permissions = permissions
        self.recording = Recording(session)
        self.epoch = ""
        self._computer: LocalComputer | None = None
        self._turn = asyncio.Lock()
        self._over = asyncio.Event()
        self._answers: OrderedDict[str, tuple[bytes, asyncio.Task[Answer]]] = OrderedDict()
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._frame = 0
        self._encoded: tuple[bytes, tuple[PictureForm, int], bytes] | None = None

    @classmethod
    async def open(cls, session: DesktopSession, permissions: Permissions | None = None) -> DesktopService:
        """Raises DesktopGone when the display cannot be reached."""
        service = cls(session, permissions or Permissions())
        await service._connect()
        return service

    async def close(self) -> None:
        """Releases every key and button, and closes the connection; the session stays."""
        async with self._turn:
            await self._disconnect()

    async def reset(self) -> str:
        """A clean desktop, also after one that failed. Returns its epoch. Commands that still run are given up."""
        async with self._turn:
            await self._disconnect()
            await self.session.reset()
            await self._connect()
            return self.epoch

    async def _connect(self) -> None:
        self._computer = await LocalComputer.open(self.session)
        self.epoch = secrets.token_hex(8)
        self._over = asyncio.Event()
        self._frame, self._encoded = 0, None

    async def _disconnect(self) -> None:
        computer, self._computer = self._computer, None
        self._over.set()
        await self.recording.close()
        if computer:
            await computer.close()

    def _here(self) -> LocalComputer:
        if self._computer is None:
            raise DesktopGone("the desktop has been closed")
        return self._computer

    def status(self) -> DesktopStatus:
        """Facts for clients."""
        return DesktopStatus(
            epoch=self.epoch,
            screen=self.session.options.screen,
            commands=self.permissions.commands and self.session.terminal_offered,
            files=self.permissions.files,
            isolation={"complete": self.session.isolation.complete, "missing": list(self.session.isolation.missing)},
        )

    async def call(self, work: Callable[[Any], T]) -> T:
        """Does some work with the executor, when it is its turn."""
        async with self._turn:
            return await self._here().call(work)

    async def release(self) -> None:
        """Releases every key and button that is down."""
        await self.call(lambda executor: executor.release())

    async def answers(self) -> bool:
        """For a client that gave a batch up: out of turn, because the batch has it. See DesktopComputer.answers."""
        try:
            async with asyncio.timeout(ANSWERS_S):
                return await self._here().answers()
        except TimeoutError:
            return False

    # Batches

    async def act(self, batch: ActionBatch) -> Answer:
        """Does a batch, once for each request id. Raises Refused, RequestConflict, InfraError, BrokenByAgent.

        The batch is done to its end also when the client that asked goes away.
        """
        if len(batch.actions) > MAX_ACTIONS:
            raise Refused(f"{len(batch.actions)} actions; at most {MAX_ACTIONS} in one batch")
        if batch.look and not 0 <= batch.look.limit <= MAX_WAIT_S:
            raise Refused(f"look.limit is {batch.look.limit:g}; allowed: 0 to {MAX_WAIT_S:g} seconds")
        if batch.look and not 1 <= batch.look.quality <= 100:
            raise Refused(f"look.quality is {batch.look.quality}; allowed: 1 to 100")
        actions = []
        for index, data in enumerate(batch.actions):
            try:
                actions.append(Action.from_json(data))
            except (ActionError, TypeError) as error:
                raise Refused(f"actions[{index}]: {error}") from None
        key, body = batch.request_id, msgspec.msgpack.encode(batch)
        if key is not None and key in self._answers:
            first, task = self._answers[key]
            if first != body:
                raise RequestConflict(f"request {key!r} was made before with other content")
            return await asyncio.shield(task)
        if key is not None and key in self._ids:
            raise RequestConflict(f"request {key!r} was done; its answer is no longer kept")
        task = asyncio.create_task(self._act(batch, actions))
        task.add_done_callback(_seen_to)
        if key is not None:
            self._keep(key, body, task)
        return await asyncio.shield(task)

    def _keep(self, key: str, body: bytes, task: asyncio.Task[Answer]) -> None:
        self._answers[key] = (body, task)
        self._ids[key] = None
        while len(self._ids) > IDS_KEPT:
            self._ids.popitem(last=False)
        while len(self._answers) > ANSWERS_KEPT and next(iter(self._answers.values()))[1].done():
            self._answers.popitem(last=False)

    async def _act(self, batch: ActionBatch, actions: Sequence[Action]) -> Answer:
        async with self._turn:
            if batch.epoch is not None and batch.epoch != self.epoch:
                raise RequestConflict("the desktop was reset or started anew since; nothing was done")
            computer = self._here()
            done, refused = await computer.call(lambda executor: _perform(executor, actions))
            seen = await self._look(computer, batch.look) if batch.look else None
            return Answer(self.epoch, done, refused, seen)

    async def look(self, wanted: WantedPicture) -> Seen:
        """The screen."""
        answer = await self.act(ActionBatch(look=wanted))
        assert answer.seen
        return answer.seen

    async def _look(self, computer: LocalComputer, wanted: WantedPicture) -> Seen:
        return await computer.call(lambda executor: self._take(executor, wanted))

    def _take(self, executor: Any, wanted: WantedPicture) -> Seen:
        """In the executor's thread. The picture is encoded while the screen is watched for further changes."""
        look = executor.look(
            settle=wanted.settle, limit=wanted.limit, prepare=lambda frame: self._encode(frame.rgb, frame, wanted)
        )
        if look.changed:
            self._frame += 1
        name = f"{self.epoch}.{self._frame}"
        picture = None
        if wanted.known != name:
            picture = self._encode(look.frame.rgb, look.frame, wanted)
        return Seen(name, look.changed, look.settled, look.frame.size, look.frame.pointer, wanted.form, picture)

    def _encode(self, pixels: bytes, frame: Any, wanted: WantedPicture) -> bytes:
        """The frame in the form that is wanted; the last one is kept."""
        if wanted.form == "rgb":
            return pixels
        kind = (wanted.form, wanted.quality)
        if self._encoded is None or self._encoded[1] != kind or self._encoded[0] != pixels:
            self._encoded = (pixels, kind, frame.encode(*kind))
        return self._encoded[2]

    async def tree(self, *, whole: bool) -> Tree:
        """The accessibility tree; see eval.desktops.trees.read_tree. Raises DesktopGone."""
        return await self._here().accessibility(whole=whole)

    # Commands and programs

    def commands_allowed(self) -> None:
        """Raises NotAllowed where commands are switched off, or the machine cannot keep them within limits."""
        if not self.permissions.commands:
            raise NotAllowed("this server runs no commands")
        if not self.session.terminal_offered:
            missing = "; ".join(self.session.isolation.missing)
            raise NotAllowed(f"no commands without limits; missing on this machine: {missing}")

    async def on_guest(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for something that runs on the desktop, and gives it up when the desktop is reset or closed.

        Raises NotAllowed, NoSuchThing, RequestConflict and what `work` raises.
        """
        task, over = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                raise RequestConflict("the desktop was reset meanwhile")
            return task.result()
        except NotOffered as error:
            raise NotAllowed(str(error)) from None
        except ProgramNotStarted as error:
            raise NoSuchThing(str(error)) from None
        finally:
            task.cancel()
            over.cancel()


def _seen_to(task: asyncio.Task[Answer]) -> None:
    """Takes the error of a batch whose client went away, so that asyncio does not complain of it."""
    if not task.cancelled():
        task.exception()


def _perform(executor: Any, actions: Sequence[Action]) -> tuple[int, str | None]:
    """(how many were done, why the next one was refused). Returns when the X server has done them."""
    done, refused = 0, None
    try:
        for action in actions:
            executor.perform([action])
            done += 1
    except ActionRefused as error:
        refused = str(error)
    if actions:
        executor.sync()
    return done, refused


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
