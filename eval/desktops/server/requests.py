"""What the routes of both protocols share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from eval.desktops.reading import FileEntry
from eval.desktops.server import commands, files
from eval.desktops.server.errors import NotAllowed, Refused
from eval.desktops.server.service import DesktopService
from eval.desktops.wire import UNREADABLE

SERVICE: Final = web.AppKey("service", DesktopService)


@dataclass(frozen=True)
class Settings:
    """Limits of the public protocol, in seconds.

    command  of /execute; the public server's own is 120
    python   of /run_python; there 30
    window   until an opened file has a window; there 1800
    """

    command: float = 120.0
    python: float = 30.0
    window: float = 60.0


async def json_object(request: web.Request) -> dict[str, Any]:
    """The body, whatever its content type says. Raises Refused."""
    body = await request.read()
    try:
        value = msgspec.json.decode(body or b"{}")
    except UNREADABLE as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused("the body must be a JSON object")
    return value


def text_field(data: dict[str, Any], name: str, default: str | None = None) -> str:
    """A text of the body. Raises Refused for a missing one without a default, and for anything but a text."""
    value = data.get(name, default)
    if not isinstance(value, str) or not value:
        raise Refused(f"{name} is required, a text")
    return value


def seconds_field(data: dict[str, Any], name: str, default: float, most: float) -> float:
    """A number of seconds of the body. Raises Refused."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise Refused(f"{name} must be a number of seconds above 0, at most {most:g}")
    return float(value)


async def read_file(request: web.Request, path: str) -> bytes:
    """A file of the desktop, as far as the server's permissions go. Raises Refused."""
    service = request.app[SERVICE]
    place = service.session.place
    if service.permissions.files == "off":
        raise NotAllowed("this server gives no files")
    if service.permissions.files == "guest" and not _at_home(path, request):
        return await service.on_guest(commands.read_as_guest(service.session, str(files.expanded(path, place))))
    return await asyncio.to_thread(files.read, path, place)


async def list_files(request: web.Request, path: str) -> dict[str, FileEntry]:
    """What lies below a folder of the desktop's home. Raises Refused."""
    if request.app[SERVICE].permissions.files == "off":
        raise NotAllowed("this server gives no files")
    return await asyncio.to_thread(files.listed, path, request.app[SERVICE].session.place)


async def write_file(request: web.Request, path: str, data: bytes) -> None:
    """Writes a file of the desktop, as far as the server's permissions go. Raises Refused."""
    service = request.app[SERVICE]
    place = service.session.place
    if service.permissions.files == "off":
        raise NotAllowed("this server takes no files")
    if service.permissions.files == "guest" and not _at_home(path, request):
        await service.on_guest(commands.write_as_guest(service.session, str(files.expanded(path, place)), data))
    else:
        await asyncio.to_thread(files.write, path, data, place)


def _at_home(path: str, request: web.Request) -> bool:
    try:
        return bool(files.below_home(path, request.app[SERVICE].session.place))
    except NotAllowed:
        return False
