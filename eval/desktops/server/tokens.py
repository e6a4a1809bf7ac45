"""The token that clients of a server send."""

from __future__ import annotations

import os
import re
from pathlib import Path

from eval.config import ConfigError


def given_token(file: str | None, variable: str) -> str:
    """The token in the file that --token-file names, or without one in an environment variable, which is taken out so
    that nothing that is started inherits it; "" where it is not set. Raises ConfigError."""
    if not file:
        return os.environ.pop(variable, "")
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file: {file} cannot be read: {error}") from None
    if not re.fullmatch(r"[!-~]+", token):
        raise ConfigError(f"--token-file: {file} must hold one word of ASCII, the token")
    return token
