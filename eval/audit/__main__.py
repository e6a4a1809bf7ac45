"""Audits tasks by players that know nothing of the solution: `python -m eval.audit --config FILE`.

The file is that of eval.run; its agent does not play. Each player has a folder with records in --out, and the same
command goes on after an interruption. audit.json there has the verdicts (docs/reference/formats.md). The exit code is 1
where a player found a hole, or was not judged to the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eval import config as configuration
from eval.audit.auditing import Audit
from eval.audit.families import FAMILIES
from eval.audit.verdicts import allowed_rates, markdown, table
from eval.config import ConfigError
from eval.config import help as config_help
from eval.desktop import SetupFailed
from eval.run import RunConfig

REPORT = "audit.json"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = config_help.parser("eval.audit", "Audit tasks by players that know nothing of the solution.", RunConfig)
    out.add_argument("--players", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY", help="some")
    out.add_argument("--tries", type=int, default=3, help="of a player that draws, in each task; default 3")
    out.add_argument("--allow", action="append", default=[], metavar="FAMILY=RATE", help="share of tries that may pass")
    out.add_argument("--markdown", metavar="FILE", help="write the tables into a file, for a page")
    out.add_argument("--out", help="where the records go; default $SLIPWAY_OUTPUTS/results")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 sound, 1 a hole or something not judged, 2 wrong arguments, 78 a wrong configuration."""
    arguments = parser().parse_args(argv)

    def run() -> int:
        if arguments.tries < 1:
            raise ConfigError(f"--tries {arguments.tries}; allowed: 1 or more")
        if arguments.markdown and not Path(arguments.markdown).absolute().parent.is_dir():
            raise ConfigError(f"--markdown {arguments.markdown}: there is no such folder")
        try:
            allowed = allowed_rates(arguments.allow)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        config = configuration.load(Path(arguments.config), RunConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            audit = Audit(config, out, arguments.tries, allowed)
            report = asyncio.run(audit.report([name for name in FAMILIES if name in arguments.players]))
            (out / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        print(table(report))
        if arguments.markdown:
            Path(arguments.markdown).write_text(markdown(report) + "\n", encoding="utf-8")
        return int(bool(report.faults))

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
