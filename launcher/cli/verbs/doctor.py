"""`launcher doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output

SUMMARY = (
    "Check this machine, the profile, the store (many create-only puts at once) and the backends. "
    "Exit code 4: the store cannot be used."
)
EXAMPLE = "launcher doctor --store s3://bucket/agents"
MARKS = {"ok": ("ok", "32"), "warning": ("warning", "33"), "failed": ("FAILED", "31"), "unused": ("unused", "0")}


CHECK = 19  # cells of a check's name
INDENT = CHECK + 10  # indent of the text beside it
LINE = 120  # width of a line without a terminal, in cells


def _wrapped(text: str, width: int | None) -> list[str]:
    """Lines that fit beside the check's name; a word (a path, a command) is never broken."""
    room = max(LINE - INDENT if width is None else min(LINE, width) - INDENT, 20)
    return textwrap.wrap(safe_text.line(text), room, break_long_words=False, break_on_hyphens=False) or [""]


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser)
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.printing.output import room
    from launcher.verbs.doctor import diagnose

    code = 0
    records = []
    for finding in diagnose(Path.cwd(), os.environ, profile=args.profile, store=args.store):
        code = max(code, finding.code)
        if args.output != "table":
            record = {"check": finding.check, "state": finding.state, "detail": finding.detail, "fix": finding.fix}
            records.append(record)
            continue
        mark, colour = MARKS[finding.state]
        for number, text in enumerate(_wrapped(finding.detail, room())):
            head = f"{finding.check:<{CHECK}} {output.paint(f'{mark:<8}', colour)}" if not number else " " * INDENT
            print(f"{head} {text}" if not number else f"{head}{text}", flush=True)
        if finding.fix:
            for text in _wrapped(f"fix: {finding.fix}", room()):
                print(f"{' ' * INDENT}{text}", flush=True)
    if records:
        output.emit(records, args.output)
    return code
