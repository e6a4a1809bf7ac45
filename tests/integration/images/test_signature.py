"""`launcher images verify` of an image of a release, with a stand-in for cosign that writes down how it was called.
test_release_images.py has the real one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.images import verify
from launcher.spec.images import catalogue
from tests.support.releases import NAME, reference
from tests.unit.images.project import project

SIGNER = "https://github.com/someone/slipway/.github/workflows/release.yaml@refs/tags/v0.1.0"
COSIGN = """#!/bin/sh
echo "$*" >>{calls}
[ "$1" != "$REFUSED" ] || {{ printf 'WARNING: x\\nError: no matching signatures\\n' >&2; exit 10; }}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed launcher that has one release."""
    packed = project(tmp_path)
    known = packed / catalogue.FOLDER / catalogue.RELEASES
    known.mkdir()
    entry = catalogue.CatalogueEntry("0.1.0-00000000", reference("0.1.0"), signer=SIGNER)
    catalogue.save(known / "0.1.0.yaml", {NAME: entry})
    monkeypatch.setattr(catalogue, "trees", lambda: packed)
    monkeypatch.setattr(catalogue, "PACKED", packed)
    program = tmp_path / "bin" / "cosign"
    program.parent.mkdir()
    program.write_text(COSIGN.format(calls=tmp_path / "calls"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(packed)
    return tmp_path / "calls"


def test_the_release_says_whose_signature_it_must_be(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "verify", NAME]) == 0
    own = f"--certificate-identity {SIGNER} --certificate-oidc-issuer {verify.ISSUER} {reference('0.1.0')}"
    assert calls.read_text().splitlines() == [f"verify {own}", f"verify-attestation --type cyclonedx {own}"]
    told = f"{NAME} of 0.1.0; {reference('0.1.0')} and its bill of materials are signed by {SIGNER}\n"
    assert capsys.readouterr().out == told


def test_a_mirror_and_a_key_are_taken_as_they_are_named(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("slipway.yaml").write_text("image_registry: mirror.example\n")
    assert main(["images", "verify", NAME, "--key", "own.pub"]) == 2
    assert "--key: there is no file own.pub" in capsys.readouterr().err
    Path("own.pub").touch()
    assert main(["images", "verify", NAME, "--key", "own.pub"]) == 0
    there = reference("0.1.0", "mirror.example")
    assert calls.read_text().splitlines()[0] == f"verify --key own.pub --insecure-ignore-tlog=true {there}"


@pytest.mark.parametrize(("refused", "what"), [("verify", "signature"), ("verify-attestation", "bill of materials")])
def test_what_cosign_refuses_is_exit_code_1(
    calls: Path, refused: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFUSED", refused)
    assert main(["images", "verify", NAME]) == 1
    assert f"its {what} was not verified: no matching signatures\n" in capsys.readouterr().out


def test_without_cosign_it_says_what_to_install(
    calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(calls.parent / "none"))
    assert main(["images", "verify", NAME]) == 2
    assert verify.INSTALL in capsys.readouterr().err


def test_the_list_names_the_release(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = catalogue.released()["0.1.0"]
    catalogue.save(known, {"tiny": catalogue.load(known)[NAME]})
    assert main(["images", "list", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["catalogue"], row["reference"]) == ("release 0.1.0", reference("0.1.0"))
