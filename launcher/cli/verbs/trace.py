"""`launcher trace`: send runs, their attempts, episodes and turns to an OpenTelemetry collector."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from launcher import safe_text
from launcher.cli.arguments import add_names, add_profile
from launcher.errors import BadInput, SlipwayError, Unreachable

SUMMARY = (
    "Send runs as traces to an OpenTelemetry collector: submit, run, attempts, episodes, turns, from the records in "
    "the store, so also of runs that ended long ago. OTEL_EXPORTER_OTLP_ENDPOINT names the collector (OTLP over HTTP); "
    "without it nothing sends anything. Only what has ended is sent; sent again, a span has the same id."
)
EXAMPLE = "launcher trace --follow"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PAUSE: Final = 15.0  # seconds between two passes


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser, nargs="*", more="; default: every run of the store")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C; each span is sent once")
    add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.install import install
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.verbs.groups import groups_of_some
    from launcher.verbs.status import list_runs, read_lines
    from launcher.verbs.trace import TraceSender, spans, submits, switched_off

    if off := switched_off(os.environ):
        print(f"0 spans sent: {off}={os.environ[off]}")
        return 0
    if not any(os.environ.get(name) for name in ENDPOINTS):
        raise BadInput(f"{ENDPOINTS[0]} is not set; allowed: a collector's address, as http://127.0.0.1:4318")
    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    try:
        sender = TraceSender()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("launcher", ""):
            raise
        packages = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        raise BadInput(f"traces need {error.name}: {install(packages)}") from None

    def once(cache: Cache) -> int:
        runs = select(store, args.names).runs if args.names else list_runs(store)
        lines, _ = read_lines(store, runs, cache=cache)
        groups = groups_of_some(store, lines)
        sent = sender.send(list(submits(store, lines, groups)))
        for line in lines:
            try:
                sent += sender.send(list(spans(store, line, groups.get(line.run))))
            except Unreachable:
                raise
            except SlipwayError as error:  # a damaged record stops no other run
                print(safe_text.line(f"launcher trace: {line.run}: {error}"), file=sys.stderr)
        return sent

    def rejected(sender: TraceSender) -> str:
        return f"the collector rejected {sender.rejected} spans: {sender.why or 'it did not say why'}"

    with Cache() as cache:
        if not args.follow:
            print(f"{once(cache)} spans sent")
            if sender.rejected:
                raise Unreachable(rejected(sender))
            return 0
        while True:
            try:
                if count := once(cache):
                    print(f"{count} spans sent", flush=True)
                if sender.rejected:
                    print(safe_text.line(f"launcher trace: {rejected(sender)}"), file=sys.stderr, flush=True)
                    sender.rejected = 0
            except Unreachable as error:
                print(safe_text.line(f"launcher trace: {error}"), file=sys.stderr, flush=True)
            time.sleep(PAUSE)
