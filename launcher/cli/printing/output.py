"""Prints the answer of a verb: a table, JSON or YAML, with colours on a terminal.

A table fits a terminal. Elsewhere (a pipe, a file) nothing is cut: scripts find every column whole. On a terminal that
is too narrow, these steps follow in order: ids are shortened as long as each still means one run; empty columns are
left out; then the least important ones; long texts are cut; ids are shortened further. Important columns are never cut
or left out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from launcher import safe_text


def emit_one(document: Mapping[str, Any], fmt: str) -> None:
    """Prints one document as JSON or as YAML on standard output."""
    if fmt == "json":
        import json

        print(safe_text.json_text(json.dumps(document, indent=2, ensure_ascii=False, default=str)))
    else:
        print(_yaml(dict(document)), end="")


def _yaml(value: Any) -> str:
    import yaml

    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return str(yaml.safe_dump(value, sort_keys=False)) if safe_text.is_interpreted(text) else text


def emit(rows: Sequence[Mapping[str, Any]], fmt: str, columns: Sequence[str] | None = None) -> None:
    """Prints rows as a table, as JSON or as YAML on standard output."""
    if fmt == "json":
        import json

        print(safe_text.json_text(json.dumps(list(rows), indent=2, ensure_ascii=False, default=str)))
    elif fmt == "yaml":
        print(_yaml([dict(row) for row in rows]), end="")
    else:
        show(rows, columns)


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, right: Collection[str] = ()) -> None:
    """Prints rows as a table that fits the terminal; without a terminal nothing is cut."""
    print(table(rows, columns, right, width=room()))


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    right: Collection[str] = (),
    *,
    width: int | None = None,
    others: Collection[str] = (),
) -> str:
    """Rows as aligned text under upper-case headings, as kubectl prints them; columns in `right` are aligned right.

    With `width` (cells) the table is made to fit by `launcher.cli.printing.output.fit`.
    """
    names = list(columns) if columns is not None else list(rows[0]) if rows else []
    texts = [{name: text(row.get(name)) for name in names} for row in rows]
    if width is not None:
        texts, names = fit(texts, names, width, others=others)
    cells = [[name.upper().replace("_", " ") for name in names]]
    cells += [[row[name] for name in names] for row in texts]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(names, line, widths, strict=True)
        ).rstrip()
        for line in cells
    )


def text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return safe_text.line(str(value))


def colour(stream: Any = None) -> bool:
    """Whether to use colours: only on a terminal, never with NO_COLOR."""
    stream = stream or sys.stdout
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(value: str, code: str) -> str:
    return f"\x1b[{code}m{value}\x1b[0m" if colour() else value


GAP: Final = 2  # spaces between columns
LEAST: Final = 12  # a text keeps at least so many cells, as long as another step helps
DIGITS: Final = 4  # digits of an id's hash that stay
BEGINNING: Final = 6  # characters of an id that stay on the narrowest terminal
IDS: Final = ("run", "group")
MATTER: Final = ("state", "reason", "ended")
TEXTS: Final = (
    "message",
    "variant",
    "phase",
    "labels",
    "evidence",
    "detail",
    "notes",
    "jobs",
    "states",
    "usage",
    "name",
    "a",
    "b",
)
# the columns to leave out first
LESS: Final = (
    "labels", "backend", "running", "group", "name", "checkpoint", "phase", "attempt", "eta", "code", "began", "host",
    "step", "progress", "usage", "seen", "took", "sent", "files", "message", "age",
)  # fmt: skip


def room(stream: Any = None) -> int | None:
    """Width of the terminal in cells; None when the output is no terminal, so nothing has to fit."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def fit(
    rows: Sequence[Mapping[str, str]], columns: Sequence[str], width: int | None, *, others: Collection[str] = ()
) -> tuple[list[dict[str, str]], list[str]]:
    """Makes rows and columns fit into `width` cells; unchanged when it is None.

    `others`: ids outside the rows from which a shortened id must differ as well.
    """
    if width is None:
        return [dict(row) for row in rows], list(columns)
    table = _Fit(rows, columns, width)
    table.go(others)
    return table.shown, table.names


