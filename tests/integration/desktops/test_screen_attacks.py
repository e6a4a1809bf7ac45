"""An agent whose programs attack the screen itself: its size, the server's memory, the window manager.

These tests attack, as those of test_hostile.py, on the same conditions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.desktop import BrokenByAgent
from eval.desktops.computer import LocalComputer
from eval.desktops.session import DesktopSession
from eval.environments import desktop
from eval.episodes import ToolCall
from eval.rollout.loop import RolloutLimits, rollout
from tests.integration.desktops.test_hostile import attack
from tests.support import x_flood
from tests.support.desktops import need_isolation, output
from tests.support.waiting import until

CLICK = Action(ActionType.CLICK, x=0.5, y=0.5)
PYTHON = "/usr/bin/python3"
SEED = 1_000_000


@pytest.fixture(autouse=True)
def _isolated(folder: Path) -> None:
    need_isolation()


async def flood(session: DesktopSession, how: str) -> None:
    """Starts a flood, and waits until it has begun."""
    script = session.place.home / "x_flood.py"
    script.write_bytes(Path(x_flood.__file__).read_bytes())
    script.chmod(0o644)
    await session.run([PYTHON, "x_flood.py", how])
    await asyncio.to_thread(until, (session.place.home / "flooding").exists)


def test_the_screen_keeps_its_size(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        computer = await LocalComputer.open(session)
        for size in ("640x480", "800x600"):
            told = await output(session, f"xrandr -s {size} 2>&1; xrandr --fb {size} 2>&1; xdpyinfo")
            assert "dimensions:    1024x768 pixels" in told
            assert (await computer.act([CLICK])).image.size == (1024, 768)
        await computer.close()

    attack(act, folder)


@pytest.mark.nightly
def test_windows_without_end(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        computer = await LocalComputer.open(session)
        await flood(session, "windows")
        for _ in range(3):
            assert (await computer.act([CLICK])).image.size == (1024, 768)
            await computer.accessibility()
        session.check()
        await computer.close()
        await session.reset()

    attack(act, folder)


def test_an_x_server_full_of_pictures(folder: Path) -> None:
    async def act(session: DesktopSession) -> None:
        computer = await LocalComputer.open(session)
        await flood(session, "pixmaps")
        broken = await session.failed()
        assert isinstance(broken, BrokenByAgent)
        assert "filled the memory limit" in str(broken)
        with pytest.raises(BrokenByAgent, match="filled the memory limit"):
            await computer.act([CLICK])
        await computer.close()
        await session.reset()

    attack(act, folder)


def test_the_end_of_our_own_connection(folder: Path) -> None:
    """Red before: an infrastructure error, so that an agent could have its episode run again, and never judged."""

    async def act(session: DesktopSession) -> None:
        computer = await LocalComputer.open(session)
        await computer.act([CLICK])
        await flood(session, "clients")
        await asyncio.to_thread(until, (session.place.home / "ended").exists)
        with pytest.raises(BrokenByAgent, match="KillClient"):
            await computer.act([CLICK])
        session.check()
        await computer.close()
        await session.reset()

    attack(act, folder)


class Flooding:
    """Starts a flood by a command, then works on."""

    name = "flooding"
    calls_tools = True

    def __init__(self, how: str) -> None:
        source = Path(x_flood.__file__).read_text(encoding="utf-8")
        script = f"cat >x_flood.py <<'END'\n{source}\nEND\n{PYTHON} x_flood.py {how} >/dev/null 2>&1 &"
        begun = "for i in $(seq 100); do test -e flooding && break; sleep 0.1; done"
        self.command = f"{script}\n{begun}"

    async def run(self, computer: Computer) -> None:
        computer.begin(Decision("a command", None))
        await computer.call(ToolCall(name="run_command", arguments={"command": self.command}))
        for action in (CLICK, CLICK, Action(ActionType.DONE)):
            await computer.answer(Decision("an action", action))


@pytest.mark.nightly  # a minute of the processor each
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("how", "broken"), [("windows", False), ("pixmaps", True), ("clients", True)])
def test_a_whole_flooded_episode_is_a_score(how: str, broken: bool, tmp_path: Path) -> None:
    (result,) = asyncio.run(
        rollout(
            Flooding(how),
            lambda: desktop.desktop({}),
            desktop.tasks(1, SEED, {}),
            out=tmp_path,
            benchmark="desktop",
            environment="desktop",
            interface="both",
            limits=RolloutLimits(attempts=2, backoff=0.0),
        )
    )
    record = result.record
    assert (record.outcome, record.score, record.attempts) == ("scored", 0.0, 1)
    assert record.failure is not None
    assert (record.failure.kind == "broke the desktop") is broken
