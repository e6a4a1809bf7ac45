"""Refuses a store that --store or SLIPWAY_STORE names and that does not exist, for every verb that creates no store."""

from __future__ import annotations

import os
from pathlib import Path

# verbs that create a store, `render`, which reads none, and `doctor`, which has its own message
_NOT_ASKED = frozenset(("submit", "push", "run", "dev", "render", "doctor"))


def check(verb: str, given: str | None) -> None:
    """Raises NotFound when a named folder is no store; object stores are checked by the verb itself. `given`: the value
    of --store."""
    if verb in _NOT_ASKED:
        return
    origin, text = ("--store", given) if given else ("SLIPWAY_STORE", os.environ.get("SLIPWAY_STORE", ""))
    if not text or ("://" in text and not text.startswith("file://")):
        return
    from launcher.errors import NotFound
    from launcher.spec.profile import absolute_store
    from launcher.store.absent import absence

    url = absolute_store(text, Path.cwd(), Path(os.environ.get("HOME") or Path.home()))
    if why := absence(url):
        raise NotFound(f"{origin}: no store at {url.removeprefix('file://')}: {why}; the first submit creates it")
