"""Our desktop server beside the public servers' design: python -m tests.bench.desktop_server [ROUNDS]

Both act on a desktop of 1920x1080 with the same program (mousepad), in turn, so that both have the same machine. Clicks
go to two places in turn. Galculator, whose buttons take a press 100 ms after the last one, has rows of its own. The
public design starts a process for each action; it needs an environment of its own, whose Python has tkinter:

    uv venv .tools/pyautogui && uv pip install --python .tools/pyautogui/bin/python pyautogui==0.9.54 flask==3.1.3
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from eval.actions import Action, ActionType
from eval.desktops.client.fast import DesktopClient
from eval.desktops.client.public import PublicClient
from eval.desktops.computer import LocalComputer
from eval.desktops.display.executor import Executor
from eval.desktops.server.__main__ import MEMORY, TOKEN_VARIABLE
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.wire import WantedPicture

SCREEN = (1920, 1080)
ROOT = Path(__file__).parents[2]
PYAUTOGUI = Path(os.environ.get("SLIPWAY_PYAUTOGUI", ROOT / ".tools/pyautogui/bin/python"))
BATCH = 50
LATER_S = 0.3
BUSY_S = 5.0  # in which a program that has its window is still busy with its start
PAGE = "data:text/html,<textarea rows=10 cols=50 autofocus></textarea>"
CHROMIUM = ["chromium", "--no-first-run", "--no-sandbox", "--disable-gpu", "--force-renderer-accessibility"]
OTHERS = {
    "mousepad, with pauses": ["mousepad"],
    "LibreOffice Calc": ["libreoffice", "--norestore", "--nologo", "--calc"],
    "LibreOffice Writer": ["libreoffice", "--norestore", "--nologo", "--writer"],
    "Chromium": [*CHROMIUM, "--user-data-dir=/home/user/chromium", PAGE],
}
PNG = WantedPicture("png")  # a new frame as PNG; on neither side is it unpacked here
TICK = os.sysconf("SC_CLK_TCK")
ASCII = (
    "The quick brown fox jumps over the lazy dog. 0123456789 (a+b)*{c} [d] <e> \"f\" 'g' `h` ~!@#$%^&_-=|\\;:,./?\n"
    * 10
)[:1000]


def click(x: int, y: int) -> Action:
    return Action(ActionType.CLICK, x=(x + 0.5) / SCREEN[0], y=(y + 0.5) / SCREEN[1])


TWO_PLACES = [click(SCREEN[0] // 2 - 40, SCREEN[1] // 2 + 40), click(SCREEN[0] // 2 + 40, SCREEN[1] // 2 + 60)]


def used(pid: int) -> float:
    """Seconds of CPU that a process has used, with those of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


