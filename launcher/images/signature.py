"""Whether an image in a registry is signed, and its bill of materials with it: asks the program cosign.

A release's images are signed by the workflow that made it, without a key that somebody could lose: the signature names
the workflow. Images of one's own are signed with a key pair."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from launcher.errors import BadInput

ISSUER: Final = "https://token.actions.githubusercontent.com"  # says that a workflow of GitHub asked for the signature
INSTALL: Final = "checking a signature needs the program `cosign` on the PATH (version 3)"


def check(reference: str, key: Path | None, signer: str) -> tuple[bool, str]:
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
