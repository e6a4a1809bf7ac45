"""The public protocol's commands and programs: what runs on the desktop, and what only looks as if it did."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

from aiohttp import web

from eval.actions.geometry import Screen
from eval.desktops.server import commands, files
from eval.desktops.server.browser_port import debugged, forwards
from eval.desktops.server.commands import CommandOutput
from eval.desktops.server.errors import Failed, NoSuchThing, NotAllowed, Refused
from eval.desktops.server.pyautogui_code import MODULE, program_of, read, without_preamble
from eval.desktops.server.requests import SERVICE, Settings, json_object, seconds_field, text_field
from eval.desktops.server.service import DesktopService
from eval.desktops.wire import ActionBatch

SETTINGS: Final = web.AppKey("settings", Settings)
POLL_S: Final = 0.1
SCRIPT_LIMIT_S: Final = 3600.0
PATH: Final = "/usr/local/bin:/usr/bin:/bin"  # where the desktop's programs are looked for
VERIFY_S: Final = 5.0


def add_routes(app: web.Application, settings: Settings) -> None:
    """Adds the routes."""
    app[SETTINGS] = settings
    post = app.router.add_post
    for prefix in ("", "/setup"):
        post(f"{prefix}/execute", _execute)
        post(f"{prefix}/execute_with_verification", _execute_with_verification)
    post("/run_python", _run_python)
    post("/run_bash_script", _run_bash_script)
    post("/setup/launch", _launch)
    post("/setup/open_file", _open_file)


def _command(data: dict[str, Any], service: DesktopService) -> list[str]:
    """The command of a body, as argv. Raises Refused."""
    shell, command = bool(data.get("shell", False)), data.get("command")
    if isinstance(command, str) and not shell:
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise Refused(f"command: {error}") from None
    if isinstance(command, str):
        command = [command]
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        raise Refused("command is required, a text or a list of texts")
    if any("\0" in part for part in command):
        raise Refused("command must not hold a null character")
    if shell:
        return ["sh", "-c", *command]
    home = str(service.session.place.home_inside)
    argv = [home + part[1:] if part.startswith("~/") else part for part in command]
    if argv[0] == "python" and not shutil.which("python", path=PATH):
        argv[0] = "python3"  # clients say python; Debian has python3 alone
    return argv


async def _fast(service: DesktopService, code: str | None) -> CommandOutput | None:
    """Does a PyAutoGUI program; None where there is none, or it is the guest's to run."""
    if code is None or MODULE not in code:
        return None
    screen = Screen(*service.session.options.screen)
    actions = await service.call(lambda executor: read(code, screen, executor.pointer))
    if actions is None:
        return None
    answer = await service.act(ActionBatch(actions=[action.to_json() for action in actions]))
    return CommandOutput("", answer.refused or "", 1 if answer.refused else 0)


async def _run(request: web.Request, data: dict[str, Any]) -> CommandOutput:
    """Runs the command of a body. Raises Refused, Failed for one that ran past its time."""
    service, limit = request.app[SERVICE], request.app[SETTINGS].command
    argv = _command(data, service)
    code = program_of(argv)
    output = await _fast(service, code)
    if output is None:
        service.commands_allowed()
        if code is not None:
            argv = [*argv[:2], without_preamble(code)]
        try:
            output = await service.on_guest(commands.run(service.session, argv, limit_s=limit))
        except NoSuchThing as error:
            raise Failed(f"[Errno 2] {error}") from None  # the public server answers 500, and clients know it
    if output.status is None:
        raise Failed(f"Command {argv!r} timed out after {limit:g} seconds")
    return output


async def _execute(request: web.Request) -> web.Response:
    output = await _run(request, await json_object(request))
    return web.json_response(_succeeded(output))


def _succeeded(output: CommandOutput) -> dict[str, Any]:
    return {"status": "success", "output": output.stdout, "error": output.stderr, "returncode": output.status}


async def _execute_with_verification(request: web.Request) -> web.Response:
    service, data = request.app[SERVICE], await json_object(request)
    limit = seconds_field(data, "max_wait_time", 10.0, SCRIPT_LIMIT_S)
    pause = seconds_field(data, "check_interval", 1.0, SCRIPT_LIMIT_S)
    verification = data.get("verification") or {}
    if not isinstance(verification, dict) or not set(verification) <= {"window_exists", "command_success"}:
        raise Refused("verification takes window_exists and command_success")
    output = await _run(request, data)
    if not verification:
        return web.json_response(_succeeded(output))
    began = time.monotonic()
    while not await _verified(service, verification):
        if time.monotonic() - began + pause > limit:
            failed = {"status": "verification_failed", "verification": "failed", "wait_time": limit}
            return web.json_response({**_succeeded(output), **failed}, status=500)
        await asyncio.sleep(pause)
    passed = {"verification": "passed", "wait_time": time.monotonic() - began}
    return web.json_response({**_succeeded(output), **passed})


