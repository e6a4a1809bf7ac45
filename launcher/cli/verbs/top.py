"""`launcher top`: what runs use right now."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.selection.select import Selection
    from launcher.store.base import Store
    from launcher.verbs.usage import Rank, Used

SUMMARY = (
    "Show the CPUs, memory and GPUs that running runs use, from their last heartbeats (every 15 s unless the job says "
    "otherwise). On a terminal it is refreshed until Ctrl-C; elsewhere, and with --once or -o json, it is printed once."
)
EXAMPLE = "launcher top\n  launcher top sft-login-1a2b3c4d5e6f --ranks --once"
COLUMNS = ("run", "state", "cpus", "memory", "gpu", "gpu_memory", "step", "eta", "seen")
RANKS = ("run", "rank", "host", "phase", "cpus", "memory", "gpu", "gpu_memory", "seen")
RIGHT = ("cpus", "memory", "gpu", "gpu_memory", "step", "eta", "seen")
PAUSE = 3.0  # seconds between two readings


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser, nargs="*", more="; default: every run that has not ended")
    parser.add_argument("--ranks", action="store_true", help="a line for each rank")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    arguments.add_output(parser)
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.printing.output import room
    from launcher.cli.printing.screen import LiveLines
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.userdata.record_cache import Memory

    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    chosen = select(store, args.names) if args.names else None
    with Cache() as cache:
        memory = Memory(store, cache).load("runs/")
        reader = _Look(store, cache, memory, chosen)
        once = args.once or args.output != "table" or not sys.stdout.isatty()
        if once:
            used = reader()
            memory.keep()
            if args.output != "table":
                output.emit([record(usage, reader.name(usage)) for usage in used], args.output)
            else:
                _print(used, args.ranks, reader, store.now())
            return 0
        with LiveLines(sys.stdout) as screen:
            try:
                while True:
                    lines = _lines(reader(), args.ranks, reader, store.now(), room())
                    screen.draw(
                        [*lines[: max(2, screen.style.rows - 2)], "", "Ctrl-C ends this view; the runs continue"]
                    )
                    time.sleep(PAUSE)
            except KeyboardInterrupt:
                memory.keep()
                return 0


class _Look:
    """Reads the usage of runs repeatedly; a run that has ended is not read again."""

    def __init__(self, store: Store, cache: Any, memory: Any, chosen: Selection | None) -> None:
        self._store, self._cache, self._memory, self._chosen = store, cache, memory, chosen
        self._ended: set[str] = set()

    def __call__(self) -> list[Used]:
        from launcher.verbs.status import list_runs, read_lines
        from launcher.verbs.usage import usage

        runs = list(self._chosen.runs) if self._chosen is not None else list_runs(self._store)
        lines, problems = read_lines(self._store, [run for run in runs if run not in self._ended], cache=self._cache)
        for problem in problems:
            print(safe_text.line(f"launcher top: {problem}"), file=sys.stderr)
        self._ended |= {line.run for line in lines if line.final}
        return usage(self._store, lines, self._memory)

    def name(self, usage: Used) -> str:
        return (self._chosen.names if self._chosen is not None else {}).get(usage.line.run, usage.line.name)


def _print(used: Sequence[Used], ranks: bool, look: _Look, now: float) -> None:
    from launcher.cli.printing.output import room

    if not used:
        print("nothing runs", file=sys.stderr)
        return
    print("\n".join(_lines(used, ranks, look, now, room())))


def _lines(used: Sequence[Used], ranks: bool, look: _Look, now: float, width: int | None) -> list[str]:
    if not used:
        return ["nothing runs"]
    rows = [row for usage in used for row in (_ranks(usage, now) if ranks else [_row(usage, now)])]
    return output.table(rows, RANKS if ranks else COLUMNS, RIGHT, width=width).split("\n")


def _row(usage: Used, now: float) -> dict[str, Any]:
    from launcher.cli.printing.units import duration, size, steps

    line = usage.line
    seen = [rank.seen for rank in usage.ranks if rank.seen is not None]
    return {
        "run": line.run,
        "state": line.state + (" (silent)" if line.stale else ""),
        "cpus": _of(usage.cpus, f"{usage.cpus_asked:g}", "{:.1f}".format),
        "memory": _of(usage.memory, size(usage.memory_asked) if usage.memory_asked else "", size),
        "gpu": _of(usage.gpu, f"{usage.gpus_asked} GPUs" if usage.gpus_asked > 1 else "", _share),
        "gpu_memory": size(usage.gpu_memory) if usage.gpu_memory is not None else None,
        "step": steps(line.step, line.total),
        "eta": duration(line.eta) if line.eta is not None else None,
        "seen": f"{duration(now - max(seen))} ago" if seen else None,
    }


def _ranks(usage: Used, now: float) -> list[dict[str, Any]]:
    return [_rank(usage, rank, now) for rank in usage.ranks]


def _rank(usage: Used, rank: Rank, now: float) -> dict[str, Any]:
    from launcher.cli.printing.units import duration, size

    return {
        "run": usage.line.run,
        "rank": rank.member,
        "host": rank.host,
        "phase": rank.phase,
        "cpus": f"{rank.cpus:.1f}" if rank.cpus is not None else None,
        "memory": size(rank.memory) if rank.memory is not None else None,
        "gpu": _share(rank.gpu) if rank.gpu is not None else None,
        "gpu_memory": size(rank.gpu_memory) if rank.gpu_memory is not None else None,
        "seen": f"{duration(now - rank.seen)} ago" if rank.seen is not None else None,
    }


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _of(value: float | None, asked: str, show: Callable[[float], str]) -> str | None:
    """`3.1 of 8`; None when the use is unknown."""
    if value is None:
        return None
    return f"{show(value)} of {asked}" if asked else show(value)


def record(usage: Used, name: str) -> dict[str, Any]:
    """The fields for programs: CPUs, bytes, shares in [0, 1], durations in seconds, times in seconds since the epoch;
    null for unknown."""
    line = usage.line
    return {
        "run": line.run,
        "name": name,
        "state": line.state,
        "attempt": line.attempt,
        "step": line.step,
        "total": line.total,
        "eta_s": line.eta,
        "stale": line.stale,
        "cpus": usage.cpus,
        "cpus_asked": usage.cpus_asked,
        "memory": usage.memory,
        "memory_asked": usage.memory_asked,
        "gpu": usage.gpu,
        "gpus_asked": usage.gpus_asked,
        "gpu_memory": usage.gpu_memory,
        "ranks": [rank._asdict() for rank in usage.ranks],
    }
