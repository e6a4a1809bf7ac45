"""`launcher images`: the images that jobs run in."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.errors import BadInput, Conflict, NotFound

if TYPE_CHECKING:
    from launcher.images.build import BuildOptions, BuildStep
    from launcher.images.engine import Engine
    from launcher.spec.images.catalogue import CatalogueEntry
    from launcher.spec.images.definition import Definition

SUMMARY = (
    "The images that jobs run in: list their versions, build them, push them to a registry, check the "
    "definitions and the catalogue, verify what an engine or a registry holds, scan for known vulnerabilities, remove "
    "old builds."
)
EXAMPLE = "launcher images build slipway-cpu"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list each image: name, version, catalogue entry, purpose")
    arguments.add_output(listing)
    build = verbs.add_parser("build", help="build images (all, or those named)")
    build.add_argument("names", nargs="*", metavar="NAME")
    _add_settings(build)
    build.add_argument("--push", metavar="REGISTRY", help="push each and write its digest into the catalogue")
    build.add_argument("--output", metavar="DIR", help="write OCI layouts to DIR/NAME as well")
    build.add_argument("--network", metavar="MODE", help="network of the RUN steps, as docker's --network")
    build.add_argument(
        "--buildkit", metavar="ADDRESS", help="a buildkitd, to build in parallel (default: BUILDKIT_HOST)"
    )
    build.add_argument("--scan", action="store_true", help="scan each before it is pushed or written out")
    _add_limit(build)
    push = verbs.add_parser("push", help="push what was built and write the digests into the catalogue")
    push.add_argument("names", nargs="*", metavar="NAME")
    push.add_argument("--registry", required=True, metavar="REGISTRY", help="host/path in front of the images' names")
    _add_settings(push)
    push.add_argument("--scan", action="store_true", help="scan all before any is pushed")
    _add_limit(push)
    scan = verbs.add_parser(
        "scan", help="list known vulnerabilities, with trivy or grype (exit code 1: some at --fail-on or worse)"
    )
    scan.add_argument("names", nargs="*", metavar="NAME|REF")
    _add_settings(scan)
    _add_limit(scan)
    arguments.add_output(scan)
    check = verbs.add_parser("check", help="list faults of the definitions (exit code 1) and stale catalogue entries")
    check.add_argument("--strict", action="store_true", help="exit code 1 for stale entries too, as a release needs")
    arguments.add_output(check, ("table", "json"))
    verify = verbs.add_parser(
        "verify",
        help="check that an image, or the catalogue's entry for NAME, was built from these sources, and that an image "
        "of a release is signed by who made it (exit code 1: no)",
    )
    verify.add_argument("reference", metavar="NAME|REF")
    verify.add_argument(
        "--key", type=Path, metavar="FILE", help="a public key of cosign: the image must be signed with it"
    )
    verify.add_argument(
        "--signer", metavar="IDENTITY", help="the workflow that must have signed it (default: the release's own)"
    )
    arguments.add_output(verify, ("table", "json"))
    prune = verbs.add_parser("prune", help="remove builds whose version is not that of the sources")
    prune.add_argument(
        "--stages",
        action="store_true",
        help="also remove all images without a name, of every project: the engine keeps the stages of builds as such",
    )
    prune.add_argument("--dry-run", action="store_true", help="only print which names would be removed")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the options that change an image's content and thereby its version."""
    parser.add_argument("--base", metavar="REF", help="use this image in place of the Dockerfiles' base")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=("critical", "high", "medium", "low", "never"),
        default="critical",
        help="for a scan: the lowest severity that counts as an error (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    return {
        "list": _list,
        "build": _build,
        "push": _push,
        "scan": _scan,
        "check": _check,
        "verify": _verify,
        "prune": _prune,
    }[args.action](args)


def _root() -> Path:
    from launcher.spec.images.definition import defining_root

    return defining_root(Path.cwd())


def _release(name: str) -> tuple[str, str, CatalogueEntry] | None:
    """The release that jobs get this image from, what they run, and its entry there; None where it is of no release."""
    from launcher.spec.images.catalogue import load, released
    from launcher.spec.profile import load_profile

    profile = load_profile(Path.cwd(), None, os.environ)
    entry = load(released()[profile.catalogue]).get(name) if profile.catalogue else None
    digest = entry.reference.partition("@")[2] if entry is not None else ""
    if entry is None or not profile.images[name].endswith(f"@{digest}"):  # named otherwise
        return None
    return profile.catalogue, profile.images[name], entry


