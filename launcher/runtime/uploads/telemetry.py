"""What a command reports while it runs (lines of $SLIPWAY_METRICS, the last line of $SLIPWAY_PROGRESS), and what it
uses of CPU, memory and GPUs.

A line of metrics is {step, name, value, time}. A malformed line is counted and skipped. A value that is not finite is
stored as null: it is worth knowing that a loss became NaN, and JSON has no NaN.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from launcher.runtime.process import procs
from launcher.runtime.secrets.credentials import is_credential
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.spool import Spool

_READ: Final = 1 << 20  # bytes; so many are read in one poll
_LINE: Final = 1 << 16  # bytes; a longer line is malformed
_TAIL: Final = 1 << 16


class Metrics:
    """Follows the metrics file and appends its valid lines, in one form, to the spool."""

    def __init__(self, path: Path, spool: Spool, masker: Masker) -> None:
        self.bad = 0
        self.step: float | None = None  # the highest step so far
        self._path = path
        self._spool = spool
        self._masker = masker
        self._offset = 0
        self._rest = b""
        self._skipping = False  # True inside a line that is too long

    def poll(self) -> bool:
        """Reads new lines, at most 1 MiB. Returns True if there may be more."""
        try:
            with self._path.open("rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0  # the file was written from its beginning again
                file.seek(self._offset)
                data = file.read(_READ)
        except OSError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._take(lines)
        if len(self._rest) > _LINE:
            self._rest = b""
            self._skipping = True
        return len(data) == _READ

    def finish(self) -> None:
        while self.poll():
            pass
        self._take([self._rest])
        self._rest = b""

    def _take(self, lines: list[bytes]) -> None:
        out = []
        for line in lines:
            if self._skipping:
                self._skipping = False
                self.bad += 1
            elif line.strip():
                try:
                    out.append(self._line(json.loads(line)))
                except (ValueError, TypeError, KeyError, RecursionError):
                    self.bad += 1
        if out:
            self._spool.append("".join(out).encode())

    def _line(self, row: Any) -> str:
        step, value, name = row["step"], row["value"], row["name"]
        if not isinstance(name, str) or isinstance(step, bool) or not math.isfinite(step):
            raise ValueError
        number = None if value is None else float(value)
        self.step = step if self.step is None else max(self.step, step)
        good = {
            "step": step,
            "name": self._masker.text(name),
            "value": number if number is not None and math.isfinite(number) else None,
            "time": float(row.get("time", time.time())),
        }
        return json.dumps(good, allow_nan=False) + "\n"


class Progress(msgspec.Struct, frozen=True):
    step: float | None = None
    total: float | None = None
    phase: str = ""
    message: str = ""


def read_progress(path: Path, masker: Masker) -> Progress | None:
    """The last line of a progress file, if it is a JSON object; None if there is none."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            return Progress(
                _number(row.get("step")),
                _number(row.get("total")),
                masker.text(str(row.get("phase") or ""))[:100],
                masker.text(str(row.get("message") or ""))[:500],
            )
    return None


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


class Usage:
    """CPUs, memory and GPUs that this process and all processes below it use."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._cpu = 0.0
        self._time = time.monotonic()
        self.peak = 0.0  # bytes

    def sample(self) -> dict[str, float]:
        """cpus (mean since the last sample) and memory (bytes resident); with GPUs gpu (0 to 1), gpu_memory (bytes)."""
        tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        cpu = memory = 0.0
        for process in procs.descendants(os.getpid()):
            try:
                stat = Path(f"/proc/{process.pid}/stat").read_bytes()
            except OSError:
                continue
            fields = stat[stat.rindex(b")") + 2 :].split()
            cpu += sum(map(int, fields[11:15])) / tick  # its own time and that of children it has waited for
            memory += int(fields[21]) * page
        now = time.monotonic()
        used = {"cpus": round(max(0.0, cpu - self._cpu) / max(now - self._time, 1e-3), 2), "memory": memory}
        self._cpu, self._time, self.peak = cpu, now, max(self.peak, memory)
        return used | self._gpu()

    def _gpu(self) -> dict[str, float]:
        if not self._gpus:
            return {}
        import subprocess

        query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        try:
            env = {name: value for name, value in os.environ.items() if not is_credential(name, value)}
            text = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True, env=env).stdout
            rows = [[float(cell) for cell in line.split(",")] for line in text.splitlines() if line.strip()]
        except (OSError, subprocess.SubprocessError, ValueError):
            return {}
        if not rows:
            return {}
        return {
            "gpu": round(sum(row[0] for row in rows) / len(rows) / 100, 3),
            "gpu_memory": sum(row[1] for row in rows) * 2**20,
        }
