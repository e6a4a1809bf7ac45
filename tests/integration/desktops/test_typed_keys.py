"""Every key that is typed arrives, in every kind of program and on every size of screen.

Random texts whose characters come again and again are typed, and read back from what the program holds.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from eval.desktops.computer import LocalComputer
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.stage import LocalStage
from tests.support.desktops import run
from tests.support.needs import lacking
from tests.support.typed_programs import PROGRAMS

SEED = int(os.environ.get("SLIPWAY_TYPED_SEED", "17"))
TINY, SMALL, MIDDLE, LARGE = (256, 256), (400, 400), (1280, 800), (1920, 1080)
MANY = 200  # texts of one program on one screen, every night
SLOW_MANY = 60  # of those that take a second for each
FEW = 8
IN_CI = ("galculator", "galculator by clicks", "mousepad", "xterm")


async def typed(name: str, screen: tuple[int, int], count: int, seed: int) -> list[tuple[str, str]]:
    """The texts that did not arrive as they were typed, with what arrived."""
    program, rng, wrong = PROGRAMS[name], random.Random(f"{seed} {name} {screen}"), []
    async with await DesktopSession.start(DesktopOptions(screen=screen, terminal="always")) as session:
        computer = await LocalComputer.open(session)
        try:
            target = program(LocalStage(session, computer), computer)
            await target.open()
            began = time.monotonic()
            for _ in range(count):
                text = target.draw(rng)
                if (found := await target.type(text)) != text:
                    wrong.append((text, found))
            print(f"{name} {screen}: {len(wrong)} of {count} wrong, {time.monotonic() - began:.1f} s")
        finally:
            await computer.close()
    return wrong


def need(name: str) -> None:
    program = PROGRAMS[name].needs
    if not shutil.which(program):
        lacking("desktop" if name in IN_CI else "office", f"no {program}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("screen", [SMALL, pytest.param(MIDDLE, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", IN_CI)
def test_every_key_arrives(folder: Path, name: str, screen: tuple[int, int]) -> None:
    need(name)
    assert run(typed(name, screen, FEW, SEED)) == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "screen"),
    [
        (name, screen)
        for name in PROGRAMS
        for screen in (TINY, SMALL, MIDDLE, LARGE)
        if screen != TINY or name != "galculator by clicks"  # its buttons lie outside of so small a screen
    ],
)
def test_every_key_of_hundreds_of_texts_arrives(folder: Path, name: str, screen: tuple[int, int]) -> None:
    need(name)
    count = SLOW_MANY if name in ("calc", "galculator step by step") else MANY
    assert run(typed(name, screen, count, SEED)) == []
