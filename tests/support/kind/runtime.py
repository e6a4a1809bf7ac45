#!/usr/bin/env python3
"""runc for a machine whose root has not every capability.

`docker run --privileged`, with which kind starts its node, asks for all of them, and runc then ends with "unable to
apply caps: operation not permitted". This program takes out of the container's description what the process itself
has not, and becomes runc. dockerd is told of it with `--add-runtime`.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

RUNC = "/usr/sbin/runc"
# by number, as in linux/capability.h
# fmt: off
NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)
# fmt: on


def missing(status: str) -> set[str]:
    """The capabilities that a process cannot have, from its /proc/PID/status.

    >>> sorted(missing("Name: x\\nCapBnd:\\t000001fffeffffff\\n"))
    ['CAP_SYS_RESOURCE']
    """
    (bound,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd"))
    return {f"CAP_{name}" for number, name in enumerate(NAMES) if not bound >> number & 1}


def reduce(process: dict[str, Any], without: set[str]) -> None:
    """Takes capabilities from an OCI process."""
    capabilities = process.get("capabilities") or {}
    for kind, names in capabilities.items():
        capabilities[kind] = [name for name in names if name not in without]


def main() -> None:
    arguments = sys.argv[1:]
    without = missing(Path("/proc/self/status").read_text())
    for before, word in pairwise(arguments):
        if before in ("--bundle", "-b"):  # create, run
            file = Path(word, "config.json")
        elif before in ("--process", "-p"):  # exec
            file = Path(word)
        else:
            continue
        if file.is_file():
            description = json.loads(file.read_text())
            reduce(description.get("process", description), without)
            file.write_text(json.dumps(description))
    os.execv(RUNC, ["runc", *arguments])


if __name__ == "__main__":
    main()
