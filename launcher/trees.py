"""The files that are no package: examples/, images/, k8s/ and docs/, in a clone or packed into an installed Slipway."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from launcher.version import __version__

PACKED: Final = Path(__file__).parent / "packed"  # written by tools/packing.py into wheels; a clone has none
# Where the pages of each version are published, `{version}` within it. Empty: nowhere yet
DOCUMENTS: Final[str] = ""


def trees() -> Path:
    """The folder that has examples/, images/, k8s/ and docs/."""
    return PACKED if PACKED.is_dir() else Path(__file__).parents[1]


def document(path: str) -> str:
    """Where a user finds a page of this version, such as `docs/howto/install.md`: its address once published, else the
    file itself. In a clone that is the path as given."""
    if DOCUMENTS:
        return f"{DOCUMENTS.format(version=__version__)}/{path}"
    return str(PACKED / path) if PACKED.is_dir() else path
