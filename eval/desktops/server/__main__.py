"""One desktop and its server, until it is told to end: `python -m eval.desktops.server --listen unix:PATH`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from eval.config import EXIT_CONFIG, ConfigError, need
from eval.desktop import InfraError
from eval.desktops.isolation import check_shown
from eval.desktops.server.service import DesktopService, Permissions
from eval.desktops.server.tokens import given_token
from eval.desktops.session import DesktopOptions, DesktopSession

TOKEN_VARIABLE: Final = "DESKTOP_TOKEN"
# Without these glibc gives the memory of each picture back and takes it again: fpng then needs 10 ms instead of 2.4.
# It reads them when a process starts.
MEMORY: Final = {
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
    "MALLOC_TOP_PAD_": "67108864",
}


def _screen(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and all(64 <= int(side) <= 7680 for side in (width, height))):
        raise argparse.ArgumentTypeError(f"{text!r} is not WIDTHxHEIGHT with sides from 64 to 7680")
    return int(width), int(height)


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text.startswith("unix:/") or (colon and host and port.isdecimal() and int(port) < 65536):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither unix:/PATH nor HOST:PORT")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m eval.desktops.server",
        description="Start one Linux desktop and serve it. Clients send the token as `Authorization: Bearer TOKEN`.",
    )
    out.add_argument(
        "--listen",
        type=_listen,
        action="append",
        metavar="WHERE",
        help="unix:/PATH or HOST:PORT; may come several times",
    )
    out.add_argument("--token-file", metavar="FILE", help=f"the token; without it ${TOKEN_VARIABLE}")
    out.add_argument(
        "--open-port",
        type=int,
        metavar="PORT",
        help="also listen on 127.0.0.1:PORT without a token, for clients of OSWorld as they are; refused where the "
        "desktop's programs share this machine's network",
    )
    out.add_argument("--screen", type=_screen, default=(1920, 1080), metavar="WIDTHxHEIGHT")
    out.add_argument("--network", choices=("none", "machine"), default="none", help="of the desktop's programs")
    out.add_argument("--terminal", choices=("isolated", "always"), default="isolated", help="when terminals may start")
    out.add_argument(
        "--shown",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder of this machine that the desktop's programs see, read-only, beside /usr and /etc",
    )
    out.add_argument("--opengl", action="store_true", help="offer OpenGL (GLX); it costs memory and time")
    out.add_argument("--no-commands", action="store_true", help="run no commands and start no programs for clients")
    out.add_argument(
        "--files",
        choices=("off", "home", "guest"),
        default="home",
        help="files that clients read and write: none, below the home, or all that the desktop's user may",
    )
    out.add_argument(
        "--view",
        type=int,
        metavar="PORT",
        help="show the desktop to a browser at 127.0.0.1:PORT (0: a free port); the address and the desktop's own "
        "password are in the file /tmp/desktop-view-PORT.json, for this user only",
    )
    out.add_argument("--control", action="store_true", help="with --view: the viewer's mouse and keys count")
    out.add_argument("--metrics", action="store_true", help="answer Prometheus at /metrics; it needs the token too")
    out.add_argument("--downloads", action="store_true", help="fetch URLs for clients, with this machine's network")
    return out


def _checked(arguments: argparse.Namespace) -> str:
    """The token, "" where none is needed. Raises ConfigError."""
    if not arguments.listen and arguments.open_port is None:
        raise ConfigError("nothing to listen on: give --listen or --open-port")
    if arguments.open_port is not None and not 0 <= arguments.open_port < 65536:
        raise ConfigError(f"--open-port: {arguments.open_port}; allowed: 0 to 65535")
    if arguments.view is not None and not 0 <= arguments.view < 65536:
        raise ConfigError(f"--view: {arguments.view}; allowed: 0 to 65535")
    if arguments.control and arguments.view is None:
        raise ConfigError("--control needs --view")
    check_shown(arguments.shown, "--shown")
    token = given_token(arguments.token_file, TOKEN_VARIABLE)
    if arguments.listen and not token:
        raise ConfigError(f"--listen needs a token: --token-file FILE, or ${TOKEN_VARIABLE}")
    return token


async def _serve(arguments: argparse.Namespace, token: str) -> None:
    """Until SIGTERM or SIGINT. Raises ConfigError, InfraError."""
    from eval.desktops.server.app import DesktopMetrics, listening, make_app
    from eval.desktops.viewing import start_view, write_private

    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    options = DesktopOptions(
        screen=arguments.screen,
        network=arguments.network,
        terminal=arguments.terminal,
        shown=tuple(arguments.shown),
        opengl=arguments.opengl,
    )
    permissions = Permissions(not arguments.no_commands, arguments.files, arguments.downloads)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(await DesktopSession.start(options))
        if arguments.open_port is not None and not own_network(session):
            raise ConfigError(
                "--open-port: the desktop's programs share this machine's network, and could connect to a port "
                "without a token; use --listen with a token"
            )
        if arguments.view is not None:
            view = await start_view(session, arguments.control, port=arguments.view, lasting=True)
            try:
                file = write_private(view)
            except OSError as error:
                raise ConfigError(f"--view: {error.filename}: {error.strerror}") from None
            stack.callback(file.unlink, missing_ok=True)
            print(f"shown at 127.0.0.1:{view.port}; the password is in {file}", flush=True)
        service = await DesktopService.open(session, permissions)
        stack.push_async_callback(service.close)
        numbers = DesktopMetrics() if arguments.metrics else None
        places: list[tuple[str, Any]] = [(where, token) for where in arguments.listen or ()]
        if arguments.open_port is not None:
            places.append((f"127.0.0.1:{arguments.open_port}", None))
        for where, needed in places:
            try:
                address = await stack.enter_async_context(listening(make_app(service, needed, numbers=numbers), where))
            except OSError as error:
                raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from None
            print(f"listening on {address}{'' if needed else ' without a token'}", flush=True)
        await asked.wait()


def own_network(session: DesktopSession) -> bool:
    """Whether the desktop's programs have a network of their own, from which this machine's ports are not reached."""
    return "network" in session.isolation.namespaces and session.options.network == "none"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 told to end, 1 the desktop failed, 2 wrong arguments."""
    arguments = parser().parse_args(argv)
    try:
        need("PIL", "aiohttp", "fpng", "jeepney", "xcffib")
        asyncio.run(_serve(arguments, _checked(arguments)))
    except ConfigError as error:
        print(f"eval: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except InfraError as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    parser().parse_args()  # help and wrong arguments end here: the process is replaced only to serve
    if any(os.environ.get(name) is None for name in MEMORY):
        os.execve(
            sys.executable, [sys.executable, "-m", "eval.desktops.server", *sys.argv[1:]], {**os.environ, **MEMORY}
        )
    sys.exit(main())
