"""The debugging port of a browser on a real desktop: the set-up and the public judge have it, the agent does not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import pytest

from eval.benchmarks.osworld.judging import PublicJudge
from eval.benchmarks.osworld.served import ServedDesktop, served
from eval.benchmarks.osworld.steps import StepPlaces, Steps
from eval.benchmarks.osworld.tasks import SetupStep
from eval.desktop import NotRunHere
from eval.desktops.computer import LocalComputer
from eval.desktops.server import commands
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import LocalStage
from tests.support.desktops import need_isolation
from tests.support.needs import ROOT, need

HOME = "file:///home/user"
CHROME = ["chromium", "--remote-debugging-port=1337", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"]
SET_UP = [
    ("execute", {"command": 'for n in 1 2 3; do echo "<title>page $n</title>" >$n.html; done', "shell": True}),
    ("launch", {"command": CHROME}),
    ("launch", {"command": ["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]}),  # whether it is here or not
    ("chrome_open_tabs", {"urls_to_open": [f"{HOME}/{n}.html" for n in (1, 2, 3)]}),
    ("chrome_close_tabs", {"urls_to_close": [f"{HOME}/2.html"]}),
]
# what a program of the agent's user can find: a port that listens, and the browser's two descriptors
ATTACK = """
import glob, os
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(table).read().splitlines()[1:]:
        if line.split()[3] == "0A":
            print("listens", line)
browsers = 0
for folder in glob.glob("/proc/[0-9]*"):
    try:
        words = open(folder + "/cmdline").read().replace("\\0", " ").split()
    except OSError:
        continue
    if "--remote-debugging-pipe" not in words or any(word.startswith("--type=") for word in words):
        continue
    browsers += 1
    for number in (3, 4):
        try:
            os.close(os.open(f"{folder}/fd/{number}", os.O_RDWR))
            print("opened", number)
        except OSError:
            pass
print(browsers)
"""


@contextlib.asynccontextmanager
async def desktop_of(
    tmp_path: Path, network: Literal["none", "machine"] = "none"
) -> AsyncIterator[tuple[DesktopSession, LocalStage, Steps, ServedDesktop]]:
    need_isolation()
    need("chromium")
    (tmp_path / "cache").mkdir(exist_ok=True)
    places = StepPlaces(tmp_path / "cache", None, tmp_path, internet=False)
    async with await DesktopSession.start(DesktopOptions((1000, 700), network=network, memory=3 << 30)) as session:
        computer = await LocalComputer.open(session)
        stage = LocalStage(session, computer)
        async with served(stage) as desktop:
            yield session, stage, Steps(desktop, places), desktop
        await computer.close()


async def pages(desktop: ServedDesktop) -> set[str]:
    assert desktop.browser is not None
    found = (await desktop.browser.ask("Target.getTargets"))["targetInfos"]
    return {one["url"] for one in found if one["type"] == "page"}


def test_a_set_up_opens_and_closes_tabs_and_the_agent_finds_no_port(tmp_path: Path) -> None:
    async def run() -> tuple[set[str], str]:
        async with desktop_of(tmp_path) as (session, _, steps, desktop):
            await steps.do([SetupStep(kind, given) for kind, given in SET_UP])
            tabs = await pages(desktop)
            found = await commands.run_script(session, ["/usr/bin/python3"], ATTACK, limit_s=30)
            assert found.status == 0, found.stderr
            assert steps.passed_over == []
            return tabs, found.stdout

    tabs, attacked = asyncio.run(run())
    assert tabs == {f"{HOME}/1.html", f"{HOME}/3.html"}
    assert attacked == "1\n"


def test_the_public_evaluators_read_the_tabs(tmp_path: Path) -> None:
    need("osworld")

    async def run(tabs: list[str]) -> float | None:
        async with desktop_of(tmp_path) as (_, _, steps, desktop):
            await steps.do([SetupStep(kind, given) for kind, given in SET_UP])
            rules = {"type": "url", "urls": [f"{HOME}/{tab}" for tab in tabs]}
            evaluator: dict[str, Any] = {
                "func": "is_expected_tabs",
                "result": {"type": "open_tabs_info"},
                "expected": {"type": "rule", "rules": rules},
            }
            verdict = await PublicJudge(ROOT / ".venv-osworld/bin/python").judge(
                evaluator,
                address=desktop.address,
                token=desktop.token,
                cache=tmp_path / "cache",
                screen=desktop.screen,
                browser=desktop.browser,
            )
            return verdict.score

    assert asyncio.run(run(["1.html", "3.html"])) == 1.0
    assert asyncio.run(run(["1.html", "2.html"])) == 0.0


ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:{PORT}/json/version").read())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_on_this_machines_network_the_agent_is_refused(tmp_path: Path) -> None:
    """The judge's own user is not."""

    async def run() -> tuple[str, str]:
        async with desktop_of(tmp_path, network="machine") as (session, _, steps, desktop):
            await steps.do([SetupStep(kind, given) for kind, given in SET_UP[:2]])
            assert desktop.browser is not None
            async with desktop.browser.listening(65534) as port:
                asked = ASK.replace("{PORT}", str(port))
                async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
                    told = await (await http.get("/json/version")).json()
                    path = urlsplit(told["webSocketDebuggerUrl"]).path
                    assert (await http.get(path)).status == 400  # no web socket, and the port is free after it
                    async with http.ws_connect(path) as socket:
                        await socket.send_json({"id": 7, "method": "Browser.getVersion"})
                        assert (await socket.receive_json())["id"] == 7
                agent = await commands.run_script(session, ["/usr/bin/python3"], asked, limit_s=30)
                command = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", asked]
                judge = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
                return agent.stdout, judge.stdout

    agent, judge = asyncio.run(run())
    assert agent == "403\n"
    assert "webSocketDebuggerUrl" in judge


def test_without_a_user_of_its_own_a_desktop_has_no_such_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("own_network", "own_user"):
        monkeypatch.setattr(DesktopSession, name, False)

    async def run() -> None:
        async with desktop_of(tmp_path) as (_, _, steps, _):
            with pytest.raises(NotRunHere, match="debugging port that the agent cannot reach"):
                await steps.do([SetupStep("chrome_open_tabs", {"urls_to_open": []})])

    asyncio.run(run())