async def _verified(service: DesktopService, verification: dict[str, Any]) -> bool:
    if "window_exists" in verification:
        name = text_field(verification, "window_exists")
        if await service.call(lambda executor: executor.windows.find(name)) is None:
            return False
    if "command_success" in verification:
        command = text_field(verification, "command_success")
        service.commands_allowed()
        output = await service.on_guest(commands.run(service.session, ["sh", "-c", command], limit_s=VERIFY_S))
        return output.status == 0
    return True


async def _run_python(request: web.Request) -> web.Response:
    service, limit = request.app[SERVICE], request.app[SETTINGS].python
    code = text_field(await json_object(request), "code")
    output = await _fast(service, code)
    if output is None:
        service.commands_allowed()
        output = await service.on_guest(commands.run_script(service.session, ["/usr/bin/python3"], code, limit_s=limit))
    if output.status is None:
        body = {"status": "error", "message": "Execution timeout: Code took too long to execute", "output": None}
        return web.json_response({**body, "error": "TimeoutExpired", "need_more": False}, status=500)
    error = output.stderr
    if output.status and not error:
        error = f"Process exited with code {output.status}"
    return web.json_response(
        {
            "status": "error" if output.status else "success",
            "message": "\n".join(filter(None, (output.stdout, error))),
            "need_more": False,
            "output": output.stdout,
            "error": error,
            "return_code": output.status,
        }
    )


async def _run_bash_script(request: web.Request) -> web.Response:
    service, data = request.app[SERVICE], await json_object(request)
    script = text_field(data, "script")
    limit = seconds_field(data, "timeout", 100.0, SCRIPT_LIMIT_S)
    folder = None
    if data.get("working_dir"):
        folder = files.expanded(text_field(data, "working_dir"), service.session.place)
    service.commands_allowed()
    merged = f"exec 2>&1\n{script}"  # both outputs are one there
    output = await service.on_guest(
        commands.run_script(service.session, ["/bin/bash"], merged, limit_s=limit, folder=folder)
    )
    if output.status is None:
        text = f"Script execution timed out after {limit:g} seconds"
        return web.json_response({"status": "error", "output": text, "error": "", "returncode": -1}, status=500)
    text = output.stdout + output.stderr
    status = "error" if output.status else "success"
    return web.json_response({"status": status, "output": text, "error": "", "returncode": output.status})


async def _launch(request: web.Request) -> web.Response:
    service, data = request.app[SERVICE], await json_object(request)
    if not service.permissions.commands:
        raise NotAllowed("this server starts no programs")
    argv = _command(data, service)
    instead = debugged(argv) if service.permissions.browser else None
    try:
        if not (service.permissions.browser and forwards(argv)):
            await service.on_guest(service.session.run(instead or argv, debugged=instead is not None))
    except NoSuchThing as error:
        raise Failed(str(error)) from None
    return web.Response(text=f"{' '.join(argv)} launched successfully")


async def _open_file(request: web.Request) -> web.Response:
    """Opens a file with its program, or starts a program, and waits for its window."""
    service, limit = request.app[SERVICE], request.app[SETTINGS].window
    path = text_field(await json_object(request), "path")
    if not service.permissions.commands:
        raise NotAllowed("this server starts no programs")
    place = service.session.place
    full = files.expanded(path, place)
    is_file = "/" in path
    if is_file and service.session.terminal_offered:
        there = await service.on_guest(commands.run(service.session, ["test", "-e", str(full)], limit_s=VERIFY_S))
        if there.status != 0:
            raise NoSuchThing(f"Application/file not found: {path}")
    argv = ["xdg-open", str(full)] if is_file else [path]
    name = full.name if is_file else PurePosixPath(path).name
    await service.on_guest(service.session.run(argv))
    end = time.monotonic() + limit
    while True:
        for wanted in dict.fromkeys((name, PurePosixPath(name).stem)):
            if await service.call(partial(activate, wanted, {})):
                return web.Response(text="File opened and window activated successfully")
        if time.monotonic() > end:
            raise Failed(f"Failed to find window for {name} within {limit:g} seconds.")
        await asyncio.sleep(POLL_S)


def activate(name: str, how: dict[str, bool], executor: Any) -> bool:
    """Gives a window the focus, in the executor's thread. Whether there is one of this name."""
    window = executor.windows.find(name, **how)
    if window is not None:
        executor.windows.focus(window)
    return window is not None
