"""A session: one real desktop on this machine, with its own X server, buses, window manager, home and /tmp.

A keeper process (eval.desktops.keeping) starts everything, notices at once when a part ends, and leaves nothing behind,
also when this process is killed. The agent's programs run apart from the rest, as far as the machine allows it
(eval.desktops.isolation): `isolation.missing` says what it does not allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO, Any, Final, Literal, TypeVar

from eval.desktop import BrokenByAgent, DesktopGone, DesktopTimeout, InfraError, SetupFailed
from eval.desktops.display.running_desktop import TERMINALS, NotOffered, Program, ProgramNotStarted, RunningDesktop
from eval.desktops.isolation import Isolation, isolation, keeper_command, not_shown
from eval.desktops.keeping import keepers
from eval.desktops.keeping.keeper import sweep
from eval.desktops.sites import WebSite, namespaces_of

T = TypeVar("T")
FOLDERS: Final = "/tmp"  # not TMPDIR: the path of a Unix socket has at most 107 bytes
START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
# what a keeper is told as the options have it
PASSED_ON: Final = ("processes", "memory", "home_size", "temporary_size", "shown", "folders", "opengl")


@dataclass(frozen=True)
class DesktopOptions:
    """What a session gives. Sizes in bytes.

    screen     width and height in pixels
    terminal   whether programs in which one types commands are started: when the isolation is complete, or always
    network    none: the desktop has a loopback interface of its own and nothing else; machine: the machine's network.
               Where the machine has no network namespaces it is the machine's
    processes  at most so many processes (threads count), where control groups can be had
    shown      files and folders of the machine that the desktop's programs see, read-only, beside /usr and /etc
    folders    more folders of the desktop's own, beside its home and /tmp, where the machine can give it a root
    environ    more variables for the desktop's programs
    opengl     the X server offers OpenGL (GLX), computed without a graphics card; it costs memory and time
    """

    screen: tuple[int, int] = (1920, 1080)
    terminal: Literal["isolated", "always"] = "isolated"
    network: Literal["none", "machine"] = "none"
    processes: int = 256
    memory: int = 2 << 30
    home_size: int = 256 << 20
    temporary_size: int = 128 << 20
    shown: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    opengl: bool = False


def judge(name: str, status: int | None, evidence: Mapping[str, Any], log: str = "") -> Exception:
    """Whose doing the end of a part of the desktop is: BrokenByAgent where the evidence says so, else DesktopGone.

    - The memory limit of the X server's group took effect: only what the agent's programs let the X server store can
      have filled it.
    - The window manager exited of itself while the X server answers: a program closed its connection (`xkill`) or
      asked it to exit. A crash of the window manager is a signal, and is ours.
    """
    how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
    refused = evidence.get("refused", {})
    if refused.get("screen", {}).get("memory"):
        return BrokenByAgent(f"the {name} ended ({how}): the agent's programs filled the memory limit of the desktop")
    if name == "window manager" and evidence.get("x_answers") and status is not None and status >= 0:
        return BrokenByAgent(f"the window manager was asked to end ({how}) by a program of the agent")
    return DesktopGone(f"the {name} ended" + (f" ({how})" if status is not None else "") + (f"\n{log}" if log else ""))


class DesktopSession:
    """A running desktop. Make one with `DesktopSession.start`; end it with `stop`, or use it in `async with`."""

    def __init__(self, options: DesktopOptions, machine: Isolation) -> None:
        self.options = options
        self.isolation = machine
        self.place: RunningDesktop
        self.processes: dict[str, int] = {}
        self._keeper: int | None = None
        self._cleaned = False
        self._writer: asyncio.StreamWriter
        self._folder: Path
        self._reader: asyncio.Task[None]
        self._programs: dict[int, Program] = {}
        self._starting: dict[int, tuple[Sequence[str], asyncio.Future[Program]]] = {}
        self._unviewed: list[asyncio.Future[None]] = []
        self._number = 0
        self._windows = 0
        self._renewed: list[Callable[[], Awaitable[object]]] = []
        self._site: WebSite | None = None
        self._browser_end: socket.socket
        self._changed = asyncio.Condition()
        self._failure: Exception | None = None
        self._failed = asyncio.Event()

    @classmethod
    async def start(cls, options: DesktopOptions | None = None, machine: Isolation | None = None) -> DesktopSession:
        """A new desktop, ready: the X server and the buses answer, the window manager has the root window.

        Raises SetupFailed, with what to install where a program is missing.
        """
        if machine is None:
            machine = await asyncio.to_thread(isolation)
        session = cls(options or DesktopOptions(), machine)
        await session._begin()
        return session

    async def __aenter__(self) -> DesktopSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def own_network(self) -> bool:
        """Whether the desktop's programs have a network of their own, and cannot reach this machine's loopback."""
        return self.options.network == "none" and "network" in self.isolation.namespaces

    @property
    def own_user(self) -> bool:
        """Whether the desktop's programs are another user's than this process."""
        return bool(self.isolation.users)

    @property
    def terminal_offered(self) -> bool:
        """Whether this session starts programs in which the agent can type commands."""
        return self.options.terminal == "always" or self.isolation.complete

    def drawing(self) -> list[int]:
        """The processes of the desktop whose work can change what it shows, each with all that it started."""
        pids = [pid for name, pid in self.processes.items() if name != "keeper"]
        return pids if self._site is None else [*pids, self._site.pid]

    def check(self) -> None:
        """Raises what ended the desktop, if a part of it has ended: DesktopGone, or BrokenByAgent."""
        if self._failure:
            raise self._failure

    async def failed(self) -> Exception:
        """Waits until a part of the desktop ends, and gives the error that `check` raises."""
        await self._failed.wait()
        assert self._failure
        return self._failure

    async def run(
        self, argv: Sequence[str], environ: Mapping[str, str] | None = None, *, debugged: bool = False
    ) -> Program:
        """Starts a program on the desktop, in its home; a `debugged` one is a browser, and `browser_socket` reaches it.

        Raises NotOffered, ProgramNotStarted, what `check` raises."""
        self.check()
        if PurePath(argv[0]).name in TERMINALS and not self.terminal_offered:
            raise NotOffered(
                f"{argv[0]}: no terminal without limits; missing here: {'; '.join(self.isolation.missing)} "
                "(terminal: always offers one all the same)"
            )
        self._number += 1
        answer: asyncio.Future[Program] = asyncio.get_running_loop().create_future()
        self._starting[self._number] = (argv, answer)
        await self._tell(start=self._number, argv=list(argv), environ=dict(environ or {}), debugged=debugged)
        return await self._or_failure(answer)

    async def windows(self, count: int, limit_s: float = START_LIMIT_S) -> None:
        """Waits until the window manager manages `count` windows. Raises DesktopTimeout, or what `check` raises."""
        async with self._changed:
            try:
                async with asyncio.timeout(limit_s):
                    await self._changed.wait_for(lambda: self._windows == count or self._failure)
            except TimeoutError:
                if self._windows != count:  # it may have come just when the time was over
                    raise DesktopTimeout(f"{self._windows} windows after {limit_s:g} s, not {count}") from None
        self.check()

    @property
    def window_count(self) -> int:
        """How many windows the window manager manages now."""
        return self._windows

    async def more_windows(self, count: int, limit_s: float) -> bool:
        """Whether the window manager manages more than `count` windows within the time. Raises what `check` raises."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._changed.wait_for(lambda: self._windows > count or self._failure)
            self.check()
            return self._windows > count

    async def view(self, command: Sequence[str]) -> None:
        """Starts a program that shows the desktop to a person (eval.desktops.viewing); it ends with the session."""
        await self._tell(view=list(command))

    async def serve(self, module: str, order: Mapping[str, Any]) -> WebSite:
        """Starts a web application for the desktop's programs (eval.desktops.sites), in the place of the one before;
        it ends with the desktop. Raises SetupFailed."""
        self.check()
        await self._end_site()
        join = await asyncio.to_thread(namespaces_of, self.processes["guest"]) if self.own_network else []
        self._site = await WebSite.start(module, {**order, "join": join, "drop": bool(self.isolation.users)})
        return self._site

    def browser_socket(self) -> socket.socket:
        """A socket to the browser that was started with `debugged`, whichever that is now; who asks closes it."""
        return self._browser_end.dup()

    @property
    def site(self) -> WebSite | None:
        """The web application that runs."""
        return self._site

    async def _end_site(self) -> None:
        site, self._site = self._site, None
        if site is not None:
            await site.stop()

    async def end_views(self) -> None:
        """Ends what `view` started, and returns when it has ended. Raises what `check` raises."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unviewed.append(ended)
        await self._tell(unview=True)
        await self._or_failure(ended)

    def after_reset(self, work: Callable[[], Awaitable[object]]) -> None:
        """Has `work` done at the end of each reset."""
        self._renewed.append(work)

    async def reset(self) -> None:
        """A clean desktop: everything is ended, and started anew; `place` changes. Also mends a desktop that failed."""
        await self.stop()
        self._failure = None
        self._failed.clear()
        await self._begin()
        for work in self._renewed:
            await work()

    async def stop(self) -> None:
        """Ends every process of the desktop and removes its files; returns when all are gone. Safe to call twice."""
        await self._end_site()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        self._browser_end.close()
        with contextlib.suppress(OSError):  # it may have gone before
            self._writer.write_eof()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await asyncio.shield(self._reader)
        except TimeoutError:
            _kill(keeper)
            await self._reader
            raise InfraError(f"the desktop did not end within {STOP_LIMIT_S:g} s; its keeper was killed") from None
        finally:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
            if not self._cleaned:  # the keeper was killed, and could not do its work
                display = self.place.display if hasattr(self, "place") else ""
                await asyncio.to_thread(sweep, str(self._folder), display, dict(self.isolation.cgroups))

    def _order(self) -> dict[str, Any]:
        options, machine = self.options, self.isolation
        namespaces = [name for name in machine.namespaces if name != "network" or options.network == "none"]
        return {
            "folder": str(self._folder),
            "size": options.screen,
            "users": machine.users,
            "namespaces": namespaces,
            "cgroups": dict(machine.cgroups),
            "cgroup_version": dict(machine.cgroup_version),
            **{name: getattr(options, name) for name in PASSED_ON},
            "environ": dict(options.environ),
        }

    async def _begin(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slipway-desktop-", dir=FOLDERS))
        self._folder.chmod(0o711)  # the desktop's user passes through it to the sockets
        self._programs, self._starting, self._unviewed, self._windows, self._cleaned = {}, {}, [], 0, False
        ours, theirs = socket.socketpair()
        self._browser_end, browser_end = socket.socketpair()
        trouble = tempfile.TemporaryFile()  # noqa: SIM115 the reading task closes it
        try:
            with theirs, browser_end:
                self._keeper = keepers.start(
                    keeper_command("fork_server"),
                    self._order(),
                    [theirs.fileno(), trouble.fileno(), browser_end.fileno()],
                )
        except BaseException:
            for each in (ours, self._browser_end, trouble):
                each.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        lines, self._writer = await asyncio.open_connection(sock=ours)
        ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(lines, trouble, ready))
        try:
            async with asyncio.timeout(START_LIMIT_S):
                facts = await asyncio.shield(ready)
        except TimeoutError:
            _kill(self._keeper)
            await self.stop()
            raise SetupFailed(f"the desktop was not ready after {START_LIMIT_S:g} s") from None
        except BaseException:
            await self.stop()
            raise
        inside = facts["home"]
        root = f"/proc/{facts['guest']}/root" if "mount" in self.isolation.namespaces else "/"
        self.place = RunningDesktop(
            display=facts["display"],
            xauthority=Path(facts["environ"]["XAUTHORITY"]),
            environ=facts["environ"],
            home=Path(f"{root.rstrip('/')}{inside}"),
            root=Path(root),
        )
        self.processes = {**facts["processes"], "guest": facts["guest"], "keeper": self._keeper}

    async def _tell(self, **message: Any) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError as error:
            raise DesktopGone(f"the desktop's keeper is gone: {error}") from error

    async def _or_failure(self, answer: asyncio.Future[T]) -> T:
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait((answer, failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
        if not answer.done():
            self.check()
        return await answer

    async def _fail(self, error: Exception) -> None:
        async with self._changed:
            if self._failure is None:
                self._failure = error
                self._failed.set()
            self._changed.notify_all()

    async def _read(
        self, lines: asyncio.StreamReader, trouble: IO[bytes], ready: asyncio.Future[dict[str, Any]]
    ) -> None:
        """Takes what the keeper tells, until it ends."""
        with trouble:
            with contextlib.suppress(ConnectionError):
                while line := await lines.readline():
                    await self._hear(json.loads(line), ready)
            trouble.seek(0)
            text = trouble.read().decode(errors="replace")[-2000:]
        if not ready.done():
            ready.set_exception(SetupFailed(f"the desktop did not start: its keeper ended\n{text}"))
        if self._keeper:  # nobody asked for the end
            await self._fail(DesktopGone(f"the desktop's keeper ended\n{text}".strip()))

    async def _hear(self, message: Mapping[str, Any], ready: asyncio.Future[dict[str, Any]]) -> None:
        if "ready" in message:
            ready.set_result(message["ready"])
        elif "failed" in message and not ready.done():
            ready.set_exception(SetupFailed(f"the desktop did not start: {message['failed']}"))
        elif "lost" in message:
            await self._fail(judge(message["lost"], message["status"], message["evidence"], message["log"]))
        elif "windows" in message:
            async with self._changed:
                self._windows = message["windows"]
                self._changed.notify_all()
        elif "started" in message:
            argv, answer = self._starting.pop(message["started"])
            program = self._programs[message["started"]] = Program(argv, message["pid"])
            if not answer.done():
                answer.set_result(program)
        elif "refused" in message:
            argv, answer = self._starting.pop(message["refused"])
            if not answer.done():
                answer.set_exception(ProgramNotStarted(f"{argv[0]}: {message['error']}{not_shown(argv[0])}"))
        elif "unviewed" in message:
            if not (ended := self._unviewed.pop(0)).done():
                ended.set_result(None)
        elif "ended" in message:
            self._programs.pop(message["ended"])._ended.set_result(message["status"])
        elif "stopped" in message:
            self._cleaned = True


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
