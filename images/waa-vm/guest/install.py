"""Installs an operating system onto a guest's disk, unattended: what `install` in the configuration asks for.

The guest writes to the disk itself, and there is no deadline. A file beside the disk, NAME.installing, says that it is
not finished; a guest is never started for work from such a disk. The disk is finished when the guest shuts itself down,
or when its server answers and it obeys the power button. QEMU that ends by a signal, with the code 0, finishes nothing.

Windows' and Debian's installers first copy a system onto the disk, and then restart the machine from it. What was cut
off before that restart begins anew, with an empty disk: no installer goes on in the middle of its copy, and a medium
that asks for a key would get none. What was cut off after it goes on from the disk.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from guest.config import unfinished
from guest.machine import GuestError, Machine, Transferred
from guest.qmp import MonitorError

TELL: Final = 60.0  # seconds between two lines about the progress
LOADED: Final = 16 << 20  # bytes: the code that asks for a key is smaller, and every installer behind it is larger
SHUTDOWN: Final = 900.0  # seconds for an orderly shutdown, in which Windows may install what it has fetched


def run(machine: Machine) -> None:
    """Until the guest shuts itself down or its server answers; then the disk is finished. Raises GuestError,
    ConfigError."""
    config = machine.config
    assert config.install is not None
    disk, begun = Path(config.disk), time.monotonic()
    restarted = begin(disk)
    machine.launch()
    print(
        f"[guest] {'going on with' if restarted else 'installing'} {disk}, from {', '.join(config.install.media)}",
        flush=True,
    )
    told, seen, ignored = begun, Transferred(0, 0, 0), 0
    while machine.running() and not machine.stopping.is_set():
        seen = transferred(machine) or seen
        if not seen.written:
            ignored = seen.restarts  # of the firmware, which restarts the machine when its settings change
        if not restarted and seen.restarts > ignored:
            restarted = True
            note(disk, restarted)
            print("[guest] the guest restarts from its disk: a cut goes on from here", flush=True)
        if not restarted and not seen.written and seen.read < LOADED:
            # "Press any key to boot from CD or DVD" stands for five seconds. An emulated processor gets there after
            # minutes, and a question about the server's health would wait for seconds: the server comes much later.
            machine.press("spc")
        elif answers(machine):
            print("[guest] its server answers: shutting it down", flush=True)
            shut_down(machine)
            break
        if time.monotonic() - told > TELL:
            told = time.monotonic()
            minutes, size = (told - begun) / 60, disk.stat().st_blocks * 512 / 2**30
            print(f"[guest] installing for {minutes:.0f} min, {size:.1f} GiB on the disk", flush=True)
        machine.stopping.wait(1.0)
    if not machine.shut_itself_down():
        if machine.stopping.is_set():
            raise GuestError(f"told to end before {disk} was finished: start it again to go on")
        raise GuestError(
            f"QEMU ended with {machine.ended()} before {disk} was finished, and the guest had not shut itself down: "
            f"{machine.last_of_log()}"
        )
    if not restarted and not seen.written:
        raise GuestError(f"the guest shut itself down and had written nothing to {disk}: what is on the first medium?")
    unfinished(config.disk).unlink()
    print(f"[guest] installed in {(time.monotonic() - begun) / 60:.0f} min: {disk}", flush=True)


def begin(disk: Path) -> bool:
    """Marks the disk as unfinished. Has the guest of an earlier start restarted from it? What had not is removed."""
    mark = unfinished(str(disk))
    try:
        restarted = bool(json.loads(mark.read_text(encoding="utf-8")).get("restarted", True))  # without: of Slipway 0.1
    except FileNotFoundError:
        restarted = False
    except ValueError:  # of Slipway 0.1, and cut off while it was written
        restarted = True
    if disk.exists() and not restarted:
        print(f"[guest] {disk} was cut off before the guest restarted from it: beginning anew", flush=True)
        disk.unlink()
    note(disk, restarted and disk.exists())
    return restarted and disk.exists()


def note(disk: Path, restarted: bool) -> None:
    """Writes the file beside the disk, whole or not at all."""
    mark = unfinished(str(disk))
    temporary = mark.with_name(f".{mark.name}")
    temporary.write_text(json.dumps({"disk": disk.name, "restarted": restarted}) + "\n", encoding="utf-8")
    temporary.replace(mark)


def transferred(machine: Machine) -> Transferred | None:
    """None: QEMU is just ending."""
    with suppress(MonitorError):
        return machine.transferred()
    return None


def answers(machine: Machine) -> bool:
    """Does the guest's server answer? A guest that has just shut itself down does not, and has done nothing wrong."""
    try:
        return machine.healthy()
    except GuestError:
        if machine.running():
            raise
        return False


def shut_down(machine: Machine) -> None:
    """As by the power button. Raises GuestError when the guest does not obey: a disk cut off may be broken."""
    deadline = time.monotonic() + SHUTDOWN
    while machine.running():
        if time.monotonic() > deadline or machine.stopping.is_set():
            raise GuestError("the guest did not shut down: its disk is not finished")
        with suppress(MonitorError):
            machine.execute("system_powerdown")
        machine.stopping.wait(5.0)
