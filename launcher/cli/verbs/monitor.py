"""`launcher monitor`: one live page over runs, trainings, evaluations and cost."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import safe_text
from launcher.cli.arguments import add_profile
from launcher.errors import BadInput

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.store.base import Store

SUMMARY = (
    "Show runs, trainings, evaluations and cost on one live page, on this machine only. The address holds a code; who "
    "does not have it sees nothing. The page reads the store and changes nothing, unless --allow-changes is given. "
    "Ctrl-C ends it; the runs continue."
)
EXAMPLE = "launcher monitor --no-browser\n  launcher monitor --export tables"
DEFAULT_PORT = 8640
DATABASE = "SLIPWAY_MONITOR_DATABASE"  # its URL may hold a password, which a command line shows to others


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="default: %(default)s; 0: any that is free")
    parser.add_argument(
        "--database",
        metavar="URL",
        help=f"sqlite:///FILE or postgresql://HOST/NAME; default: ${DATABASE}, or a file of this user",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let the page cancel runs and run them again, and take your verdicts of rollouts",
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="URL", help="another store to show; may be given several times"
    )
    parser.add_argument(
        "--metrics",
        type=_address,
        metavar="HOST:PORT",
        help="also answer Prometheus there, at /metrics, without a token",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="the token, at least 32 characters; default: one that is made and kept"
    )
    parser.add_argument(
        "--behind",
        type=_name,
        metavar="NAME",
        help="the name under which a proxy on this machine serves the pages, which gives the token as X-Slipway-Token",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="FOLDER",
        help="open no page: read the stores once, write the database's tables and views there as Parquet, and end",
    )
    add_profile(parser)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is not HOST:PORT; for example 127.0.0.1:9464")
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"`{text}` is not a name; for example slipway.example.com")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is not a port; write 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from launcher.install import install
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    try:
        from launcher.monitor.server.entry import EntryCodes, opened_in_browser
        from launcher.monitor.server.serve import serve, state_folder
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("launcher", ""):
            raise
        packages = "alembic jinja2 sqlalchemy starlette uvicorn"
        raise BadInput(f"the monitor needs {error.name}: {install(packages)}") from None

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    stores = [open_known(url) for url in dict.fromkeys((profile.store, *args.also))]
    folder = state_folder()
    own = folder / "monitor.sqlite"
    if own.exists():  # monitors of before let others read it
        own.chmod(0o600)
    database = args.database or os.environ.get(DATABASE) or f"sqlite:///{own}"
    if args.export is not None:
        return _export(args, stores, database)

    codes = EntryCodes()
    with ExitStack() as until_the_end:

        def ready(address: str) -> None:
            print(f"{address}{codes.lasting}", flush=True)
            if not args.no_browser:
                until_the_end.enter_context(opened_in_browser(f"{address}{codes.once()}"))

        serve(
            stores,
            profile,
            database,
            args.port,
            codes=codes,
            changes=_changes(profile) if args.allow_changes else {},
            ready=ready,
            metrics=args.metrics or "",
            behind=args.behind or "",
            token=_token(args.token_file) if args.token_file else "",
            said=lambda line: print(safe_text.line(f"launcher monitor: {line}"), file=sys.stderr, flush=True),
        )
    return 0


def _export(args: argparse.Namespace, stores: Sequence[Store], database: str) -> int:
    from launcher.monitor.database import open_database
    from launcher.monitor.export import export
    from launcher.monitor.ingest import StoreFollower

    for name in ("allow_changes", "metrics", "token_file", "behind"):
        if getattr(args, name):
            raise BadInput(f"--export opens no page: leave out --{name.replace('_', '-')}")
    engine = open_database(database)
    try:
        for store in stores:
            for problem in StoreFollower(engine, store).once().problems:
                print(safe_text.line(f"launcher monitor: {problem}"), file=sys.stderr, flush=True)
        for path, rows in export(engine, args.export):
            print(f"{safe_text.line(str(path))}: {rows} rows")
    finally:
        engine.dispose()
    return 0


def _token(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--token-file {path}: cannot be read: {type(error).__name__}") from None
    if not re.fullmatch(r"[A-Za-z0-9_-]{32,}", token):
        raise BadInput(f"--token-file {path}: holds no token; allowed: at least 32 letters, digits, - or _")
    return token


def _changes(profile: Profile) -> dict[str, Callable[[Store, str], str]]:
    import msgspec

    from launcher.backends.abilities import images_of
    from launcher.spec.hashing import decode_job
    from launcher.store.layout import RunKeys
    from launcher.verbs.cancel import cancel_jobs
    from launcher.verbs.retry import retry as runs_again

    def cancel(store: Store, run: str) -> str:
        job = decode_job(store.get(RunKeys(run).job))
        return cancel_jobs(store, {run: job}, profile, reason="cancelled on the monitor's page")[0].state

    def retry(store: Store, run: str) -> str:
        from launcher import api

        group = runs_again(
            store,
            [run],
            ignore=profile.local.ignore,
            python=profile.local.python,
            images=lambda job: images_of(job, profile.backend_options(job.backend)),
        )
        done = api.submit(api.Jobs(group, msgspec.structs.replace(profile, store=store.url)))
        return f"{done[0].state}: {done[0].run}"

    return {"cancel": cancel, "retry": retry}
