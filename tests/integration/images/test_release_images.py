"""A release's own steps against a local registry: an image is built and pushed, gets its index, a signature by a key
pair and an attested bill of materials, and a launcher that has its catalogue verifies it. A changed byte is refused."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from launcher.spec.images import catalogue
from tests.integration.images.conftest import Registry, flags
from tests.support.engine import ROOT, Engine
from tests.support.programs import built
from tools import release_images

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(7200)]

RELEASE = "0.1.0"
BUILT = "built.yaml"


class Released:
    """An image that was released, in the registry, and a launcher that has its catalogue."""

    def __init__(self, name: str, registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.folder, self.packed = name, registry.folder, folder
        self.registry = registry.name.replace("127.0.0.1", "localhost")  # where oras speaks without TLS
        self.file = folder / catalogue.FOLDER / catalogue.RELEASES / f"{RELEASE}.yaml"
        self.file.parent.mkdir(parents=True)
        monkeypatch.setattr(catalogue, "trees", lambda: folder)
        monkeypatch.setattr(catalogue, "PACKED", folder)
        (folder / "work").mkdir()
        monkeypatch.setenv("COSIGN_PASSWORD", "of the key")
        subprocess.run(["cosign", "generate-key-pair"], cwd=folder, check=True, capture_output=True)
        self.public = folder / "cosign.pub"

    def build(self, root: Path, engine: Engine) -> str:
        """Builds and pushes the small project's image; what was pushed. Its catalogue is no longer the project's."""
        assert main(["images", "build", "tiny", *flags(engine), "--push", f"{self.registry}/amd64"]) == 0
        catalogue.path(root).rename(root / BUILT)
        return catalogue.load(root / BUILT)["tiny"].reference

    def release(self, built_catalogue: Path, *more: str) -> None:
        words = [RELEASE, str(built_catalogue), "--registry", self.registry, "--out", str(self.file), *more]
        assert release_images.main([*words, "--key", str(self.packed / "cosign.key")]) == 0

    @property
    def reference(self) -> str:
        return catalogue.load(self.file)[self.name].reference

    def verify(self) -> int:
        return main(["images", "verify", self.name, "--key", str(self.public)])

    def blob(self, digest: str) -> Path:
        """A blob of the registry, manifests among them."""
        bare = digest.removeprefix("sha256:")
        return self.folder / f"docker/registry/v2/blobs/sha256/{bare[:2]}/{bare}/data"

    def manifest(self, reference: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.blob(reference.partition("@")[2]).read_bytes())
        return found


@pytest.fixture
def released(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Released:
    programs = built("oras", "cosign", "syft")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # no login of this machine's is needed
    return Released("tiny", registry, tmp_path / "installed", monkeypatch)


def flipped(file: Path) -> None:
    """Changes one byte in the middle of a file; twice, and it is as it was."""
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)


def test_the_index_says_the_commit_and_verifies_with_its_bill_of_materials(
    root: Path, engine: Engine, released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = released.build(root, engine)
    released.release(root / BUILT, "--source", "https://example.com/slipway")
    index = released.manifest(released.reference)
    assert [part["digest"] for part in index["manifests"]] == [pushed.partition("@")[2]]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert index["annotations"] == {
        "org.opencontainers.image.revision": head.strip(),
        "org.opencontainers.image.source": "https://example.com/slipway",
        "org.opencontainers.image.version": RELEASE,
    }
    capsys.readouterr()
    assert released.verify() == 0
    told = capsys.readouterr().out
    assert f"{released.reference} and its bill of materials are signed by {released.public}" in told
    words = ["verify-attestation", "--type=cyclonedx", f"--key={released.public}", "--insecure-ignore-tlog=true"]
    attested = subprocess.run(["cosign", *words, released.reference], capture_output=True, text=True, check=True)
    statement = json.loads(base64.b64decode(json.loads(attested.stdout.splitlines()[0])["payload"]))
    assert statement["predicateType"] == "https://cyclonedx.org/bom"
    assert statement["predicate"]["bomFormat"] == "CycloneDX"

    # told otherwise, it is another index of the same image
    first = released.reference
    released.release(root / BUILT, "--source", "https://example.com/moved")
    assert released.reference != first
    assert released.manifest(released.reference)["manifests"] == index["manifests"]


def test_another_key_a_changed_image_and_a_changed_byte_are_refused(
    root: Path, engine: Engine, released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = released.build(root, engine)
    released.release(root / BUILT)
    assert released.verify() == 0

    (tmp_path / "other").mkdir()
    subprocess.run(["cosign", "generate-key-pair"], cwd=tmp_path / "other", check=True, capture_output=True)
    assert main(["images", "verify", "tiny", "--key", str(tmp_path / "other" / "cosign.pub")]) == 1

    # one byte of the sources, under the release's name, and nobody signed it
    good = catalogue.load(released.file)
    (root / "source" / "main.py").write_text("print(2)\n")
    changed = released.build(root, engine)
    assert changed != pushed
    released.file.unlink()
    catalogue.save(released.file, {"tiny": catalogue.CatalogueEntry(good["tiny"].version, changed)})
    capsys.readouterr()
    assert released.verify() == 1
    assert "its signature was not verified: " in capsys.readouterr().out

    # one byte of what the registry keeps: of the index, which an engine keeps once it has pulled it, then of a layer.
    # The digest stays the one that is signed, so `images verify` refuses nothing; who pulls compares the bytes with it
    catalogue.save(released.file, good)
    layer = released.manifest(pushed)["layers"][-1]["digest"]
    for part in (released.reference.partition("@")[2], layer):
        flipped(released.blob(part))
        for image in engine.docker("images", "-q", "tiny").stdout.split():
            engine.docker("rmi", "-f", image, check=False)
        assert engine.docker("pull", released.reference, check=False).returncode != 0
        flipped(released.blob(part))
    engine.docker("pull", released.reference)
    assert released.verify() == 0


def test_slipway_cpu_goes_the_same_way(
    engine: Engine, debian_engine: Engine, released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a clone of the commit that is checked out, as from a tag, on a Debian that debootstrap made."""
    released.name = "slipway-cpu"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    words = [sys.executable, "-m", "launcher.cli", "images", "build", "slipway-cpu", *flags(debian_engine)]
    environ = {**debian_engine.environment, "PYTHONPATH": str(clone)}
    done = subprocess.run(
        [*words, "--push", f"{released.registry}/amd64"],
        cwd=clone, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    released.release(clone / "images" / "catalogue.yaml")
    monkeypatch.chdir(released.packed / "work")
    assert released.verify() == 0
