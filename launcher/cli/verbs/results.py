"""`launcher results`: one table of metrics over runs."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher import safe_text
from launcher.cli import arguments
from launcher.errors import BadInput

SUMMARY = "One table over runs: metrics with intervals, where they came from, what they cost."
EXAMPLE = "launcher results group-1a2b3c4d5e6f\n  launcher results RUN RUN -o csv --file results.csv"


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    arguments.add_output(parser, ("table", "csv", "json", "parquet"))
    parser.add_argument("--all", action="store_true", help="metrics of parts too (accuracy/click), and all files")
    parser.add_argument("--file", metavar="OUT", type=Path, help="write there instead of printing")
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.results.facts import load_facts
    from launcher.results.files import write_whole
    from launcher.results.rows import auto_compare, by_depth, load_files, load_rows
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    if args.output == "parquet" and args.file is None and sys.stdout.isatty():
        raise BadInput("-o parquet cannot be printed on a terminal: give --file OUT")
    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    chosen = select(store, args.names)
    facts = load_facts(store, by_depth(chosen.runs, chosen.edges), chosen.names, profile.prices)
    rows = load_rows(store, facts)
    if args.output == "table":
        from launcher.cli.printing.results import results_text

        files = load_files(store, facts, rows)
        body = (results_text(rows, facts, auto_compare(store, facts), files, everything=args.all) + "\n").encode()
    else:
        body = encode([row.flat() for row in rows], args.output)
    if args.file is None and sys.stdout.isatty():
        sys.stdout.write(body.decode())  # which is guarded
    elif args.file is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
    else:
        write_whole(args.file, body)
    return 0


def encode(rows: Sequence[dict[str, Any]], fmt: str) -> bytes:
    if fmt == "json":
        return safe_text.json_text(json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n").encode()
    if fmt == "csv":
        return _csv(rows)
    return _parquet(rows)


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    from launcher.results.rows import COLUMNS

    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: json.dumps(v) if isinstance(v, dict | list) else v for key, v in row.items()})
    return out.getvalue().encode()


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        from launcher.install import install

        raise BadInput(f"-o parquet needs pyarrow: `{install('pyarrow')}`") from None
    from launcher.results.rows import COLUMNS

    kinds = {float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_(), str: arrow.string(), dict: arrow.string()}
    kinds[list] = arrow.list_(arrow.int64())
    schema = arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    flat = [{key: json.dumps(v) if isinstance(v, dict) else v for key, v in row.items()} for row in rows]
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(flat, schema=schema), out)
    return out.getvalue()
