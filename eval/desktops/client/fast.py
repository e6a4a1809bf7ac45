"""The client of our server: each batch of actions comes back with the screen, in one request that is done once."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from PIL import Image

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.actions.action import asks
from eval.desktop import ActionRefused, BadFrame, BrokenByAgent, InfraError
from eval.desktops.client.failures import BadAnswer, Delivery, DesktopServerFailed
from eval.desktops.client.transport import Reply, Transport, decoded, failure
from eval.desktops.computer import ShownScreen
from eval.desktops.reading import FileEntry
from eval.desktops.wire import (
    FILE_LIMIT,
    MSGPACK,
    ActionBatch,
    Answer,
    DesktopStatus,
    PictureForm,
    Ran,
    Seen,
    WantedPicture,
)
from eval.episodes.pictures import opened

MAX_SIDE: Final = 16384
MARGIN_S: Final = 30.0  # that an answer may take beyond the time of what was asked for


class DesktopClient:
    """A Computer (eval.desktops.computer) behind a server, with the files and programs of its desktop.

    form  of the pictures; None: pixels as they are over a Unix socket, else PNG. Both are lossless
    `delivery` tells how far the last batch of actions came.
    """

    def __init__(self, transport: Transport, form: PictureForm | None = None, quality: int = 85) -> None:
        self._transport = transport
        local = transport.address.startswith("unix:")
        self._form: PictureForm = form or ("rgb" if local else "png")
        self._quality = quality
        self._known: tuple[str, Image.Image] | None = None
        self.status = DesktopStatus("", (0, 0), False, "off")
        self.delivery = Delivery.NOT_SENT

    @classmethod
    async def connect(
        cls, address: str, token: str | None = None, form: PictureForm | None = None, **options: float
    ) -> DesktopClient:
        """Raises InfraError when there is no such server, or the token is wrong. `options`: of Transport."""
        client = cls(Transport(address, token, **options), form)
        try:
            await client._learn()
        except BaseException:
            await client._transport.close()
            raise
        return client

    @property
    def address(self) -> str:
        """Of the server: unix:PATH or http://HOST:PORT."""
        return self._transport.address

    @property
    def token(self) -> str | None:
        """The server's, if it asks for one."""
        return self._transport.token

    async def _learn(self) -> None:
        self.status = decoded(await self._ask("GET", "/v1/status"), DesktopStatus)
        self._known = None

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        answer = await self._batch(actions, self._wanted())
        if answer.refused is not None:
            raise ActionRefused(answer.refused)
        return self._shown(answer.seen)

    async def perform(self, actions: Sequence[Action]) -> None:
        """Does actions without looking. Raises ActionRefused."""
        answer = await self._batch(actions, None)
        if answer.refused is not None:
            raise ActionRefused(answer.refused)

    async def look(self) -> ShownScreen:
        return self._shown((await self._batch([], self._wanted())).seen)

    async def release(self) -> None:
        await self._ask("POST", "/v1/release")

    async def answers(self) -> bool:
        """Whether the desktop behind the server answers; the batch that was given up ends there, too."""
        return decoded(await self._ask("POST", "/v1/answers"), dict[str, bool])["answers"]  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Releases what is down where the server can still be asked, and closes the connections."""
        self._transport.patience_s = 0.0
        try:
            with contextlib.suppress(InfraError, BrokenByAgent):
                await self.release()
        finally:
            await self._transport.close()

    async def reset(self) -> None:
        """A clean desktop."""
        self.status = decoded(await self._ask("POST", "/v1/reset"), DesktopStatus)
        self._known = None

    async def start_recording(self) -> None:
        """Begins a video of the desktop, which a reset ends. Raises AccessRefused where the server has no recorder."""
        await self._ask("POST", "/start_recording", repeat=False, limit_s=self._transport.limit_s + MARGIN_S)

    async def end_recording(self) -> bytes:
        """Ends the video, and gives it: an MP4 file."""
        limit = self._transport.limit_s + MARGIN_S
        return (await self._ask("POST", "/end_recording", repeat=False, limit_s=limit)).body

    async def run(self, argv: Sequence[str], limit_s: float = 120.0) -> Ran:
        """A command on the desktop, to its end. Never repeated once it was sent. Raises FileNotFoundError."""
        body = {"argv": list(argv), "limit": limit_s}
        reply = await self._ask("POST", "/v1/run", json=body, repeat=False, limit_s=limit_s + MARGIN_S)
        return decoded(reply, Ran)  # type: ignore[no-any-return]

    async def start(self, argv: Sequence[str]) -> None:
        """Starts a program that stays. Never repeated once it was sent. Raises FileNotFoundError."""
        await self._ask("POST", "/v1/start", json={"argv": list(argv)}, repeat=False)

    async def tree(self, *, whole: bool = False) -> Tree:
        """The accessibility tree; `whole`: see eval.desktops.trees.read_tree."""
        tree: Tree = decoded(await self._ask("GET", "/v1/tree", params={"whole": ""} if whole else {}), Tree)
        return tree

    async def accessibility(self) -> Tree:
        return await self.tree()

    async def windows(self, count: int | None = None, limit_s: float = 60.0) -> list[str]:
        """The titles of the windows, with `count` once there are so many."""
        body = {"limit": limit_s} | ({} if count is None else {"count": count})
        reply = await self._ask("POST", "/v1/windows", json=body, limit_s=limit_s + MARGIN_S)
        return [window["title"] for window in decoded(reply, dict[str, list[dict[str, Any]]])["windows"]]

    async def read_file(self, path: str) -> bytes:
        """A file of the desktop. Raises FileNotFoundError."""
        return (await self._ask("GET", "/v1/file", params={"path": path})).body

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        """What lies below a folder of the home, "" for the home itself; see eval.desktops.reading.list_files."""
        reply = await self._ask("GET", "/v1/files", params={"path": folder})
        return decoded(reply, dict[str, FileEntry])  # type: ignore[no-any-return]

    async def write_file(self, path: str, data: bytes) -> None:
        """Writes a file of the desktop, and the folders above it. One that is too large raises DesktopServerFailed."""
        if len(data) > FILE_LIMIT:
            raise DesktopServerFailed(f"{path}: {len(data)} bytes; a server takes {FILE_LIMIT}")
        await self._ask("PUT", "/v1/file", params={"path": path}, data=data)

    def _wanted(self) -> WantedPicture:
        return WantedPicture(self._form, self._quality, known=self._known[0] if self._known else None)

    async def _batch(self, actions: Sequence[Action], wanted: WantedPicture | None) -> Answer:
        """One batch, repeated with the same id until an answer comes: the server does it once."""
        batch = ActionBatch([action.to_json() for action in actions], secrets.token_hex(12), self.status.epoch, wanted)
        seconds = sum(max(1.0, asks(action)) for action in actions) + (wanted.limit if wanted else 0.0)
        self.delivery = Delivery.NOT_SENT
        try:
            body = msgspec.json.encode(batch)
            reply = await self._ask("POST", "/v1/act", data=body, limit_s=self._transport.limit_s + seconds)
        except Exception as error:
            self.delivery = getattr(error, "delivery", Delivery.SENT)
            raise
        self.delivery = Delivery.CONFIRMED
        answer: Answer = decoded(reply, Answer)
        if not 0 <= answer.done <= len(actions) or (answer.refused is None and answer.done != len(actions)):
            raise BadAnswer(f"{answer.done} of {len(actions)} actions done, and no reason")
        return answer

    async def _ask(self, method: str, path: str, repeat: bool = True, **request: Any) -> Reply:
        """A successful answer. Raises what the server's failure means."""
        headers = {"Accept": MSGPACK}
        reply = await self._transport.ask(method, path, repeat=repeat, headers=headers, **request)
        if reply.status != 200:
            raise failure(reply, f"{self._transport.address} {path}")
        return reply

    def _shown(self, seen: Seen | None) -> ShownScreen:
        """Raises BadFrame, BadAnswer."""
        if seen is None:
            raise BadAnswer("the answer holds no look")
        if seen.picture is not None:
            self._known = (seen.frame, _image(seen))
        elif self._known is None or self._known[0] != seen.frame:
            raise BadAnswer(f"no picture of the frame {seen.frame!r}, which this client does not have")
        return ShownScreen(self._known[1], seen.pointer, seen.changed, seen.settled)


def _image(seen: Seen) -> Image.Image:
    """Raises BadFrame."""
    width, height = seen.size
    assert seen.picture is not None
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise BadFrame(f"a picture of {width}x{height}")
    try:
        if seen.form == "rgb":
            return Image.frombytes("RGB", (width, height), seen.picture)
    except ValueError as error:
        raise BadFrame(f"a picture that cannot be read: {error}") from None
    image = opened(seen.picture, "a picture that cannot be read", formats=[seen.form.upper()])
    if image.size != (width, height):
        raise BadFrame(f"a picture of {image.size}, announced as {width}x{height}")
    return image
