"""`launcher validate`: checks manifests against vendored schemas, without a cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit_one

SUMMARY = "Check manifests without a cluster: schemas, our rules, house policies. Says what was checked."
# launcher/backends/kubernetes/check/policies.py, which is not imported for a list of arguments (a test compares them)
POLICIES = (
    *("digests", "pod-security", "fixed-names", "no-effect", "never-starts", "server-side-apply", "queues", "repeated"),
    "all",
)
EXAMPLE = "launcher validate k8s/ --kubernetes-version 1.33"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="YAML files, folders of them, or -")
    parser.add_argument(
        "--kubernetes-version",
        default="1.34",
        metavar="MINOR",
        help="which API to check against (default: %(default)s)",
    )
    parser.add_argument(
        "--pod-security",
        choices=("restricted", "baseline", "privileged"),
        default="restricted",
        help="level of namespaces that are not among the files, or that enforce none (default: %(default)s)",
    )
    parser.add_argument("--allow-tags", action="store_true", help="images need no digest: --without digests")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=POLICIES,
        metavar="POLICY",
        help=f"switch off a house policy, of which a cluster knows nothing: {', '.join(POLICIES)}, or all of them: all",
    )
    add_output(parser, ("table", "json"))


def run(args: argparse.Namespace) -> int:
    from launcher.backends.kubernetes.check import policies, validate
    from launcher.backends.kubernetes.check.files import gather
    from launcher.backends.kubernetes.check.validate import coverage
    from launcher.errors import BadInput

    manifests = gather(args.paths)
    off = {*args.without, *((policies.DIGESTS,) if args.allow_tags else ())}
    off = set(policies.ALL) if "all" in off else off
    policy = validate.CheckPolicy(args.pod_security, frozenset(off))
    # a kustomization may give an image its digest
    own = {name: policy._replace(without=policy.without | {policies.DIGESTS}) for name in manifests.built}
    own |= {name: policy._replace(patch=True) for name in manifests.patches}
    problems = [*manifests.problems, *validate.check(manifests.objects, args.kubernetes_version, policy, own)]
    seen = coverage(manifests.objects, args.kubernetes_version, policy)
    if args.output == "json":
        document = {
            "files": len(manifests.objects),
            "objects": seen.objects,
            "kubernetes_version": args.kubernetes_version,
            "problems": [problem._asdict() for problem in sorted(problems)],
            "passed_over": list(map(str, manifests.others)),
            "unknown_kinds": seen.passed_over,
            "policies": seen.policies,
        }
        emit_one(document, "json")
        return BadInput.exit_code if problems else 0
    if manifests.others:
        print(f"skipped, not manifests: {', '.join(manifests.others)}", file=sys.stderr)
    for line in seen.passed_over:
        print(f"passed over: {line}", file=sys.stderr)
    if problems:
        raise BadInput(sorted(problems))
    count = len(manifests.objects)
    print(f"{count} file{'' if count == 1 else 's'}, {seen.sentence(args.kubernetes_version)}")
    return 0
