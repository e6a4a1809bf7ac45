"""Loads msgspec and PyYAML for a process of the launcher's own, before it has threads.

Where typing_extensions is installed, msgspec loads it for things that `typing` has since Python 3.11; that is a third
of the time that msgspec takes to load. PyYAML compiles patterns that libyaml's parser never uses, and `platform`, which
msgspec loads, has others: together a tenth of what a verb takes. They are compiled at their first use instead.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module

TYPE_CHECKING = False  # `typing` takes long to load, and the runtime's own process needs only msgspec's
if TYPE_CHECKING:
    from typing import Any


def load_msgspec() -> None:
    """Imports msgspec without typing_extensions; later imports of that find it."""
    name = "typing_extensions"
    if name in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        _load("msgspec")
    finally:
        del sys.modules[name]


def load_yaml() -> None:
    """Imports PyYAML."""
    _load("yaml")


class _Pattern:
    """What `re.compile` gives while a library loads: compiles at the first use of one of a pattern's methods."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(_compile(*self._arguments), name)  # which `re` keeps


_compile = re.compile


def _load(library: str) -> None:
    """Imports a library of which all modules use their patterns by methods alone, and no function of `re`."""
    if library in sys.modules:
        return
    re.compile = _Pattern  # type: ignore[assignment]
    try:
        import_module(library)
    finally:
        re.compile = _compile