@contextlib.asynccontextmanager
async def ours(folder: str) -> AsyncIterator[tuple[DesktopClient, DesktopClient, int]]:
    """A client of our server over TCP, one over its Unix socket, and the server's process."""
    token = secrets.token_hex(8)
    where = f"unix:{folder}/socket"
    command = [sys.executable, "-m", "eval.desktops.server", "--listen", where, "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, env={**os.environ, TOKEN_VARIABLE: token}, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        lines = [await asyncio.to_thread(server.stdout.readline) for _ in range(2)]
        near = await DesktopClient.connect(where, token)
        client = await DesktopClient.connect(lines[1].split()[-1], token)
        try:
            yield client, near, server.pid
        finally:
            await client.close()
            await near.close()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


@contextlib.asynccontextmanager
async def theirs(session: DesktopSession) -> AsyncIterator[tuple[PublicClient, int]]:
    """A client of the public design on a session's display, and the server's process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cookies = session.place.xauthority.parent / "pyautogui-cookie"
    cookies.write_bytes(_entry(session.place.display[1:], session.place.xauthority.read_bytes()[-16:]))
    environ = {**session.place.environ, "XAUTHORITY": str(cookies)}
    environ |= {"PATH": f"{PYAUTOGUI.parent}:{environ['PATH']}"}  # the client asks for `python`
    script = str(ROOT / "tests/bench/public_desktop_server.py")
    server = subprocess.Popen(
        [str(PYAUTOGUI), script, str(port)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        client = await PublicClient.connect(f"http://127.0.0.1:{port}", settle_s=0.0, patience_s=60.0)
        yield client, server.pid
        await client.close()
    finally:
        server.terminate()
        server.wait()


def _entry(display: str, cookie: bytes) -> bytes:
    """A cookie as pyautogui's X library looks for it: by this machine's name (family 256) and the display's number."""
    fields = (socket.gethostname().encode(), display.encode(), b"MIT-MAGIC-COOKIE-1", cookie)
    return struct.pack(">H", 256) + b"".join(struct.pack(">H", len(each)) + each for each in fields)


async def timed(pid: int, times: int, work: Callable[[int], Awaitable[object]]) -> tuple[list[float], float]:
    """Milliseconds of each call, and CPU milliseconds of the server for each."""
    before, out = used(pid), []
    for number in range(times):
        start = time.perf_counter()
        await work(number)
        out.append((time.perf_counter() - start) * 1e3)
    return out, (used(pid) - before) * 1e3 / times


def row(name: str, values: list[float], cpu: float, each: int = 1) -> float:
    median = statistics.median(values) / each
    print(f"| {name} | {median:.2f} | {max(values) / each:.2f} | {1e3 / median:.1f} | {cpu / each:.2f} |", flush=True)
    return median


async def side_by_side(rounds: int, client: DesktopClient, near: DesktopClient, pid: int) -> None:
    """Clicks on two places of an editor, and the same with a picture after each."""
    points = TWO_PLACES
    await client.start(["mousepad"])
    await client.windows(1)
    await client.look()
    async with await DesktopSession.start(DesktopOptions(screen=SCREEN)) as session, theirs(session) as (public, other):
        await session.run(["mousepad"])
        await session.windows(1)
        figures: dict[str, tuple[list[float], list[float]]] = {}

        async def add(name: str, server: int, times: int, work: Callable[[int], Awaitable[object]]) -> None:
            values, cpu = await timed(server, times, work)
            figures.setdefault(name, ([], []))[0].extend(values)
            figures[name][1].append(cpu)

        async def both(action: Action) -> None:
            await public._do(action)
            reply = await public._transport.ask("GET", "/screenshot", repeat=True)
            assert reply.body.startswith(b"\x89PNG")

        batch = [points[index % 2] for index in range(BATCH)]
        for _ in range(rounds):
            await add("ours: a click, each a request", pid, 50, lambda n: client.perform([points[n % 2]]))
            await add(f"ours: a click, in batches of {BATCH}", pid, 10, lambda n: client.perform(batch))
            await add("ours: a click and the settled screen", pid, 20, lambda n: client._batch([points[n % 2]], PNG))
            await add("the same over a Unix socket", pid, 20, lambda n: near._batch([points[n % 2]], PNG))
            await add("process per action: a click", other, 5, lambda n: public._do(points[n % 2]))
            await add("process per action: a click and a screenshot", other, 5, lambda n: both(points[n % 2]))
        medians = [
            row(name, values, statistics.mean(cpu), BATCH if "batches" in name else 1)
            for name, (values, cpu) in figures.items()
        ]
    each, batched, over_tcp, over_unix, action, step = medians
    print(f"\nactions: {action / each:.0f} times, in batches {action / batched:.0f} times; ", end="")
    print(f"steps: {step / over_tcp:.1f} times, over a Unix socket {step / over_unix:.1f} times")


async def on_a_calculator(rounds: int, client: DesktopClient, pid: int) -> None:
    """The same on two buttons of galculator, over a Unix socket."""
    await client.reset()
    await client.start(["galculator"])
    await client.windows(1)
    await client.look()
    batch = [TWO_PLACES[index % 2] for index in range(BATCH)]
    row(
        f"galculator: a click, in batches of {BATCH}", *await timed(pid, rounds, lambda n: client.perform(batch)), BATCH
    )
    row(
        "galculator: a click and the settled screen",
        *await timed(pid, 20 * rounds, lambda n: client._batch([TWO_PLACES[n % 2]], PNG)),
    )


async def steps_in_an_editor(rounds: int, client: DesktopClient, pid: int) -> None:
    """What is typed into a text editor, with the settled screen after each step; then 1,000 characters, read back."""
    await client.reset()
    await client.write_file("note.txt", b"")
    await client.start(["mousepad", "note.txt"])
    await client.windows(1)
    await client.look()
    letter = Action(ActionType.TYPE, text="a")
    row(
        "mousepad: a letter and the settled screen",
        *await timed(pid, 20 * rounds, lambda n: client._batch([letter], PNG)),
    )
    clear = [Action(ActionType.HOTKEY, keys=("ctrl", "a")), Action(ActionType.KEY, keys=("delete",))]
    text = Action(ActionType.TYPE, text=ASCII)
    save = Action(ActionType.HOTKEY, keys=("ctrl", "s"))
    values, right = [], 0
    before = used(pid)
    for _ in range(rounds):
        await client.act(clear)
        start = time.perf_counter()
        await client.act([text])
        values.append((time.perf_counter() - start) * 1e3)
        await client.act([save])
        right += await client.read_file("note.txt") == ASCII.encode()
    row("mousepad: 1,000 ASCII characters and the settled screen", values, (used(pid) - before) * 1e3 / rounds)
    print(f"\n1,000 characters read back right: {right} of {rounds}")


async def other_programs(rounds: int, client: DesktopClient) -> None:
    """A letter, and the settled screen: where no GTK 3 draws. Then the same with the accessibility tree."""
    letters = [Action(ActionType.TYPE, text=text) for text in "ab"]
    for name, argv in OTHERS.items():
        if shutil.which(argv[0]) is None:
            print(f"{name} is not installed")
            continue
        await client.reset()
        await client.start(argv)
        await client.windows(1)
        await asyncio.sleep(BUSY_S)

        async def step(number: int, tree: bool) -> None:
            await client._batch([letters[number % 2]], PNG)
            if tree:
                await client.tree()

        for tree in (False, True):
            values = []
            for number in range(8 * rounds):
                start = time.perf_counter()
                await step(number, tree)
                values.append((time.perf_counter() - start) * 1e3)
                await asyncio.sleep(LATER_S)  # as long as a fast model takes, at least
            middle = statistics.median(values)
            more = " and the tree" if tree else ""
            print(
                f"| {name}: a letter and the settled screen{more} | {middle:.2f} | {max(values):.2f} | | |", flush=True
            )


async def without_a_server(rounds: int) -> None:
    """From a click to the settled PNG over a connection of this process, and whether such a picture changes later."""
    async with await DesktopSession.start(DesktopOptions(screen=SCREEN)) as session:
        await session.run(["mousepad"])
        await session.windows(1)
        computer = await LocalComputer.open(session)

        def step(executor: Executor, number: int) -> None:
            executor.perform([TWO_PLACES[number % 2]])
            executor.look(prepare=lambda frame: frame.encode())

        values, cpu = await timed(os.getpid(), 20 * rounds, lambda n: computer.call(lambda e: step(e, n)))
        row("without a server: a click and the settled screen", values, cpu)
        changed = 0
        for number in range(8 * rounds):
            await computer.call(functools.partial(step, number=number))
            await asyncio.sleep(LATER_S)
            changed += await computer.call(lambda executor: executor.look(settle=False).changed)
        print(f"\nsettled pictures that changed in the {LATER_S} s after: {changed} of {8 * rounds}")
        await computer.close()


async def main(rounds: int) -> int:
    if not PYAUTOGUI.exists():
        print(__doc__, file=sys.stderr)
        return 2
    print(
        f"load {os.getloadavg()[0]:.1f} before\n\n| what | median ms | max | per second | server's CPU ms |\n"
        "|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        async with ours(folder) as (client, near, pid):
            await side_by_side(rounds, client, near, pid)
            await on_a_calculator(rounds, near, pid)
            await steps_in_an_editor(rounds, near, pid)
            await other_programs(rounds, near)
    await without_a_server(rounds)
    print(f"load {os.getloadavg()[0]:.1f} after")
    return 0


if __name__ == "__main__":
    if any(os.environ.get(name) is None for name in MEMORY):  # the last part encodes pictures in this process
        again = [sys.executable, "-m", "tests.bench.desktop_server", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **MEMORY})
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)))
