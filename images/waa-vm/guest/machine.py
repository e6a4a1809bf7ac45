"""One virtual machine: start, health, snapshot, reset, screenshot, stop.

The golden disk stays as it is: the guest writes to an overlay beside it. When it is healthy for the first time, its
memory and disk are kept as an internal snapshot of the overlay; a reset loads that, in the time it takes to read the
memory back, and the desktop is where it was to the pixel. TCP connections into the guest do not survive a reset.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from role import free_port

from eval.config import ConfigError
from guest.config import Display, Files, GuestConfig, firmware, qemu
from guest.qmp import Monitor, MonitorError

SNAPSHOT: Final = "ready"


class GuestError(Exception):
    """The guest did not do what it must: how, what its console said last, and where the screenshot lies."""


@dataclass(frozen=True)
class Transferred:
    """
    read      bytes, from the media of an installation
    written   bytes, to the disk
    restarts  of the guest by itself, so far
    """

    read: int
    written: int
    restarts: int


class Machine:
    """`folder` takes the overlay, the sockets and the logs."""

    def __init__(self, config: GuestConfig, folder: Path, display: Display) -> None:
        config.check()
        self.config, self.files, self.display = config, Files(folder), display
        self.ports = {name: int(os.environ.get(f"SLIPWAY_PORT_{name.upper()}") or free_port()) for name in config.ports}
        self.lock = threading.RLock()
        self.stopping = threading.Event()  # set from outside: who waits for the guest gives up
        self.process: subprocess.Popen[bytes] | None = None
        self.helper: subprocess.Popen[bytes] | None = None
        self.monitor: Monitor | None = None
        self.boots: list[float] = []  # seconds, of every start and reset
        self.resets: list[float] = []

    def start(self) -> float:
        """Boots and waits until it is healthy; seconds. Raises GuestError, ConfigError."""
        begun = time.monotonic()
        self.launch()
        self.wait_healthy(self.config.boot, "boot")
        self.boots.append(time.monotonic() - begun)
        return self.boots[-1]

    def launch(self) -> None:
        """Starts QEMU, and no more. Raises GuestError, ConfigError."""
        with self.lock:
            self._prepare()
            with self.files.log.open("ab") as log:
                command = qemu(self.config, self.files, self.ports, self.display)
                self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            try:
                self.monitor = Monitor(self.files.monitor)
                if self.display.password:
                    self.monitor.execute("set_password", protocol="vnc", password=os.environ["VNC_PASSWORD"])
            except MonitorError as error:
                raise self._error(f"QEMU did not start: {self.last_of_log() or error}") from None

    def _prepare(self) -> None:
        files, config = self.files, self.config
        files.folder.mkdir(parents=True, exist_ok=True)
        disk = Path(config.disk).resolve()
        if config.install is None:
            with disk.open("rb") as file:
                backing = "qcow2" if file.read(4) == b"QFI\xfb" else "raw"
            _run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(disk), "-F", backing, str(files.overlay))
        elif not disk.exists():
            _run("qemu-img", "create", "-q", "-f", "qcow2", str(disk), config.install.size)
        if config.firmware != "bios" and not files.variables.exists():
            _, original = firmware(config)
            _run("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(original), str(files.variables))
        files.console.touch()
        files.monitor.unlink(missing_ok=True)
        if config.tpm:
            files.tpm.mkdir(exist_ok=True)
            state, control = f"dir={files.tpm}", f"type=unixio,path={files.tpm / 'socket'}"
            self.helper = subprocess.Popen(["swtpm", "socket", "--tpm2", "--tpmstate", state, "--ctrl", control])
            deadline = time.monotonic() + 10
            while not (files.tpm / "socket").exists():
                if time.monotonic() > deadline or self.helper.poll() is not None:
                    raise self._error("swtpm did not start")
                time.sleep(0.05)

    def running(self) -> bool:
        """Is there a QEMU?"""
        return self.process is not None and self.process.poll() is None

    def ended(self) -> int | None:
        """The exit code of QEMU: 0 when the guest shut itself down. None: it runs, or never did."""
        return None if self.process is None else self.process.poll()

    def shut_itself_down(self) -> bool:
        """Did the guest end QEMU by its own shutdown, and not a signal or a fault? False while QEMU runs."""
        if self.monitor is None or self.running():
            return False
        with self.lock:
            self.monitor.drain()
            return self.monitor.shut_down

    def transferred(self) -> Transferred:
        """What the guest has read and written since QEMU started. Raises GuestError, MonitorError."""
        with self.lock:
            monitor = self._monitor()
            stats = {node.get("node-name", ""): node["stats"] for node in monitor.execute("query-blockstats")}
            read = sum(stat["rd_bytes"] for name, stat in stats.items() if name.startswith("medium"))
            return Transferred(read, stats["disk"]["wr_bytes"], monitor.restarts)

    def press(self, key: str) -> None:
        """Presses a key, named as QEMU names keys. A guest that is just ending does not mind."""
        with suppress(MonitorError):
            self.execute("send-key", keys=[{"type": "qcode", "data": key}])

    def execute(self, command: str, **arguments: Any) -> Any:
        """A command of QEMU's monitor. Raises MonitorError, GuestError without a guest."""
        with self.lock:
            return self._monitor().execute(command, **arguments)

    def healthy(self) -> bool:
        """Does the guest's own server answer? Raises GuestError when QEMU is gone."""
        if self.process is None or self.process.poll() is not None:
            raise self._error("QEMU is not running" if self.process is None else f"QEMU ended: {self.last_of_log()}")
        health = self.config.health
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[health.port], timeout=health.timeout)
        try:
            connection.request("GET", health.path)
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_healthy(self, timeout: float, doing: str) -> None:
        """Raises GuestError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.healthy():
            if time.monotonic() > deadline:
                raise self._error(f"{doing}: not healthy within {timeout:g} s")
            if self.stopping.is_set():
                raise self._error(f"{doing}: told to end")
            if (status := self._status()) not in ("running", "inmigrate", "restore-vm"):
                raise self._error(f"{doing}: QEMU stopped the guest ({status}): {self.last_of_log()}")
            self.stopping.wait(0.1)

    def _status(self) -> str:
        with self.lock:
            monitor = self._monitor()
            try:
                return str(monitor.execute("query-status")["status"])
            except MonitorError as error:  # it has ended since it was looked at
                raise self._error(str(error)) from None

    def snapshot(self) -> float:
        """Keeps memory and disk as they are now, in place of what was kept before; seconds."""
        begun = time.monotonic()
        with self.lock:
            monitor = self._monitor()
            try:
                if len(self._snapshots(monitor)):
                    monitor.job("snapshot-delete", 300, tag=SNAPSHOT, devices=self._devices())
                monitor.job("snapshot-save", 600, tag=SNAPSHOT, vmstate="disk", devices=self._devices())
            except MonitorError as error:
                raise self._error(str(error)) from None
        return time.monotonic() - begun

    def reset(self) -> float:
        """Back to the snapshot, healthy; seconds. Raises GuestError: then start anew."""
        begun = time.monotonic()
        with self.lock:
            monitor = self._monitor()
            try:
                monitor.job("snapshot-load", 300, tag=SNAPSHOT, vmstate="disk", devices=self._devices())
                monitor.execute("cont")
            except MonitorError as error:
                raise self._error(str(error)) from None
        self.wait_healthy(self.config.reset, "reset")
        self.resets.append(time.monotonic() - begun)
        return self.resets[-1]

    def screenshot(self, path: Path) -> Path:
        """The guest's screen as PNG."""
        with self.lock:
            try:
                self._monitor().execute("screendump", filename=str(path), format="png")
            except MonitorError as error:
                raise GuestError(f"no screenshot: {error}") from None
        return path

    def console(self, lines: int = 40) -> list[str]:
        """The last lines of the guest's serial console."""
        try:
            return self.files.console.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def stop(self, grace: float = 5.0) -> None:
        """Ends QEMU. What the guest wrote since the snapshot is meant to be lost, so nobody waits for its shutdown."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.monitor is not None:
            self.monitor.close()
        if self.helper is not None:
            self.helper.terminate()
            self.helper.wait()
        self.process = self.helper = self.monitor = None

    def discard(self) -> None:
        """Stops it and removes everything but the logs."""
        self.stop()
        for file in (self.files.overlay, self.files.variables, self.files.monitor, self.files.screen):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.files.tpm, ignore_errors=True)

    def _monitor(self) -> Monitor:
        if self.monitor is None:
            raise self._error("the guest is not running")
        return self.monitor

    def _devices(self) -> list[str]:
        return ["disk"] if self.config.firmware == "bios" else ["disk", "variables"]

    def _snapshots(self, monitor: Monitor) -> list[object]:
        node = next(node for node in monitor.execute("query-named-block-nodes") if node["node-name"] == "disk")
        found: list[object] = node["image"].get("snapshots", [])
        return found

    def last_of_log(self) -> str:
        """The line that says why: the first of a KVM error, which is followed by registers, else the last."""
        try:
            lines = self.files.log.read_text(errors="replace").strip().split("\n")
        except OSError:
            return ""
        return next((line for line in lines if "error" in line), lines[-1])[:300]

    def _error(self, text: str) -> GuestError:
        """With what one needs to see why: the console's end, and a picture of the screen beside the logs."""
        said = "\n".join(f"  | {line}" for line in self.console(15))
        shot = ""
        with self.lock:
            if self.monitor is not None and self.process is not None and self.process.poll() is None:
                try:
                    picture = self.files.folder / "failed.png"
                    self.monitor.execute("screendump", filename=str(picture), format="png")
                    shot = f"; its screen: {picture}"
                except MonitorError:
                    shot = "; its screen could not be taken"
        return GuestError(f"{text}{shot}; its console said last:\n{said or '  | (nothing)'}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{command[0]}: {done.stderr.strip()[:300]}")
