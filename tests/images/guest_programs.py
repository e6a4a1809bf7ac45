"""`python -m guest` in the tests: how its modules are importable, and programs that stand in for QEMU's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import ROOT
from tests.support.waiting import HANGS, until

FOLDER = ROOT / "images" / "waa-vm"
PYTHONPATH = f"{ROOT}:{FOLDER.parent}:{FOLDER}"

# A guest that is installed. It writes down what it was started with and what it is asked for, and does what files in
# its folder say: `read` and `written` are bytes, `restarts` a number, and with `shut down` it ends by itself. As QEMU
# 7.2 does (seen), it ends with the code 0 after SIGTERM, and only its event tells that from a shutdown of the guest.
QEMU = """\
#!{python}
import json, os, pathlib, signal, socket, sys, threading, time
folder = pathlib.Path({folder!r})
(folder / "argv.json").write_text(json.dumps(sys.argv[1:]))
path = sys.argv[sys.argv.index("-qmp") + 1].removeprefix("unix:").partition(",")[0]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
stream = listener.accept()[0].makefile("rwb", buffering=0)
def send(message):
    stream.write(json.dumps(message).encode() + b"\\n")
def number(name):
    file = folder / name
    return int(file.read_text() or 0) if file.exists() else 0
def end(reason):
    send({{"event": "SHUTDOWN", "data": {{"guest": reason.startswith("guest"), "reason": reason}}}})
    os._exit(0)
def watch():
    while not (folder / "shut down").exists():
        time.sleep(0.02)
    end("guest-shutdown")
signal.signal(signal.SIGTERM, lambda *_: end("host-signal"))
send({{"QMP": {{}}}})
threading.Thread(target=watch, daemon=True).start()
restarts = 0
for line in stream:
    request = json.loads(line)
    with (folder / "asked").open("a") as file:
        file.write(request["execute"] + "\\n")
    while restarts < number("restarts"):
        restarts += 1
        send({{"event": "RESET", "data": {{"guest": True, "reason": "guest-reset"}}}})
    answer = {{"status": "running"}}
    if request["execute"] == "query-blockstats":
        stats = {{"medium0": (number("read"), 0), "disk": (0, number("written"))}}
        answer = [
            {{"node-name": name, "stats": {{"rd_bytes": read, "wr_bytes": written}}}}
            for name, (read, written) in stats.items()
        ]
    send({{"return": answer}})
    if request["execute"] == "system_powerdown":
        (folder / "shut down").touch()
"""
IMAGE_TOOL = """\
#!{python}
import pathlib, sys
pathlib.Path(next(word for word in sys.argv if word.endswith("qcow2") and "/" in word)).write_bytes(b"QFI")
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`guest` and `role` as they are importable in the image."""
    for folder in (FOLDER.parent, FOLDER):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("guest", "role")]:
        del sys.modules[name]


def environment(folder: Path) -> dict[str, str]:
    """Of `python -m guest` whose files lie in `folder`."""
    return {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "SLIPWAY_READY_FILE": str(folder / "ready"),
        "TMPDIR": str(folder),
        "SLIPWAY_PORT_HTTP": "0",
    }


class Installing:
    """`python -m guest` with `install`, on programs that stand in for QEMU's."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.disk = folder, folder / "made" / "disk.qcow2"
        programs = folder / "bin"
        for needed in (programs, self.disk.parent, folder / "answers"):
            needed.mkdir()
        (folder / "windows.iso").touch()
        for name, text in (("qemu-system-x86_64", QEMU), ("qemu-img", IMAGE_TOOL)):
            (programs / name).write_text(text.format(python=sys.executable, folder=str(folder)))
            (programs / name).chmod(0o755)
        install = {"media": [str(folder / "windows.iso")], "answers": str(folder / "answers")}
        given = {"disk": str(self.disk), "install": install, "accelerator": "emulation", "boot": 0.001, **settings}
        (folder / "config.json").write_text(json.dumps({**given, "in_memory": True}))
        self.environment = environment(folder) | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def start(self) -> subprocess.Popen[str]:
        """In a process group of its own, as a container's processes are."""
        for name in ("asked", "argv.json", "shut down"):
            (self.folder / name).unlink(missing_ok=True)
        command = [sys.executable, "-m", "guest", "--config", str(self.folder / "config.json")]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def guest(self, **numbers: int) -> None:
        """What the guest has read, written, and how often it has restarted itself."""
        for name, number in numbers.items():
            temporary = self.folder / f"{name}.new"
            temporary.write_text(str(number))
            temporary.replace(self.folder / name)

    def asked(self) -> list[str]:
        """The monitor's commands since the last start."""
        file = self.folder / "asked"
        return file.read_text().split() if file.exists() else []

    def looks_again(self) -> None:
        """Waits until the guest was looked at after now, and that look was acted upon."""
        before = self.asked().count("query-blockstats")
        until(lambda: self.asked().count("query-blockstats") > before + 1)

    def mark(self) -> dict[str, Any] | None:
        """What the file beside the disk says; None: there is none."""
        file = self.disk.with_name("disk.qcow2.installing")
        mark: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return mark


def said(process: subprocess.Popen[str], end: signal.Signals | None = None) -> str:
    """What it printed up to its end; `end` is sent to its whole process group first."""
    try:
        if end is not None:
            os.killpg(process.pid, end)
        text, _ = process.communicate(timeout=HANGS)
        return text
    finally:
        process.kill()


def free_ports(number: int) -> list[int]:
    """TCP ports that nobody has at the moment, each another."""
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(number)]
