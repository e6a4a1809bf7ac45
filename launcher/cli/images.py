"""`launcher images`: the images that jobs run in."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cli import common
from launcher.errors import BadInput

if TYPE_CHECKING:
    from launcher.images.build import Options, Step

SUMMARY = (
    "The images that jobs run in: list their versions, build them from this clone, push them to a registry, check the "
    "definitions and the catalogue, verify what an engine holds, remove old builds."
)
EXAMPLE = "launcher images build slipway-cpu"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="name, version, base, and what the catalogue has")
    common.add_output(listing)
    build = verbs.add_parser("build", help="build images (all, or those named)")
    build.add_argument("names", nargs="*", metavar="NAME")
    build.add_argument("--base", metavar="REF", help="an image in place of the Dockerfiles' base")
    build.add_argument("--push", metavar="REGISTRY", help="push each and write its digest into the catalogue")
    build.add_argument("--output", metavar="DIR", help="write OCI layouts to DIR/NAME as well")
    build.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")
    build.add_argument("--network", metavar="MODE", help="network of the RUN steps, as docker's --network")
    build.add_argument(
        "--buildkit", metavar="ADDRESS", help="a buildkitd, to build in parallel (default: BUILDKIT_HOST)"
    )
    push = verbs.add_parser("push", help="push what was built and write the digests into the catalogue")
    push.add_argument("names", nargs="*", metavar="NAME")
    push.add_argument("--registry", required=True, metavar="REGISTRY", help="host/path that the names are put under")
    push.add_argument("--base", metavar="REF", help="the base that they were built with")
    check = verbs.add_parser("check", help="faults of the definitions (exit 1), stale catalogue entries (said)")
    check.add_argument("--strict", action="store_true", help="stale entries, too, are exit 1: for a release")
    verify = verbs.add_parser("verify", help="is this image what the sources here make? (exit 1: no)")
    verify.add_argument("reference", metavar="REF")
    prune = verbs.add_parser("prune", help="remove builds of other versions than the sources'")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")


def run(args: argparse.Namespace) -> int:
    return {
        "list": _list,
        "build": _build,
        "push": _push,
        "check": _check,
        "verify": _verify,
        "prune": _prune,
    }[args.action](args)


def _root() -> Path:
    from launcher.images.definition import project_root

    return project_root(Path.cwd())


def _list(args: argparse.Namespace) -> int:
    from launcher.images import catalogue
    from launcher.images.definition import select

    root = _root()
    entries = catalogue.load(catalogue.path(root))
    rows = []
    for one in select(root, []):
        version, entry = one.version(), entries.get(one.name)
        state = "not pushed" if entry is None else "current" if entry.version == version else "stale"
        rows.append(
            {
                "name": one.name,
                "version": version,
                "catalogue": state,
                "reference": entry.reference if entry else None,
                "base": one.base,
            }
        )
    columns = ["name", "version", "catalogue", "reference"] if args.output == "table" else None
    common.emit(rows, args.output, columns)
    return 0


def _build(args: argparse.Namespace) -> int:
    from launcher.images.build import build
    from launcher.images.definition import select
    from launcher.images.engine import Engine

    root = _root()
    wanted = select(root, args.names)
    options = _options(args, root)
    buildkit = args.buildkit or os.environ.get("BUILDKIT_HOST") or None
    if buildkit is not None and shutil.which("buildctl") is None:
        raise BadInput("--buildkit needs the program `buildctl` on the PATH")
    engine = Engine()
    for one in wanted:
        print(f"{one.name}: building {one.version(options.base)}", flush=True)
    built = build(engine, wanted, options, _tell, buildkit)
    for done in built:
        print(f"{done.tag}  {done.size / 1e6:,.0f} MB, {done.layers} layers, {done.seconds:.1f} s  {done.id}")
    if args.output:
        from launcher.images.publish import export

        for done in built:
            print(
                f"{done.name}: {export(engine, done.tag, Path(args.output) / done.name)} in {args.output}/{done.name}"
            )
    if args.push:
        _publish(root, [(done.name, done.version) for done in built], args.push)
    return 0


def _options(args: argparse.Namespace, root: Path) -> Options:
    from launcher.images.build import Options

    arguments = {}
    for text in args.build_arg:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise BadInput(f"--build-arg: `{text}`; allowed: NAME=VALUE")
        arguments[name] = value
    commit, epoch = _commit(root)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Options(
        logs=cache / "slipway" / "images",
        base=args.base,
        network=args.network,
        arguments=arguments,
        revision=commit,
        epoch=int(os.environ.get("SOURCE_DATE_EPOCH") or epoch),
    )


def _commit(root: Path) -> tuple[str, int]:
    """(commit, its time in seconds) of the clone; ("", 0) without git."""
    try:
        text = subprocess.run(
            ["git", "-C", str(root), "log", "-1", "--format=%H %ct"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "", 0
    commit, _, seconds = text.strip().partition(" ")
    return commit, int(seconds)


def _tell(step: Step) -> None:
    took = "cached" if step.cached else f"{step.seconds:.1f} s"
    print(f"{step.image:<12} {step.number:>6} {took:>8}  {' '.join(step.text.split())[:88]}", flush=True)


def _push(args: argparse.Namespace) -> int:
    from launcher.images.definition import select

    root = _root()
    _publish(root, [(one.name, one.version(args.base)) for one in select(root, args.names)], args.registry)
    return 0


def _publish(root: Path, images: Sequence[tuple[str, str]], registry: str) -> None:
    """Pushes one after the other; the catalogue is written after each, so that what arrived is on record."""
    from launcher.images import catalogue
    from launcher.images.engine import Engine
    from launcher.images.publish import push

    engine, file = Engine(), catalogue.path(root)
    for name, version in images:
        reference = push(engine, f"{name}:{version}", registry, lambda text: print(text, flush=True))
        catalogue.save(file, {**catalogue.load(file), name: catalogue.Entry(version, reference)})
        print(f"{name}: {reference}", flush=True)


def _check(args: argparse.Namespace) -> int:
    from launcher.images.checks import check

    findings = check(_root())
    for one in findings:
        print(f"{one.image}: {one.text}")
    faults = [one for one in findings if one.fault]
    if not findings:
        print("images: every definition is whole, and the catalogue stands for it")
    return 1 if faults or (args.strict and findings) else 0


def _verify(args: argparse.Namespace) -> int:
    from launcher.images.definition import select
    from launcher.images.engine import Engine

    found = Engine().inspect(args.reference)
    labels = found["Config"].get("Labels") or {}
    title, version = labels.get("org.opencontainers.image.title"), labels.get("org.opencontainers.image.version")
    if not title or not version:
        print(f"{args.reference} carries no labels of Slipway's images")
        return 1
    (one,) = select(_root(), [title])
    now = one.version()
    if version != now:
        print(f"{args.reference} is {title} {version}; the sources here make {now}")
        return 1
    print(f"{args.reference} is {title} {version}, as the sources here make it; {found['Id']}")
    return 0


def _prune(args: argparse.Namespace) -> int:
    from launcher.images.definition import select
    from launcher.images.engine import Engine

    engine, freed = Engine(), 0
    for one in select(_root(), []):
        current = f"{one.name}:{one.version()}"
        for image in engine.images(one.name):
            for tag in image.get("RepoTags") or []:
                if tag == current:
                    continue
                print(f"{'would remove' if args.dry_run else 'removed'} {tag}")
                if not args.dry_run:
                    engine.remove(tag)
                freed += 1
    if not freed:
        print("nothing to remove")
    return 0
