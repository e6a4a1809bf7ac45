"""`launcher schema`: prints the JSON Schema of a job (or of slipway.yaml), or the meaning of one field."""

from __future__ import annotations

import argparse

SUMMARY = "print the JSON Schema of a job, or explain a field"
EXAMPLE = "launcher schema > job.schema.json; launcher schema limits.deadline"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("field", nargs="?", metavar="FIELD", help="explain this field instead: limits, inputs.job, ...")
    parser.add_argument("--of", choices=("job", "profile"), default="job", help="what to describe (default: job)")


def run(args: argparse.Namespace) -> int:
    from launcher.spec import profile, reference
    from launcher.spec.check import schema

    if args.field:
        print(reference.explain(args.field, schema.JOB if args.of == "job" else profile.PROFILE))
        return 0
    import json

    print(json.dumps(schema.json_schema() if args.of == "job" else profile.json_schema(), indent=2))
    return 0
