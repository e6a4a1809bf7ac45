"""The desktop of a container on the monitor's page: its port is no port of this machine, and the way goes through the
engine. What Chromium shows is compared with the server's own screenshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

from launcher.store.file import FileStore
from tests.integration.docker.test_desktops import LAUNCHER, launcher, place, shown
from tests.integration.monitor.conftest import browser
from tests.integration.monitor.screens import POINTER, DesktopServer, differing, pictured
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor
from tests.support.cpu_image import build
from tests.support.engine import Engine
from tests.support.forwarding import forwarding
from tests.support.waiting import until

__all__ = ["browser", "place"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
WORD = "a-word-of-the-test"
SERVER = ["python", "-m", "eval.desktops.server", "--listen", "127.0.0.1:$SLIPWAY_PORT_HTTP"]


def relays(engine: Engine) -> int:
    """The ways to ports of the container that are open inside it."""
    (container,) = engine.docker("ps", "-q").stdout.split()
    return engine.docker("top", container, "-eo", "pid,args").stdout.count("launcher.runtime.relay")


def test_the_desktop_of_a_container_is_seen_live(place: Path, engine: Engine, browser: Browser) -> None:
    launcher("secrets", "set", "DESKTOP_TOKEN", text=f"{WORD}\n")
    role = {
        "command": [*SERVER, "--view", "$SLIPWAY_PORT_VNC", "--screen", "640x480"],
        "ports": {"http": 8000, "vnc": 6080},
        "resources": {"cpus": 0.5, "memory": "1Gi"},
    }
    job = {"name": "shows", "image": build(engine, "linux-desktop"), "roles": {"desktop": role}}
    (place / "job.yaml").write_text(yaml.safe_dump({**job, "secrets": ["DESKTOP_TOKEN"], "backend": "docker"}))
    (row,) = json.loads(launcher("submit", "job.yaml", "-o", "json"))
    run = row["run"]
    until(lambda: shown([run]), lambda: launcher("logs", run))
    variables = {"DOCKER_HOST": engine.host}
    monitor = Monitor(place / "home", FileStore(place / "store", sync=False).url, variables=variables)
    visitor, apart = Visitor(browser, monitor), browser.new_page()
    try:
        with forwarding([LAUNCHER, "forward", run, "http:0"]) as port:
            desktop = DesktopServer(f"127.0.0.1:{port}", WORD)
            page = visitor.page
            until(lambda: "running" in monitor.ask("/now/runs").text)
            page.goto(f"{monitor.base}/runs/{run}")
            page.get_by_role("link", name="desktop-0", exact=True).click()
            until(lambda: page.locator("#screen img[src]").count(), lambda: page.locator("main").inner_text())
            assert "640 x 480" in page.locator("#screen-note").inner_text()

            def same() -> bool:
                return max(differing(apart, pictured(page, monitor), desktop.ask("/screenshot"))) <= POINTER

            until(same)
            empty = desktop.ask("/screenshot")
            desktop.ask("/setup/launch", {"command": ["galculator"]})
            until(lambda: min(differing(apart, empty, desktop.ask("/screenshot"))) > 4 * POINTER)
            until(same)
        assert visitor.said == []
        until(lambda: relays(engine) == 1)  # the test's own way has ended
        monitor.stop()
        until(lambda: relays(engine) == 0)
    finally:
        apart.close()
        visitor.close()
        monitor.stop()
        launcher("cancel", run)