class _Fit:
    """A table while it is made to fit into `width` cells."""

    def __init__(self, rows: Sequence[Mapping[str, str]], columns: Sequence[str], width: int) -> None:
        self.rows = rows
        self.shown = [dict(row) for row in rows]
        self.names = list(columns)
        self.width = width
        self.cells = {name: self._measured(name) for name in columns}
        # a second column of ids distinguishes no rows
        self.keys = [name for name in columns if name in IDS][:1]
        self.matter = {*self.names[:1], *self.keys, *MATTER}

    def _measured(self, name: str) -> int:
        return max(len(name), max((len(row.get(name, "-")) for row in self.shown), default=0))

    @property
    def over(self) -> int:
        return sum(self.cells[name] for name in self.names) + GAP * (len(self.names) - 1) - self.width

    def go(self, others: Collection[str]) -> None:
        if self.over <= 0:
            return
        for name in self.keys:
            short = short_ids([row.get(name, "") for row in self.shown], others)
            self._put(name, [short[row.get(name, "")] for row in self.shown])
        for name in [name for name in self.names if name not in self.matter]:
            if self.over > 0 and all(row.get(name, "-") == "-" for row in self.shown):
                self.names.remove(name)
        for least in (LEAST * 3, LEAST):
            self._cut_texts(least)
        for name in LESS:
            if self.over > 0 and name in self.names and name not in self.matter:
                self.names.remove(name)
        # with fewer columns, texts may have room again
        for name in self.names:
            if self.over < 0 and name in TEXTS and name not in self.matter:
                room = self.cells[name] - self.over
                self._put(name, [cut(row.get(name, "-"), room) for row in self.rows])
        for name in self.keys:
            if self.over > 0:
                self._cut_ids(name, self.cells[name] - self.over, others)

    def _put(self, name: str, values: Sequence[str]) -> None:
        for row, value in zip(self.shown, values, strict=True):
            row[name] = value
        self.cells[name] = self._measured(name)

    def _cut_texts(self, least: int) -> None:
        """Cuts texts down to `least` cells, the widest column first."""
        texts = [name for name in self.names if name in TEXTS and name not in self.matter]
        for name in sorted(texts, key=lambda name: -self.cells[name]):
            if self.over > 0:
                room = max(least, len(name), self.cells[name] - self.over)
                self._put(name, [cut(row.get(name, "-"), room) for row in self.shown])

    def _cut_ids(self, name: str, room: int, others: Collection[str]) -> None:
        """Shortens ids that are longer than `room`, as long as each still means one run."""
        whole = [row[name] for row in self.rows]
        least = _unique(whole, others, lambda one: "x" * max(BEGINNING, room), any_name=True)
        now = [row[name] for row in self.shown]
        shorter = [least[one] for one in whole]
        self._put(name, [new if len(old) > room else old for old, new in zip(now, shorter, strict=True)])


def short_ids(ids: Iterable[str], others: Collection[str] = ()) -> dict[str, str]:
    """id -> `<name>-<the first hex digits>`: as many digits as distinguish it from every other id, at least four."""
    return _unique(list(ids), others, lambda one: one.rpartition("-")[0] + "-" + "x" * DIGITS)


def _unique(ids: list[str], others: Collection[str], least: Any, any_name: bool = False) -> dict[str, str]:
    """The shortest beginning of each id, at least as long as `least(id)`, that no other id has."""
    every = sorted({*ids, *others})
    at = {id_: index for index, id_ in enumerate(every)}
    names = {id_.rpartition("-")[0] for id_ in every}
    out = {}
    for id_ in ids:
        if not any_name and re.fullmatch(r".+-[0-9a-f]{12}", id_) is None:
            out[id_] = id_
            continue
        index = at[id_]
        around = [every[k] for k in (index - 1, index + 1) if 0 <= k < len(every)]
        length = max([len(least(id_)), *(_common(id_, other) + 1 for other in around)])
        while id_[:length] in names:  # a job's name alone means its newest run
            length += 1
        out[id_] = id_[:length]
    return out


def _common(one: str, other: str) -> int:
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def cut(text: str, cells: int) -> str:
    """The text in at most `cells` characters; three dots replace the rest."""
    return text if len(text) <= cells else text[: max(0, cells - 3)] + "..."


def record(line: Any, name: str, group: str | None = None) -> dict[str, Any]:
    """The fields of a run: stable names; durations in seconds, times in seconds since the epoch; null for unknown."""
    return {
        "run": line.run,
        "name": name,
        "group": group,
        "state": line.state,
        "attempt": line.attempt,
        "attempts": line.attempts,
        "phase": line.phase or None,
        "step": line.step,
        "total": line.total,
        "progress": line.progress,
        "eta_s": line.eta,
        "checkpoint": line.checkpoint,
        "reason": line.reason or None,
        "detail": line.detail or None,
        "message": line.message or None,
        "stale": line.stale,
        "lost_bytes": line.lost,
        "left_out": line.left_out,
        "resumed": line.resumed or None,
        "created": line.created,
        "ended": line.ended,
        "running_s": line.running,
        "backend": line.backend,
        "labels": line.labels,
    }
