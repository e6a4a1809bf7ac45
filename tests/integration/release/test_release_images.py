"""tools/release_images.py with stand-ins for oras, cosign and syft, which write down how they were called.
tests/integration/images/test_release_images.py has the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.spec.images import catalogue
from launcher.spec.images.catalogue import CatalogueEntry
from tests.support.needs import marked
from tools import release_images
from tools.release import ROOT, git

pytestmark = marked("git")

REGISTRY = "registry.example/team"
INDEX = "sha256:" + "9" * 64
STAND_IN = """#!/bin/sh
echo "{name} $*" | sed 's|/[^ =]*/slipway-signing-[^/]*/||g' >>{calls}
[ "{name} $1" != "$REFUSED" ] || {{ echo "{name}: denied" >&2; exit 1; }}
[ "$1" != resolve ] || echo {index}
"""


def built(processor: str, name: str) -> CatalogueEntry:
    digit = {"amd64": "a", "arm64": "b"}[processor]
    reference = f"{REGISTRY}/{processor}/{name}@sha256:{digit * 64}"
    return CatalogueEntry("0.1.0-12345678", reference, arguments={"SNAPSHOT": "20261201T000000Z"})


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a machine of each architecture pushed, and the stand-ins."""
    for name in ("oras", "cosign", "syft"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN.format(name=name, calls=tmp_path / "calls", index=INDEX))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    catalogue.save(tmp_path / "amd64.yaml", {name: built("amd64", name) for name in ("slipway-cpu", "waa-vm")})
    catalogue.save(tmp_path / "arm64.yaml", {"slipway-cpu": built("arm64", "slipway-cpu")})
    return tmp_path / "calls"


def run(calls: Path, *more: str) -> int:
    files = [str(calls.parent / f"{processor}.yaml") for processor in ("amd64", "arm64")]
    out = str(calls.parent / "out" / "0.1.0.yaml")
    return release_images.main(["0.1.0", *files, "--registry", REGISTRY, "--out", out, *more])


def test_each_image_is_an_index_of_its_architectures_signed_with_their_bills(calls: Path) -> None:
    assert run(calls, "--source", "https://example.com/slipway", "--signer", "the workflow") == 0
    said = calls.read_text().splitlines()
    amd64, arm64 = (built(processor, "slipway-cpu").reference for processor in ("amd64", "arm64"))
    annotations = (
        f"--annotation=org.opencontainers.image.revision={git(ROOT, 'rev-parse', 'HEAD')} "
        "--annotation=org.opencontainers.image.source=https://example.com/slipway "
        "--annotation=org.opencontainers.image.version=0.1.0"
    )
    index, digests = f"{REGISTRY}/slipway-cpu@{INDEX}", f"sha256:{'a' * 64} sha256:{'b' * 64}"
    assert said[:9] == [
        f"oras cp {amd64} {REGISTRY}/slipway-cpu",
        f"oras cp {arm64} {REGISTRY}/slipway-cpu",
        f"oras manifest index create {REGISTRY}/slipway-cpu:0.1.0 {digests} {annotations}",
        f"oras resolve {REGISTRY}/slipway-cpu:0.1.0",
        f"cosign sign --recursive --yes {index}",
        f"syft scan -q registry:{amd64} --output=cyclonedx-json=0.json",
        f"cosign attest --yes --type=cyclonedx --predicate=0.json {index}",
        f"syft scan -q registry:{arm64} --output=cyclonedx-json=1.json",
        f"cosign attest --yes --type=cyclonedx --predicate=1.json {index}",
    ]
    assert len([line for line in said if "waa-vm" in line]) == 6  # of one architecture
    arguments = {"SNAPSHOT": "20261201T000000Z"}
    assert catalogue.load(calls.parent / "out" / "0.1.0.yaml") == {
        name: CatalogueEntry("0.1.0-12345678", f"{REGISTRY}/{name}@{INDEX}", None, arguments, "the workflow")
        for name in ("slipway-cpu", "waa-vm")
    }


def test_a_key_of_ones_own_tells_no_public_log(calls: Path) -> None:
    assert run(calls, "--key", "own.key") == 0
    said = calls.read_text().splitlines()
    assert said[4] == "cosign signing-config create --out config.json"
    assert f"cosign sign --recursive --yes --key=own.key --signing-config=config.json {REGISTRY}/" in said[5]


@pytest.mark.parametrize("refused", ["oras cp", "oras manifest", "cosign sign", "syft scan", "cosign attest"])
def test_what_fails_leaves_no_catalogue(calls: Path, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", refused)
    with pytest.raises(SystemExit, match=rf"{refused}.*: exit code 1\n{refused.split()[0]}: denied"):
        run(calls)
    assert not (calls.parent / "out").exists()


def test_a_file_that_is_not_there_is_named(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (calls.parent / "arm64.yaml").unlink()
    assert run(calls) == 2
    assert capsys.readouterr().err == f"release_images: there is no file {calls.parent}/arm64.yaml\n"
    assert not calls.exists()
