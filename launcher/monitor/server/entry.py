"""How a browser gets in. The kept token never stands in an address: addresses stay in histories, and the arguments of a
program, a browser's too, can be read by every user of the machine. An address holds a code instead, and the browser
that is started gets a file that holds one."""

from __future__ import annotations

import hmac
import os
import secrets
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Final

from launcher.spec.code.own_files import MARK

ONCE_LASTS: Final = 60.0  # seconds
_PAGE: Final = "slipway-monitor-"
_HTML: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{mark}
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={address}">
<title>Slipway</title></head><body><p><a href="{address}">Open the monitor</a></p></body></html>
"""


class EntryCodes:
    """The codes of one start of the monitor. `lasting` is good as often as it is given, until the monitor ends: a
    person reads it in the terminal. Those of `once()` are good once, and for a minute."""

    def __init__(self) -> None:
        self.lasting = secrets.token_urlsafe(24)
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def once(self) -> str:
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._until[code] = time.monotonic() + ONCE_LASTS
        return code

    def take(self, given: str) -> bool:
        """Whether this code opens the pages. One of `once()` opens nothing afterwards."""
        told = given.encode("utf-8", "replace")
        with self._lock:
            found = next((code for code in self._until if hmac.compare_digest(code.encode(), told)), None)
            good = found is not None and self._until.pop(found) > time.monotonic()
        return good or hmac.compare_digest(told, self.lasting.encode())


@contextmanager
def opened_in_browser(address: str) -> Iterator[None]:
    """Opens the user's browser at an address that only this user may know, by a file that redirects to it. The file is
    removed after a minute, at the latest when the context ends. Without a browser, or a folder for the file, nothing
    happens."""
    folder = _readable_folder()
    _remove_old(folder)
    page = folder / f"{_PAGE}{secrets.token_hex(8)}.html"
    remove = threading.Timer(ONCE_LASTS, partial(page.unlink, missing_ok=True))
    remove.daemon = True
    try:
        with suppress(OSError):
            with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(_HTML.format(mark=MARK, address=escape(address)))
            webbrowser.open(page.as_uri())
            remove.start()
        yield
    finally:
        remove.cancel()
        page.unlink(missing_ok=True)


def _readable_folder() -> Path:
    """Where a browser in a sandbox can read: Flatpak's see the downloads, Snap's what is not hidden in the home."""
    home = Path(os.environ.get("HOME") or Path.home())
    downloads = home / "Downloads"
    return downloads if downloads.is_dir() else home


def _remove_old(folder: Path) -> None:
    """Removes what monitors left that were killed."""
    with suppress(OSError):
        for page in folder.glob(f"{_PAGE}*.html"):
            if time.time() - page.stat().st_mtime > ONCE_LASTS:
                page.unlink()
