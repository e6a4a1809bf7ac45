"""Prints the answer of a verb: a table, JSON or YAML, with colours on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from launcher import safe_text
from launcher.cli.printing.tables import fit, room


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

    With `width` (cells) the table is made to fit by `launcher.cli.printing.tables.fit`.
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
