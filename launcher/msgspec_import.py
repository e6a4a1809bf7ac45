"""Loads msgspec for a process of the launcher's own, before it has threads.

Where typing_extensions is installed, msgspec loads it for things that `typing` has since Python 3.11; that is a third
of the time that msgspec takes to load.
"""

from __future__ import annotations

import sys
from importlib import import_module


def load_msgspec() -> None:
    """Imports msgspec without typing_extensions; later imports of that find it."""
    name = "typing_extensions"
    if name in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        import_module("msgspec")
    finally:
        del sys.modules[name]
