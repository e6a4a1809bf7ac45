"""The bill of materials of an image, made inside it: `python sbom.py --name IMAGE --out FOLDER [--extra ...]`.

Writes sbom.cdx.json (CycloneDX 1.5: the operating system, every distribution of the environment this runs in, every
Debian package) and licences.txt (the same as a table for people). No time and no random number goes in: equal contents
give equal bytes.

Scanners match a Debian package by the release of its system and by its source package: trivy passes over all of them
when no component is an operating system, and reads the source from its own properties; grype reads both from the purl.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
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
    source: str = ""  # NAME@VERSION of the Debian source package


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


def operating_system(file: Path = Path("/etc/os-release")) -> tuple[str, str]:
    """(its id, its version), as ("debian", "12"). Raises SystemExit where they are not known."""
    try:
        pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
        values = {name: value.strip("\"'") for name, _, value in pairs}
        return values["ID"], values["VERSION_ID"]
    except (OSError, KeyError) as error:
        raise SystemExit(f"sbom: {file} does not name the operating system and its version: {error}") from None


def debian_components() -> Iterator[Component]:
    distribution = "-".join(operating_system())
    fields = ("Package", "Version", "Architecture", "db:Status-Status", "source:Package", "source:Version")
    command = ["dpkg-query", "-W", "-f", "\t".join(f"${{{field}}}" for field in fields) + "\n"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        package, version, architecture, status, *source = line.split("\t")
        if status == "installed":
            qualifiers = f"arch={architecture}&distro={distribution}"
            if source != [package, version]:
                qualifiers += "&upstream=" + quote("@".join(source), safe="")
            purl = f"pkg:deb/debian/{package}@{quote(version, safe='')}?{qualifiers}"
            yield Component("debian", package, version, debian_licence(package), purl, "@".join(source))


def bill(image: str, components: list[Component]) -> dict[str, Any]:
    """The CycloneDX document. Names that SPDX does not define go under `name`, as its schema wants."""
    spdx = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
    system, release = operating_system()
    entries: list[dict[str, Any]] = [
        {"type": "operating-system", "bom-ref": f"{system}-{release}", "name": system, "version": release}
    ]
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
        if one.source:
            name, _, version = one.source.partition("@")
            values = {"aquasecurity:trivy:SrcName": name, "aquasecurity:trivy:SrcVersion": version}
            entries[-1]["properties"] = [{"name": key, "value": value} for key, value in values.items()]
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


def privileged(root: Path = Path("/")) -> list[str]:
    """The programs below `root` that run with the rights of their owner or group. Other mounts are not looked at."""
    device = root.stat().st_dev
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name).lstat().st_dev == device]
        for path in (Path(folder, name) for name in names):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                found.append(str(path))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write an image's bill of materials and licence list.")
    parser.add_argument("--name", required=True, help="the image's name")
    parser.add_argument("--out", required=True, type=Path)
    help_extra = "NAME=VERSION=LICENCE=PURL of something that came by neither way"
    parser.add_argument("--extra", action="append", default=[], help=help_extra)
    arguments = parser.parse_args()
    others = [Component("other", *extra.split("=", 3)) for extra in arguments.extra]
    components = sorted([*python_components(), *debian_components(), *others])
    if not any(one.kind == "debian" for one in components):
        raise SystemExit("sbom: dpkg names no package: the bill would leave the operating system out")
    if kept := privileged():
        raise SystemExit(f"sbom: setuid or setgid: {', '.join(kept)}: take the bits away where they were installed")
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = json.dumps(bill(arguments.name, components), indent=1, sort_keys=True) + "\n"
    (arguments.out / "sbom.cdx.json").write_text(document, encoding="utf-8")
    (arguments.out / "licences.txt").write_text(table(arguments.name, components), encoding="utf-8")
    print(f"{len(components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
