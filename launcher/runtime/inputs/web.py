"""http:// and https:// : one file. A connection that breaks is taken up where it broke, when the server can and the
file is still the same."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from launcher.reasons import Reason
from launcher.runtime.folders import remove
from launcher.runtime.inputs import Fetch, sha256_file

TRIES: Final = 6  # in a row without a new byte
_PASSING: Final = {408, 425, 429}
_CHUNK: Final = 1 << 20


def fetch(one: Fetch) -> str:
    part = one.dest.with_name(f".{one.dest.name}.part")
    remove(part)
    download = _Download(one, part)
    tries, pause = 0, 0.5
    while True:
        before = download.size
        try:
            if download.go_on():
                break
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in _PASSING:
                raise one.missing(f"{one.spec.url}: HTTP {error.code} {error.reason}") from None
            problem = f"HTTP {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and not isinstance(error, urllib.error.URLError) and error.filename:
                raise  # of the local disk
            problem = str(getattr(error, "reason", None) or error or type(error).__name__)
        else:
            problem = f"the connection ended after {download.size} bytes"
        tries = 1 if download.size > before else tries + 1
        one.check()
        if tries >= TRIES:
            raise one.fault(Reason.INFRASTRUCTURE, f"{one.spec.url}: {problem}")
        time.sleep(min(pause * 2**tries, 8.0) if download.size == before else 0.0)
    digest = sha256_file(part)
    remove(one.dest)
    part.replace(one.dest)
    return digest


class _Download:
    def __init__(self, one: Fetch, part: Path) -> None:
        self.size = 0
        self._one = one
        self._part = part
        self._validator = ""  # ties a continuation to the same bytes

    def go_on(self) -> bool:
        """Reads until the connection ends; whether the file is whole."""
        assert self._one.spec.url is not None
        request = urllib.request.Request(self._one.spec.url, headers={"User-Agent": "slipway"})
        if self.size and self._validator:
            request.add_header("Range", f"bytes={self.size}-")
            request.add_header("If-Range", self._validator)
        with urllib.request.urlopen(request, timeout=self._one.context.address.tuning.connect) as answer:
            if answer.status != 206:
                self.size = 0  # from the beginning: the first time, or the file is another now
            etag = answer.headers.get("ETag", "")
            self._validator = answer.headers.get("Last-Modified", "") if etag[:2] in ("", "W/") else etag
            length = answer.headers.get("Content-Length")
            total = None if length is None else self.size + int(length)
            with self._part.open("r+b" if self.size else "wb") as file:
                file.seek(self.size)
                while chunk := answer.read1(_CHUNK):
                    file.write(chunk)
                    self.size += len(chunk)
                    self._one.progress(self.size, total or self.size)
            return total is None or self.size >= total
