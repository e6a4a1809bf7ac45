"""A person in front of the monitor: Debian's Chromium, and all that its pages said."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Dialog, Error, Page, Request

from tests.integration.monitor.served import Monitor
from tests.support.waiting import until


def holds(page: Page, expression: str) -> None:
    """Waits until it is true; the page's policy forbids what Playwright itself would do for that. Between two
    documents, and before the new one was read to its end, an element may be missing: then it is not true yet."""
    missing = "if (error instanceof TypeError) return false; throw error"
    guarded = f"(() => {{ try {{ return {expression} }} catch (error) {{ {missing} }} }})()"

    def true() -> bool:
        try:
            return bool(page.evaluate(guarded))
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            return False

    until(true, lambda: f"never true: {expression}; the page says: {page.locator('body').inner_text()}")


class Visitor:
    """A browser that has entered, and all that its pages said or asked for elsewhere."""

    def __init__(self, browser: Browser, monitor: Monitor, width: int = 1280, theme: Any = "light") -> None:
        self.monitor, self.said = monitor, list[str]()
        self.context: BrowserContext = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.context.set_default_timeout(120_000)
        self.context.on("request", self._asked)
        self.page = self.tab()
        self.page.goto(monitor.address)
        assert self.page.url == f"{monitor.base}/"

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.monitor.base}/", "data:")):
            self.said.append(request.url)
        if "code=" in request.url and "/enter?" not in request.url:
            self.said.append(request.url)

    def tab(self) -> Page:
        page = self.context.new_page()

        def asks(dialog: Dialog) -> None:
            self.said.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", asks)
        return page

    def live(self, page: Page | None = None) -> None:
        (page or self.page).wait_for_selector("#live[data-live=yes]")

    def close(self) -> None:
        self.context.close()


def fits(page: Page, name: str) -> None:
    """Nothing sticks out at the sides, and axe finds nothing."""
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, name
    found = Axe().run(page).response["violations"]
    told = [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found]
    assert told == [], f"{name}: {told}"
