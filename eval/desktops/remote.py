"""Desktops behind servers (eval.desktops.server), as the rollout uses them: the role `desktop` beside an agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eval.accessibility.visible import marks_of
from eval.actions import Action
from eval.config import ConfigError
from eval.config.roles import addresses, part_of_this_rank
from eval.desktop import BrokenByAgent, DesktopGone, InfraError, Observation, Score, SetupFailed, Task
from eval.desktops.client.failures import AccessRefused
from eval.desktops.client.fast import DesktopClient
from eval.desktops.computer import DesktopPool, ShownScreen, shown_if_it_answers
from eval.desktops.live import WORK_S, TaskScene
from eval.desktops.stage import ServedStage
from eval.desktops.video import file_of

TOKEN_VARIABLE: Final = "DESKTOP_TOKEN"
LOOKS: Final = 3  # in a row at which every program must be found asleep before the judge begins
LOOK_S: Final = 0.1


class Servers(DesktopPool):
    """The servers of a role, which ask for its token."""

    def __init__(self, addresses: Sequence[str], token: str) -> None:
        super().__init__(addresses)
        self.token = token

    @classmethod
    def of_role(cls, role: str) -> Servers:
        """Those of a role that this one `needs`; of several ranks each has a part. Raises ConfigError, which names
        what is missing."""
        found = [f"http://{each}" for each in addresses(role, "options.role")]
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            raise ConfigError(
                f"options.role: {role}: no ${TOKEN_VARIABLE}; the job needs `secrets: [{TOKEN_VARIABLE}]`"
            )
        return cls(part_of_this_rank(found, f"options.role: {role}"), token)


class RemoteDesktop:
    """eval.desktop.Desktop over a free one of some servers. `scene` makes the scene of a task from its seed.

    tree   whether each observation has the accessibility tree, and marks made of it
    video  a folder that gets a video of each episode, which the server records; it comes when the episode has ended
    """

    def __init__(
        self,
        scene: Callable[[Task, int], TaskScene],
        servers: Servers,
        *,
        tree: bool = True,
        video: Path | None = None,
    ) -> None:
        self._make = scene
        self._tree = tree
        self._video = video
        self._recorded: Path | None = None  # where the video of this episode goes
        self._servers = servers
        self._address: str | None = None
        self._client: DesktopClient | None = None
        self._done: list[Action] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        """Waits for a free server, as long as the rollout allows."""
        if self._address is None:
            self._address = await self._servers.waiting.get()
        if self._client is None:
            self._client = await DesktopClient.connect(self._address, self._servers.token)
        await self._keep_video()
        await self._client.reset()
        if self._video is not None:
            await self._record(self._client, file_of(self._video, task.task_id, seed))
        self._done = []
        self._scene = self._make(task, seed)
        await self._scene.prepare(ServedStage(self._client))
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
        await _rested(client)
        return await self._scene.judge(ServedStage(client), self._done)

    async def close(self) -> None:
        await self._keep_video()
        client, self._client = self._client, None
        address, self._address = self._address, None
        try:
            if client is not None:
                await client.close()
        finally:
            if address is not None:
                self._servers.waiting.put_nowait(address)

    async def _record(self, client: DesktopClient, file: Path) -> None:
        """Raises SetupFailed where the server has no recorder, or the file cannot be made."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
        except OSError as error:
            raise SetupFailed(f"video: {error.filename}: {error.strerror}") from None
        try:
            await client.start_recording()
        except AccessRefused as error:
            raise SetupFailed(f"video: {error}") from None
        self._recorded = file

    async def _keep_video(self) -> None:
        """Fetches the video. One that is not to be had disturbs no episode; the reason is printed."""
        file, self._recorded = self._recorded, None
        if file is None or self._client is None:
            return
        try:
            data = await self._client.end_recording()
            await asyncio.to_thread(file.write_bytes, data)
        except (InfraError, BrokenByAgent, OSError) as error:
            print(f"{file.name}: no video: {error}", flush=True)

    def _here(self) -> DesktopClient:
        if self._client is None:
            raise DesktopGone("the desktop has been closed")
        return self._client

    async def _observed(self, shown: ShownScreen) -> Observation:
        tree = await self._here().accessibility() if self._tree else None
        marks = {} if tree is None else marks_of(tree)
        info = {} if shown.pointer is None else {"pointer": shown.pointer}
        expected = self._scene.expected(self._done, tree)
        return Observation(shown.image, shown.image.size, marks, expected, info=info, tree=tree)


async def _rested(client: DesktopClient) -> None:
    """Waits until the server found every program asleep at LOOKS looks in a row, at most WORK_S: what was told right
    before the judgement is done first, as on a desktop of this machine."""
    clock = asyncio.get_running_loop().time
    until, asleep = clock() + WORK_S, 0
    while asleep < LOOKS and clock() < until:
        asleep = 0 if (await client.tree()).working else asleep + 1
        await asyncio.sleep(LOOK_S)
