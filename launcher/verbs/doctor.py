"""Checks of this machine, the profile, the store and the backends, each with what to do about it."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final
from uuid import uuid4

from launcher.backends.base import CheckResult, backend
from launcher.errors import SlipwayError, Unreachable
from launcher.spec.backends import Traits, backends
from launcher.spec.code.distributions import installed
from launcher.spec.code.environment import OWN
from launcher.spec.profile import Profile, load_profile
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import CHECKS
from launcher.store.opening import EMPTY, MISSING, absence, conditional_puts_hold, open_store
from launcher.trees import document

DEADLINE: Final = 10.0  # seconds for which one call to the store may retry: the user is waiting
SKEW: Final = 60.0  # clock difference in seconds that causes no problem
LISTED: Final = 10.0  # seconds after which an object has to be in the store's lists
LOW: Final = 2 << 30  # free bytes below which a run will soon fail
SCARCE: Final = 10 << 30
NO_PROGRAM: Final = ("dev", "docs", "lambda")  # extras that no program of a user needs


class LateList(SlipwayError):
    """The store's lists are true, and old."""


def diagnose(cwd: Path, environ: Mapping[str, str], *, profile: str | None, store: str | None) -> Iterator[CheckResult]:
    """Yields each result when its check is done. Writes a few bytes into the store and removes them; never raises
    SlipwayError."""
    yield _python()
    try:
        settings = load_profile(cwd, profile, environ, store=store)
    except SlipwayError as error:
        yield CheckResult("profile", "failed", str(error), "correct slipway.yaml or the SLIPWAY_* variable", 2)
        return
    origin = "--store" if store else settings.origins.get("store", "the default")
    yield CheckResult("profile", "ok", f"store {settings.store} (from {origin}), backend {settings.backend}")
    given = "store" in settings.origins and settings.origins["store"] in ("--store", "SLIPWAY_STORE")
    why = absence(settings.store) if given else ""
    if why == MISSING:
        path = settings.store.removeprefix("file://")
        yield CheckResult(
            "store", "failed", f"{path}: {why}", f"mkdir -p {shlex.quote(path)}, or name another store", 4
        )
    else:
        if why and why != EMPTY:
            yield CheckResult(
                "store: folder", "warning", f"{settings.store}: {why}", "name another store, or use this one"
            )
        yield from _store(settings.store)
    yield from _disk(settings)
    for name, traits in backends().items():
        # a backend that needs no image is always usable; an engine or a cluster only if the settings name it
        if not traits.runs_images or settings.backend == name or name in settings.blocks:
            yield from _backend(name, traits, settings)
        else:
            fix = f"to run jobs there: `{name}:` or `backend: {name}` in slipway.yaml, or --backend {name}"
            yield CheckResult(name, "unused", "slipway.yaml does not name it", fix)
    yield from _extras()


def _extras() -> Iterator[CheckResult]:
    """Which of this distribution's extras are there: all packages that they need, by their names."""
    found = installed(list(dict.fromkeys(path for path in sys.path if Path(path).is_dir())))
    own = found.get(OWN)
    if own is None:  # the sources alone are on the path
        return
    for extra, needed in sorted(own.extras().items()):
        if extra in NO_PROGRAM:
            continue
        if lacks := [name for name in needed if name not in found]:
            page = document("docs/howto/install.md")
            fix = f"install slipway-cua with its extra `{extra}`: {page}"
            yield CheckResult(f"extra {extra}", "unused", f"lacks {', '.join(lacks)}", fix)
        else:
            yield CheckResult(f"extra {extra}", "ok", "all of its packages are there")


def _python() -> CheckResult:
    from launcher.version import __version__

    version = ".".join(map(str, sys.version_info[:3]))
    detail = f"Python {version}, slipway {__version__}, {sys.platform}"
    if not sys.platform.startswith("linux"):
        fix = "backend `local` needs Linux (/proc, cgroups); submitting to other backends works anywhere"
        return CheckResult("python", "warning", detail, fix)
    return CheckResult("python", "ok", detail)


