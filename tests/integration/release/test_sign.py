"""tools/sign-images.sh with stand-ins for docker and cosign, which write down how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tools.release import ROOT

DIGEST: Final = "sha256:" + "5f" * 32
CATALOGUE: Final = f"""# Written by `launcher images push`
one:
  reference: registry.example.com/team/one@{DIGEST}
  version: 0.1.0-1
two:
  reference: registry.example.com/team/two@{DIGEST}
  version: 0.1.0-1
"""
DOCKER: Final = """#!/bin/sh
echo "docker $*" >>calls
case "$1" in
  create) echo "container-of-$2" ;;
  cp) echo "{}" >"$3" ;;
  login) cat >password ;;
esac
"""
COSIGN: Final = """#!/bin/sh
echo "cosign $*" | sed 's|/[^ ]*/bill.json|BILL|' >>calls
[ -z "$REFUSED" ] || { echo "cosign: the registry refuses" >&2; exit 1; }
"""


class Signing:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "catalogue.yaml").write_text(CATALOGUE, encoding="utf-8")
        for name, text in (("docker", DOCKER), ("cosign", COSIGN)):
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(text.replace("calls", str(folder / "calls")).replace(">password", f">{folder}/password"))
            program.chmod(0o755)

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CATALOGUE": str(self.folder / "catalogue.yaml"),
            "REGISTRY": "registry.example.com/team",
            **more,
        }
        script = ROOT / "tools/sign-images.sh"
        return subprocess.run([script], env=environ, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def signing(tmp_path: Path) -> Signing:
    return Signing(tmp_path)


def test_each_image_of_the_catalogue_is_signed_and_its_bill_attested(signing: Signing) -> None:
    done = signing.run(COSIGN_KEY="own.key")
    assert (done.returncode, done.stdout) == (0, "signed: 2 images\n"), done.stderr
    one = f"registry.example.com/team/one@{DIGEST}"
    assert [line for line in signing.calls if line.startswith("cosign")][:2] == [
        f"cosign sign --yes --key own.key {one}",
        f"cosign attest --yes --key own.key --type cyclonedx --predicate BILL {one}",
    ]
    assert f"docker create {one}" in signing.calls
    assert any("container-of-" in line and ":/opt/slipway/sbom.cdx.json" in line for line in signing.calls)


def test_the_password_is_no_argument(signing: Signing) -> None:
    assert signing.run(REGISTRY_USER="someone", REGISTRY_PASSWORD="hidden").returncode == 0
    assert signing.calls[0] == "docker login registry.example.com --username someone --password-stdin"
    assert (signing.folder / "password").read_text() == "hidden"


def test_an_image_of_another_registry_is_not_signed(signing: Signing) -> None:
    done = signing.run(REGISTRY="elsewhere.example.com")
    assert done.returncode == 2
    assert "team/one" in done.stderr
    assert done.stderr.endswith("is not below elsewhere.example.com\n")
    assert signing.calls == []


def test_a_registry_that_refuses_ends_it(signing: Signing) -> None:
    done = signing.run(REFUSED="1")
    assert done.returncode == 1
    assert "signed" not in done.stdout


def test_without_a_catalogue_nothing_is_signed_and_without_a_registry_it_is_said(signing: Signing) -> None:
    done = signing.run(CATALOGUE=str(signing.folder / "none.yaml"))
    assert (done.returncode, done.stdout) == (
        0,
        f"{signing.folder}/none.yaml: nothing was pushed, so nothing is signed\n",
    )
    done = signing.run(REGISTRY="")
    assert done.returncode != 0
    assert "REGISTRY: is empty" in done.stderr
