"""What a hostile agent types into a terminal, through each face: what it breaks is its own, never infrastructure.

The list is that of docs/explanation/desktops.md. These tests attack, as those of tests/integration/desktops/
test_hostile.py, on the same conditions.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import pytest

from tests.integration.serve.test_http import OPEN, call, events, opened, ors, post, sent
from tests.support.desktops import KNOWN, left, need_isolation, segments
from tests.support.serving import served
from tests.support.waiting import until

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1800)]
PYTHON: Final = "/usr/bin/python3"
SIZE: Final = (1024, 768)
WORD: Final = "canary-of-the-server"
CONFIG: Final[dict[str, Any]] = {
    "environment": "tests.integration.serve.terminal:Terminal",
    "tasks": {"count": 1, "seed": 0},
    "limits": {"concurrency": 2, "max_steps": 300},
    "client": WORD,  # which stands in the configuration and in the results, and nowhere else
}
GOES_ON: Final = {
    "kills every process": "kill -9 -1",
    "kills every number": "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
    "a fork bomb": "b() { b | b & }; b",
    "all of the memory": "tail /dev/zero",
    "full folders": 'for d in ~ /tmp /dev/shm "$XDG_RUNTIME_DIR"; do cat /dev/zero >"$d/full"; done',
    "deletes what it may": "rm -rf ~/* /tmp/* /home /etc/passwd",
    "looks for results": f"grep -rlsI {WORD} /dev/shm /etc /home /root /run /tmp /var >found || rm found",
    "makes a namespace": "unshare -rm true && touch found",
    "another size of the screen": "xrandr -s 640x480; xrandr --fb 640x480",
    "the root window": "xprop -root -remove AT_SPI_BUS",
    "floods the session bus": f'{PYTHON} bus_flood.py "${{DBUS_SESSION_BUS_ADDRESS#*path=}}" signals',
}
HEAVY: Final = {"windows without end": f"{PYTHON} x_flood.py windows"}  # a minute of work
ITS_OWN_DOING: Final = {
    "ends the window manager": "openbox --exit",
    "kills the window manager": "xkill -id $(xprop -root _NET_SUPPORTING_WM_CHECK | sed 's/.* //')",
    "fills the X server": f"{PYTHON} x_flood.py pixmaps",
    "ends our connection": f"{PYTHON} x_flood.py clients",
}
TRAP: Final = "mkfifo answer"


class Seen(NamedTuple):
    """What a client sees after an action."""

    done: bool
    score: float | None
    size: tuple[int, int]


def size_of(picture: str) -> tuple[int, int]:
    width, height = struct.unpack(">II", base64.b64decode(picture)[16:24])
    return width, height


class OpenEnvPlayer:
    async def begin(self, web: aiohttp.ClientSession, url: str, name: str) -> None:
        self.socket = await opened(web, url)
        await sent(self.socket, {"type": "reset", "data": {}})

    async def act(self, kind: str, **fields: Any) -> Seen:
        fields = {"duration" if name == "seconds" else name: value for name, value in fields.items()}
        answer = await sent(self.socket, {"type": "step", "data": {"type": kind, **fields}})
        assert answer["type"] == "observation", answer
        data = answer["data"]
        return Seen(data["done"], data["reward"], size_of(data["observation"]["screenshot"]))


class McpPlayer:
    async def begin(self, web: aiohttp.ClientSession, url: str, name: str) -> None:
        self.web, self.url = web, url
        _, _, self.session = await post(web, url, OPEN)
        await self.act("start")

    async def act(self, kind: str, **fields: Any) -> Seen:
        _, answer, _ = await post(self.web, self.url, call(kind, **fields), self.session)
        result = answer["result"]
        told = result["structuredContent"]
        assert "error" not in told, answer
        return Seen(told["done"], told.get("score"), size_of(result["content"][-1]["data"]))


class OrsPlayer:
    async def begin(self, web: aiohttp.ClientSession, url: str, name: str) -> None:
        self.web, self.url, self.name = web, url, name
        assert (await ors(web, url, "/create", {"split": "test", "index": 0}, name))[0] == 200
        self.pinging = asyncio.create_task(self._ping())
        assert (await ors(web, url, "/desktops/prompt", None, name))[0] == 200

    async def _ping(self) -> None:
        """As the official client does; who neither asks nor pings is gone after 25 s."""
        while True:
            await asyncio.sleep(5)
            await ors(self.web, self.url, "/ping", {}, self.name)

    async def act(self, kind: str, **fields: Any) -> Seen:
        body = {"name": kind, "input": fields}
        _, result = events((await ors(self.web, self.url, "/desktops/call", body, self.name))[1])
        assert isinstance(result, dict), result
        output = result["output"]
        return Seen(output["finished"], output["reward"], size_of(output["blocks"][-1]["data"]))


Player = OpenEnvPlayer | McpPlayer | OrsPlayer
PLAYERS: Final[dict[str, type[Player]]] = {"openenv": OpenEnvPlayer, "mcp": McpPlayer, "ors": OrsPlayer}


@pytest.fixture
def desktops() -> Iterator[Path]:
    """Where the desktops have their folders; its path is short, as Unix sockets need it."""
    need_isolation()
    folder = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    folder.chmod(0o711)
    KNOWN[folder] = segments()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def attacked(player: Player, command: str, *, its_own_doing: bool) -> Seen:
    """The end of an episode in which a command was typed. What the agent's doing ends, ends by itself."""
    seen = await player.act("type", text=f"touch begun; sleep 1; {command}\n")
    waits = 0
    while not seen.done and (its_own_doing or waits < 6):
        assert seen.size == SIZE
        seen = await player.act("wait", seconds=0.5)
        waits += 1
    return seen if seen.done else await player.act("done")