def _store(url: str) -> Iterator[CheckResult]:
    """Checks access, writing, lists, concurrent create-only puts and clock skew; stops at the first failure."""
    store: Store
    key = f"{CHECKS}{uuid4().hex}/doctor"

    def reach() -> str:
        began = time.perf_counter()
        next(iter(store.scan(CHECKS)), None)
        return f"answers in {(time.perf_counter() - began) * 1000:.0f} ms"

    def write() -> str:
        body = uuid4().bytes
        store.put(key, body)
        if store.get(key) != body:
            raise Unreachable(f"store {url}: what was written is not what is read")
        return "written and read back"

    def listed() -> str:
        """A new object has to be in the list of its folder, and in no other's."""
        folder = key.rpartition("/")[0] + "/"
        began = time.monotonic()
        while [meta.key for meta in store.scan(folder)] != [key] or folder[:-1] not in _folders(store):
            if time.monotonic() - began > LISTED:
                raise Unreachable(
                    f"store {url}: an object that was written {LISTED:.0f} s ago is in no list: its lists are older "
                    "than that, or something else answers in its place"
                )
            time.sleep(0.5)
        age = time.monotonic() - began
        if age > 0.5:
            raise LateList(f"a new object is listed after {age:.0f} s: until then a run is not seen, and no gc deletes")
        (meta,) = store.scan(folder)
        return f"a new object is listed at once ({max(0.0, store.now() - meta.modified):.0f} s old)"

    def create() -> str:
        conditional_puts_hold(store)
        return "of many at once exactly one won, every time"

    try:
        store = open_store(url, deadline=DEADLINE)
    except SlipwayError as error:
        yield CheckResult(
            "store", "failed", str(error), "name another store: --store, slipway.yaml or SLIPWAY_STORE", 4
        )
        return
    reached = "check the URL, the network and the credentials"
    allowed = "allow s3:PutObject, GetObject, ListBucket and DeleteObject below the prefix (or the folder's mode)"
    other = "use another store: AWS S3, Google, Azure, MinIO, Ceph, versitygw, or a folder (file:///...)"
    steps: tuple[tuple[str, Callable[[], str], str], ...] = (
        ("store", reach, reached),
        ("store: write", write, allowed),
        ("store: list", listed, "check the endpoint and the proxies in between; use a store with consistent lists"),
        ("store: create-only", create, other),
    )
    for name, act, fix in steps:
        try:
            yield CheckResult(name, "ok", act())
        except LateList as late:
            yield CheckResult(name, "warning", str(late), fix)
        except SlipwayError as error:
            yield CheckResult(name, "failed", str(error), fix, 4)
            with suppress(SlipwayError):
                store.delete([key])
            return
    try:
        store.delete([key])
    except SlipwayError as error:
        yield CheckResult("store: delete", "warning", str(error), "without it checkpoints are never rotated (`keep:`)")
    skew = store.now() - time.time()
    detail = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) > SKEW:
        yield CheckResult(
            "store: clock", "warning", detail, "set this machine's clock (NTP); requests are signed with it"
        )
    else:
        yield CheckResult("store: clock", "ok", detail)


def _folders(store: Store) -> list[str]:
    return [f"{CHECKS}{name}" for name in store.folders(CHECKS)]


def _disk(profile: Profile) -> Iterator[CheckResult]:
    """Checks the free space of each disk that holds runs, inputs or a file store."""
    places = {"local runs": profile.local_state, "temporary files": Path(tempfile.gettempdir())}
    if profile.store.startswith("file:"):
        places["store"] = FileStore.at(profile.store).root
    disks: dict[int, tuple[list[str], Path]] = {}
    for name, path in places.items():
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        disks.setdefault(nearest.stat().st_dev, ([], nearest))[0].append(name)
    for names, path in disks.values():
        free = shutil.disk_usage(path).free
        detail = f"{free / 2**30:.1f} GiB free for {', '.join(names)} ({path})"
        fix = "make room, or move `local: {state: ...}` or the store to another disk"
        if free < LOW:
            yield CheckResult("disk", "failed", detail, fix, 1)
        else:
            yield CheckResult("disk", "ok" if free >= SCARCE else "warning", detail, "" if free >= SCARCE else fix)


def _backend(name: str, traits: Traits, profile: Profile) -> Iterator[CheckResult]:
    """The backend's own checks; without any, whether it loads with the options of the profile."""
    if traits.diagnosis:
        module, _, function = traits.diagnosis.partition(":")
        yield from getattr(import_module(module), function)(profile)
        return
    try:
        backend(name, profile.backend_options(name))
    except SlipwayError as error:
        yield CheckResult(name, "failed", str(error), f"correct `{name}:` in slipway.yaml, or install what it needs", 4)
    else:
        yield CheckResult(name, "ok", "the backend loads; it has no checks of its own")
