"""A picture made of what was drawn since the last one equals the whole screen, and comes when all programs sleep."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.needs import TOOLS

pytest.importorskip("xcffib", reason=TOOLS["desktop"].reason, exc_type=OSError)  # libxcb comes with them

import xcffib
import xcffib.xproto
from xcffib.xproto import CW, GC

from eval.actions import Action
from eval.desktops.display.connection import XConnection, connect
from eval.desktops.display.executor import Executor, Look
from eval.desktops.display.frames import Camera
from eval.desktops.display.program_sleep import SleepWatch
from tests.support import late_window
from tests.support.documented import ROOT
from tests.support.plain_desktop import PlainDesktop, plain_desktop
from tests.support.waiting import HANGS, until

SIZE = (1280, 800)
ROUNDS = 40


@pytest.fixture(scope="module")
def desktop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainDesktop]:
    with plain_desktop(tmp_path_factory.mktemp("desktop")) as running:
        yield running


class Painter:
    """Windows that come, move, change their size, are drawn on and go, and a pointer that moves and changes."""

    def __init__(self, desktop: PlainDesktop, seed: int) -> None:
        self.x = connect(desktop.place)
        self.random = random.Random(seed)
        self.screen = self.x.get_setup().roots[0]
        self.windows: list[int] = []
        self.pen = self.x.generate_id()
        self.x.core.CreateGC(self.pen, self.screen.root, GC.Foreground, [0])
        self.font = self.x.generate_id()
        self.x.core.OpenFont(self.font, len("cursor"), "cursor")

    def box(self) -> tuple[int, int, int, int]:
        """Also beyond the edges of the screen, and of one pixel."""
        pick = self.random
        return pick.randint(-200, 1300), pick.randint(-200, 820), *pick.choice([(1, 1), (700, 3), (300, 500), (90, 20)])

    def act(self) -> None:
        pick = self.random
        what = pick.choice(["new", "new", "draw", "draw", "draw", "move", "go", "pointer", "pointer", "shape"])
        if what == "new":
            window = self.x.generate_id()
            color = pick.randrange(1 << 24)
            mask = CW.BackPixel | CW.OverrideRedirect
            visual = self.screen.root_visual
            self.x.core.CreateWindow(24, window, self.screen.root, *self.box(), 0, 1, visual, mask, [color, 1])
            self.x.core.MapWindow(window)
            self.windows.append(window)
        elif what == "draw":
            target = pick.choice([self.screen.root, *self.windows])
            self.x.core.ChangeGC(self.pen, GC.Foreground, [pick.randrange(1 << 24)])
            self.x.core.PolyFillRectangle(target, self.pen, 1, [xcffib.xproto.RECTANGLE.synthetic(*self.box())])
        elif what == "move" and self.windows:
            left, top, width, height = self.box()
            values = [left, top, width, height]
            self.x.core.ConfigureWindow(pick.choice(self.windows), 15, values)
        elif what == "go" and self.windows:
            self.x.core.DestroyWindow(self.windows.pop(pick.randrange(len(self.windows))))
        elif what == "pointer":
            where = pick.choice([(0, 0), (1279, 799), (pick.randrange(1280), pick.randrange(800))])
            self.x.core.WarpPointer(0, self.screen.root, 0, 0, 0, 0, *where)
        elif what == "shape":
            cursor, glyph = self.x.generate_id(), 2 * pick.randrange(70)
            ink, paper = [pick.randrange(1 << 16) for _ in range(3)], [pick.randrange(1 << 16) for _ in range(3)]
            self.x.core.CreateGlyphCursor(cursor, self.font, self.font, glyph, glyph + 1, *ink, *paper)
            self.x.core.ChangeWindowAttributes(self.screen.root, CW.Cursor, [cursor])
        self.x.core.GetInputFocus().reply()


@pytest.mark.parametrize("shared", [True, False], ids=["shared memory", "over the socket"])
def test_what_was_drawn_makes_the_whole_picture(
    shared: bool, desktop: PlainDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    painter = Painter(desktop, seed)
    reference = XConnection(desktop.place)
    connections = [XConnection(desktop.place) for _ in range(2)]
    if not shared:
        monkeypatch.setattr("eval.desktops.display.frames.Camera._attach", lambda self: None)
    cameras = [Camera(connection) for connection in connections]
    boxes = []
    for each, connection in zip(cameras, connections, strict=True):  # the first picture is a whole one
        each.take()
        monkeypatch.setattr(connection, "drawn", lambda ask=connection.drawn: boxes.append(ask()) or boxes[-1])
    for number in range(ROUNDS):
        for _ in range(painter.random.randint(1, 4)):
            painter.act()
        camera = cameras[number % 3 == 0]  # the other one has more to catch up with
        if painter.random.random() < 0.5:
            connections[0].pump()
        whole = Camera(reference)
        whole.connection.drawn = lambda: (0, 0, *SIZE)  # type: ignore[method-assign]
        before = None
        while before != (after := whole.take()):  # the X server changes a pointer's shape a moment after it was told
            before, taken = after, camera.take()
        assert taken == after, f"seed {seed}, picture {number}"
        whole.close()
    assert any(box and box != (0, 0, *SIZE) for box in boxes)
    for camera in cameras:
        camera.close()
    for connection in (*connections, reference):
        connection.close()
    painter.x.disconnect()


def test_an_unchanged_screen_is_not_asked_for_again(desktop: PlainDesktop) -> None:
    connection = XConnection(desktop.place)
    camera = Camera(connection)
    until(lambda: camera.take() is camera.take())  # the window manager may still draw
    camera.close()
    connection.close()


@pytest.mark.parametrize(("steps", "pause_ms"), [(1, 15), (4, 8), (4, 16)])
def test_a_program_that_draws_later_is_waited_for(
    steps: int, pause_ms: int, desktop: PlainDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.desktops.display.connection.PROOF", 20.0)  # a busy machine may stop it between two steps
    place = desktop.place
    command = [sys.executable, "-m", "tests.support.late_window", str(steps), str(pause_ms)]
    with subprocess.Popen(command, cwd=ROOT, env={**place.environ}, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout
            assert int(program.stdout.readline())
            pids = [program.pid, *(process.pid for process in desktop.processes)]
            executor = Executor(place, watch=SleepWatch(lambda: pids))
            until(lambda: color(executor.look()) == late_window.GREY)
            executor.perform([Action.from_json({"type": "click", "x": 150 / SIZE[0], "y": 150 / SIZE[1]})])
            look = executor.look(limit=HANGS)
            assert color(look) == late_window.GREEN
            assert look.settled
            executor.close()
        finally:
            program.kill()


def test_a_program_that_waits_for_a_processor_is_waited_for(desktop: PlainDesktop) -> None:
    """It draws nothing for longer than a program that rests, since the others on its processor come first."""
    place, one = desktop.place, min(os.sched_getaffinity(0))
    busy = f"import os\nos.sched_setaffinity(0, [{one}])\nfor _ in range(3): os.fork()\nwhile True: pass"
    command = [sys.executable, "-m", "tests.support.late_window", "1", "0", "0.02"]
    with (
        subprocess.Popen(command, cwd=ROOT, env={**place.environ}, stdout=subprocess.PIPE, text=True) as program,
        subprocess.Popen([sys.executable, "-c", busy], start_new_session=True) as others,
    ):
        try:
            assert program.stdout
            assert int(program.stdout.readline())
            pids = [program.pid, *(process.pid for process in desktop.processes)]
            executor = Executor(place, watch=SleepWatch(lambda: pids))
            until(lambda: color(executor.look()) == late_window.GREY)
            os.sched_setaffinity(program.pid, [one])
            os.setpriority(os.PRIO_PROCESS, program.pid, 10)
            executor.perform([Action.from_json({"type": "click", "x": 150 / SIZE[0], "y": 150 / SIZE[1]})])
            look = executor.look(limit=HANGS)
            assert color(look) == late_window.GREEN
            executor.close()
        finally:
            os.killpg(others.pid, signal.SIGKILL)
            program.kill()


def color(look: Look) -> int:
    """Of a pixel of the program's window, away from the pointer."""
    red, green, blue = look.frame.image().getpixel((250, 250))  # type: ignore[misc]
    return int(red << 16 | green << 8 | blue)
