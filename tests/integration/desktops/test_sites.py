"""A web application of a task, on a real desktop: its pages are all that the desktop's programs get of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop.webapps.serving import MODULE, NOBODY
from eval.desktop import DesktopGone, SetupFailed
from eval.desktops.session import DesktopSession
from tests.support.desktops import need_desktops

pytestmark = pytest.mark.timeout(300)
DATA = {"articles": [{"id": 1, "name": "ink", "category": "office", "price": 3, "rating": 5, "stock": 9}], "cart": {}}
# what a program of the desktop sees of it, and does to it; its findings go to a file of the home
LOOKS = """
import json, os, pathlib, socket, sys, urllib.request
origin = sys.argv[1]
found = {"page": urllib.request.urlopen(origin + "/").read().decode()}
urllib.request.urlopen(origin + "/cart/add", b"id=1&amount=4")
port = int(origin.rpartition(":")[2])
junk = []
for number in range(100):  # more connections at once than it takes, with nothing and with rubbish in them
    one = socket.socket()
    one.connect(("127.0.0.1", port))
    one.send(b"" if number % 2 else b"\\xff\\x00 / nothing\\r\\n\\r\\n")
    junk.append(one)
for one in junk:
    one.close()
found["commands"] = []
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit():
        try:
            found["commands"].append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            pass
found["after"] = urllib.request.urlopen(origin + "/cart").status
pathlib.Path("found.json").write_text(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _desktops() -> None:
    need_desktops()


def test_the_desktops_programs_reach_its_pages_and_nothing_else_of_it() -> None:
    async def go() -> None:
        async with await DesktopSession.start() as session:
            site = await session.serve(MODULE, {"app": "shop", "data": DATA})
            (session.place.home / "looks.py").write_text(LOOKS)
            program = await session.run(["python3", "looks.py", site.origin])
            assert await program.wait() == 0
            found = json.loads((session.place.home / "found.json").read_text())
            assert "ink" in found["page"]
            assert found["after"] == 200
            assert not [command for command in found["commands"] if "webapps" in command]
            assert await site.state() == {"cart": {"1": 4}, "orders": []}
            if session.isolation.users:
                told = Path(f"/proc/{site.pid}/status").read_text()
                assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in told

    asyncio.run(go())


def test_it_ends_with_the_desktop_and_with_the_next_one() -> None:
    async def go() -> None:
        async with await DesktopSession.start() as session:
            first = await session.serve(MODULE, {"app": "shop", "data": DATA})
            second = await session.serve(MODULE, {"app": "settings", "data": {"on": []}})
            assert not Path(f"/proc/{first.pid}").exists()
            with pytest.raises(DesktopGone):
                await first.state()
            await session.reset()
            assert session.site is None
            assert not Path(f"/proc/{second.pid}").exists()

    asyncio.run(go())


def test_one_that_does_not_start_is_told() -> None:
    async def go() -> None:
        async with await DesktopSession.start() as session:
            with pytest.raises(SetupFailed, match=r"the web application ended: .*\.nothing'"):
                await session.serve(MODULE, {"app": "nothing", "data": {}})

    asyncio.run(go())
