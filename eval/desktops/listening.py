"""Where a process waits for others: what a program really listens on, whatever its options promise.

Debian's x11vnc listens on every IPv6 address of the machine although `-rfbport 0 -no6` says that it does not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENS: Final = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}  # table -> state in it (tcp_states.h)
_ACCEPTS: Final = 1 << 16  # a Unix socket's flag __SO_ACCEPTCON


def listening(processes: Iterable[int]) -> set[str]:
    """The addresses on which these processes take connections or datagrams: `127.0.0.1:80`, `[::]:5900`, `unix:/PATH`,
    and `unix:@NAME` for one of the abstract namespace. A process that has ended has none. Raises PermissionError for
    another user's process."""
    found: set[str] = set()
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= _of(Path("/proc", str(process)))
    return found


def processes_with(word: str) -> list[int]:
    """Processes in whose arguments a word stands."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if word.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def _of(process: Path) -> set[str]:
    mine = set()
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                mine.add(target[8:-1])
    found = set()
    for table, state in _LISTENS.items():
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == state and words[9] in mine:
                    found.add(_address(words[1]))
    for line in (process / "net" / "unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        if int(words[3], 16) & _ACCEPTS and words[6] in mine and len(words) > 7:
            found.add(f"unix:{words[7]}")
    return found


def _address(text: str) -> str:
    """The kernel's form: words of four bytes, each in the machine's order, then the port."""
    digits, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(raw)
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"
