"""Draws the live view: a few lines that are overwritten in place."""

from __future__ import annotations

import re
import shutil
import time
import unicodedata
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TextIO

import msgspec

from launcher import safe_text
from launcher.cli.printing.output import colour
from launcher.cli.printing.units import duration, steps
from launcher.verbs.status import Line

ANSI = re.compile(r"\x1b\[[0-9;]*m")
BAR = 22  # width of a progress bar in cells
CODES = {"succeeded": "32", "failed": "31", "cancelled": "33", "running": "34", "starting": "34", "stopping": "33"}


class Shown(Protocol):
    """What the drawing needs to know of a followed run."""

    run: str
    name: str
    line: Line | None
    note: str
    since: float


class Style(msgspec.Struct, frozen=True):
    colour: bool
    unicode: bool
    columns: int = 100
    rows: int = 30

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def bar(self, share: float) -> str:
        """A bar of BAR cells, with half cells if the terminal can show them."""
        if not self.unicode:
            full = round(share * BAR)
            return "[" + "#" * full + "." * (BAR - full) + "]"
        halves = round(share * BAR * 2)
        full, half = divmod(halves, 2)
        rest = BAR - full - half
        return self.paint("━" * full + "╸" * half, "34") + self.paint("─" * rest, "2")

    def mark(self, state: str, tick: int) -> str:
        spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if self.unicode else "|/-\\"
        marks = {"succeeded": ("✓", "+"), "failed": ("✗", "x"), "cancelled": ("✗", "x"), "queued": ("·", ".")}
        text = marks[state][0 if self.unicode else 1] if state in marks else spinner[tick % len(spinner)]
        return self.paint(text, CODES.get(state, "2"))


class LiveLines:
    """Lines at the bottom of a terminal that are overwritten each time. The cursor is hidden and always restored."""

    def __init__(self, out: TextIO) -> None:
        self.out = safe_text.raw(out)
        self.height = 0

    @property
    def style(self) -> Style:
        size = shutil.get_terminal_size((100, 30))
        encoding = (self.out.encoding or "").lower().replace("-", "")
        return Style(colour(self.out), encoding == "utf8", size.columns, size.lines)

    def __enter__(self) -> LiveLines:
        self.out.write("\x1b[?25l")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.out.write("\x1b[?25h")
        self.out.flush()

    def draw(self, lines: Sequence[str]) -> None:
        style = self.style
        up = f"\x1b[{self.height}A\r" if self.height else ""
        body = "".join(f"{cut(line, style.columns - 1)}\x1b[K\n" for line in lines)
        self.out.write(f"{up}{body}\x1b[J")
        self.out.flush()
        self.height = len(lines)


def width(text: str) -> int:
    """The width of a text in cells, without colours."""
    text = ANSI.sub("", text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    """The text cut to at most `columns` cells; colours are kept and closed."""
    if width(text) <= columns:
        return text
    out, room = [], columns - 1
    for part in re.split(f"({ANSI.pattern})", text):
        if ANSI.fullmatch(part):
            out.append(part)
            continue
        for char in part:
            cells = width(char)
            if room < cells:
                break
            out.append(char)
            room -= cells
    return "".join(out) + ("\x1b[0m" if ANSI.search(text) else "") + "…"


def group_lines(title: str, runs: Sequence[Shown], now: float, began: float, trouble: str, style: Style) -> list[str]:
    """The live view: a head line, then a line per run, as many as fit the terminal."""
    done = sum(run.line is not None and run.line.final for run in runs)
    head = style.paint(title, "1") if len(runs) > 1 else style.paint(runs[0].run, "1")
    counts = f"   {done} of {len(runs)} done" if len(runs) > 1 else ""
    lines = [f"{head}{counts}   {duration(now - began)}"]
    names = max(width(run.name) for run in runs)
    room = max(3, style.rows - 4)
    shown = list(runs)
    if len(shown) > room:  # running runs matter most, then ended ones, then queued ones
        order = {"running": 0, "starting": 0, "stopping": 0, "failed": 1, "queued": 3}
        ranked = sorted(shown, key=lambda run: order.get(run.line.state if run.line else "queued", 2))[:room]
        shown = [run for run in shown if run in ranked]
    for run in shown:
        lines.append("  " + run_line(run, names, now, style))
    if len(shown) < len(runs):
        lines.append(style.paint(f"  and {len(runs) - len(shown)} more", "2"))
    if trouble:
        lines.append(style.paint(safe_text.line(trouble), "33"))
    return lines


def run_line(run: Shown, names: int, now: float, style: Style) -> str:
    line = run.line
    name = run.name + " " * (names - width(run.name))
    if line is None:
        return f"{style.mark('queued', 0)} {name}"
    text = (
        f"{style.mark(line.state, int(now * 10))} {name}  {style.paint(f'{line.state:<9}', CODES.get(line.state, '2'))}"
    )
    parts: list[str] = []
    if line.final:
        parts.append(duration(line.running, fine=True))
        if line.reason and line.reason not in (line.state, "succeeded"):
            parts.append(line.reason)
        if line.detail and line.state != "succeeded":
            parts.append(safe_text.line(line.detail))
    elif line.state == "queued":
        parts.append(style.paint(safe_text.line(run.note), "2"))
    else:
        if line.progress is not None:
            parts.append(f"{style.bar(line.progress)} {100 * line.progress:3.0f} %")
        if line.step is not None:
            parts.append(f"step {steps(line.step, line.total)}")
        if line.eta is not None:
            parts.append(f"{duration(line.eta - min(now - run.since, line.eta))} left")
        elif line.running:
            parts.append(duration(line.running))
        if line.phase and line.phase != "running":
            parts.append(line.phase)
        if line.attempt > 1:
            parts.append(f"attempt {line.attempt}")
        if line.stale:
            parts.append(style.paint("no sign of life", "33"))
        if line.message or line.detail:
            parts.append(style.paint(safe_text.line(line.message or line.detail), "2"))
    return f"{text} {'  '.join(filter(None, parts))}".rstrip()


def plain_line(run: Shown) -> str:
    """One change of one run as plain text, for logs and pipes."""
    line = run.line
    assert line is not None
    parts = [line.state]
    if line.final:
        parts.append(f"after {duration(line.running, fine=True)}")
        if line.reason not in ("", line.state, "succeeded"):
            parts.append(line.reason)
        if line.detail and line.state != "succeeded":
            parts.append(line.detail)
    else:
        if line.phase and line.phase != line.state:
            parts.append(line.phase)
        if line.step is not None:
            share = f" ({100 * line.progress:.0f} %)" if line.progress is not None else ""
            parts.append(f"step {steps(line.step, line.total)}{share}")
        if line.eta is not None:
            parts.append(f"{duration(line.eta)} left")
        if line.attempt > 1:
            parts.append(f"attempt {line.attempt}")
        # the note is the backend's message, with names of the group's jobs in place of run ids
        parts.append(run.note or line.message or line.detail)
    stamp = time.strftime("%H:%M:%S")
    return safe_text.line(f"{stamp} {run.name}: {', '.join(filter(None, parts))}")
