"""An agent whose programs flood what the desktop shares: the episode goes on or is its own doing, never infrastructure.

These tests attack, as those of test_hostile.py, on the same conditions.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from jeepney import DBusAddress, new_method_call, new_signal
from jeepney.low_level import Message, MessageFlag

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import BrokenByAgent, DesktopGone
from eval.desktops.bus.atspi import BusWatch, socket_of
from eval.desktops.computer import LocalComputer
from eval.desktops.session import DesktopSession
from tests.integration.desktops.test_hostile import SMALL, proved, works
from tests.support import bus_flood
from tests.support.desktops import left, need_isolation, run
from tests.support.waiting import until

ROOT = "/org/a11y/atspi/accessible/root"
REGISTRY = "org.a11y.atspi.Registry"
DAEMON = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
PYTHON = "/usr/bin/python3"


@pytest.fixture(autouse=True)
def _isolated(folder: Path) -> None:
    need_isolation()


def message(how: str) -> Message:
    """What is sent without end."""
    if how == "calls":
        return new_method_call(DBusAddress(ROOT, REGISTRY, "org.a11y.atspi.Accessible"), "GetChildren")
    if how == "objects":  # each has a long name, so that the list of all grows fast
        to = DBusAddress(ROOT, REGISTRY, "org.a11y.atspi.Socket")
        return new_method_call(to, "Embed", "(so)", ((":1.5", "/" + "x" * 20_000),))
    if how == "signals":
        return new_signal(DBusAddress("/x", interface="org.a11y.atspi.Event.Object"), "X", "s", ("x" * 1000,))
    call = new_method_call(DBusAddress("/x", "a.silent", "x.Y"), "Z", "s", ("x" * 10_000,))
    call.header.flags = MessageFlag.no_reply_expected
    return call


async def flood(session: DesktopSession, path: Path, how: str) -> None:
    """Starts the flood of a bus, and waits until it has begun."""
    home = session.place.home
    files = {
        "bus_flood.py": Path(bus_flood.__file__).read_bytes(),
        "message": message(how).serialise(7),
        "hello": new_method_call(DAEMON, "Hello").serialise(1),
        "claim": new_method_call(DAEMON, "RequestName", "su", ("a.silent", 0)).serialise(2),
    }
    for name, data in files.items():
        (home / name).write_bytes(data)
        (home / name).chmod(0o644)
    await session.run([PYTHON, "bus_flood.py", str(path), how])
    await asyncio.to_thread(until, (home / "flooding").exists)


async def looked(computer: LocalComputer) -> Tree | BrokenByAgent:
    """A step as an episode does it: a picture and the tree. Infrastructure errors end the test."""
    try:
        await computer.look()
        return await computer.accessibility()
    except BrokenByAgent as error:
        return error


FLOODS = [
    ("accessibility", "calls"),
    ("accessibility", "objects"),
    ("session", "signals"),
    # up to half a minute each
    *[pytest.param("accessibility", how, marks=pytest.mark.nightly) for how in ("signals", "connections", "unread")],
    *[pytest.param("session", how, marks=pytest.mark.nightly) for how in ("calls", "connections", "unread")],
]


@pytest.mark.parametrize(("bus", "how"), FLOODS)
def test_a_flooded_bus(bus: str, how: str, folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start(SMALL) as session, await DesktopSession.start(SMALL) as neighbour:
            await works(neighbour, 1)
            await proved(session)
            computer, other = await LocalComputer.open(session), await LocalComputer.open(neighbour)
            address = session.place.environ["DBUS_SESSION_BUS_ADDRESS"].partition("path=")[2]
            path = Path(address) if bus == "session" else socket_of(session.place)
            await flood(session, path, how)
            results = [await looked(computer) for _ in range(4)]
            print(results)
            assert isinstance(await looked(other), Tree)
            neighbour.check()
            await computer.close()
            await other.close()
            await session.reset()
            await works(session, 1)
            await works(neighbour, 2)

    run(work())
    until(lambda: not left(folder), lambda: left(folder))


@pytest.mark.nightly  # half a minute of work; on a busy machine the flood fills the memory before the list is read
def test_a_list_of_programs_that_is_too_long_to_read_costs_the_tree_alone(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start(SMALL) as session:
            await proved(session)
            computer = await LocalComputer.open(session)
            await flood(session, socket_of(session.place), "objects")
            tree = await computer.accessibility()
            while not any("the list of the programs is" in why for why in tree.cut):
                tree = await computer.accessibility()
            assert tree.applications == []
            session.check()
            await computer.close()

    run(work())


def test_a_bus_that_is_kept_busy_is_told_from_one_that_stands_still(folder: Path) -> None:
    async def work() -> None:
        async with await DesktopSession.start(SMALL) as session:
            await proved(session)
            watch = BusWatch(session.processes)
            socket_of(session.place)
            computer = await LocalComputer.open(session)
            await computer.accessibility()
            assert watch.evidence() is None
            stopped = watch._pids()
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(DesktopGone, match="did not answer"):
                await computer.accessibility()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            await flood(session, socket_of(session.place), "calls")
            found = BusWatch(session.processes)
            assert "busy for" in await asyncio.to_thread(until, lambda: found.evidence() or "")
            await computer.close()

    run(work())


def test_an_x_server_that_takes_no_more_connections(folder: Path) -> None:
    """The X server takes 256 clients: what is connected already goes on, and the score can be asked for."""

    async def work() -> None:
        async with await DesktopSession.start(replace(SMALL, processes=400)) as session:
            await proved(session)
            computer = await LocalComputer.open(session)
            script = (
                "while xprop -root >nothing; do for i in 1 2 3 4 5 6 7 8; do xprop -root -spy >nothing & done; done"
            )
            flooding = await session.run(["sh", "-c", script])
            await flooding.wait()
            tree = await looked(computer)
            assert isinstance(tree, Tree)
            assert "connections to the X server" in tree.cut[0]
            await computer.act([Action.from_json({"type": "click", "x": 0.5, "y": 0.5})])
            await computer.release()
            session.check()
            await computer.close()
            await session.reset()
            await works(session, 1)

    run(work())
    until(lambda: not left(folder), lambda: left(folder))
