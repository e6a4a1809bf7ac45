"""An S3 server, unsigned and in memory, whose conditional puts are broken the way real ones were found to be."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


@contextmanager
def broken_s3(how: str) -> Iterator[str]:
    """Its endpoint. `how`: "ignores" the condition, or "looks" first and writes then, which only a race shows."""
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # one packet for head and body

        def answer(self, status: int, body: bytes = b"", etag: bytes | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if etag is not None:
                self.send_header("ETag", f'"{hashlib.md5(etag).hexdigest()}"')
                self.send_header("Last-Modified", self.date_time_string())
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if how == "looks" and self.headers.get("If-None-Match") == "*":
                if self.path in objects:
                    return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                time.sleep(0.02)
            objects[self.path] = body
            return self.answer(200, etag=body)

        def do_GET(self) -> None:
            bucket, _, query = self.path.partition("?")
            if "list-type=2" in query:
                prefix = parse_qs(query).get("prefix", [""])[0]
                keys = sorted(key.removeprefix(f"{bucket}/") for key in objects)
                below = sorted({key for key in keys if key.startswith(prefix)})
                if "delimiter=" in query:
                    found = sorted({prefix + key.removeprefix(prefix).partition("/")[0] + "/" for key in below})
                    folders = "".join(f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in found)
                    return self.answer(200, f"<ListBucketResult>{folders}</ListBucketResult>".encode())
                items = "".join(
                    f"<Contents><Key>{key}</Key><Size>{len(objects[f'{bucket}/{key}'])}</Size>"
                    '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag></Contents>'
                    for key in below
                )
                return self.answer(200, f"<ListBucketResult>{items}</ListBucketResult>".encode())
            if self.path not in objects:
                return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return self.answer(200, objects[self.path], etag=objects[self.path])

        do_HEAD = do_GET

        def do_POST(self) -> None:  # ?delete
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            keys = re.findall(r"<Key>([^<]*)</Key>", body)
            for key in keys:
                objects.pop(f"{self.path.partition('?')[0]}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self.answer(200, f'<?xml version="1.0"?><DeleteResult>{deleted}</DeleteResult>'.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
