"""A guest as a role of a run: `python -m guest --config $SLIPWAY_CONFIG`.

Boots the disk, keeps a snapshot of the healthy desktop, and serves until SIGTERM: the guest's forwarded ports on
$SLIPWAY_PORT_<NAME>, the controller on $SLIPWAY_PORT_HTTP (see guest.control), the screen on $SLIPWAY_PORT_VNC. A role
asks for it with

    ports: {http: 0, agent: 0, vnc: 0}
    ready: {http: /ready, port: http}

The screen is for this machine alone (127.0.0.1) unless the job has the secret VNC_PASSWORD. A guest that does not boot
ends the program with 1; its console, screenshot and QEMU's log go to $SLIPWAY_OUTPUTS/guest.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import role

from guest import install
from guest.config import Display, GuestConfig, no_kvm, scratch
from guest.control import listen
from guest.machine import GuestError, Machine


def serve(config: GuestConfig) -> int:
    """Until SIGTERM, or until the guest is gone; the exit code."""
    password = bool(os.environ.get("VNC_PASSWORD"))
    display = Display(
        "0.0.0.0" if password else "127.0.0.1", int(os.environ.get("SLIPWAY_PORT_VNC") or role.free_port()), password
    )
    config.check()
    with tempfile.TemporaryDirectory(prefix="guest-", dir=scratch(config)) as folder:
        machine = Machine(config, Path(folder), display)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: machine.stopping.set())
        control = listen(machine, int(os.environ.get("SLIPWAY_PORT_HTTP") or 8000))
        port = control.server_address[1]
        try:
            with role.ready_at(port):
                return _serve(machine, port)
        finally:
            control.shutdown()
            machine.stop()
            keep(machine)


def _serve(machine: Machine, port: int) -> int:
    how = "KVM" if machine.config.accelerated else f"an emulated processor ({no_kvm() or 'as asked'})"
    print(f"[guest] booting {machine.config.disk} on {how}; controller on port {port}", flush=True)
    try:
        if machine.config.install is not None:
            install.run(machine)
            return 0
        print(f"[guest] healthy after {machine.start():.1f} s", flush=True)
        print(f"[guest] snapshot kept in {machine.snapshot():.1f} s; screen: http://127.0.0.1:{port}/vnc/", flush=True)
        while not machine.stopping.wait(2):
            machine.healthy()  # raises when QEMU is gone; a guest that is busy for a while is none of our business
    except GuestError as error:
        if machine.stopping.is_set() and machine.config.install is None:
            print(f"[guest] ended{'' if machine.boots else ' before it was healthy'}", flush=True)
            return 0
        print(f"[guest] {error}", flush=True)
        return 1
    print("[guest] ended", flush=True)
    return 0


def keep(machine: Machine) -> None:
    """The logs, and the picture of a failure, into the run's outputs."""
    outputs = os.environ.get("SLIPWAY_OUTPUTS")
    if not outputs:
        return
    folder = Path(outputs) / "guest"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (machine.files.console, machine.files.log, machine.files.folder / "failed.png"):
        if file.is_file():
            shutil.copy(file, folder)


if __name__ == "__main__":
    sys.exit(role.main("guest", "Run a virtual machine as a role of a run.", GuestConfig, serve))
