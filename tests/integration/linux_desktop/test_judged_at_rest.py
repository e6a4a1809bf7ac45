"""A machine's speed decides no score: what was told before `done` is finished before it is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop import oracle_actions
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.desktop import DesktopTimeout, Expected, Score, Task
from eval.desktops import live, remote, stage
from eval.desktops.computer import LocalComputer
from eval.desktops.live import LiveDesktop
from eval.desktops.remote import RemoteDesktop, Servers
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import DesktopStage, LocalStage
from tests.support.served import TOKEN, served

COUNTING = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $i > counted.txt\n"


class Counting:
    """A terminal in which something is typed that takes the processor some seconds; the judge reads what it wrote."""

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.start(["xterm"])
        await stage.windows(1)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        there = "counted.txt" in await stage.list_files("") and await stage.read_file("counted.txt") == b"300000\n"
        return Score(float(there), there)


class Late(Counting):
    """A terminal whose program computes for some seconds before it shows what the oracle waits for."""

    def __init__(self) -> None:
        self.work: Work | None = None

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.start(["xterm", "-e", "sh", "-c", f"{COUNTING.strip()}; exec mousepad"])
        await stage.windows(1)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        assert tree is not None
        try:
            if self.work is None:
                self.work = OracleActions(tree).click("menu", "File")
                return next(self.work)
            return self.work.send(tree)
        except StopIteration:
            return Expected(Action(ActionType.DONE))


def test_an_oracle_waits_for_a_program_that_still_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At rest it would look three times only, a hundredth of a second apart."""
    monkeypatch.setattr(oracle_actions, "LOOKS", 3)
    monkeypatch.setattr(oracle_actions, "PAUSE_S", 0.01)
    monkeypatch.setattr(oracle_actions, "LONG_PAUSE_S", 0.5)
    monkeypatch.setattr(oracle_actions, "LOOKS_AT_WORK", 10_000)

    async def go() -> ActionType:
        desktop = LiveDesktop(lambda task, seed: Late(), DesktopOptions(screen=(640, 480)), tree=True)
        try:
            seen = await desktop.reset(Task("t", "wait"), 0)
            while (told := seen.expected) is not None and told.action.type is ActionType.WAIT:
                seen = await desktop.step(told.action)
            assert told is not None
            return told.action.type
        finally:
            await desktop.close()

    assert asyncio.run(go()) is ActionType.CLICK


def windows_of(command: str) -> None:
    """Waits, a tenth of a second at a time, for the window of a program that a shell starts."""

    async def go() -> None:
        async with await DesktopSession.start(DesktopOptions(screen=(640, 480))) as session:
            computer = await LocalComputer.open(session)
            try:
                place = LocalStage(session, computer)
                await place.start(["sh", "-c", command])
                await place.windows(1)
            finally:
                await computer.close()

    asyncio.run(go())


def test_a_window_of_a_program_that_still_computes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are moments in which all sleep; longer ones where the X server gets no processor."""
    monkeypatch.setattr(stage, "WINDOW_S", 0.1)
    monkeypatch.setattr(stage, "RESTING", 100)
    windows_of(f"{COUNTING.strip()}; sleep 0.3; {COUNTING.strip()}; exec xterm")


def test_programs_that_rest_show_no_window_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "WINDOW_S", 0.1)
    with pytest.raises(DesktopTimeout, match="0 windows"):
        windows_of("sleep 1000")


def score_of(text: str) -> Score:
    async def go() -> Score:
        desktop = LiveDesktop(lambda task, seed: Counting(), DesktopOptions(screen=(640, 480)))
        try:
            await desktop.reset(Task("t", "count"), 0)
            await desktop.step(Action(ActionType.TYPE, text=text))
            await desktop.step(Action(ActionType.DONE))
            return await desktop.score()
        finally:
            await desktop.close()

    return asyncio.run(go())


def test_a_command_that_still_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WORK_S", 120.0)  # however busy the machine is
    assert score_of(COUNTING).success


def test_one_behind_a_server_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WORK_S", 120.0)

    async def go() -> Score:
        async with served(DesktopOptions(screen=(640, 480))) as desk:
            servers = Servers([desk.address], TOKEN)
            desktop = RemoteDesktop(lambda task, seed: Counting(), servers, tree=False)
            try:
                await desktop.reset(Task("t", "count"), 0)
                await desktop.step(Action(ActionType.TYPE, text=COUNTING))
                await desktop.step(Action(ActionType.DONE))
                return await desktop.score()
            finally:
                await desktop.close()

    assert asyncio.run(go()).success


def test_one_that_never_ends_is_judged_all_the_same() -> None:
    assert not score_of("while :; do :; done\n").success
