"""The HTTP port beside the guest.

GET  /health          this process lives
GET  /ready           200 while the guest's own server answers
GET  /screenshot.png  the screen as QEMU sees it, also when the guest hangs
GET  /console         the serial console's last lines
GET  /state           boots and resets so far, seconds each; the forwarded ports
POST /reset           back to the snapshot; 200 with the seconds, 500 with the reason when that failed
GET  /vnc/            noVNC, connected to the guest's screen
"""

from __future__ import annotations

import json
import mimetypes
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from guest.machine import GuestError, Machine

NOVNC: Final = Path("/usr/share/novnc")


class Control(BaseHTTPRequestHandler):
    machine: Machine

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._text(200, "alive\n")
        elif path == "/ready":
            self._ready()
        elif path == "/screenshot.png":
            self._screenshot()
        elif path == "/console":
            self._text(200, "\n".join(self.machine.console(1000)) + "\n")
        elif path == "/state":
            machine = self.machine
            state = {"ready": _healthy(machine), "boots": machine.boots, "resets": machine.resets}
            self._send(200, "application/json", json.dumps({**state, "ports": machine.ports}).encode())
        elif path == "/vnc/":
            host = (self.headers.get("Host") or "localhost").rpartition(":")[0] or "localhost"
            query = f"autoconnect=true&resize=scale&path=&host={host}&port={self.machine.display.web}"
            self.send_response(302)
            self.send_header("Location", f"/vnc/vnc.html?{query}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.startswith("/vnc/"):
            self._file(path.removeprefix("/vnc/"))
        else:
            self._text(404, __doc__ or "")

    def do_POST(self) -> None:
        if self.path != "/reset":
            self._text(404, __doc__ or "")
            return
        try:
            self._text(200, f"{self.machine.reset():.3f}\n")
        except GuestError as error:
            self._text(500, f"{error}\n")

    def _ready(self) -> None:
        ready = _healthy(self.machine)
        self._text(200 if ready else 503, "ready\n" if ready else "not ready\n")

    def _screenshot(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            try:
                self.machine.screenshot(Path(file.name))
            except GuestError as error:
                self._text(503, f"{error}\n")
                return
            self._send(200, "image/png", Path(file.name).read_bytes())

    def _file(self, name: str) -> None:
        file = (NOVNC / name).resolve()
        if not file.is_relative_to(NOVNC.resolve()) or not file.is_file():
            self._text(404, "no such file\n")
            return
        self._send(200, mimetypes.guess_type(file.name)[0] or "application/octet-stream", file.read_bytes())

    def _text(self, status: int, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", text.encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes every second are no news."""


def _healthy(machine: Machine) -> bool:
    try:
        return machine.healthy()
    except GuestError:
        return False


def listen(machine: Machine, port: int) -> ThreadingHTTPServer:
    """Serves in a thread; port 0 takes a free one."""
    server = ThreadingHTTPServer(("0.0.0.0", port), type("Bound", (Control,), {"machine": machine}))
    threading.Thread(target=server.serve_forever, name="control", daemon=True).start()
    return server
