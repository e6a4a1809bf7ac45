"""The client of public desktop servers against a stand-in with their habits: what OSWorld's and WAA's servers answer,
as their clients' code and formats of those projects describe it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from eval.actions import Action, ActionType
from eval.desktop import ActionRefused, BadFrame
from eval.desktops.client.failures import BadAnswer, Delivery, DesktopServerFailed, DesktopServerGone, ServerTimeout
from eval.desktops.client.public import PREFIX, PublicClient


def picture(form: str = "PNG", size: tuple[int, int] = (200, 100), shade: int = 0) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (shade, shade, shade)).save(out, form)
    return out.getvalue()


@dataclass
class StandIn:
    """What the server answers. `programs`: what it was asked to run, without the client's first imports."""

    answer: dict[str, Any] = field(default_factory=lambda: {"status": "success", "output": "", "returncode": 0})
    status: int = 200
    pictures: list[bytes] = field(default_factory=lambda: [picture()])
    pointer: Any = field(default_factory=lambda: [3, 4])
    slow_s: float = 0.0
    programs: list[str] = field(default_factory=list)
    reading: int = 0
    most_reading: int = 0
    address: str = ""

    async def execute(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["shell"] is False
        assert body["command"][:2] == ["python", "-c"]
        code = body["command"][2]
        assert code.startswith(PREFIX)
        self.programs.append(code.removeprefix(PREFIX))
        await asyncio.sleep(self.slow_s)
        return web.json_response(self.answer, status=self.status)

    async def screenshot(self, request: web.Request) -> web.StreamResponse:
        one = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
        return web.Response(body=one, content_type="image/png")

    async def tree(self, request: web.Request) -> web.StreamResponse:
        self.reading += 1
        self.most_reading = max(self.reading, self.most_reading)
        await asyncio.sleep(0.02)
        self.reading -= 1
        return web.json_response({"AT": "<desktop-frame/>"})

    async def size(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"width": 200, "height": 100})

    async def cursor(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.pointer)

    async def file(self, request: web.Request) -> web.StreamResponse:
        known = {"/a": b"content"}
        name = str((await request.post())["file_path"])
        if name not in known:
            return web.json_response({"error": "File not found"}, status=404)
        return web.Response(body=known[name])


@contextlib.asynccontextmanager
async def public() -> AsyncIterator[StandIn]:
    server = StandIn()
    app = web.Application()
    app.router.add_post("/execute", server.execute)
    app.router.add_get("/screenshot", server.screenshot)
    app.router.add_get("/accessibility", server.tree)
    app.router.add_post("/screen_size", server.size)
    app.router.add_get("/cursor_position", server.cursor)
    app.router.add_post("/file", server.file)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def played(work: Callable[[StandIn, PublicClient], Coroutine[Any, Any, None]], **options: float) -> None:
    async def go() -> None:
        async with public() as server:
            client = await PublicClient.connect(server.address, settle_s=0.0, **options)
            try:
                await work(server, client)
            finally:
                await client.close()

    asyncio.run(go())


