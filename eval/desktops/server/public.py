"""The protocol of OSWorld's and Windows Agent Arena's desktop server, as their clients speak it.

Source: the requests of OSWorld's `desktop_env/controllers/python.py` and `setup.py`, and the answers that they read.
What the desktop cannot do (a wallpaper) is answered with 501 and a reason.
"""

from __future__ import annotations

import asyncio
import platform
from functools import partial
from typing import Any, Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from eval.accessibility.tree import to_xml
from eval.desktops.server import files, public_commands
from eval.desktops.server.errors import Failed, NoSuchThing, NotAllowed, NotOfferedHere, Refused, TooLarge
from eval.desktops.server.public_commands import activate
from eval.desktops.server.requests import (
    SERVICE,
    Settings,
    json_object,
    read_file,
    text_field,
    write_file,
)
from eval.desktops.wire import FILE_LIMIT, WantedPicture

DOWNLOAD_S: Final = 300.0


def add_routes(app: web.Application, settings: Settings) -> None:
    """Adds the routes of the public protocol."""
    public_commands.add_routes(app, settings)
    get, post = app.router.add_get, app.router.add_post
    get("/probe", _probe)
    get("/platform", _platform)
    get("/screenshot", _screenshot)
    get("/cursor_position", _cursor_position)
    get("/accessibility", _accessibility)
    get("/terminal", _terminal)
    post("/start_recording", _start_recording)
    post("/end_recording", _end_recording)
    post("/screen_size", _screen_size)
    post("/window_size", _window_size)
    post("/desktop_path", _desktop_path)
    post("/list_directory", _list_directory)
    post("/file", _file)
    post("/setup/activate_window", _activate_window)
    post("/setup/close_window", _close_window)
    post("/setup/close_all", _close_all)
    post("/setup/upload", _upload)
    post("/setup/download_file", _download)
    missing = {
        "/wallpaper": "this desktop has no wallpaper",
        "/setup/change_wallpaper": "this desktop has no wallpaper",
    }
    for path, reason in missing.items():
        post(path, partial(_not_offered, reason))


async def _not_offered(reason: str, request: web.Request) -> web.Response:
    raise NotOfferedHere(reason)


async def _probe(request: web.Request) -> web.Response:
    request.app[SERVICE].session.check()
    return web.json_response({"status": "Probe successful", "message": "Service is operational"})


async def _platform(request: web.Request) -> web.Response:
    return web.Response(text=platform.system())


# Looking


async def _screenshot(request: web.Request) -> web.Response:
    seen = await request.app[SERVICE].look(WantedPicture())
    return web.Response(body=seen.picture, content_type="image/png", headers={"Cache-Control": "no-store"})


async def _accessibility(request: web.Request) -> web.Response:
    """The whole tree as XML. What had to be cut is told in a header."""
    tree = await request.app[SERVICE].tree(whole=True)
    headers = {"Desktop-Tree-Cut": str(len(tree.cut))}
    return web.json_response({"AT": await asyncio.to_thread(to_xml, tree)}, headers=headers)


async def _terminal(request: web.Request) -> web.Response:
    """The text of the terminal that has the focus; null where there is none that tells its text."""
    tree = await request.app[SERVICE].tree(whole=False)
    focused = [node for node in tree.nodes() if node.role == "terminal" and "focused" in node.states]
    text = focused[0].text if len(focused) == 1 else None
    return web.json_response({"output": None if text is None else text.rstrip(), "status": "success"})


async def _start_recording(request: web.Request) -> web.Response:
    await request.app[SERVICE].recording.start()
    return web.json_response({"status": "success", "message": "Started recording successfully."})


