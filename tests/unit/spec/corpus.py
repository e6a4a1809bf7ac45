"""The corpus of broken files: broken/<name>.yaml and, beside each, broken/<name>.txt with what it must say.

Comments at a file's start set the scene: `#! set: a.b=c`, `#! backend: NAME`, `#! profile: {slipway.yaml in one line}`.
`@HF@` and the like stand for token-shaped texts, put together here so that no file of the repository holds one.
`make golden` writes the .txt files again; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from launcher.errors import BadInput
from launcher.spec.profile import load_profile
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve

FOLDER = Path(__file__).parent / "broken"
TOKENS = {
    "@HF@": "hf_" + "Ab3dEf6h" * 4,
    "@OPENAI@": "sk-" + "proj-" + "a1B2c3D4e5" * 3,
    "@AWS@": "AKIA" + "ABCDEFGHIJKLMNOP",
    "@GITHUB@": "ghp_" + "a1B2c3D4e5F6" * 3,
    "@SLACK@": "xoxb-" + "1234567890-abcdef",
    "@PASSWORD@": "correct-horse",
    "@PEM@": "-----BEGIN RSA " + "PRIVATE KEY-----",
}


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.yaml"))


def text(path: Path) -> bytes:
    data = path.read_bytes()
    for name, token in TOKENS.items():
        data = data.replace(name.encode(), token.encode())
    return data


def said(path: Path, scratch: Path) -> str:
    """The message that a broken file gives, as the command line would print it."""
    data = text(path)
    scene = re.findall(r"^#! (set|backend|profile): (.*)$", data.decode("utf-8", "replace"), re.MULTILINE)
    (scratch / path.name).write_bytes(data)
    profiles = [value for key, value in scene if key == "profile"]
    if profiles:
        (scratch / "slipway.yaml").write_text(profiles[0] + "\n")
    backend = next((value for key, value in scene if key == "backend"), None)
    try:
        profile = load_profile(scratch, None, {"HOME": "/home/somebody", "XDG_CONFIG_HOME": os.devnull})
        loaded = load([path.name], overrides=[value for key, value in scene if key == "set"], cwd=scratch)
        resolve(loaded, profile, environment="0" * 64, backend=backend)
    except BadInput as error:
        return str(error).replace(str(scratch), "DIR") + "\n"
    return "accepted\n"


def texts() -> dict[Path, str]:
    """Every broken/<name>.txt with what it must hold today."""
    messages = {}
    for path in files():
        with tempfile.TemporaryDirectory() as scratch:
            messages[path.with_suffix(".txt")] = said(path, Path(scratch))
    return messages