def _list(args: argparse.Namespace) -> int:
    from launcher.images.checks import current
    from launcher.spec.images import catalogue
    from launcher.spec.images.definition import select

    root = _root()
    entries = catalogue.load(catalogue.path(root))
    rows = []
    for definition in select(root, []):
        entry = entries.get(definition.name)
        version = definition.version() if entry is None else current(definition, entry)
        state = "not pushed" if entry is None else "current" if entry.version == version else "stale"
        reference = entry.reference if entry else None
        if entry is None and (release := _release(definition.name)) is not None:
            state, reference = f"release {release[0]}", release[1]
        rows.append(
            {
                "name": definition.name,
                "version": version,
                "catalogue": state,
                "reference": reference,
                "base": definition.base,
                "description": definition.description,
            }
        )
    columns = None
    if args.output == "table":
        pushed = ["reference"] if any(row["reference"] for row in rows) else []
        columns = ["name", "version", "catalogue", *pushed, "description"]
    output.emit(rows, args.output, columns)
    return 0


def _build(args: argparse.Namespace) -> int:
    from launcher.images.build import build
    from launcher.images.checks import refuse_faults
    from launcher.images.engine import Engine
    from launcher.images.publish import checked, export, refuse_existing
    from launcher.spec.images.definition import select

    root = _root()
    wanted = select(root, args.names)
    # checked now, because it would otherwise fail after minutes of building
    refuse_faults(wanted)
    if args.push is not None:
        checked(args.push)
    if args.output:
        for definition in wanted:
            refuse_existing(Path(args.output) / definition.name)
    if args.scan:
        _scanner()
    options = _options(args)
    buildkit = args.buildkit or os.environ.get("BUILDKIT_HOST") or None
    if buildkit is not None and shutil.which("buildctl") is None:
        raise BadInput(f"BuildKit at {buildkit} needs the program `buildctl` on the PATH")
    engine = Engine()
    for definition in wanted:
        print(f"{definition.name}: building {options.version(definition)}", flush=True)
    built = build(engine, wanted, options, _tell, buildkit)
    for done in built:
        print(f"{done.tag}  {done.size / 1e6:,.0f} MB, {done.layers} layers, {done.seconds:.1f} s  {done.id}")
    if args.scan:
        _refuse_vulnerable(engine, [done.tag for done in built], args.fail_on)
    if args.output:
        for done in built:
            print(
                f"{done.name}: {export(engine, done.tag, Path(args.output) / done.name)} in {args.output}/{done.name}"
            )
    if args.push is not None:
        _publish(
            root, engine, wanted, {done.name: (done.version, done.arguments) for done in built}, options, args.push
        )
    return 0


def _options(args: argparse.Namespace) -> BuildOptions:
    from launcher.images.build import BuildOptions

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return BuildOptions(
        logs=cache / "slipway" / "images",
        base=args.base,
        network=getattr(args, "network", None),
        arguments=_arguments(args.build_arg),
    )


def _arguments(texts: Sequence[str]) -> dict[str, str]:
    arguments = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise BadInput(f"--build-arg: `{text}`; allowed: NAME=VALUE")
        arguments[name] = value
    return arguments


def _tell(step: BuildStep) -> None:
    took = "cached" if step.cached else f"{step.seconds:.1f} s"
    # one write for the line and its end: with BuildKit several images print at once
    print(f"{step.image:<12} {step.number:>6} {took:>8}  {' '.join(step.text.split())[:88]}\n", end="", flush=True)


def _push(args: argparse.Namespace) -> int:
    from launcher.images.engine import Engine
    from launcher.images.publish import checked
    from launcher.spec.images.definition import select

    root = _root()
    wanted, options = select(root, args.names), _options(args)
    checked(args.registry)
    if args.scan:
        _scanner()
    engine = Engine()
    builds = {definition.name: _held(engine, definition, options) for definition in wanted}
    if args.scan:
        _refuse_vulnerable(engine, [f"{name}:{version}" for name, (version, _) in builds.items()], args.fail_on)
    _publish(root, engine, wanted, builds, options, args.registry)
    return 0


def _held(engine: Engine, definition: Definition, options: BuildOptions) -> tuple[str, Mapping[str, str]]:
    """(version, build arguments) of the engine's build with these options: its labels tell which packages of Debian it
    has. Without such a build they are those of the options."""
    from launcher.images import debian

    known = options.version(definition)
    try:
        labels = engine.inspect(f"{definition.name}:{known}")["Config"].get("Labels")
    except NotFound:
        return known, options.arguments
    given = {**options.arguments, **debian.of_image(labels)}
    return definition.version(options.base, given), given


def _publish(
    root: Path,
    engine: Engine,
    images: Sequence[Definition],
    builds: Mapping[str, tuple[str, Mapping[str, str]]],
    options: BuildOptions,
    registry: str,
) -> None:
    """Pushes the builds (image -> version, build arguments) one by one. Writes the catalogue after each, so that it
    lists every finished push."""
    from launcher.images.publish import push
    from launcher.spec.images import catalogue
    from launcher.spec.images.definition import changing

    file = catalogue.path(root)
    for image in images:
        version, given = builds[image.name]  # not computed anew: the sources may have changed meanwhile
        reference = push(engine, f"{image.name}:{version}", registry, lambda text: print(text, flush=True))
        print(f"{image.name}: {reference}", flush=True)
        other = options.base if options.base != image.base else None
        catalogue.record(file, image.name, catalogue.CatalogueEntry(version, reference, other, changing(given)))


