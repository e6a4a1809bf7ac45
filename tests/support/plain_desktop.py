"""A plain desktop for tests: Xvfb with a cookie, a session bus, openbox. No isolation."""

from __future__ import annotations

import os
import secrets
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eval.desktops.display.running_desktop import RunningDesktop
from tests.support.needs import need

QUIET_GTK = "[Settings]\ngtk-enable-animations=0\ngtk-cursor-blink=0\n"


class PlainDesktop:
    """The processes of one desktop, and its RunningDesktop."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        home, runtime = folder / "home", folder / "run"
        (home / ".config/gtk-3.0").mkdir(parents=True)
        (home / ".config/gtk-3.0/settings.ini").write_text(QUIET_GTK)
        runtime.mkdir(mode=0o700)
        xauthority = folder / "xauthority"
        display = self._start_x(xauthority, size)
        bus = f"unix:path={runtime}/bus"
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DISPLAY": display,
            "XAUTHORITY": str(xauthority),
            "XDG_RUNTIME_DIR": str(runtime),
            "DBUS_SESSION_BUS_ADDRESS": bus,
            "LANG": "C.UTF-8",
            "GDK_BACKEND": "x11",
            "GSETTINGS_BACKEND": "memory",
            "GTK_MODULES": "gail:atk-bridge",
            "NO_AT_BRIDGE": "0",
        }
        self.place = RunningDesktop(display, xauthority, environ, home)
        self.start("dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={bus}")
        wait_until((runtime / "bus").exists)
        self.start("openbox", "--sm-disable")

    def _start_x(self, xauthority: Path, size: str) -> str:
        """Xvfb on a free display number, which it tells up to a newline; the cookie is for any display of any host."""
        cookie = secrets.token_bytes(16)
        xauthority.write_bytes(b"")
        read, write = os.pipe()
        # family 65535 (any host), no address, no display number: libXau takes it for every display
        entry = struct.pack(">HHH", 0xFFFF, 0, 0) + struct.pack(">H", 18) + b"MIT-MAGIC-COOKIE-1"
        xauthority.write_bytes(entry + struct.pack(">H", 16) + cookie)
        command = ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-noreset"]
        command += ["-auth", str(xauthority), "-dpi", "96"]
        with (self.folder / "log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, pass_fds=[write], stdout=log, stderr=log))
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            line = pipe.readline()
        assert line.endswith(b"\n"), (self.folder / "log").read_text()
        return f":{line.decode().strip()}"

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A program on this desktop."""
        with (self.folder / "log").open("ab") as log:
            environ = dict(self.place.environ)
            home = self.place.home
            process = subprocess.Popen(
                command, env=environ, cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """Ends the processes, the last one first, and removes the X server's socket."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(condition: object, seconds: float = 60.0) -> None:
    """Waits until a call gives something true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@contextmanager
def plain_desktop(folder: Path, size: str = "1280x800") -> Iterator[PlainDesktop]:
    """A desktop that ends with the block."""
    need("desktop")
    desktop = PlainDesktop(folder, size)
    try:
        yield desktop
    finally:
        desktop.stop()
