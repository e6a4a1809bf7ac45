"""Does the steps of a task's `config` and `postconfig` on a desktop, over OSWorld's protocol.

Source of what a step means: desktop-env 1.0.2, `controllers/setup.py`, and for those that it lacks Windows Agent
Arena's file of that name. It differs in one thing: there, many a step that failed is logged and the task runs all the
same; here its task is not run.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from eval.benchmarks.osworld.history import DOWNLOAD, KEPT, PLACES, place_of, write_history
from eval.benchmarks.osworld.machine import LOOPBACK
from eval.benchmarks.osworld.served import ServedDesktop
from eval.benchmarks.osworld.tasks import Fields, SetupStep
from eval.desktop import BrokenByAgent, DesktopGone, NotRunHere, SetupFailed
from eval.desktops.server.browser_port import BrowserPort

DOWNLOAD_S: Final = 300.0
LAUNCH_S: Final = 15.0  # so long a launched program has for a window; it may have none
WINDOW_S: Final = 20.0  # so long a window that is to be activated has to appear
UNTIL_S: Final = 120.0  # so long a command is repeated until it gives what it must; there it goes on for ever
POLL_S: Final = 0.1
UNTIL_PAUSE_S: Final = 0.3
PAGE_S: Final = 60.0  # so long a page of the set-up may load; then the set-up goes on, as there
NOT_HERE: Final = {
    "googledrive": "an account of Google Drive",
    "login": "an account",
    "proxy": "a proxy for web sites",
}
NOT_THERE: Final = 404
NO_PROGRAM: Final = ("[Errno 2]", "no such program", "No such file or directory")  # in answers of servers
UPLOAD: Final = "/setup/upload"
SPOILED: Final = ("no_plain_file", "failed")  # a folder in the place of the file; a full disk


@dataclass(frozen=True)
class StepPlaces:
    """Where files are.

    cache      the episode's own folder: what commands print, and the files of getters
    downloads  what was downloaded before, by the names of the public harness (`ID/FILE`); None: nothing
    files      relative paths of `upload_file` begin here
    internet   whether other machines may be asked for downloads
    history    a browser's history without visits, of a clone; None: it is a download
    """

    cache: Path
    downloads: Path | None
    files: Path
    internet: bool
    history: Path | None = None


class Steps:
    """The steps of one task on one desktop. `judging`: before judging, the agent may have closed a window."""

    def __init__(self, desktop: ServedDesktop, places: StepPlaces, *, judging: bool = False) -> None:
        self.desktop = desktop
        self.places = places
        self.judging = judging
        self.passed_over: list[str] = []

    async def do(self, steps: Sequence[SetupStep]) -> None:
        """All of them. Raises SetupFailed, with the step, and other InfraErrors; before judging also BrokenByAgent."""
        works: Mapping[str, Callable[[Fields], Awaitable[None]]] = {
            "activate_window": self._window,
            "chrome_close_tabs": self._close_tabs,
            "chrome_open_tabs": self._open_tabs,
            "change_wallpaper": self._asked("/setup/change_wallpaper", "path"),
            "close_window": self._window,
            "command": self._execute,
            "create_file": self._asked("/setup/create_file", "path", "content"),
            "create_folder": self._asked("/setup/create_folder", "path"),
            "download": self._download,
            "edge_open_tabs": self._open_tabs,
            "execute": self._execute,
            "execute_with_verification": self._verified,
            "launch": self._launch,
            "open": self._asked("/setup/open_file", "path"),
            "recycle_file": self._asked("/setup/recycle", "path"),
            "sleep": self._sleep,
            "update_browse_history": self._history,
            "update_browse_history_edge": self._history,
            "upload_file": self._upload_files,
        }
        for number, step in enumerate(steps, 1):
            where = f"step {number} of {len(steps)}, {step.kind}"
            if step.kind in NOT_HERE:
                raise NotRunHere(f"{where}: missing dependency: {NOT_HERE[step.kind]}")
            if step.kind not in works:  # act, replay, tidy_desktop, and what nobody knows
                raise SetupFailed(f"{where}: no such step in desktop-env 1.0.2 and Windows Agent Arena")
            try:
                parameters = dict(step.parameters)
                if step.kind in ("activate_window", "close_window"):
                    parameters["path"] = f"/setup/{step.kind}"
                if step.kind in PLACES:
                    parameters["step"] = step.kind
                await works[step.kind](parameters)
            except (KeyError, TypeError, ValueError) as error:
                raise SetupFailed(f"{where}: its parameters: {type(error).__name__}: {error}") from None
            except SetupFailed as error:
                raise type(error)(f"{where}: {error}") from None  # NotRunHere is one, and another outcome

    # Requests

    async def _ask(self, path: str, limit_s: float | None = None, **request: Any) -> tuple[int, str]:
        """(status, text) of an answer; a step that was sent is never sent twice."""
        reply = await self.desktop.transport.ask("POST", path, repeat=False, limit_s=limit_s, **request)
        text = reply.body.decode(errors="replace")
        if reply.status < 400:
            return reply.status, text
        kind = None
        try:
            told = json.loads(text)
            kind, text = told.get("kind"), str(told.get("message", text))
        except (ValueError, AttributeError):
            pass
        if kind == "broken_by_agent" or (path == UPLOAD and kind in SPOILED):
            raise BrokenByAgent(text) if self.judging else SetupFailed(text)
        if kind in ("desktop_gone", "infrastructure"):
            raise DesktopGone(text)
        return reply.status, text

    async def _must(self, path: str, **request: Any) -> str:
        status, text = await self._ask(path, **request)
        if status < 400:
            return text
        missing = status in (403, 501) or any(words in text for words in NO_PROGRAM)
        if missing:
            raise NotRunHere(f"missing dependency: {text[:500]}")
        raise SetupFailed(text[:500])

    def _asked(self, path: str, *names: str) -> Callable[[Fields], Awaitable[None]]:
        async def ask(given: Fields) -> None:
            await self._must(path, json={name: given[name] for name in names if name != "content" or name in given})

        return ask

    # Files

    async def _download(self, given: Fields) -> None:
        for file in given["files"]:
            url, path = str(file["url"]), str(file["path"])
            name = f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{PurePosixPath(path).name}"
            local = self.places.cache / name
            if not local.exists():
                await self._fetch(url, name, local)
            await self._upload(local, path)

    async def _fetch(self, url: str, name: str, local: Path) -> None:
        kept = self.places.downloads / name if self.places.downloads is not None else None
        if kept is not None and kept.is_file():
            await asyncio.to_thread(shutil.copyfile, kept, local)
            return
        if not self.places.internet and urlsplit(url).hostname not in LOOPBACK:
            raise NotRunHere(f"missing dependency: download {url} (options.internet is false)")
        try:
            timeout = aiohttp.ClientTimeout(total=DOWNLOAD_S)
            async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as http, http.get(url) as answer:
                with local.open("wb") as out:
                    async for piece in answer.content.iter_chunked(1 << 16):
                        out.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            local.unlink(missing_ok=True)
            raise SetupFailed(f"missing dependency: download {url}: {type(error).__name__}: {error}") from None

    async def _upload_files(self, given: Fields) -> None:
        for file in given["files"]:
            local = self.places.files / str(file["local_path"])
            if not local.is_file():
                raise NotRunHere(f"missing dependency: file {local}")
            await self._upload(local, str(file["path"]))

    async def _upload(self, local: Path, path: str) -> None:
        form = aiohttp.FormData()
        form.add_field("file_path", path)
        form.add_field("file_data", await asyncio.to_thread(local.read_bytes), filename=PurePosixPath(path).name)
        await self._must(UPLOAD, data=form)

    async def _history(self, given: Fields) -> None:
        empty = self.places.history or self.places.cache / KEPT
        if not empty.exists():
            await self._fetch(DOWNLOAD, KEPT, empty)
        local = self.places.cache / f"{given['step']}.sqlite"
        await asyncio.to_thread(write_history, empty, local, given["history"], datetime.now(UTC))
        told = json.loads(await self._must("/setup/execute", json={"command": place_of(given["step"]), "shell": False}))
        await self._upload(local, str(told["output"]).strip())

    # Programs

    def _filled(self, command: Any) -> Any:
        """A command with the desktop's values in the places that the format has for them. No password is known here."""
        if not isinstance(command, str):
            return [self._filled(str(part)) for part in command]
        width, height = self.desktop.screen
        if "{CLIENT_PASSWORD}" in command:
            raise NotRunHere("missing dependency: rights of root")
        for name, value in (
            ("SCREEN_WIDTH_HALF", width // 2),
            ("SCREEN_HEIGHT_HALF", height // 2),
            ("SCREEN_WIDTH", width),
            ("SCREEN_HEIGHT", height),
        ):
            command = command.replace(f"{{{name}}}", str(value))
        return command

    async def _execute(self, given: Fields) -> None:
        """A command that ends with another status than 0 is no failure there, and none here, but with `must_succeed`,
        which imported tasks have."""
        body = {"command": self._filled(given["command"]), "shell": bool(given.get("shell", False))}
        until = given.get("until") or {}
        end = time.monotonic() + UNTIL_S
        while True:
            answer = json.loads(await self._must("/setup/execute", json=body))
            for name, key in (("stdout", "output"), ("stderr", "error")):
                if given.get(name):
                    path = self.places.cache / PurePosixPath(str(given[name])).name
                    await asyncio.to_thread(path.write_text, answer[key], encoding="utf-8")
            if given.get("must_succeed") and answer["returncode"] != 0:
                raise SetupFailed(f"status {answer['returncode']}: {(answer['error'] or answer['output'])[-500:]}")
            if not until or (
                ("returncode" in until and answer["returncode"] == until["returncode"])
                or ("stdout" in until and until["stdout"] in answer["output"])
                or ("stderr" in until and until["stderr"] in answer["error"])
            ):
                return
            if time.monotonic() > end:
                raise SetupFailed(f"{body['command']!r} did not give {until} within {UNTIL_S:g} s")
            await asyncio.sleep(UNTIL_PAUSE_S)

    async def _verified(self, given: Fields) -> None:
        names = ("verification", "max_wait_time", "check_interval", "shell")
        body = {"command": self._filled(given["command"])} | {name: given[name] for name in names if name in given}
        await self._must("/setup/execute_with_verification", json=body)

    async def _launch(self, given: Fields) -> None:
        """Starts a program, and waits until there is one more window; a program without a window costs this time. Where
        nobody tells the windows, it waits until the screen stays the same."""
        command, shell = self._filled(given["command"]), bool(given.get("shell", False))
        if isinstance(command, str) and not shell:
            command = command.split()
        before = await self.desktop.windows()
        await self._must("/setup/launch", json={"command": command, "shell": shell})
        end = time.monotonic() + LAUNCH_S
        if before is None:
            await self.desktop.rest()
            return
        while ((now := await self.desktop.windows()) is None or now <= before) and time.monotonic() < end:
            await asyncio.sleep(POLL_S)

    async def _sleep(self, given: Fields) -> None:
        await asyncio.sleep(float(given["seconds"]))

    # The browser

    def _browser(self) -> BrowserPort:
        if self.desktop.browser is None:
            raise NotRunHere("missing dependency: a browser's debugging port that the agent cannot reach")
        return self.desktop.browser

    async def _open_tabs(self, given: Fields) -> None:
        """Opens each page in a new tab and waits until it is loaded; the tab that the browser began with is closed."""
        browser = self._browser()
        first = (await open_pages(browser))[:1]
        for url in given["urls_to_open"]:
            target = (await browser.ask("Target.createTarget", url="about:blank"))["targetId"]
            session = (await browser.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            told = await browser.ask("Page.navigate", PAGE_S, session, url=str(url))
            if "errorText" in told:
                self.passed_over.append(f"{url}: {told['errorText']}")
            await _loaded(browser, session)
            await browser.ask("Target.detachFromTarget", sessionId=session)
        for page in first if given["urls_to_open"] else []:
            await _close(browser, page)

    async def _close_tabs(self, given: Fields) -> None:
        """Closes the first tab of each address."""
        browser = self._browser()
        for url in given["urls_to_close"]:
            same = [page for page in await open_pages(browser) if _same_page(page["url"], str(url))]
            for page in same[:1]:
                await _close(browser, page)

    # Windows

    async def _window(self, given: Fields) -> None:
        name = str(given["window_name"])
        body = {"window_name": name, "strict": bool(given.get("strict")), "by_class": bool(given.get("by_class"))}
        end = time.monotonic() + (0.0 if self.judging else WINDOW_S)
        while True:
            status, text = await self._ask(str(given["path"]), json=body)
            if status < 400:
                return
            if status != NOT_THERE:
                raise SetupFailed(text[:500])
            if time.monotonic() > end:
                break
            await asyncio.sleep(POLL_S)
        if not self.judging:
            raise SetupFailed(f"no window {name} within {WINDOW_S:g} s")
        self.passed_over.append(f"no window {name}")


async def open_pages(browser: BrowserPort) -> list[Fields]:
    """The tabs, the newest last; a browser that starts has none yet."""
    end = time.monotonic() + LAUNCH_S
    while True:
        found = (await browser.ask("Target.getTargets", WINDOW_S))["targetInfos"]
        pages = [target for target in reversed(found) if target["type"] == "page"]
        if pages or time.monotonic() > end:
            return pages
        await asyncio.sleep(POLL_S)


async def _close(browser: BrowserPort, page: Fields) -> None:
    await browser.ask("Target.closeTarget", targetId=page["targetId"])
    end = time.monotonic() + WINDOW_S  # a page may ask whether to leave it
    while any(other["targetId"] == page["targetId"] for other in await open_pages(browser)) and time.monotonic() < end:
        await asyncio.sleep(POLL_S)


async def _loaded(browser: BrowserPort, session: str) -> None:
    end = time.monotonic() + PAGE_S
    while time.monotonic() < end:
        told = await browser.ask("Runtime.evaluate", session=session, expression="document.readyState")
        if told["result"].get("value") == "complete":
            return
        await asyncio.sleep(POLL_S)


def _same_page(one: str, other: str) -> bool:
    """Whether two addresses are the same, read as the public package does: http without a scheme, no www, no slash at
    the end of a host. It also takes every ending of a host (.com, .de) for the same, and this does not."""
    return _address(one) == _address(other)


def _address(url: str) -> tuple[str, str, str, str]:
    parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
    path = "" if parts.path == "/" else parts.path
    return parts.scheme.lower(), parts.netloc.lower().removeprefix("www."), path, parts.query
