"""The evaluators of a clone in Windows Agent Arena's form, before a guest that answers as its server does."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.osworld.guest_browser import GuestBrowserPort
from eval.benchmarks.osworld.judging import JudgeFailed, PublicJudge, PublicVerdict
from eval.benchmarks.osworld.machine import PublicEvaluators, package_in
from eval.desktop import SetupFailed
from eval.desktops.server.browser_port import BrowserGone
from tests.integration.eval.test_machines import Guest, set_up, written
from tests.integration.osworld.playing import JUDGE, need_judge
from tests.support.cloned_evaluators import make_clone
from tests.support.osworld_tasks import rule
from tests.support.windows_browser import guest_browser
from tests.support.windows_guest import HOME, WindowsGuest

DETAILS = {
    "func": "exact_match",
    "result": {"type": "details_view", "folder_path": "C:/Users/Docker/Documents"},
    "expected": rule(True),
}


@pytest.fixture
def clone() -> Any:
    """Not below /tmp/pytest-of-root, where the user who judges has no way in."""
    folder = Path(tempfile.mkdtemp(prefix="st-clone-", dir="/tmp"))
    folder.chmod(0o755)
    yield make_clone(folder)
    shutil.rmtree(folder)


def judged(
    clone: Path, evaluator: Mapping[str, Any], guest: WindowsGuest, browser: GuestBrowserPort | None = None
) -> PublicVerdict:
    need_judge()
    cache = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    judge = PublicJudge(JUDGE, package_in(clone))
    try:
        with guest.serving() as address:
            work = judge.judge(
                evaluator, address=address, token=None, cache=cache, screen=(1920, 1080), browser=browser
            )
            return asyncio.run(work)
    finally:
        shutil.rmtree(cache)


def test_a_guests_no_is_a_state_and_no_failure(clone: Path) -> None:
    """Its server says no with a status of 400."""
    assert judged(clone, DETAILS, WindowsGuest()) == PublicVerdict("", 0.0, [], None)
    yes = WindowsGuest(yes=[("/is_details_view", "Documents")])
    assert judged(clone, DETAILS, yes) == PublicVerdict("", 1.0, [], None)


@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_guest_that_fails_gives_no_score(clone: Path, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is no question: 400 is a failure there as well."""
    monkeypatch.setattr(WindowsGuest, "answer", lambda guest, route, given: (status, b'{"output": "a"}'))
    printed = {"func": "exact_match", "result": {"type": "printed", "command": ["a"]}, "expected": rule("a")}
    with pytest.raises(JudgeFailed, match=f"POST /execute: .*status {status}"):
        judged(clone, printed, WindowsGuest())


def test_getters_that_name_the_port_themselves_ask_the_guest(clone: Path) -> None:
    guest = WindowsGuest(commands={"reg query": "Hidden 0x1"})
    command = ["cmd", "/c", "reg", "query", "HKCU"]
    printed = {"func": "exact_match", "result": {"type": "printed", "command": command}, "expected": rule("Hidden 0x1")}
    assert judged(clone, printed, guest).score == 1.0
    assert guest.asked == [("/execute", {"command": command, "shell": False})]


def test_an_exception_that_the_clone_turns_into_a_0_is_told(clone: Path) -> None:
    wrong = {"func": "exact_match", "result": {"type": "wrong"}, "expected": rule(True)}
    assert judged(clone, wrong, WindowsGuest()) == PublicVerdict(
        "", 0.0, [], None, "KeyError: 'a key that is not there'"
    )


def test_a_package_that_the_clone_needs_and_nobody_installed_is_named(clone: Path) -> None:
    package = package_in(clone)
    assert package is not None
    path = package / "evaluators/getters/all.py"
    path.write_text(f"import no_such_package\n{path.read_text()}")
    need_judge()
    found = PublicEvaluators.of_python(JUDGE, package)
    assert found is not None
    assert found.missing == ("no_such_package",)
    with pytest.raises(SetupFailed, match="missing dependency: package no_such_package"):
        judged(clone, DETAILS, WindowsGuest())


def test_a_getter_asks_the_browser_wherever_its_port_is(clone: Path) -> None:
    tabs = {"func": "exact_match", "result": {"type": "tabs"}, "expected": rule(["https://news.example/"])}

    async def only(port: GuestBrowserPort, url: str) -> None:
        first = (await port.ask("Target.getTargets"))["targetInfos"]
        await port.ask("Target.createTarget", url=url)
        for target in first:
            if target["type"] == "page":
                await port.ask("Target.closeTarget", targetId=target["targetId"])
        await port.close()

    need_judge()
    with guest_browser("<p>hello") as number:
        port = GuestBrowserPort(f"127.0.0.1:{number}")
        asyncio.run(only(port, "https://news.example/"))
        assert judged(clone, tabs, WindowsGuest(), port).score == 1.0


def test_a_desktop_without_a_port_for_its_browser_gives_no_score(clone: Path) -> None:
    """Published getters go on without a browser: no tab is open, which is a 0."""
    tabs = {"func": "exact_match", "result": {"type": "tabs"}, "expected": rule(["https://news.example/"])}
    with pytest.raises(SetupFailed, match="missing dependency: the debugging port of the desktop's browser"):
        judged(clone, tabs, WindowsGuest())


def test_a_browser_that_opens_no_port_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.benchmarks.osworld.guest_browser.START_S", 0.1)

    async def asked() -> None:
        port = GuestBrowserPort("127.0.0.1:1")
        try:
            await port.ask("Browser.getVersion")
        finally:
            await port.close()

    with pytest.raises(BrowserGone, match=r"no browser at 127\.0\.0\.1:1"):
        asyncio.run(asked())


def test_the_guest_of_these_tests_answers_python_as_windows_does() -> None:
    guest = WindowsGuest(files={rf"{HOME}\Documents\a.txt": b"1"})
    code = (
        "import os, platform; print(platform.system(), os.listdir('C:/Users/Docker/Documents'), os.path.join('a', 'b'))"
    )
    assert guest.run(["python", "-c", code])["output"] == "Windows ['a.txt'] a\\b\n"


def test_a_task_about_a_browser_is_prepared_and_judged_in_a_machine(clone: Path, tmp_path: Path) -> None:
    """Its step opens the page through the port that the controller names, and the judge looks at the tabs there."""
    need_judge()
    url = "https://news.example/"
    step = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [url]}}
    evaluator = {"func": "exact_match", "result": {"type": "tabs"}, "expected": rule([url])}
    options = {"folder": str(written(tmp_path, [step], evaluator)), "internet": True}
    options["judge"] = {"path": str(clone), "python": str(JUDGE)}
    with guest_browser("<p>hello") as number:
        guest = Guest(browser=number)
        score = asyncio.run(set_up(options, guest, Action(ActionType.DONE)))
    package = package_in(clone)
    assert package is not None
    found = PublicEvaluators.of_python(JUDGE, package)
    assert found is not None
    assert (score.value, score.detail["evaluators"]) == (1.0, f"desktop_env {found.digest}")
