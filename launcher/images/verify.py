"""`launcher images verify`: checks that an image matches these sources, that jobs get its digest, that it is signed.

A release's images are signed by the workflow that made it, without a key that somebody could lose: the signature names
the workflow. Images of one's own are signed with a key pair. The program cosign is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import NotFound
from launcher.images import debian
from launcher.images.checks import current
from launcher.spec.images.catalogue import CatalogueEntry
from launcher.spec.images.definition import Definition, select

if TYPE_CHECKING:
    from launcher.images.engine import Engine
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from launcher.errors import BadInput


def pushed_entry(entries: Mapping[str, CatalogueEntry], name: str) -> CatalogueEntry:
    """The catalogue's entry of an image. Raises NotFound for an image that was never pushed."""
    if name not in entries:
        raise NotFound(
            f"{name} is not in the catalogue: nobody pushed it (`launcher images build {name} --push REGISTRY`)"
        )
    return entries[name]


def pushed(root: Path, engine: Engine, name: str, entry: CatalogueEntry) -> tuple[bool, str]:
    """(whether it matches, one line): compares the catalogue's image with the registry and the sources.

    Raises NotFound when the registry has no image under the entry's tag, Unreachable.
    """
    repository, _, digest = entry.reference.partition("@")
    registry_digest = engine.digest(f"{repository}:{entry.version}")
    if registry_digest != digest:
        return (
            False,
            f"wrong digest: the catalogue has {entry.reference}, the registry {registry_digest} as {entry.version}",
        )
    if entry.version != (now := current(Definition(name, root), entry)):
        return False, f"stale: the catalogue has {name} {entry.version}; the sources here make {now}"
    return True, f"{entry.reference} is {name} {entry.version}, as the sources here make it"


def held(root: Path, engine: Engine, reference: str, entries: Mapping[str, CatalogueEntry]) -> tuple[bool, str]:
    """The same for an image in the engine, whoever built or pulled it. Raises NotFound, Unreachable."""
    details = engine.inspect(reference)
    labels = details["Config"].get("Labels") or {}
    title, version = labels.get("org.opencontainers.image.title"), labels.get("org.opencontainers.image.version")
    if not title or not version:
        return False, f"{reference} carries no labels of Slipway's images"
    (definition,) = select(root, [title])
    entry = entries.get(title)
    now = definition.version(None, debian.of_image(labels))
    if version != now and (entry is None or version != current(definition, entry)):
        return False, f"{reference} is {title} {version}; the sources here make {now}"
    if entry is not None and entry.version == version:
        repository = entry.reference.partition("@")[0]
        digests = [known for known in details.get("RepoDigests") or () if known.partition("@")[0] == repository]
        if digests and entry.reference not in digests:
            return False, f"wrong digest: {reference} is {digests[0]}, the catalogue has {entry.reference}"
    return True, f"{reference} is {title} {version}, as the sources here make it; {details['Id']}"


ISSUER: Final = "https://token.actions.githubusercontent.com"  # says that a workflow of GitHub asked for the signature
INSTALL: Final = "checking a signature needs the program `cosign` on the PATH (version 3)"


def check_signature(reference: str, key: Path | None, signer: str) -> tuple[bool, str]:
    """(whether it is signed as it should be, one line). `key`: the file of a public key; without it `signer` is whom
    the signature must name. Raises BadInput where there is no cosign or no key."""
    if shutil.which("cosign") is None:
        raise BadInput(INSTALL)
    if key is not None and not key.is_file():
        raise BadInput(f"--key: there is no file {key}; allowed: the public key of `cosign generate-key-pair`")
    # with a key of one's own nobody has to have told a public log
    who = ["--certificate-identity", signer, "--certificate-oidc-issuer", ISSUER]
    by = ["--key", str(key), "--insecure-ignore-tlog=true"] if key is not None else who
    for what, words in (
        ("signature", ["verify"]),
        ("bill of materials", ["verify-attestation", "--type", "cyclonedx"]),
    ):
        if why := _refused([*words, *by, reference]):
            return False, f"{reference}: its {what} was not verified: {why}"
    return True, f"{reference} and its bill of materials are signed by {key or signer}"


def _refused(words: Sequence[str]) -> str:
    """Why cosign refuses; empty where it does not."""
    done = subprocess.run(["cosign", *words], capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    said = next((line for line in reversed(lines) if line.startswith("Error:")), lines[-1] if lines else "")
    return said.removeprefix("Error:").strip() or f"cosign ended with exit code {done.returncode}"
