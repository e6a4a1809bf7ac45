"""Makes the catalogue of a release from its pushed images: `python -m tools.release_images 0.1.0 --registry HOST/PATH
amd64.yaml [arm64.yaml]`. Each file is what `launcher images build --push` wrote on a machine of one architecture, in a
clone of the release's tag.

For each image: an index of its architectures as HOST/PATH/NAME:VERSION, whose annotations say the commit and the
source, so that the image itself is a function of its files; a signature; attested, a bill of materials of each part.
Needs oras, cosign and syft on the PATH (tools/build.sh builds them).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from launcher.spec.images import catalogue
from launcher.spec.images.catalogue import CatalogueEntry
from tools.release import ROOT, git

_ANNOTATION: Final = "org.opencontainers.image"


def ran(*words: str) -> str:
    """What a program prints. Raises SystemExit with what it said."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"release_images: {' '.join(words[:3])}: exit code {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def indexed(tag: str, parts: Sequence[str], annotations: Mapping[str, str]) -> str:
    """Makes the index of the architectures' images beside them in the registry, always as OCI has it: Docker's own kind
    has no annotations. Returns its digest."""
    for part in parts:
        ran("oras", "cp", part, tag.rpartition(":")[0])
    told = [f"--annotation={_ANNOTATION}.{name}={value}" for name, value in sorted(annotations.items()) if value]
    ran("oras", "manifest", "index", "create", tag, *(part.rpartition("@")[2] for part in parts), *told)
    return ran("oras", "resolve", tag).strip()


def sign(reference: str, parts: Sequence[str], key: str | None) -> None:
    """Signs an index and what it lists, and attests the bill of materials of each architecture's image."""
    with tempfile.TemporaryDirectory(prefix="slipway-signing-") as folder:
        by = ["--yes"]
        if key is not None:  # a key of one's own tells no public log, and no service needs to answer
            ran("cosign", "signing-config", "create", "--out", config := f"{folder}/config.json")
            by += [f"--key={key}", f"--signing-config={config}"]
        ran("cosign", "sign", "--recursive", *by, reference)
        for number, part in enumerate(parts):
            bill = f"{folder}/{number}.json"
            ran("syft", "scan", "-q", f"registry:{part}", f"--output=cyclonedx-json={bill}")
            ran("cosign", "attest", *by, "--type=cyclonedx", f"--predicate={bill}", reference)


def catalogued(
    version: str, registry: str, built: Sequence[Path], source: str, signer: str, key: str | None
) -> dict[str, CatalogueEntry]:
    """The catalogue of a release; everything that it names is in the registry and signed. Raises SystemExit."""
    found = [catalogue.load(file) for file in built]
    commit = git(ROOT, "rev-parse", "HEAD")
    entries = {}
    for name in sorted(set().union(*found)):
        parts = [each[name].reference for each in found if name in each]
        first = next(each[name] for each in found if name in each)
        annotations = {"version": version, "revision": commit, "source": source}
        digest = indexed(f"{registry}/{name}:{version}", parts, annotations)
        reference = f"{registry}/{name}@{digest}"
        sign(reference, parts, key)
        entries[name] = CatalogueEntry(first.version, reference, first.base, first.arguments, signer)
        print(f"{name}: {reference}: {len(parts)} architecture{'s' if len(parts) > 1 else ''}", flush=True)
    return entries


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release_images", description=__doc__)
    parser.add_argument("version", help="MAJOR.MINOR.PATCH")
    parser.add_argument("built", nargs="+", type=Path, metavar="FILE", help="images/catalogue.yaml of an architecture")
    parser.add_argument("--registry", required=True, help="host/path in front of the images' names")
    parser.add_argument("--source", default="", help="the address of the sources, for the index's annotation")
    parser.add_argument("--signer", default="", help="whom the signatures name, where no key signs")
    parser.add_argument("--key", help="the file of cosign's private key; its password is in COSIGN_PASSWORD")
    parser.add_argument("--out", type=Path, help="the file to write (default: images/catalogues/VERSION.yaml)")
    given = parser.parse_args(words)
    os.environ.setdefault("COSIGN_PASSWORD", "")  # cosign would ask for it
    os.environ.setdefault("SYFT_CHECK_FOR_APP_UPDATE", "false")  # of a service, which it would wait for
    if missing := [file for file in given.built if not file.is_file()]:
        print(f"release_images: there is no file {missing[0]}", file=sys.stderr)
        return 2
    entries = catalogued(given.version, given.registry, given.built, given.source, given.signer, given.key)
    out = given.out or ROOT / catalogue.FOLDER / catalogue.RELEASES / f"{given.version}.yaml"
    out.parent.mkdir(parents=True, exist_ok=True)
    catalogue.save(out, entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