PROGRAMS = {
    "pyautogui.click(x=100, y=50)": Action(ActionType.CLICK, x=0.5, y=0.5),
    "pyautogui.click()": Action(ActionType.CLICK),
    "pyautogui.tripleClick(x=100, y=50)": Action(ActionType.TRIPLE_CLICK, x=0.5, y=0.5),
    "pyautogui.doubleClick(button='right')": Action(ActionType.DOUBLE_CLICK, button="right"),
    "pyautogui.moveTo(x=100, y=50); pyautogui.scroll(-3)": Action(
        ActionType.SCROLL, x=0.5, y=0.5, direction="down", amount=3
    ),
    "pyautogui.keyDown('ctrl'); pyautogui.click(x=100, y=50); pyautogui.keyUp('ctrl')": Action(
        ActionType.CLICK, x=0.5, y=0.5, modifiers=("ctrl",)
    ),
    "pyautogui.hotkey('ctrl', 's')": Action(ActionType.HOTKEY, keys=("ctrl", "s")),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_actions_are_pyautogui_in_pixels(program: str) -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        await client.act([PROGRAMS[program]])
        assert server.programs == [program]
        assert client.delivery is Delivery.CONFIRMED

    played(work)


def test_a_long_text_is_sent_in_pieces_and_what_cannot_be_typed_is_refused() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        text = "".join(chr(32 + index % 90) for index in range(1200)) + "'\"\\"
        await client.act([Action(ActionType.TYPE, text=text)])
        typed = [written(program) for program in server.programs]
        assert "".join(typed) == text
        assert len(typed) == 3
        server.programs.clear()
        for action in (
            Action(ActionType.TYPE, text="Grüße"),
            Action(ActionType.CLICK, x=0.1, y=0.1, button="back"),
            Action(ActionType.WINDOW_FOCUS, window_title="x"),
            Action(ActionType.WAIT, duration=1e6),
        ):
            with pytest.raises(ActionRefused):
                await client.act([action])
        assert server.programs == []

    played(work)


def written(program: str) -> str:
    """The text of `pyautogui.write(message='...')`."""
    call = ast.parse(program, mode="eval").body
    assert isinstance(call, ast.Call)
    return str(ast.literal_eval(call.keywords[0].value))


def test_the_exit_code_decides_and_not_the_word_error() -> None:
    click = [Action(ActionType.CLICK, x=0.5, y=0.5)]

    async def work(server: StandIn, client: PublicClient) -> None:
        server.answer = {"status": "error", "output": "no error", "returncode": 0}
        await client.act(click)
        for answer, status in (
            ({"status": "success", "output": "", "error": "Traceback", "returncode": 1}, 200),
            ({"status": "error", "message": "timed out after 120 seconds"}, 500),
            ({"status": "error", "message": "x"}, 200),
        ):
            server.answer, server.status = answer, status
            with pytest.raises(DesktopServerFailed):
                await client.act(click)
        assert len(server.programs) == 4  # none was sent twice

    played(work)


def test_an_action_in_doubt_is_never_sent_twice() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        server.slow_s = 1.0
        with pytest.raises(ServerTimeout) as caught:
            await client.act([Action(ActionType.CLICK, x=0.5, y=0.5)])
        assert (caught.value.delivery, client.delivery) == (Delivery.SENT, Delivery.SENT)
        assert len(server.programs) == 1

    played(work, limit_s=0.3)


def test_pictures_of_either_format_and_none_at_all() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        server.pictures = [picture("JPEG", shade=9)]
        assert (await client.look()).changed
        server.pictures = [b"", picture()[:50], picture()]  # half a file, then a whole one
        assert (await client.look()).image.getpixel((0, 0)) == (0, 0, 0)
        for wrong in (b"<html>", picture(size=(10, 10)), picture("GIF")):
            server.pictures = [wrong]
            with pytest.raises(BadFrame):
                await client.look()

    played(work)


def test_the_screen_rests_when_two_pictures_are_equal() -> None:
    async def go() -> None:
        async with public() as server:
            client = await PublicClient.connect(server.address, settle_s=60.0)
            server.pictures = [picture(shade=shade) for shade in (1, 2, 3, 3)]
            shown = await client.look()
            assert (shown.settled, shown.image.getpixel((0, 0))) == (True, (3, 3, 3))
            await client.close()

    asyncio.run(go())


def test_the_tree_is_read_by_one_at_a_time() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        await asyncio.gather(*(client.tree() for _ in range(5)))
        assert server.most_reading == 1

    played(work)


def test_the_pointer_in_both_forms_and_files() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        assert await client.pointer() == (3, 4)
        server.pointer = {"x": 5, "y": 6.0}
        assert await client.pointer() == (5, 6)
        server.pointer = "none"
        with pytest.raises(BadAnswer):
            await client.pointer()
        assert await client.read_file("/a") == b"content"
        with pytest.raises(FileNotFoundError):
            await client.read_file("/b")

    played(work)


def test_what_was_pressed_is_released() -> None:
    async def work(server: StandIn, client: PublicClient) -> None:
        await client.act([Action(ActionType.KEY_DOWN, keys=("shift",)), Action(ActionType.MOUSE_DOWN, x=0.5, y=0.5)])
        server.programs.clear()
        await client.release()
        assert server.programs == ["pyautogui.mouseUp(x=100, y=50)", "pyautogui.keyUp('shift')"]

    played(work)


def test_no_server_at_all() -> None:
    async def go() -> None:
        with pytest.raises(DesktopServerGone) as caught:
            await PublicClient.connect("http://127.0.0.1:9", patience_s=0.1)
        assert caught.value.delivery is Delivery.NOT_SENT

    asyncio.run(go())
