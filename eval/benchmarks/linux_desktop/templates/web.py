"""What tasks with the browser share. The judge reads what the web application holds, never a page."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar, Final

from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.webapps.serving import MODULE, made
from eval.desktops.stage import DesktopStage

BROWSER: Final = "chromium"
# The desktop's namespaces keep the browser; its own sandbox would need rights that its user does not have
OPTIONS: Final = (
    "--no-sandbox",
    "--test-type",  # without a bar that tells of the option before
    "--no-first-run",
    "--no-default-browser-check",
    "--force-renderer-accessibility",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--password-store=basic",
    "--lang=en-US",
)
BESIDE: Final = (760, 60)  # where the window of another program sticks out beside the browser's
DOCUMENT: Final = "document web"


async def open_site(
    stage: DesktopStage, app: str, data: dict[str, Any], title: str, page: str = "/", windows: int = 1
) -> None:
    """Serves an application and opens a page of it, which has this title, in the window that makes `windows`."""
    origin = await stage.serve(MODULE, {"app": app, "data": data})
    await open_window(stage, [BROWSER, *OPTIONS, origin + page], windows, title, shows=DOCUMENT)


class WebTask(Instance):
    """A task in one web application. `app` is its name, `first` the title of the page that is open."""

    app: ClassVar[str]
    first: ClassVar[str]

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """The start state of the application."""

    @abstractmethod
    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        """Judges the state of the application."""

    async def prepare(self, stage: DesktopStage) -> None:
        await open_site(stage, self.app, self.data(), self.first)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        return self.reached(await stage.served())


class NoWebTask(Infeasible, WebTask):
    """A task that cannot be done in one web application, which must stay as it is. It stands in front of its twin."""

    async def prepare(self, stage: DesktopStage) -> None:
        await open_site(stage, self.app, self.data(), self.first)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        start = made(self.app, json.loads(json.dumps(self.data()))).state()
        changed = await stage.served() != json.loads(json.dumps(start))
        return judged(("said so", 1.0, True), spoiled={"something was changed": changed})


def page(hand: OracleActions, title: str) -> Work:
    """Waits for the page with this title."""
    yield from hand.wait(DOCUMENT, f"{title} - ")


def follow(hand: OracleActions, words: str, title: str) -> Work:
    """Clicks a link, and waits for the page behind it."""
    yield from hand.click("link", f"={words}")
    yield from page(hand, title)


def push(hand: OracleActions, words: str, title: str) -> Work:
    """Clicks a button of a form, and waits for the page that comes."""
    yield from hand.click("push button", f"={words}")
    yield from page(hand, title)


def fill(hand: OracleActions, label: str, text: str) -> Work:
    """Writes into a field in the place of what it holds."""
    yield from hand.click("entry", f"={label}")
    yield from hand.press("ctrl", "a")
    yield from hand.type(text)


def fill_next(hand: OracleActions, text: str) -> Work:
    """Writes into the next field, by the keyboard; what it holds is selected when it is reached so."""
    yield from hand.press("tab")
    yield from hand.type(text)


def pick(hand: OracleActions, label: str, option: str) -> Work:
    """Chooses in a list that opens, and waits until it has closed."""
    yield from hand.click("combo box", f"={label}")
    yield from hand.click("menu item", f"={option}")
    yield from hand.wait_gone("menu item", f"={option}")


def visit(hand: OracleActions, path: str, title: str) -> Work:
    """From the start page, whose address is shown without its slash, to another address of the site."""
    yield from hand.press("ctrl", "l")
    yield from hand.press("end")
    yield from hand.type(path)
    yield from hand.press("enter")
    yield from page(hand, title)


def tick(hand: OracleActions, label: str) -> Work:
    yield from hand.click("check box", f"={label}")
