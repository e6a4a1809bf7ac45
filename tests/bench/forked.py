"""Runs programs as forks of this process, which has imported torch once, and counts the seconds of CPU of each.

What a program may take can be limited: it gets SIGTERM then, after which a trainer writes a checkpoint and ends. To
load the modules costs ten seconds of CPU a program, and is in nobody's count, since it is done before the fork.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

IMPORTS: Final = (
    "torch",
    "transformers",
    "transformers.models.qwen3_vl.modeling_qwen3_vl",
    "datasets",
    "trl",
    "training.sft.train",
    "training.rl.trainer",
    "training.tiny",
    "training.make_episodes",
    "eval.run",
)
STATE: Final = "trainer_state.json"  # the last file of a checkpoint
POLL_S: Final = 0.25
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


@dataclass
class Spent:
    """Seconds of CPU of a training over all its starts, and how many it had used at each of its checkpoints.

    A training that is killed goes on from its newest checkpoint, and with what it had used by then: the part that is
    computed again counts once.
    """

    folder: Path  # of the training
    before: float = 0.0  # when its newest checkpoint was written, by an earlier start
    seen: dict[str, float] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "spent.json"

    def newest(self) -> Path | None:
        """The newest complete checkpoint whose use of CPU is known, from which the training goes on."""
        if self.file.exists():
            self.seen = json.loads(self.file.read_text())
        for each in reversed(checkpoints(self.folder)):
            if each.name in self.seen:
                self.before = self.seen[each.name]
                return each
        return None

    def look(self, cpu: float) -> None:
        """Notes the checkpoints that are new. cpu: seconds since the present start."""
        new = [each.name for each in checkpoints(self.folder) if each.name not in self.seen]
        if new:
            self.seen |= dict.fromkeys(new, self.before + cpu)
            write(self.file, self.seen)


def write(file: Path, told: Mapping[str, float | None]) -> None:
    """Writes JSON, whole or not at all."""
    kept = file.with_suffix(".part")
    kept.write_text(json.dumps(told))
    kept.replace(file)


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a training, the oldest first."""
    found = (folder / "checkpoints").glob(f"checkpoint-*/{STATE}")
    return sorted((each.parent for each in found), key=lambda each: int(each.name.split("-")[1]))


def used(pid: int) -> float:
    """Seconds of CPU of a running process and of its children that have ended; 0 where there is no such process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return float(sum(map(int, told[11:15]))) / os.sysconf("SC_CLK_TCK")


def load(parts: Path) -> None:
    """Imports what the programs need, into this process. parts: a folder with modules that configurations name."""
    sys.path.insert(0, str(parts))
    for name in IMPORTS:
        importlib.import_module(name)


def run(
    arguments: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    *,
    budget: float | None = None,
    look: Callable[[float], None] = lambda cpu: None,
) -> float:
    """Seconds of CPU of `python -m` with these arguments. budget: of them, after which it gets SIGTERM, once. look: is
    told every quarter of a second how many it has used. Raises SystemExit where it fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _program(parent, arguments, env, log)
    asked = False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        cpu = used(pid)
        look(cpu)
        if budget is not None and cpu >= budget and not asked:
            asked = True
            os.kill(pid, signal.SIGTERM)
        time.sleep(POLL_S)
    cpu = usage.ru_utime + usage.ru_stime
    look(cpu)
    code = os.waitstatus_to_exitcode(status)
    if code and not (asked and code == -signal.SIGTERM):  # that early no trainer heeds it yet
        raise SystemExit(f"{' '.join(arguments)}: exit code {code}, see {log}")
    return cpu


def _program(parent: int, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
    """The forked process, which never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel knew
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.environ.update(env)
        sys.argv = list(arguments)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
