"""Finds private files of an overlay by their names, and secrets in its other files."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from launcher.errors import Problem
from launcher.spec.secrets.tokens import Token, find

_NAMES: Final = re.compile(
    r"secrets\.json|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|\.env(?:rc|\..+)?|[._]netrc|\.pgpass|\.git-credentials|\.pypirc"
    r"|\.htpasswd|\.vault-token|\.s3cfg|\.boto|\.dockercfg|\.dockerconfigjson|kubeconfig(?:\.ya?ml)?|.+\.kubeconfig"
    r"|application_default_credentials\.json|.+\.(?:p12|pfx|jks|keystore|ppk|kdbx)"
)
_SAMPLES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")  # public by intent
_FOLDERS: Final = frozenset((".aws", ".azure", ".gcloud", ".gnupg", ".kube", ".ssh"))
_PLACES: Final = ((".docker", "config.json"), (".huggingface", "token"))
_KEYS: Final = (".pem", ".key")  # also used for certificates, so the content decides
_READ: Final = 1 << 16  # first bytes of a key file, searched for the mark of a key
_BINARY: Final = 8192  # first bytes of a file; a NUL among them means that it is binary
_LOCAL: Final = re.compile(r"@(?:localhost|127\.|0\.0\.0\.0|\[|[\w.-]*example\b)")
_KEY_BODY: Final = re.compile(r"(?:\\r|\\n|[\s\"'+,|-])*(?:[\w-]+:[^\n]*\n)*\s*[A-Za-z0-9+/=]{16,}")
_WAY_OUT: Final = "no secret in a file (`launcher secrets set NAME`), or the file under `code.include`"


def is_private(folder: Path, name: str) -> bool:
    """Whether a file holds keys or passwords. `name` is relative to the folder, with /. Reads a file whose name fits
    both a key and a certificate."""
    parts = name.lower().split("/")
    last = parts[-1]
    if _NAMES.fullmatch(last):
        return last not in _SAMPLES
    if _FOLDERS.intersection(parts[:-1]) or tuple(parts[-2:]) in _PLACES:
        return True
    if last.endswith(_KEYS):
        try:
            with (folder / name).open("rb") as stream:
                return b"PRIVATE KEY" in stream.read(_READ)
        except OSError:
            return False  # packing the file reports the error
    return False


def named(name: str, pattern: str) -> bool:
    """Whether a pattern of `code.include` matches a file's path, or the last part of its path."""
    return fnmatchcase(name, pattern) or ("/" not in pattern and fnmatchcase(name.rpartition("/")[2], pattern))


def problems(path: Path, shown: str) -> list[Problem]:
    """The secrets in a file: line and kind, never the value. Of a binary file no line is told."""
    data = path.read_bytes()
    if b"\0" in data[:_BINARY]:
        # without its NULs, UTF-16 is the text that it holds
        texts = [data.decode("latin-1"), data.replace(b"\0", b"").decode("latin-1")]
        kinds = {token.kind for text in texts for token in find(text) if not _harmless(token, text)}
        return [Problem(shown, 0, 0, "code", f"holds what looks like {kind}", _WAY_OUT) for kind in sorted(kinds)]
    text = data.decode("utf-8", "replace")
    secrets, line, at = [], 1, 0
    for token in find(text):
        if not _harmless(token, text):
            line += text.count("\n", at, token.start)
            at = token.start
            column = token.start - (text.rfind("\n", 0, token.start) + 1) + 1
            secrets.append(Problem(shown, line, column, "code", f"looks like {token.kind}", _WAY_OUT))
    return secrets


def _harmless(token: Token, text: str) -> bool:
    """Whether a token is one of the harmless ones that source code often holds."""
    if token.kind == "a password in a URL":
        return _LOCAL.match(text, token.end) is not None
    if token.kind == "a private key":  # a program that reads such files holds only the first line
        return _KEY_BODY.match(text, token.end) is None
    return text.endswith("EXAMPLE", token.start, token.end)  # as in Amazon's documentation
