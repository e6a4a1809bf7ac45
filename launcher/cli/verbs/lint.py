"""`launcher lint`: for the CI of a GitOps repository. Exit 2 on errors; warnings only with --strict."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit

SUMMARY = "Check folders of rendered jobs that Argo CD or Flux apply: edited, unpinned, expiring, duplicate, stale."
EXAMPLE = "launcher lint gitops/ --strict"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="rendered files, folders of them, or -")
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="an older version of the folder: finds changes that a cluster would refuse",
    )
    parser.add_argument(
        "--kubernetes-version",
        default="1.34",
        metavar="MINOR",
        help="which API to check against (default: %(default)s)",
    )
    parser.add_argument("--profile", metavar="NAME", help="a named profile of slipway.yaml, for its image catalogue")
    add_output(parser, ("table", "json"))


def run(args: argparse.Namespace) -> int:
    from launcher.backends.kubernetes.check.files import gather
    from launcher.backends.kubernetes.check.lint import lint
    from launcher.spec.profile import load_profile

    profile = load_profile(Path.cwd(), args.profile, os.environ)
    rendered = gather(args.paths)
    before = gather([args.against]) if args.against is not None else None
    lines = lint(rendered, profile.images, args.kubernetes_version, before)
    if args.output == "json":
        emit([line._asdict() for line in lines], "json")
    elif lines:
        print("\n".join(map(str, lines)))
    counts = {level: sum(line.level == level for line in lines) for level in ("error", "warning", "note")}
    said = [f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items() if count]
    files = len(rendered.objects)
    print(f"{files} file{'' if files == 1 else 's'}: {', '.join(said) or 'nothing found'}", file=sys.stderr)
    return 2 if counts["error"] or (args.strict and counts["warning"]) else 0