async def _end_recording(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(await request.app[SERVICE].recording.end())


async def _cursor_position(request: web.Request) -> web.Response:
    return web.json_response(list(await request.app[SERVICE].call(lambda executor: executor.pointer())))


async def _screen_size(request: web.Request) -> web.Response:
    width, height = request.app[SERVICE].session.options.screen
    return web.json_response({"width": width, "height": height})


async def _window_size(request: web.Request) -> web.Response:
    name = (await request.post()).get("app_class_name")
    if not isinstance(name, str) or not name:
        raise Refused("app_class_name is required")
    window = await request.app[SERVICE].call(lambda executor: executor.windows.find(name, by_class=True))
    if window is None:
        raise NoSuchThing(f"no window of the class {name}")
    return web.json_response({"width": window.box[2], "height": window.box[3]})


# Files


async def _desktop_path(request: web.Request) -> web.Response:
    place = request.app[SERVICE].session.place
    try:
        await asyncio.to_thread(files.tree, "Desktop", place)
    except NoSuchThing:
        raise NoSuchThing("the desktop's user has no folder Desktop") from None
    except TooLarge:
        pass  # it is there
    return web.json_response({"desktop_path": str(place.home_inside / "Desktop")})


async def _list_directory(request: web.Request) -> web.Response:
    service, data = request.app[SERVICE], await json_object(request)
    if service.permissions.files == "off":
        raise NotAllowed("this server gives no files")
    path = text_field(data, "path")
    return web.json_response({"directory_tree": await asyncio.to_thread(files.tree, path, service.session.place)})


async def _file(request: web.Request) -> web.Response:
    path = (await request.post()).get("file_path")
    if not isinstance(path, str) or not path:
        raise Refused("file_path is required")
    data = await read_file(request, path)
    return web.Response(body=data, content_type="application/octet-stream")


async def _upload(request: web.Request) -> web.Response:
    form = await request.post()
    path, file = form.get("file_path"), form.get("file_data")
    if not isinstance(path, str) or not path or not isinstance(file, web.FileField):
        raise Refused("file_path and file_data are required")
    data = await asyncio.to_thread(file.file.read)
    await write_file(request, path, data)
    return web.Response(text=f"File Uploaded: {len(data)} bytes")


async def _download(request: web.Request) -> web.Response:
    data = await json_object(request)
    url, path = text_field(data, "url"), text_field(data, "path")
    if not request.app[SERVICE].permissions.downloads:
        raise NotAllowed("this server fetches no URL; upload the file, or start the server with --downloads")
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=DOWNLOAD_S)) as http,
            http.get(url, raise_for_status=True) as answer,
        ):
            content = bytearray()
            async for piece in answer.content.iter_chunked(1 << 16):
                content += piece
                if len(content) > FILE_LIMIT:
                    raise TooLarge(f"{url}: more than {FILE_LIMIT} bytes")
    except (ClientError, TimeoutError, ValueError) as error:
        raise Failed(f"{url} cannot be fetched: {type(error).__name__}: {error}") from None
    await write_file(request, path, bytes(content))
    return web.Response(text=f"File downloaded successfully: {len(content)} bytes")


# Windows


def _close(name: str, how: dict[str, bool], executor: Any) -> bool:
    window = executor.windows.find(name, **how)
    if window is not None:
        executor.windows.close(window)
    return window is not None


async def _activate_window(request: web.Request) -> web.Response:
    return await _on_window(request, activate, "Window activated successfully")


async def _close_window(request: web.Request) -> web.Response:
    return await _on_window(request, _close, "Window closed successfully.")


async def _on_window(request: web.Request, work: Any, said: str) -> web.Response:
    data = await json_object(request)
    name = text_field(data, "window_name")
    how = {"by_class": bool(data.get("by_class", False)), "strict": bool(data.get("strict", False))}
    if not await request.app[SERVICE].call(partial(work, name, how)):
        raise NoSuchThing(f"Window {name} not found")
    return web.Response(text=said)


async def _close_all(request: web.Request) -> web.Response:
    def close_all(executor: Any) -> None:
        for window in executor.windows.listed():
            executor.windows.close(window)

    await request.app[SERVICE].call(close_all)
    return web.Response(text="All windows closed")
