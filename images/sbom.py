"""The bill of materials of an image, made inside it: `python sbom.py --name IMAGE --out FOLDER [--extra ...]`.

Writes sbom.cdx.json (CycloneDX 1.5: every distribution of the environment this runs in, every Debian package) and
licences.txt (the same as a table for people). No time and no random number goes in: equal contents give equal bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote


class Component(NamedTuple):
    kind: str  # python | debian | other
    name: str
    version: str
    licence: str
    purl: str


def python_licence(distribution: Distribution) -> str:
    """SPDX where the metadata has it, else the classifiers, else the first line of what stands under License."""
    metadata = distribution.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    named = [line.rpartition(" :: ")[2] for line in classifiers if line != "License :: OSI Approved"]
    if named:
        return " AND ".join(sorted(named))
    first = str(metadata.get("License") or "").strip().split("\n")[0].strip()
    return first[:80] or "see its licence files"


def python_components() -> Iterator[Component]:
    for found in distributions():
        name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
        yield Component("python", name, found.version, python_licence(found), f"pkg:pypi/{name}@{found.version}")


def debian_licence(package: str) -> str:
    """The short names in a machine-readable copyright file; most of Debian's are."""
    copyright_file = Path("/usr/share/doc") / package / "copyright"
    try:
        text = copyright_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"see {copyright_file}"
    names = {match.strip() for match in re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)}
    return ", ".join(sorted(names)) if names else f"see {copyright_file}"


def debian_components() -> Iterator[Component]:
    command = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        package, version, architecture, status = line.split("\t")
        if status == "installed":
            purl = f"pkg:deb/debian/{package}@{quote(version, safe='')}?arch={architecture}"
            yield Component("debian", package, version, debian_licence(package), purl)


def bill(image: str, components: list[Component]) -> dict[str, Any]:
    """The CycloneDX document. Names that SPDX does not define go under `name`, as its schema wants."""
    spdx = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
    entries = []
    for one in components:
        expression = one.kind == "python" and spdx.fullmatch(one.licence)
        licence = {"expression": one.licence} if expression else {"license": {"name": one.licence}}
        entries.append(
            {
                "type": "library",
                "bom-ref": one.purl,
                "name": one.name,
                "version": one.version,
                "purl": one.purl,
                "licenses": [licence],
            }
        )
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([image, entries]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": image, "name": image}},
        "components": entries,
    }


def table(image: str, components: list[Component]) -> str:
    width = max(len(f"{one.name} {one.version}") for one in components)
    lines = [f"{image}: what it contains, and under which licences. The full texts lie beside each package:"]
    lines += ["*.dist-info/ in /opt/venv/lib/python3.11/site-packages, /usr/share/doc/*/copyright for Debian's.", ""]
    lines += [f"{one.kind:6}  {f'{one.name} {one.version}':{width}}  {one.licence}" for one in components]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write an image's bill of materials and licence list.")
    parser.add_argument("--name", required=True, help="the image's name")
    parser.add_argument("--out", required=True, type=Path)
    help_extra = "NAME=VERSION=LICENCE=PURL of something that came by neither way"
    parser.add_argument("--extra", action="append", default=[], help=help_extra)
    arguments = parser.parse_args()
    others = [Component("other", *extra.split("=", 3)) for extra in arguments.extra]
    components = sorted([*python_components(), *debian_components(), *others])
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = json.dumps(bill(arguments.name, components), indent=1, sort_keys=True) + "\n"
    (arguments.out / "sbom.cdx.json").write_text(document, encoding="utf-8")
    (arguments.out / "licences.txt").write_text(table(arguments.name, components), encoding="utf-8")
    print(f"{len(components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
