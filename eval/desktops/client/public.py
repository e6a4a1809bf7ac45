"""The client of the public desktop servers, those of OSWorld and Windows Agent Arena, with what is odd about them.

- Actions are PyAutoGUI programs. Such a server starts a process for each; an answer that is lost leaves the action in
  doubt, so nothing that acts is ever sent twice.
- PyAutoGUI leaves out characters that it has no key for, without a word: such a text is refused here.
- One server marks a command as failed when its output holds the word "error": the exit code decides where there is one.
- A picture comes at once, whether or not the screen rests: two equal ones in a row count as rest.
- Two reads of the accessibility tree at once end such a server: they are done one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from PIL import Image

from eval.actions import Action, ActionType, Unrepresentable
from eval.actions.action import SILENT, asks
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.geometry import Screen
from eval.desktop import ActionRefused, BadFrame
from eval.desktops.client.failures import BadAnswer, Delivery, DesktopServerFailed
from eval.desktops.client.transport import Reply, Transport
from eval.desktops.computer import ShownScreen
from eval.desktops.wire import UNREADABLE
from eval.episodes.pictures import opened

PREFIX: Final = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
PLACELESS: Final = {
    ActionType.CLICK: "click",
    ActionType.DOUBLE_CLICK: "doubleClick",
    ActionType.TRIPLE_CLICK: "tripleClick",
    ActionType.RIGHT_CLICK: "rightClick",
    ActionType.MIDDLE_CLICK: "middleClick",
}
WAIT_S: Final = 1.0  # of a wait that names no duration
MAX_WAIT_S: Final = 60.0
TEXT_PIECE: Final = 500  # characters of one program: a long one outlasts the server's patience, and goes on typing
POLL_S: Final = 0.1
TRIES: Final = 3  # for a picture that cannot be read


class PublicClient:
    """A Computer (eval.desktops.computer) over a public server.

    settle_s  how long to wait at most until two pictures in a row are equal
    `delivery` tells how far the last action came.
    """

    def __init__(self, transport: Transport, screen: Screen, settle_s: float = 2.0) -> None:
        self._transport = transport
        self._dialect = PyAutoGui(frame=screen)
        self._settle_s = settle_s
        self._last: bytes | None = None
        self._tree = asyncio.Lock()
        self._down: list[Action] = []
        self.screen = screen
        self.delivery = Delivery.NOT_SENT

    @classmethod
    async def connect(
        cls, address: str, token: str | None = None, settle_s: float = 2.0, **options: float
    ) -> PublicClient:
        """Asks for the screen's size. Raises InfraError. `options`: of Transport."""
        transport = Transport(address, token, **options)
        try:
            size = _object(await transport.ask("POST", "/screen_size", repeat=True))
            if not all(isinstance(size.get(side), int) and 0 < size[side] <= 16384 for side in ("width", "height")):
                raise BadAnswer(f"{address}/screen_size: {size!r}"[:200])
        except BaseException:
            await transport.close()
            raise
        return cls(transport, Screen(size["width"], size["height"]), settle_s)

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        for action in actions:
            await self._do(action)
        return await self.look()

    async def _do(self, action: Action) -> None:
        if action.type in SILENT:
            return
        if action.type is ActionType.WAIT:
            seconds = WAIT_S if action.duration is None else action.duration
            if seconds > MAX_WAIT_S:
                raise ActionRefused(f"wait: duration is {seconds:g} s; {MAX_WAIT_S:g} is the most")
            await asyncio.sleep(seconds)
            return
        for code in self._programs(action):
            await self._execute(code, self._transport.limit_s + asks(action))
        if action.type in (ActionType.KEY_DOWN, ActionType.MOUSE_DOWN):
            self._down.append(action)

    def _programs(self, action: Action) -> list[str]:
        """The programs of one action. Raises ActionRefused for what this server cannot do."""
        try:
            if action.type is ActionType.TYPE and action.text is not None:
                text = action.text.replace("\r\n", "\n").replace("\r", "\n")
                if wrong := next((each for each in text if not (" " <= each <= "~" or each in "\n\t")), None):
                    raise ActionRefused(f"type: this server types ASCII only, not U+{ord(wrong):04X}")
                pieces = [text[at : at + TEXT_PIECE] for at in range(0, len(text), TEXT_PIECE)]
                return [self._dialect.format(replace(action, text=piece)) for piece in pieces]
            plain = replace(action, modifiers=None)
            if action.type in PLACELESS and action.point is None and action.element is None:
                button = "" if action.button is None else f"button={action.button!r}"
                if action.button in ("back", "forward"):
                    raise ActionRefused(f"{action.type}: this server has no button {action.button}")
                code = f"pyautogui.{PLACELESS[action.type]}({button})"
            else:
                code = self._dialect.format(plain).replace("computer.triple_click", "pyautogui.tripleClick")
        except Unrepresentable as error:
            raise ActionRefused(f"{action.type}: this server cannot do it: {error}") from None
        held = action.modifiers or ()
        down = [f"pyautogui.keyDown({key!r})" for key in held]
        up = [f"pyautogui.keyUp({key!r})" for key in reversed(held)]
        return ["; ".join([*down, *code.split("\n"), *up])]

    async def _execute(self, code: str, limit_s: float) -> None:
        """Runs a program once. Raises DesktopServerFailed, and what the transport raises."""
        body = {"command": ["python", "-c", PREFIX + code], "shell": False}
        self.delivery = Delivery.NOT_SENT
        try:
            reply = await self._transport.ask("POST", "/execute", repeat=False, limit_s=limit_s, json=body)
        except Exception as error:
            self.delivery = getattr(error, "delivery", Delivery.SENT)
            raise
        answer = _object(reply)
        self.delivery = Delivery.CONFIRMED
        code_given = answer.get("returncode")
        failed = code_given != 0 if isinstance(code_given, int) else answer.get("status") != "success"
        if failed or reply.status != 200:
            said = str(answer.get("error") or answer.get("message") or answer)[-500:]
            raise DesktopServerFailed(f"{self._transport.address}/execute: {said}")

    async def look(self) -> ShownScreen:
        """The screen once two pictures in a row are equal. Raises BadFrame."""
        before, end = self._last, time.monotonic() + self._settle_s
        picture = await self._picture()
        settled = False
        while self._settle_s and not settled and time.monotonic() < end:
            await asyncio.sleep(POLL_S)
            following = await self._picture()
            settled, picture = following.tobytes() == picture.tobytes(), following
        self._last = picture.tobytes()
        return ShownScreen(picture, None, self._last != before, settled)

    async def _picture(self) -> Image.Image:
        for attempt in range(TRIES):
            reply = await self._transport.ask("GET", "/screenshot", repeat=True)
            try:
                if reply.status != 200:
                    raise BadFrame(f"{self._transport.address}/screenshot: status {reply.status}")
                return self._read(reply.body)
            except BadFrame:
                if attempt + 1 == TRIES:
                    raise
            await asyncio.sleep(POLL_S)
        raise AssertionError

    def _read(self, data: bytes) -> Image.Image:
        """Raises BadFrame."""
        image = opened(data, "a picture that cannot be read", formats=["PNG", "JPEG"])
        if image.size != (self.screen.width, self.screen.height):
            raise BadFrame(f"a picture of {image.size}; the screen has {self.screen.width}x{self.screen.height}")
        return image

    async def accessibility(self) -> None:
        """None: these servers do not tell which window lies above which; see `tree`."""

    async def release(self) -> None:
        """Releases what this client pressed; a public server cannot tell what else is down."""
        down, self._down = self._down, []
        for action in reversed(down):
            key = action.type is ActionType.KEY_DOWN
            await self._do(replace(action, type=ActionType.KEY_UP if key else ActionType.MOUSE_UP))

    async def answers(self) -> bool:
        """The server is asked for its screen. Nothing ends a program there: what was given up may go on."""
        reply = await self._transport.ask("POST", "/screen_size", repeat=True)
        if reply.status == 200:
            await self.release()
        return reply.status == 200

    async def close(self) -> None:
        """Closes the connections; what is pressed stays so unless `release` was called."""
        await self._transport.close()

    # What clients of these servers ask beside

    async def tree(self) -> str:
        """The accessibility tree, as XML. One read at a time. Raises BadAnswer, DesktopServerFailed."""
        async with self._tree:
            reply = await self._transport.ask("GET", "/accessibility", repeat=True)
        answer = _object(reply)
        if reply.status != 200 or not isinstance(answer.get("AT"), str):
            raise DesktopServerFailed(f"{self._transport.address}/accessibility: {str(answer)[:300]}")
        return str(answer["AT"])

    async def pointer(self) -> tuple[int, int]:
        """Where the pointer is, in pixels. Servers answer with a list or with an object. Raises BadAnswer."""
        reply = await self._transport.ask("GET", "/cursor_position", repeat=True)
        value = _json(reply)
        if isinstance(value, dict):
            value = [value.get("x"), value.get("y")]
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(each, int | float) for each in value):
            raise BadAnswer(f"{self._transport.address}/cursor_position: {value!r}"[:200])
        return int(value[0]), int(value[1])

    async def read_file(self, path: str) -> bytes:
        """A file of the desktop. Raises FileNotFoundError, DesktopServerFailed."""
        reply = await self._transport.ask("POST", "/file", repeat=True, data={"file_path": path})
        if reply.status == 404:
            raise FileNotFoundError(path)
        if reply.status != 200:
            raise DesktopServerFailed(f"{self._transport.address}/file: status {reply.status}")
        return reply.body


def _json(reply: Reply) -> Any:
    try:
        return msgspec.json.decode(reply.body)
    except UNREADABLE as error:
        raise BadAnswer(f"status {reply.status}, and no JSON: {error}") from None


def _object(reply: Reply) -> dict[str, Any]:
    value = _json(reply)
    if not isinstance(value, dict):
        raise BadAnswer(f"status {reply.status}, and no JSON object")
    return value
