"""`launcher cluster`: a Kubernetes cluster on this machine, for trying things out."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher.cli import arguments
from launcher.cli.printing import output

SUMMARY = (
    "A Kubernetes cluster on this machine with kind: creates it, loads images, applies k8s/overlays/kind with a local "
    "S3 store, and says what to do next. Run `up` again to add what is missing; `down` removes it and all that its "
    "store holds."
)
EXAMPLE = "launcher cluster up --image slipway-cpu --jobset"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = verbs.add_parser("up", help="make it, or complete it")
    up.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="NAME",
        help="load an image that docker has: one of `launcher images list`, or a reference (repeatable)",
    )
    up.add_argument("--kueue", action="store_true", help="install Kueue and the queue `slipway` (needs a network)")
    up.add_argument("--jobset", action="store_true", help="install JobSet: roles, nodes, pipelines (needs a network)")
    up.add_argument(
        "--node-image", default="", metavar="IMAGE", help="the image of the node, for `kind create cluster --image`"
    )
    up.add_argument(
        "--manifests",
        type=Path,
        metavar="FOLDER",
        help="take jobset-VERSION.yaml and kueue-VERSION.yaml from here instead of from their projects' releases",
    )
    down = verbs.add_parser("down", help="remove it, its store included")
    status = verbs.add_parser("status", help="show what exists of it (exit code 3: nothing)")
    arguments.add_output(status)
    for each in (up, down, status):
        each.add_argument("--name", default="slipway", help="the cluster's name in kind (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    from launcher.cluster.files import ClusterFiles

    place = ClusterFiles.of(args.name, os.environ)
    if args.action == "status":
        from launcher.cluster.parts import read_parts

        parts = read_parts(place)
        output.emit([part._asdict() for part in parts], args.output)
        states = {part.part: part.state for part in parts}
        return 3 if states["cluster"] == "absent" else 4 if "failed" in states.values() else 0
    from launcher.cluster.up import down, up

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if args.action == "down":
        down(place, os.environ, tell)
        return 0
    # JobSet first: Kueue looks for JobSet's kinds when it starts
    additions = [name for name in ("jobset", "kueue") if getattr(args, name)]
    images = list(dict.fromkeys(args.image))
    options = {"node_image": args.node_image, "manifests": args.manifests}
    print(up(place, Path.cwd(), os.environ, images=images, additions=additions, tell=tell, **options))
    return 0
