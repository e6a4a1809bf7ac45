"""The stores to which this machine has submitted. It remembers that they exist and that their create-only puts hold."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from launcher.store.base import Store
from launcher.store.opening import open_store


def memory(environ: Mapping[str, str]) -> Path:
    """The folder with one file for each store that this user has submitted to."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway" / "stores"


def entry(folder: Path, url: str) -> Path:
    return folder / hashlib.sha256(url.encode()).hexdigest()[:24]


def marked(folder: Path, url: str) -> Path:
    """The file that remembers that the object store at a URL has its marker."""
    return folder / f"{entry(folder, url).name}.marked"


def open_known(url: str) -> Store:
    """The store for a verb that reads. If this machine has submitted to it, it must exist: a missing or empty folder is
    Unreachable, because it may be unmounted. Any other missing folder reads as an empty store."""
    return open_store(url, there=url.startswith("file:") and entry(memory(os.environ), url).exists())
