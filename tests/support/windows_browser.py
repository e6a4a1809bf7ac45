"""A real browser that stands for the one of a Windows guest: its debugging port, and a web that is one page."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.http_thread import answering


@contextlib.contextmanager
def guest_browser(page: str) -> Iterator[int]:
    """The port of a browser for which every address of the web shows `page`."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="guest-browser-")))
        web = stack.enter_context(_web(page, folder))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        browser = shutil.which("chromium") or "google-chrome"
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        command += [f"--remote-debugging-port={port}", "--ignore-certificate-errors", "--no-first-run"]
        command += [f"--host-resolver-rules=MAP * 127.0.0.1:{web}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/version") as answer:
                    json.load(answer)
                break
            if time.monotonic() > end:
                raise TimeoutError("the browser opened no port")
            time.sleep(0.1)
        yield port


@contextlib.contextmanager
def _web(page: str, folder: Path) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<title>{self.headers.get('Host')}</title>{page}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing is printed."""

    key, name = folder / "key.pem", folder / "name.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=web", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(name)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(name, key)
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.socket = context.wrap_socket(http.socket, server_side=True)
    with answering(http) as port:
        yield port
