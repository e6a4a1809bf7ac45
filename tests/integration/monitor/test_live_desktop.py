"""A desktop of a running member on the monitor's page: the real server of desktops with x11vnc and websockify, as a run
of the local backend, seen in Chromium and compared with the server's own screenshot."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

from eval.desktops.viewing import missing_viewers
from launcher.monitor.server.pages.desktops import screens_of
from launcher.store.file import FileStore
from tests.integration.monitor.screens import POINTER, DesktopServer, differing, pictured
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits
from tests.support.desktops import need_desktops
from tests.support.needs import lacking
from tests.support.verbs import local_project
from tests.support.waiting import until

LAUNCHER = str(Path(sys.executable).with_name("launcher"))
SERVER = ["python", "-m", "eval.desktops.server", "--listen", "127.0.0.1:$SLIPWAY_PORT_HTTP"]
WORD = "a-word-of-the-test"
WIDTH, HEIGHT = 640, 480


def launcher(*words: str, text: str = "") -> str:
    done = subprocess.run([LAUNCHER, *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    need_desktops()
    if missing := missing_viewers():
        lacking("desktop", f"no {', '.join(missing)}")
    with local_project(tmp_path, monkeypatch) as project:
        yield project


class RunDesktop:
    """A run whose one member is a desktop that it shows, and the server's own screenshot of it."""

    def __init__(self, place: Path) -> None:
        launcher("secrets", "set", "DESKTOP_TOKEN", text=f"{WORD}\n")
        command = [*SERVER, "--view", "$SLIPWAY_PORT_VNC", "--screen", f"{WIDTH}x{HEIGHT}"]
        role = {"command": command, "ports": {"http": 0, "vnc": 0}}
        job = {"name": "shows", "roles": {"desktop": role}, "secrets": ["DESKTOP_TOKEN"], "backend": "local"}
        (place / "job.yaml").write_text(yaml.safe_dump(job))
        (row,) = json.loads(launcher("submit", "job.yaml", "-o", "json"))
        self.run: str = row["run"]
        self.store = FileStore(place / "store", sync=False)
        key = f"runs/{self.run}/attempts/1/endpoints/desktop-0.json"
        until(lambda: self.store.head(key) is not None, lambda: launcher("logs", self.run))
        ports = json.loads(self.store.get(key))["ports"]
        self.vnc = ports["vnc"].rpartition(":")[2]
        self.server = DesktopServer(ports["http"], WORD)


def ways_to(port: str) -> list[str]:
    """The processes that forward a port to the desktop's."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            words = path.read_text().split("\0")
            if "launcher.backends.forwarding" in words and any(word.endswith(f":{port}") for word in words):
                found.append(path.parent.name)
    return found


def test_a_desktop_is_seen_live_and_is_the_server_s_screen(browser: Browser, place: Path) -> None:
    desktop = RunDesktop(place)
    monitor = Monitor(place / "home", desktop.store.url)
    visitor = Visitor(browser, monitor, 400)
    page, apart = visitor.page, browser.new_page()
    try:
        until(lambda: "running" in monitor.ask("/now/runs").text)
        page.goto(f"{monitor.base}/runs/{desktop.run}")
        page.get_by_role("link", name="desktop-0", exact=True).click()
        page.wait_for_selector("#screen img[src]")
        assert f"{WIDTH} x {HEIGHT}" in page.locator("#screen-note").inner_text()
        fits(page, "desktop")

        def same() -> bool:
            return max(differing(apart, pictured(page, monitor), desktop.server.ask("/screenshot"))) <= POINTER

        until(same)
        empty = desktop.server.ask("/screenshot")
        desktop.server.ask("/setup/launch", {"command": ["galculator"]})
        until(lambda: min(differing(apart, empty, desktop.server.ask("/screenshot"))) > 4 * POINTER)
        until(same)
        # who looks sends nothing: the page has no way to write to the desktop
        assert monitor.ask(f"{page.url.removeprefix(monitor.base)}/screen", "POST").status == 405
        job = desktop.store.get(f"runs/{desktop.run}/job.json").decode()
        assert screens_of("running", job) == ["desktop-0"]
        assert screens_of("succeeded", job) == []
        assert len(ways_to(desktop.vnc)) == 1
        monitor.stop()
        assert monitor.process.returncode in (0, 130, -2)
        assert ways_to(desktop.vnc) == []
        # killed, it can end nothing itself
        monitor = Monitor(place / "home", desktop.store.url)
        until(lambda: "running" in monitor.ask("/now/runs").text)
        path = page.url.removeprefix(page.url.partition("/runs/")[0])
        until(lambda: monitor.ask(f"{path}/screen").status == 200 and ways_to(desktop.vnc))
        monitor.process.kill()
        monitor.process.wait()
        until(lambda: ways_to(desktop.vnc) == [])
    finally:
        apart.close()
        visitor.close()
        monitor.stop()
