"""An HTTP server that answers in a thread while a block runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer


@contextlib.contextmanager
def answering(server: ThreadingHTTPServer) -> Iterator[int]:
    """Its port. The server is closed with the block."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
