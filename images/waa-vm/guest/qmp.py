"""QEMU's monitor protocol over its unix socket: commands, their errors, and jobs that report their end."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4


class MonitorError(Exception):
    """What QEMU answered in place of a result, or that it does not answer any more."""


class Monitor:
    """One connection. Not for several threads at once: the caller holds a lock.

    restarts  how often the guest restarted itself, as far as the answers read so far tell
    shut_down the guest shut itself down. QEMU ends with the code 0 after a signal, too, and a signal is no shutdown
    """

    def __init__(self, path: Path, timeout: float = 10.0) -> None:
        self.timeout = timeout
        self.restarts = 0
        self.shut_down = False
        deadline = time.monotonic() + timeout
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            try:
                self.socket.connect(str(path))
                break
            except OSError as error:
                self.socket.close()
                if time.monotonic() > deadline:
                    raise MonitorError(f"no monitor at {path}: {error}") from None
                time.sleep(0.05)
        self.stream = self.socket.makefile("rwb")
        self._read()  # the greeting
        self.execute("qmp_capabilities")

    def close(self) -> None:
        self.stream.close()
        self.socket.close()

    def _read(self) -> dict[str, Any]:
        try:
            line = self.stream.readline()
        except OSError as error:
            raise MonitorError(f"QEMU does not answer: {error}") from None
        if not line:
            raise MonitorError("QEMU closed its monitor")
        message: dict[str, Any] = json.loads(line)
        return message

    def execute(self, command: str, **arguments: Any) -> Any:
        """The command's result. Raises MonitorError."""
        request = {"execute": command, "arguments": arguments} if arguments else {"execute": command}
        try:
            self.stream.write(json.dumps(request).encode() + b"\n")
            self.stream.flush()
        except OSError as error:
            raise MonitorError(f"QEMU does not listen: {error}") from None
        while True:
            message = self._read()
            if "error" in message:
                raise MonitorError(f"{command}: {message['error'].get('desc', message['error'])}")
            if "return" in message:
                return message["return"]
            self._note(message)  # everything else on the way is an event

    def _note(self, event: dict[str, Any]) -> None:
        reason = event.get("data", {}).get("reason")  # others: a signal, a command of this monitor, a panic
        if event["event"] == "RESET" and reason == "guest-reset":
            self.restarts += 1
        elif event["event"] == "SHUTDOWN" and reason == "guest-shutdown":
            self.shut_down = True

    def drain(self) -> None:
        """Reads the events that are left, up to the end: for a QEMU that has ended."""
        with suppress(MonitorError, ValueError):  # ValueError: QEMU was killed while it wrote a line
            while True:
                self._note(self._read())

    def job(self, command: str, timeout: float, **arguments: Any) -> None:
        """A command that starts a job (snapshots do), until the job is over. Raises MonitorError.

        While QEMU writes a guest's memory it answers nothing at all: an answer, too, may take as long as the job.
        """
        self.socket.settimeout(timeout)
        try:
            self._job(command, timeout, arguments)
        finally:
            self.socket.settimeout(self.timeout)

    def _job(self, command: str, timeout: float, arguments: dict[str, Any]) -> None:
        name = f"{command}-{uuid4().hex[:8]}"
        self.execute(command, **{"job-id": name}, **arguments)
        deadline = time.monotonic() + timeout
        while True:
            found = next((job for job in self.execute("query-jobs") if job["id"] == name), None)
            if found is None:
                return
            if found["status"] == "concluded":
                self.execute("job-dismiss", id=name)
                if "error" in found:
                    raise MonitorError(f"{command}: {found['error']}")
                return
            if time.monotonic() > deadline:
                raise MonitorError(f"{command} is not over after {timeout:.0f} s")
            time.sleep(0.02)
