"""Desktops in virtual machines that go back to a snapshot: the role of the image waa-vm. Each episode begins at it.

The controller beside a guest is told `POST /reset` and tells the guest's port (images/waa-vm/README.md). The guest's
server speaks the public protocol only, so there is no accessibility tree with windows, and nothing tells when a program
has nothing more to do: two equal pictures count as rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.config import ConfigError
from eval.config.roles import PREFIX, addresses, part_of_this_rank
from eval.desktop import DesktopGone, NotRunHere, Observation, Score, SetupFailed, Task
from eval.desktops.client.failures import BadAnswer, DesktopServerFailed
from eval.desktops.client.public import PublicClient
from eval.desktops.client.transport import Transport
from eval.desktops.computer import DesktopPool, ShownScreen, shown_if_it_answers
from eval.desktops.live import TaskScene
from eval.desktops.reading import FileEntry
from eval.desktops.wire import UNREADABLE

RESET_S: Final = 600.0  # the rollout's own limit is shorter, unless it is asked for more
GUEST: Final = "agent"  # the port of the guest's server, as waa-vm calls it
BROWSER: Final = "browser"  # the debugging port of its browser, where the role has one of this name
NOT_TOLD: Final = "the guest's server speaks the public protocol only: it does not tell"


class VirtualMachines(DesktopPool):
    """Machines by their controllers' addresses; one that failed is the last of those that are free."""

    @classmethod
    def named(cls, given: Sequence[str]) -> VirtualMachines:
        """`given`: addresses as http://HOST:PORT, and `role:NAME` for those of a role. Of several ranks
        each has a part. Raises ConfigError."""
        found: list[str] = []
        for each in given:
            if each.startswith(PREFIX):
                found += [f"http://{one}" for one in addresses(each.removeprefix(PREFIX), "options.machines")]
                continue
            parts = urlsplit(each)
            if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
                raise ConfigError(f"options.machines: {each!r}; allowed: http://HOST:PORT and role:NAME")
            found.append(each.rstrip("/"))
        if len(set(found)) < len(found) or not found:
            raise ConfigError(f"options.machines: addresses that differ, not {found}")
        return cls(part_of_this_rank(found, "options.machines"))


class MachineDesktop:
    """eval.desktop.Desktop over a free one of some machines. `scene` makes the scene of a task from its seed."""

    def __init__(self, scene: Callable[[Task, int], TaskScene], machines: VirtualMachines) -> None:
        self._make = scene
        self._machines = machines
        self._controller: str | None = None
        self._client: PublicClient | None = None
        self._done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        """Waits for a free machine, as long as the rollout allows, and brings it back to its snapshot."""
        if self._controller is None:
            self._controller = await self._machines.waiting.get()
        await self._disconnect()
        self._address, self._browser = await _at_its_snapshot(self._controller)
        self._client = await PublicClient.connect(self._address)
        self._done = []
        self._scene = self._make(task, seed)
        await self._scene.prepare(PublicStage(self._address, self._client, self._browser))
        return await self._observed(await self._client.look())

    async def step(self, action: Action) -> Observation:
        shown = await self._here().act([action])
        self._done.append(action)
        return await self._observed(shown)

    async def answers(self) -> Observation | None:
        """See eval.desktop.AnsweringDesktop."""
        return await shown_if_it_answers(self._here(), self._observed)

    async def score(self) -> Score:
        client = self._here()
        await client.release()
        return await self._scene.judge(PublicStage(self._address, client, self._browser), self._done)

    async def close(self) -> None:
        controller, self._controller = self._controller, None
        try:
            await self._disconnect()
        finally:
            if controller is not None:
                self._machines.waiting.put_nowait(controller)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _here(self) -> PublicClient:
        if self._client is None:
            raise DesktopGone("the desktop has been closed")
        return self._client

    async def _observed(self, shown: ShownScreen) -> Observation:
        return Observation(shown.image, shown.image.size, expected=self._scene.expected(self._done))


async def _at_its_snapshot(controller: str) -> tuple[str, str | None]:
    """Resets a machine; gives the address of the server in it, and HOST:PORT of its browser's debugging port or None.
    Raises InfraError."""
    transport = Transport(controller, limit_s=RESET_S)
    try:
        reply = await transport.ask("POST", "/reset", repeat=True)  # twice is the same as once
        if reply.status != 200:
            said = reply.body.decode(errors="replace").strip()[-300:]
            raise DesktopServerFailed(f"{controller}/reset: status {reply.status}: {said}")
        state = await transport.ask("GET", "/state", repeat=True)
        try:
            ports = msgspec.json.decode(state.body)["ports"]
            port, browser = ports[GUEST], ports.get(BROWSER)
        except (*UNREADABLE, KeyError, TypeError, AttributeError):
            raise BadAnswer(f"{controller}/state names no port {GUEST!r}") from None
        if not (isinstance(port, int) and isinstance(browser, int | None)):
            raise BadAnswer(f"{controller}/state: ports {GUEST!r} and {BROWSER!r} are {port!r}, {browser!r}"[:200])
        host = urlsplit(controller).hostname
        return f"http://{host}:{port}", None if browser is None else f"{host}:{browser}"
    finally:
        await transport.close()


class PublicStage:
    """A desktop behind a server of the public protocol, as tasks prepare and judge it (`DesktopStage`).

    Paths of files are those of the guest, whole. What the protocol cannot tell raises SetupFailed. `browser`: HOST:PORT
    of its browser's debugging port.
    """

    def __init__(self, address: str, client: PublicClient, browser: str | None = None) -> None:
        self.address = address
        self.client = client
        self.browser = browser

    async def write_file(self, path: str, data: bytes) -> None:
        form = aiohttp.FormData()
        form.add_field("file_path", path)
        form.add_field("file_data", data, filename=PurePosixPath(path.replace("\\", "/")).name)
        await self._must("/setup/upload", data=form)

    async def read_file(self, path: str) -> bytes:
        return await self.client.read_file(path)

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        raise SetupFailed(f"{NOT_TOLD} what kind a file is")

    async def start(self, argv: Sequence[str]) -> None:
        await self._must("/setup/launch", json={"command": [*argv], "shell": False})

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        raise NotRunHere("missing dependency: a virtual machine has no web applications of this machine")

    async def served(self) -> dict[str, Any]:
        raise SetupFailed("no web application runs")

    async def windows(self, count: int) -> None:
        raise SetupFailed(f"{NOT_TOLD} its windows")

    async def act(self, actions: Sequence[Action]) -> None:
        await self.client.act(actions)

    async def tree(self) -> Tree:
        raise SetupFailed(f"{NOT_TOLD} which window lies above which")

    async def _must(self, path: str, **request: Any) -> None:
        transport = Transport(self.address)
        try:
            reply = await transport.ask("POST", path, repeat=False, **request)
        finally:
            await transport.close()
        if reply.status >= 400:
            raise SetupFailed(f"{path}: {reply.body.decode(errors='replace')[:300]}")
