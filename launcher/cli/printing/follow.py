"""Following runs until they end: a compact live view on a terminal, plain lines elsewhere.

Used by `submit --follow` and `status --watch`. Ctrl-C only ends the view; the runs continue.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

import msgspec

from launcher import safe_text
from launcher.backends.base import Backend
from launcher.cli.printing.screen import LiveLines, group_lines, plain_line
from launcher.errors import BadRecord, NotFound, SlipwayError, Unreachable
from launcher.parallel import Threads
from launcher.selection.select import Selection, select
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.userdata.record_cache import Memory
from launcher.verbs.ask_backend import BackendOf
from launcher.verbs.status import DAMAGED, Line, damaged, read_line
from launcher.verbs.wait import POLL, POLL_REMOTE

PARALLEL: Final = 4  # runs that are read at once
DRAW: Final = 0.1  # seconds between two drawings: only the clock and the spinner move, nothing is read
PLAIN_EVERY: Final = 10.0  # seconds between two plain lines of a run whose steps alone changed
LOG_LINES: Final = 20  # last lines to show of a failed run


class FollowedRun(msgspec.Struct):
    """A run that is followed; `line` is None until the run was read."""

    run: str
    name: str
    above: tuple[str, ...] = ()  # names of the runs it waits for
    line: Line | None = None
    note: str = ""  # what the backend reports while it waits
    since: float = 0.0  # this process's clock at the last reading, so that durations continue
    evaluates: bool = False  # it may have results to show

    @property
    def final(self) -> bool:
        return self.line is not None and self.line.final


class Follower:
    """Reads the runs that have not ended repeatedly and shows what changed. `lines`: one JSON document per line, for
    programs."""

    def __init__(
        self,
        store: Store,
        runs: list[FollowedRun],
        title: str,
        backend_of: BackendOf,
        *,
        lines: bool = False,
        group_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.store, self.runs, self.title, self.backend_of = store, runs, title, backend_of
        self.lines, self.group_of = lines, group_of
        self.out: TextIO = sys.stdout
        self.clock: Callable[[], float] = time.monotonic
        self.trouble = ""
        self.memory = Memory(store)

    def read(self) -> None:
        """Reads every unfinished run once. An unreachable store is reported and tried again."""
        waiting = [followed for followed in self.runs if not followed.final]
        names = {followed.run: followed for followed in self.runs}

        def refresh(watched: FollowedRun) -> None:
            blocked = [names[run].name for run in watched.above if run in names and not names[run].final]
            try:
                view, watched.line = read_line(self.store, watched.run, self.backend_of, self.memory)
            except BadRecord as error:  # the others are followed on
                watched.line, watched.note = damaged(f"{watched.run}: {error}"), ""
                return
            watched.since = self.clock()
            watched.evaluates = view.job is not None and "results" in view.job.outputs
            watched.note = f"waiting for {', '.join(blocked)}" if blocked else self._backend_note(watched, view.placed)

        try:
            with Threads(PARALLEL) as pool:
                list(pool.map(refresh, waiting))
            self.trouble = ""
        except (Unreachable, NotFound) as error:
            self.trouble = str(error)

    def _backend_note(self, watched: FollowedRun, job: ResolvedJob | None) -> str:
        line = watched.line
        if line is None or job is None or line.state != "queued":
            return ""
        try:
            backend = self.backend_of(job)
            seen = backend.look_up(watched.run) if backend is not None else None
        except SlipwayError:
            return ""
        return (seen.evidence or seen.reason) if seen is not None else ""

    def _document(self, run: FollowedRun) -> str:
        """Prints a change of a run as JSON."""
        import json

        from launcher.cli.printing.output import record

        assert run.line is not None
        document = record(run.line, run.name, self.group_of.get(run.run))
        document["detail"] = document["detail"] or run.note or None
        return json.dumps({"event": "state", **document})

    @property
    def done(self) -> bool:
        return all(
            run.final or (run.line is not None and (run.line.repair or run.line.state == DAMAGED)) for run in self.runs
        )

    def follow(self) -> None:
        live = not self.lines and self.out.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        pause = POLL if self.store.url.startswith("file:") else POLL_REMOTE
        (self._live if live else self._plain)(pause)

    def _live(self, pause: float) -> None:
        """Draws while another thread reads, so that a slow store does not stop the view."""
        began = self.clock()
        with LiveLines(self.out) as screen, Threads(1) as pool:
            reading = pool.start(self.read)
            read_at = began
            while True:
                if reading.done:
                    reading.answer()
                    if self.done:
                        break
                    if self.clock() - read_at >= pause:
                        reading = pool.start(self.read)
                        read_at = self.clock()
                screen.draw(group_lines(self.title, self.runs, self.clock(), began, self.trouble, screen.style))
                time.sleep(DRAW)
            screen.draw(group_lines(self.title, self.runs, self.clock(), began, self.trouble, screen.style))

    def _plain(self, pause: float) -> None:
        if not self.lines:
            print(safe_text.line(self.title), file=self.out, flush=True)
        shown: dict[str, tuple[tuple[object, ...], float, object]] = {}
        trouble = ""
        while True:
            self.read()
            for run in self.runs:
                if run.line is None:
                    continue
                line = run.line
                state = (line.state, line.phase if not line.final else "", line.attempt, run.note)
                before, at, step = shown.get(run.run, (None, 0.0, None))
                moved = step != line.step and self.clock() - at >= PLAIN_EVERY
                if state != before or moved:
                    shown[run.run] = (state, self.clock(), line.step)
                    print(self._document(run) if self.lines else plain_line(run), file=self.out, flush=True)
            if self.trouble != trouble:
                trouble = self.trouble
                print(safe_text.line(trouble) or "the store answers again", file=sys.stderr, flush=True)
            if self.done:
                return
            time.sleep(pause)


def follow(
    store: Store,
    group: str,
    backend: Backend | BackendOf | None,
    *,
    options: str = "",
    prices: Mapping[str, tuple[float, str]] | None = None,
    lines: bool = False,
) -> int:
    """Follows a group (or a run) until every run has ended; 0 when all succeeded, else 1; 130 after Ctrl-C.

    At the end it prints the last log lines of failed runs and, for a group with evaluations, results and a report.
    `options`: the options with which another verb finds the same store; `prices`: the profile's.
    """
    chosen = select(store, [group])
    code, runs = _watch(store, chosen, _backend_of(backend), title=group, options=options, lines=lines)
    if code in (0, 1) and not lines and any(run.evaluates for run in runs):
        _summarise(store, chosen, group, prices)
    return code


def watch(
    store: Store,
    chosen: Selection,
    backend_of: BackendOf,
    *,
    title: str | None = None,
    options: str = "",
    lines: bool = False,
) -> int:
    """The same for any selection of runs, without results at the end. `lines`: prints each change as a line of JSON."""
    return _watch(store, chosen, backend_of, title=title, options=options, lines=lines)[0]


def _watch(
    store: Store, chosen: Selection, backend_of: BackendOf, *, title: str | None, options: str, lines: bool
) -> tuple[int, list[FollowedRun]]:
    wanted = title or (chosen.groups[0] if len(chosen.groups) == 1 else f"{len(chosen.runs)} runs")
    if len(chosen.runs) == 1 and title is None:
        wanted = chosen.runs[0]
    runs = [
        FollowedRun(run, chosen.names.get(run) or run.rpartition("-")[0], tuple(chosen.edges.get(run, ())))
        for run in chosen.runs
    ]
    follower = Follower(store, runs, wanted, backend_of, lines=lines, group_of=chosen.group_of)
    back = chosen.groups[0] if len(chosen.groups) == 1 else " ".join(chosen.runs[:3])
    try:
        follower.follow()
    except KeyboardInterrupt:
        print(f"\ndetached; {wanted} keeps running", file=sys.stderr)
        print(f"  watch it:   launcher status {back}{options} --watch", file=sys.stderr)
        print(f"  logs:       launcher logs {back}{options} --follow", file=sys.stderr)
        print(f"  end it:     launcher cancel {back}{options}", file=sys.stderr)
        return 128 + signal.SIGINT, runs
    failed = [followed for followed in runs if followed.line is not None and followed.line.state != "succeeded"]
    for followed in failed:
        _explain(store, followed, options)
    return (1 if failed else 0), runs


def _backend_of(backend: Backend | BackendOf | None) -> BackendOf:
    if backend is None:
        return lambda job: None
    if callable(backend):
        return backend
    single = backend
    return lambda job: single


def _explain(store: Store, run: FollowedRun, options: str) -> None:
    """Prints why a run did not succeed, its last log lines, and how to see more."""
    from launcher.verbs.logs import tail_of_failure

    line = run.line
    assert line is not None
    why = f" ({line.reason})" if line.reason and line.reason != line.state else ""
    detail = f": {line.detail}" if line.detail else ""
    print("\n" + safe_text.line(f"{run.name} {line.state}{why}{detail}"), file=sys.stderr)
    if line.reason == "upstream_failed" or line.state == "cancelled" or line.repair:
        return
    member, lines = tail_of_failure(store, run.run, LOG_LINES)
    for text in lines:
        print(f"  | {safe_text.line(text)}", file=sys.stderr)
    role, _, rank = member.rpartition("-")
    where = f" --role {role} --rank {rank}" if member and member != "main-0" else ""
    print(f"more:  launcher logs {run.run}{where}{options}", file=sys.stderr)
    print(f"again: launcher retry {run.run}{options}", file=sys.stderr)


def _summarise(store: Store, chosen: Selection, name: str, prices: Mapping[str, tuple[float, str]] | None) -> None:
    """Prints the results of evaluations and writes a report, if there are any."""
    from launcher.cli.printing.results import results_text
    from launcher.results.facts import load_facts
    from launcher.results.rows import auto_compare, by_depth, load_rows

    facts = load_facts(store, by_depth(chosen.runs, chosen.edges), chosen.names, prices)
    rows = load_rows(store, facts)
    if not any(row.metric is not None for row in rows):
        return
    print("\n" + results_text(rows, facts, auto_compare(store, facts)))
    path = reports_folder() / f"{name}.html"
    from launcher.report.page import write

    write(store, chosen, path)
    print(f"\nreport: {shown_path(path)}")


def reports_folder(cwd: Path | None = None) -> Path:
    """`.slipway/reports` beside the project's slipway.yaml, or else a folder in the user's state folder."""
    cwd = cwd or Path.cwd()
    for folder in (cwd, *cwd.parents):
        if (folder / "slipway.yaml").is_file():
            return folder / ".slipway" / "reports"
    home = Path(os.environ.get("HOME") or Path.home())
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "reports"


def shown_path(path: Path) -> str:
    """The path, relative to the working folder if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
