"""The monitor's process: one thread for each store that follows it, one that asks backends, and the server."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvicorn

from launcher.errors import BadInput
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import run_id
from launcher.monitor.server.app import application
from launcher.monitor.server.entry import EntryCodes
from launcher.monitor.server.exposition import MetricsServer, exposed
from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.pages.monitor_pages import MonitorPages
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.security import ENTER
from launcher.monitor.server.stream import Hub
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.monitor.tables import identify
from launcher.spec.profile import Profile
from launcher.store.base import Store

HOST: Final = "127.0.0.1"
GRACE: Final = 2  # seconds for the last requests when the server ends


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the database and the token are, readable by their owner only."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "monitor"


def kept_token(folder: Path) -> str:
    """The token of this user's monitor: made once, so that an open page goes on when the monitor starts again."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "token"
    made = folder / f"token.{secrets.token_hex(8)}"
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    with suppress(FileExistsError):  # complete, or another's: two that start at once have the same
        path.hardlink_to(made)
    made.unlink()
    path.chmod(0o600)
    return path.read_text().strip()


def serve(
    stores: Sequence[Store],
    profile: Profile,
    database: str,
    port: int,
    *,
    codes: EntryCodes,
    changes: Mapping[str, Callable[[Store, str], str]],
    ready: Callable[[str], None],
    said: Callable[[str], None],
    metrics: str = "",
    behind: str = "",
    token: str = "",
) -> None:
    """Serves until SIGINT or SIGTERM. `ready` gets, once requests are answered, the address that a code of `codes`
    makes whole; `said` gets what a person should know. `metrics`: HOST:PORT where Prometheus reads numbers; `behind`:
    the name under which a proxy on this machine serves the pages; `token`: that of the pages, else the user's. Raises
    BadInput for a port in use, SlipwayError for a database that cannot be used.
    """
    listening = listen(port)
    port = listening.getsockname()[1]
    engine = open_database(database)
    token = token or kept_token(state_folder())
    hub, queries = Hub(), Queries(engine)
    followers = [StoreFollower(engine, store, _teller(hub, store)) for store in stores]
    by_url = {store.url: store for store in stores}
    waiting = WaitingReasons(queries, by_url, profile, hub.changed)
    desktops = LiveDesktops(profile)
    pages = MonitorPages(queries, hub, by_url, waiting, profile.prices, changes, desktops)
    address = f"http://{HOST}:{port}{ENTER}?code="
    # no access log: it would hold the codes
    config = uvicorn.Config(
        application(pages, token, codes, port, behind), lifespan="off", log_level="error", access_log=False,
        log_config=None, server_header=False, timeout_graceful_shutdown=GRACE, ws="none", http="h11", loop="asyncio",
    )  # fmt: skip
    server = _Server(config, lambda: ready(address), hub.close)
    threads = [threading.Thread(target=one.follow, args=(said,), daemon=True) for one in followers]
    threads.append(threading.Thread(target=waiting.follow, daemon=True))
    numbers = MetricsServer(metrics, exposed(queries, followers)) if metrics else None
    for thread in threads:
        thread.start()
    try:
        server.run(sockets=[listening])
    finally:
        for follower in followers:
            follower.stop()
        waiting.stop()
        desktops.stop()
        if numbers is not None:
            numbers.stop()
        for thread in threads:
            thread.join(5.0)
        engine.dispose()


def listen(port: int) -> socket.socket:
    """The socket on the loopback address. Raises BadInput if something else listens there."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise BadInput(f"--port {port}: {error.strerror}; another monitor may run. --port 0 takes a free one") from None
    made.listen(128)
    made.set_inheritable(False)
    return made


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._closing = ready, closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing()
        await super().shutdown(sockets)


def _teller(hub: Hub, store: Store) -> Callable[[str], None]:
    key = identify("store", store.url)
    return lambda run: hub.changed(run_id(key, run))