def _scanner() -> str:
    """The scanner's name. Called before the build, so that a missing scanner is reported first."""
    from launcher.images.scan import scanner

    return scanner()


def _refuse_vulnerable(engine: Engine, references: Sequence[str], limit: str) -> None:
    """Scans all images and prints the vulnerabilities of each. Raises Vulnerable, so that no image is pushed."""
    from launcher.images.scan import Vulnerable, failing, scan, summary

    program, bad = _scanner(), []
    for reference in references:
        vulnerabilities = scan(engine, reference, program)
        print(f"{reference}: {program}: {summary(vulnerabilities)}", flush=True)
        bad += [
            f"{reference} has {each.id} in {each.package} {each.version}" for each in failing(vulnerabilities, limit)
        ]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise Vulnerable(f"{bad[0]}{more} of severity {limit} or worse (--fail-on); `launcher images scan` lists them")


def _scan(args: argparse.Namespace) -> int:
    from launcher.images.engine import Engine
    from launcher.images.scan import failing, scan, summary
    from launcher.spec.images.definition import names, select

    root, arguments = _root(), _arguments(args.build_arg)
    program = _scanner()
    plain = [name for name in args.names if not any(sign in name for sign in ":@/")]
    tags = {
        definition.name: f"{definition.name}:{definition.version(args.base, arguments)}"
        for definition in select(root, plain or names(root))
    }
    references = [tags.get(name, name) for name in args.names or tags]
    engine, rows, bad = Engine(), [], 0
    for reference in references:
        vulnerabilities = scan(engine, reference, program)
        bad += len(failing(vulnerabilities, args.fail_on))
        rows += [
            {
                "image": reference,
                "severity": vulnerability.severity,
                "id": vulnerability.id,
                "package": vulnerability.package,
                "version": vulnerability.version,
                "fixed": vulnerability.fixed or None,
            }
            for vulnerability in vulnerabilities
        ]
        if args.output == "table":
            print(f"{reference}: {program}: {summary(vulnerabilities)}", flush=True)
    if rows or args.output != "table":
        output.emit(rows, args.output)
    return 1 if bad else 0


def _check(args: argparse.Namespace) -> int:
    from launcher.images.checks import check

    findings = check(_root())
    if args.output == "json":
        output.emit(
            [{"image": finding.image, "fault": finding.fault, "text": finding.text} for finding in findings], "json"
        )
    else:
        for finding in findings:
            print(f"{finding.image}: {finding.text}")
    faults = [finding for finding in findings if finding.fault]
    if not findings and args.output != "json":
        print("images: every definition is complete, and the catalogue matches it")
    return 1 if faults or (args.strict and findings) else 0


def _verify(args: argparse.Namespace) -> int:
    from launcher.images import verify
    from launcher.images.engine import Engine
    from launcher.spec.images import catalogue
    from launcher.spec.images.definition import names

    root, name = _root(), args.reference
    entries = catalogue.load(catalogue.path(root))
    reference, signer, right = name, args.signer or "", True
    if name not in entries and (release := _release(name)) is not None:
        version, reference, entry = release
        signer, text = signer or entry.signer, f"{name} of {version}"
    elif name in names(root):
        entry = verify.pushed_entry(entries, name)
        reference = entry.reference
        right, text = verify.pushed(root, Engine(), name, entry)
    else:
        right, text = verify.held(root, Engine(), name, entries)
    if right and (args.key is not None or signer):
        right, signed = verify.check_signature(reference, args.key, signer)
        text = f"{text}; {signed}"
    elif right:
        text = f"{text}; no signature was looked for: --key FILE or --signer IDENTITY says whose"
    if args.output == "json":
        output.emit_one({"reference": args.reference, "right": right, "text": text}, "json")
    else:
        print(text)
    return 0 if right else 1


def _prune(args: argparse.Namespace) -> int:
    from launcher.images.engine import Engine
    from launcher.images.prune import old_tags
    from launcher.spec.images.definition import select

    engine = Engine()
    old = [tag for definition in select(_root(), []) for tag in old_tags(engine, definition)]
    for tag in old:
        said = "would remove" if args.dry_run else "removed"
        if not args.dry_run:
            try:
                engine.remove(tag)
            except Conflict:
                said = "kept, because a container uses it:"
            except NotFound:
                said = "already removed:"
        print(f"{said} {tag}", flush=True)
    if args.stages and not args.dry_run:
        print(f"removed images without a name: {engine.remove_nameless() / 1e6:,.0f} MB")
    elif not old:
        print("nothing to remove")
    return 0
