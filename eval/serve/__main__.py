"""Serves desktops to other programs: `python -m eval.serve PROTOCOL --config FILE`.

mcp serves the client that started it by standard input and output, or many with --listen by streamable HTTP; openenv
serves by WebSocket, ors by HTTP. What is done is recorded in --out, as an evaluation's results are.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eval import config as configuration
from eval.config import ConfigError
from eval.config import help as config_help
from eval.config.strict import with_lines
from eval.desktop import SetupFailed
from eval.desktops.server.tokens import given_token
from eval.serve.config import ServeConfig

if TYPE_CHECKING:
    from eval.serve.sessions import ClientSessions

TOKEN_VARIABLE: Final = "SERVE_TOKEN"
PROTOCOLS: Final = ("mcp", "openenv", "ors")
DEFAULT: Final = "127.0.0.1:8000"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = config_help.parser("eval.serve", "Serve desktops to other programs, as tasks or as they are.", ServeConfig)
    out.add_argument("protocol", choices=PROTOCOLS, help="what clients speak")
    out.add_argument("--out", help="where episodes and records go; default $SLIPWAY_OUTPUTS/results")
    out.add_argument(
        "--listen",
        type=_listen,
        metavar="WHERE",
        help=f"unix:/PATH or HOST:PORT, 0 for a free port; default {DEFAULT}, and for mcp standard input and output",
    )
    out.add_argument("--token-file", metavar="FILE", help=f"the token that clients send; without it ${TOKEN_VARIABLE}")
    return out


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text.startswith("unix:/") or (colon and host and port.isdecimal() and int(port) < 65536):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither unix:/PATH nor HOST:PORT")


@contextlib.asynccontextmanager
async def _told_to_end() -> AsyncIterator[asyncio.Event]:
    """Set at SIGTERM and SIGINT."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    yield asked


async def serve(protocol: str, config: ServeConfig, out: Path, listen: str | None, token: str) -> None:
    """Until it is told to end, or with standard input until that ends. Raises ConfigError."""
    from eval.serve.sessions import ClientSessions

    with _alone(out):
        sessions = ClientSessions(config, out)
        async with _told_to_end() as asked, contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(sessions.close)
            if listen is None:
                await _standard_streams(sessions, asked)
                return
            from eval.desktops.server.app import listening
            from eval.serve import mcp_http, openenv, ors

            faces = {"mcp": mcp_http.make_app, "openenv": openenv.make_app, "ors": ors.make_app}
            local = listen.startswith("unix:")
            loopback = listen.rpartition(":")[0].strip("[]") in LOOPBACK
            app = faces[protocol](sessions, None if local else token, loopback=loopback)
            try:
                address = await stack.enter_async_context(listening(app, listen))
            except OSError as error:
                raise ConfigError(f"cannot listen on {listen}: {error.strerror or error}") from None
            print(f"listening on {address}", flush=True)
            await asked.wait()


async def _standard_streams(sessions: ClientSessions, asked: asyncio.Event) -> None:
    """Serves the client at standard input until it ends, or the server is told to."""
    from eval.serve import mcp

    serving = asyncio.create_task(mcp.serve(sessions, mcp.own_output()))
    ended = asyncio.create_task(asked.wait())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, ended):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """While it is open, no other server records into the folder. Raises ConfigError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".serving").open("w")
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"--out {out}: another server records there; name another folder") from None
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 told to end, 1 the tasks' server is not there, 2 wrong arguments, 78 a wrong configuration."""
    arguments = parser().parse_args(argv)

    def run() -> int:
        with with_lines(Path(arguments.config)):
            config = configuration.load(Path(arguments.config), ServeConfig)
            config.check()
        listen = arguments.listen or (None if arguments.protocol == "mcp" else DEFAULT)
        token = given_token(arguments.token_file, TOKEN_VARIABLE)
        if listen is not None and not listen.startswith("unix:") and not token:
            raise ConfigError(f"--listen {listen} needs a token: --token-file FILE, or ${TOKEN_VARIABLE}")
        with configuration.results_folder(arguments.out, "results") as out:
            asyncio.run(serve(arguments.protocol, config, out, listen, token))
        return 0

    return configuration.run(run, needs=("PIL", "aiohttp"), failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