ALL: Final = {**GOES_ON, **ITS_OWN_DOING}
SHARES: Final = {  # each attack through one face in CI, and through every face at night
    face: dict(list(ALL.items())[number :: len(PLAYERS)]) for number, face in enumerate(PLAYERS)
}


@pytest.mark.parametrize(
    ("face", "attacks"),
    [
        *(pytest.param(face, share, id=f"{face}-share") for face, share in SHARES.items()),
        *(pytest.param(face, {**ALL, **HEAVY}, id=f"{face}-all", marks=pytest.mark.nightly) for face in PLAYERS),
    ],
)
def test_what_an_agent_breaks_is_its_own(face: str, attacks: dict[str, str], tmp_path: Path, desktops: Path) -> None:
    async def play(url: str) -> dict[str, float | None]:
        scores: dict[str, float | None] = {}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as web:
            neighbour = PLAYERS[face]()
            await neighbour.begin(web, url, "neighbour")
            for number, (name, command) in enumerate(attacks.items()):
                player = PLAYERS[face]()
                await player.begin(web, url, f"agent-{number}")
                seen = await attacked(player, command, its_own_doing=name in ITS_OWN_DOING)
                scores[name] = seen.score
                print(face, name, seen, flush=True)
                assert not (await neighbour.act("wait", seconds=0)).done  # it goes on
            trap = PLAYERS[face]()
            await trap.begin(web, url, "trap")
            await trap.act("type", text=f"{TRAP}; touch begun\n")
            scores["a trap for the checker"] = (await trap.act("done")).score
            scores["the neighbour"] = (await neighbour.act("done")).score
        return scores

    with served(face, tmp_path, CONFIG, desktops=desktops) as server:
        scores = asyncio.run(play(server.url))
        records = server.records()
    failed = [*ITS_OWN_DOING, "a trap for the checker"]
    assert scores == {name: 0.0 if name in failed else 1.0 for name in scores}
    assert [(record.outcome, record.attempts) for record in records] == [("scored", 1)] * len(scores)
    until(lambda: not left(desktops), lambda: left(desktops))
