"""The desktop of a pod on the monitor's page: the way goes through the API server, as `launcher forward` makes it. What
Chromium shows is compared with the server's own screenshot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.cluster.laptop import Laptop
from tests.integration.monitor.conftest import browser
from tests.integration.monitor.screens import POINTER, DesktopServer, differing, pictured
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor
from tests.support.cluster.cluster import Cluster
from tests.support.cpu_image import build
from tests.support.engine import Engine
from tests.support.forwarding import forwarding
from tests.support.waiting import until

__all__ = ["browser"]
pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1800)]
LAUNCHER = str(Path(sys.executable).with_name("launcher"))
WORD = "a-word-of-the-test"
SERVER = ["python", "-m", "eval.desktops.server", "--listen", "127.0.0.1:$SLIPWAY_PORT_HTTP"]


def test_the_desktop_of_a_pod_is_seen_live(laptop: Laptop, cluster: Cluster, engine: Engine, browser: Browser) -> None:
    cluster.secret(laptop.namespace, "desktop", {"token": WORD})
    role = {
        "command": [*SERVER, "--view", "$SLIPWAY_PORT_VNC", "--screen", "640x480"],
        "ports": {"http": 8000, "vnc": 6080},
        "resources": {"cpus": 0.5, "memory": "1Gi"},
    }
    job = {
        "name": "shows",
        "secrets": ["DESKTOP_TOKEN"],
        "image": cluster.import_image(engine, build(engine, "linux-desktop")),
        "roles": {"desktop": role},
        "backend": "kubernetes",
        "kubernetes": {"secrets": {"DESKTOP_TOKEN": "desktop/token"}},
        "limits": {"deadline": "20m", "grace": "5s"},
    }
    (run,) = laptop.submit(job)
    seen = ["exec", run, "--", "cat", "/tmp/desktop-view-6080.json"]
    cluster.wait_for("the view", lambda: "password" in laptop.launcher(*seen, code=None), 600)
    monitor = Monitor(laptop.path / "home", laptop.url, variables=laptop.environment)
    visitor, apart = Visitor(browser, monitor), browser.new_page()
    try:
        with forwarding([LAUNCHER, "forward", run, "http:0"], laptop.environment, laptop.path) as port:
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
    finally:
        apart.close()
        visitor.close()
        monitor.stop()
        laptop.launcher("cancel", run, code=None)
