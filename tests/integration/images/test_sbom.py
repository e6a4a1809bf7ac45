"""images/sbom.py: the bill names what a scanner matches packages by. This machine stands for an image.

The stand-in for a scanner reads a bill as trivy does (aquasecurity/trivy, pkg/sbom/io/decode.go at 08d67e7:
decodeComponents, fillSrcPkg, addOrphanPkgs): Debian's packages count only beside one component of the
type operating-system, and are matched by their source package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.errors import BadInput
from launcher.images.engine import Engine
from launcher.images.scan import scan
from tests.support.engine import ROOT

TRIVY = """\
#!{python}
import json, sys
components = json.load(open(sys.argv[-1]))["components"]
database = json.load(open({database!r}))
systems = [one for one in components if one["type"] == "operating-system"]
found = []
for one in components:
    if not one.get("purl", "").startswith("pkg:deb/") or len(systems) != 1:
        continue
    values = {{each["name"]: each["value"] for each in one.get("properties", ())}}
    source = values.get("aquasecurity:trivy:SrcName", one["name"])
    for entry in database:
        if entry["source"] == source and entry["release"] == systems[0]["version"]:
            found.append({{"VulnerabilityID": entry["id"], "PkgName": one["name"], "Severity": "HIGH",
                           "InstalledVersion": one["version"]}})
print(json.dumps({{"SchemaVersion": 2, "Results": [{{"Vulnerabilities": found}}]}}))
"""


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not shutil.which("dpkg-query"):
        pytest.skip("Debian's dpkg-query is not here: run this on Debian or Ubuntu")
    out = tmp_path_factory.mktemp("bill")
    # this machine has setuid programs, with which no image is made
    script = "import sbom; sbom.privileged = lambda: []; sbom.main()"
    command = [sys.executable, "-c", script, "--name", "machine", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT / "images")
    read: dict[str, Any] = json.loads((out / "sbom.cdx.json").read_text())
    return read


def renamed() -> tuple[str, str]:
    """(binary package, its source package of another name), of this machine."""
    command = ["dpkg-query", "-W", "-f", "${Package}\t${source:Package}\t${db:Status-Status}\n"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = (line.split("\t") for line in lines)
    return next((binary, source) for binary, source, status in pairs if binary != source and status == "installed")


def os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


class OneFile:
    """An engine whose image holds a bill of materials."""

    def __init__(self, bill: object) -> None:
        self.bill = bill

    def read_file(self, reference: str, path: str) -> bytes:
        return json.dumps(self.bill).encode()


def trivy(folder: Path, monkeypatch: pytest.MonkeyPatch, *database: dict[str, str]) -> None:
    (folder / "database.json").write_text(json.dumps(database))
    program = folder / "trivy"
    program.write_text(TRIVY.format(python=sys.executable, database=str(folder / "database.json")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_vulnerability_of_a_source_package_is_found_in_its_binary_package(
    bill: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, source = renamed()
    release = os_release()["VERSION_ID"]
    entries = ({"source": source, "release": release, "id": "CVE-1"}, {"source": source, "release": "0", "id": "CVE-2"})
    trivy(tmp_path, monkeypatch, *entries)
    found = scan(cast("Engine", OneFile(bill)), "image", "trivy")
    assert binary in {one.package for one in found}
    assert {one.id for one in found} == {"CVE-1"}


def test_the_system_and_the_qualifiers_that_grype_reads(bill: dict[str, Any]) -> None:
    """As syft writes them: distro=ID-VERSION, and upstream=NAME@VERSION where the source differs."""
    system = os_release()
    (component,) = [one for one in bill["components"] if one["type"] == "operating-system"]
    assert (component["name"], component["version"]) == (system["ID"], system["VERSION_ID"])
    packages = [one for one in bill["components"] if one.get("purl", "").startswith("pkg:deb/")]
    assert packages
    assert all(f"&distro={system['ID']}-{system['VERSION_ID']}" in one["purl"] for one in packages)
    binary, source = renamed()
    (purl,) = {one["purl"] for one in packages if one["name"] == binary and f"upstream={source}%40" in one["purl"]}
    assert purl.count("?") == 1
    references = [one["bom-ref"] for one in bill["components"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize("change", ["no system", "no packages", "no version", "no bill"])
def test_a_bill_of_which_a_scanner_would_pass_over_the_most_is_refused(
    bill: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Before the scanner is asked: with such a bill it finds nothing, which looks like a clean image."""
    _, source = renamed()
    trivy(tmp_path, monkeypatch, {"source": source, "release": os_release()["VERSION_ID"], "id": "CVE-1"})
    kept = [one for one in bill["components"] if change != "no system" or one["type"] != "operating-system"]
    if change == "no packages":
        kept = [one for one in kept if not one.get("purl", "").startswith("pkg:deb/")]
    if change == "no version":
        kept = [{**one, "version": ""} if one["type"] == "operating-system" else one for one in kept]
    changed = [] if change == "no bill" else {**bill, "components": kept}
    with pytest.raises(BadInput, match=r"bill of materials .*build it again|no bill of materials"):
        scan(cast("Engine", OneFile(changed)), "image", "trivy")
