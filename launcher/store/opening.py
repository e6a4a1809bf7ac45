"""Opens the store of a URL, and tells whether there is one. This machine remembers the stores to which it has
submitted: that they exist, and that their create-only puts hold."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from launcher.errors import BadInput, SlipwayError, Unreachable
from launcher.store.base import DEADLINE, TEMPORARY, Store
from launcher.store.layout import CHECKS, MARKER, ROOMS


def open_store(url: str, *, deadline: float = DEADLINE, there: bool = False) -> Store:
    """The store of a URL: `file:///path`, `s3://bucket/prefix`, `gs://...`, `az://...`. Reads and writes nothing yet.

    `deadline`: seconds for which one call retries before it raises Unreachable. `there`: the store must exist already,
    as for a run; a missing or empty folder raises Unreachable, because it may be unmounted or moved. Without `there` it
    reads as an empty store, and the first write makes the store. SDKs are imported only for the stores that need them.
    Raises BadInput for a URL that names no store.
    """
    store = _plain(url, deadline, there)
    folder = os.environ.get("SLIPWAY_ONE_BODY")
    if folder and Path(folder).is_dir():  # only in tests; a container that inherits the variable has no such folder
        from launcher.store.one_body import OneBody

        return OneBody(store, Path(folder))
    return store


def _plain(url: str, deadline: float, there: bool) -> Store:
    scheme, separator, _ = url.partition("://")
    if scheme == "file" and separator:
        from launcher.store.file import FileStore

        return FileStore.at(url, there=there)
    if scheme in ("s3", "gs", "az") and separator:
        from launcher.store.objects import ObjectStore

        return ObjectStore.at(url, deadline=deadline)
    raise BadInput(f"store `{url}`: unknown kind; allowed: file:///path, s3://bucket/prefix, gs://..., az://...")


def make_store(store: Store, marked: Path | None = None) -> None:
    """Gives a store its marker if it has none yet; makes the folder of a folder store. Only submit, push and a gc that
    may delete call this; all others need an existing store. `marked`: a file that remembers an object store's marker,
    which is then not asked for again. Raises Unreachable."""
    if marked is not None and not store.url.startswith("file:"):
        if marked.exists():
            return
    else:
        marked = None
    make: Callable[[], None] | None = getattr(store, "make", None)  # stores that hold no marker have none
    if make is not None:
        make()
    if marked is not None:
        with suppress(OSError):  # it only saves a request
            marked.parent.mkdir(parents=True, exist_ok=True)
            marked.touch()


MISSING: Final = "the folder does not exist"
EMPTY: Final = "the folder is empty"


def absence(url: str) -> str:
    """Why there is no store at a file:// URL: MISSING, EMPTY or another reason; "" if there is one. Returns "" for
    object stores, without a request."""
    if not url.startswith("file://"):
        return ""
    try:
        names = set(os.listdir(url.removeprefix("file://")))  # noqa: PTH208 - a set of names
    except FileNotFoundError:
        return MISSING
    except NotADirectoryError:
        return "it is not a folder"
    except OSError as error:
        return str(error.strerror)
    if names <= {TEMPORARY}:
        return EMPTY
    return "" if names & {*ROOMS, MARKER} else f"it holds none of {', '.join(sorted(ROOMS))}"


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


# Checks that of several create-only puts to a key exactly one succeeds. Every decision depends on this.

RACERS: Final = 16
ROUNDS: Final = 5


class Unfit(SlipwayError):
    """The store's create-only puts do not hold: two runtimes could both claim the same attempt."""

    exit_code = 4


def check_store(store: Store, checked: Path | None) -> None:
    """Raises Unfit when the store's create-only puts do not work; the folder `checked` remembers the stores where they
    do."""
    if checked is None:
        return
    marker = entry(checked, store.url)
    if marker.exists():
        return
    conditional_puts_hold(store)
    try:
        checked.mkdir(parents=True, exist_ok=True)
        marker.write_text(store.url.partition("?")[0] + "\n")
    except OSError:
        return  # the marker only saves time: the next submit checks again


def conditional_puts_hold(store: Store, *, rounds: int = ROUNDS) -> None:
    """Races create-only puts below `checks/` and deletes them again. Raises Unfit if two puts to one key succeed.

    Only a race detects a server that checks first and writes afterwards; two puts in sequence do not.
    """
    from concurrent.futures import ThreadPoolExecutor  # a store is checked once
    from uuid import uuid4

    prefix = f"{CHECKS}{uuid4().hex}"
    keys = [f"{prefix}/{number}" for number in range(rounds)]
    try:
        if not store.create(f"{prefix}/one", b"first") or store.create(f"{prefix}/one", b"second"):
            raise _unfit(store, "a second put replaced the first")
        with ThreadPoolExecutor(RACERS) as pool:
            for key in keys:
                bodies = [f"{racer} {uuid4().hex}".encode() for racer in range(RACERS)]
                wins = list(pool.map(lambda body, key=key: store.create(key, body), bodies))
                if wins.count(True) != 1:
                    raise _unfit(store, f"of {RACERS} at once {wins.count(True)} were told that they won")
                if store.get(key) != bodies[wins.index(True)]:
                    raise _unfit(store, "the object is not the winner's")
    finally:
        with suppress(Unreachable):  # a user without the right to delete leaves a few bytes
            store.delete([f"{prefix}/one", *keys])


def _unfit(store: Store, reason: str) -> Unfit:
    return Unfit(
        f"store {store.url}: its create-only puts (If-None-Match: *) do not work: {reason}. Slipway decides with them "
        "who runs, so it cannot use this store; AWS, Google, Azure, MinIO, Ceph and versitygw work"
    )
