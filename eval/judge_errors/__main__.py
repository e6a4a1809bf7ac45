"""Measures the errors of a judge that is a model: `python -m eval.judge_errors --config FILE`.

Players leave end states of tasks that have a checker: the expert, a second way, a near mistake, nothing, a hacker, and
agents that give orders to the judge. The checker says which states are solved, and the judge is asked about the same.
judge.json in --out has its sensitivity and specificity (docs/reference/formats.md). The same command goes on after an
interruption. The exit code is 1 where some states were not judged.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eval import config as configuration
from eval.config import ConfigError
from eval.config import help as config_help
from eval.desktop import SetupFailed
from eval.judge_errors.measuring import JudgeMeasurement, MeasureConfig
from eval.scores.judge_errors import FILE, markdown, table


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = config_help.parser("eval.judge_errors", "Measure the errors of a judge that is a model.", MeasureConfig)
    out.add_argument("--markdown", metavar="FILE", help="write the tables into a file, for a page")
    out.add_argument("--out", help="where judge.json and the records go; default $SLIPWAY_OUTPUTS/results")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 measured, 1 some states were not judged, 2 wrong arguments, 78 a wrong configuration."""
    arguments = parser().parse_args(argv)

    def run() -> int:
        if arguments.markdown and not Path(arguments.markdown).absolute().parent.is_dir():
            raise ConfigError(f"--markdown {arguments.markdown}: there is no such folder")
        config = configuration.load(Path(arguments.config), MeasureConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            errors = asyncio.run(JudgeMeasurement(config, out).errors())
            (out / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(errors), indent=1) + b"\n")
        print(table(errors))
        if arguments.markdown:
            Path(arguments.markdown).write_text(markdown(errors) + "\n", encoding="utf-8")
        return int(any(each.infra for each in errors.players))

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
