"""The line of a command's output that tells best why it failed."""

from __future__ import annotations

import re
from typing import Final

from launcher.runtime.verdict import how

MOST: Final = 300  # characters
# torchrun's log: a letter for the level, the date, the time, its own process, then its file
_TORCHRUN: Final = re.compile(r"[A-Z]\d{4} [\d:.]+ (?P<process>\d+) torch/distributed/elastic/\S+\] (?P<said>.*)")
_FAILED: Final = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")


def last_line(text: str) -> str:
    """The last line that is not empty. Where torchrun ends with its report, which does not say why: which of its
    processes failed, and the line before torchrun's own."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    if not lines:
        return ""
    return (_of_torchrun(lines) or lines[-1])[:MOST]


def inner_code(text: str) -> int | None:
    """The exit code of the process that failed first, where the output ends with torchrun's report."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    failed = _failed(lines)
    return int(failed[0]) if failed is not None else None


def _of_torchrun(lines: list[str]) -> str:
    failed = _failed(lines)
    if failed is None:
        return ""
    code, rank, before = failed
    return f"local rank {rank} {how(int(code))}{before}"


def _failed(lines: list[str]) -> tuple[str, str, str] | None:
    """Of the process that torchrun says failed first: its exit code, its local rank, what was printed before torchrun
    spoke. None where the lines do not end with torchrun's report."""
    if not lines or set(lines[-1]) != {"="}:
        return None
    own = {number: found for number, line in enumerate(lines) if (found := _TORCHRUN.match(line))}
    failed = next((found for found in reversed(own.values()) if _FAILED.match(found["said"])), None)
    if failed is None:
        return None
    code, rank = _FAILED.match(failed["said"]).groups()  # type: ignore[union-attr]
    first = next(number for number, found in own.items() if found["process"] == failed["process"])
    return code, rank, f": {lines[first - 1]}" if first else ""
