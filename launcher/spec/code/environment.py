"""Identifies the software of a local run, which has no image digest: the interpreter, the distributions that it can
import, code that no version names, and Slipway's own source (docs/explanation/architecture.md, Two hashes)."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from launcher import files
from launcher.decoding import decode
from launcher.errors import BadInput, Conflict
from launcher.spec.code.distributions import RULES, Distribution, installed, left_out, of_none, plain_name
from launcher.spec.code.local_code import FileHashes, content, listed, roots
from launcher.spec.model import ResolvedJob
from launcher.trees import PACKED

OWN: Final = "slipway-cua"
SOURCES: Final = ("training", "eval", "launcher/runtime")
IGNORED: Final = "SLIPWAY_IGNORED"  # the variable that tells a local runtime what `ignore` was, with commas
PYTHON: Final = "SLIPWAY_PYTHON"  # ... and which Python its command finds; unset: the launcher's
NAMED: Final = 5  # differences that a message names, at most
_PACKED: Final = str(PACKED)
_SITES: Final = ("site-packages", "dist-packages")
_ANSWERS_KEPT: Final = 20  # of each kind, in the cache
_answers: dict[tuple[Path, str], list[str]] = {}  # of this process: what a dry run does not keep is asked for twice


class LocalEnvironment(NamedTuple):
    """`parts`: what it consists of, name -> version or content; the digest (sha256, hex) is over them. `ignore`: what
    was not counted."""

    digest: str
    parts: Mapping[str, str]
    ignore: tuple[str, ...] = ()
    python: str = ""


def local_environment(ignore: Collection[str] = (), *, python: str = "", remember: bool = False) -> LocalEnvironment:
    """The environment of a command that an interpreter starts now. `ignore`: distributions that are not counted, with
    what they alone bring. `python`: the interpreter's path; empty for this one. `remember`: keeps in the user's cache
    what took long to find out. Raises BadInput."""
    hashes = FileHashes(_cache() / "code.json")
    of = interpreter(python)
    parts = {"python": of.version, "slipway": _own(hashes, of.packages)}
    sites = list(dict.fromkeys(path for path in of.search if os.path.basename(path) in _SITES))  # noqa: PTH119
    found = installed(sites)
    tools = _tools(found, ignore, remember)
    parts |= {name: _version(one, hashes) for name, one in found.items() if name not in tools and name != OWN}
    own = {os.path.realpath(root) for root in of.packages.values()}
    ignored = {plain_name(name) for name in ignore}
    copied = [(name, path) for name, path in _copied(sites, found, remember) if not _is_one_of(name, ignored)]
    for name, path in (*_code(sites), *copied):
        if os.path.realpath(path) not in own:
            parts[name] = content(path, hashes)[:16]
    if remember:
        hashes.save()
    text = "".join(f"{name} {value}\n" for name, value in sorted(parts.items()))
    return LocalEnvironment(hashlib.sha256(text.encode()).hexdigest(), parts, tuple(ignore), python)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """How one environment's parts differ from another's: `jinja2 3.1.5 -> 3.1.6`, `new x 1`, `gone y 2`."""
    lines = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old is None:
            lines.append(f"new {name} {new}")
        elif new is None:
            lines.append(f"gone {name} {old}")
        elif old != new:
            lines.append(f"{name} {old} -> {new}")
    return lines


def describe_changes(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    """The first differences in brackets, after a space; empty where they are not known."""
    changes = differences(before, now) if before is not None else []
    more = f" and {len(changes) - NAMED} more" if len(changes) > NAMED else ""
    return f" ({', '.join(changes[:NAMED])}{more})" if changes else ""


def is_local(environment: str) -> bool:
    """Whether an image's `environment` is the digest of a machine's packages, and not that of an archive
    (`sha256:...`)."""
    return len(environment) == 64


def other_packages(wanted: str, ignore: Collection[str], python: str = "") -> str | None:
    """What a message says of a run that is named for other packages than this machine's; None where they are the same.
    `ignore` counts only where this machine does not know with what the run was named. `python`: as for
    `local_environment`."""
    before = stored_environment(wanted)
    now = local_environment(before.ignore if before is not None else ignore, python=python)
    if now.digest == wanted:
        return None
    changes = describe_changes(before and before.parts, now.parts)
    return (
        f"the packages here are not those that this run is named for{changes}: "
        "submit the job again, which makes a run of its own"
    )


def check_environment(jobs: Iterable[ResolvedJob], now: LocalEnvironment) -> None:
    """Raises Conflict for a job that is named for other packages than this machine's, as one of a retry may be."""
    for job in jobs:
        for wanted in {role.image.environment for role in job.roles.values()}:
            if (
                is_local(wanted)
                and wanted != now.digest
                and (why := other_packages(wanted, now.ignore, now.python)) is not None
            ):
                raise Conflict(f"{job.name}: {why}")


def store_environment(environment: LocalEnvironment) -> None:
    """Keeps it on this machine, by the digest, so that a later difference can be named."""
    path = _kept(environment.digest)
    if not path.exists():
        files.keep(path, msgspec.json.encode(environment))


def stored_environment(digest: str) -> LocalEnvironment | None:
    """The environment that `store_environment` kept; None if it did not."""
    try:
        return decode(_kept(digest).read_bytes(), LocalEnvironment)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def package_folder(name: str) -> Path | None:
    """The folder of a package, without importing the package."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def source_files(folder: Path) -> Iterator[Path]:
    """The files of a source folder in a fixed order, without hidden files, bytecode, editors' backups, and what a wheel
    packs beside the launcher's sources: a clone and a wheel have equal sources."""
    return map(Path, _source_paths(str(folder)))


def _source_paths(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name != "__pycache__" and not name.startswith(".") and f"{here}/{name}" != _PACKED
        )
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith((".pyc", "~")):
                yield f"{here}/{name}"


class Interpreter(NamedTuple):
    """`version`: `cpython 3.11.7`; `search`: the folders in which it looks for modules; `packages`: Slipway's packages
    -> the folder that each lies in."""

    version: str
    search: tuple[str, ...]
    packages: Mapping[str, str]


_OURS: Final = ("launcher", "training", "eval")
# what `interpreter` has another Python say of itself; without the folder in which it happens to run
_ASKED: Final = """
import json, os, sys
from importlib.util import find_spec
sys.path = [path for path in sys.path if path]
found = {name: find_spec(name) for name in sys.argv[1:]}
print(json.dumps([sys.implementation.name, sys.version_info[:3], sys.path,
    {name: os.path.dirname(os.path.dirname(one.origin or "")) for name, one in found.items() if one}]))
"""


def interpreter(python: str = "", modules: Collection[str] = _OURS) -> Interpreter:
    """This interpreter, or the one of a path, which is started once; `packages` has those of `modules` that it finds,
    which may be any. Raises BadInput where it cannot be started."""
    if not python:
        version = f"{sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}"
        packages = {name: str(package.parent) for name in modules if (package := package_folder(name))}
        return Interpreter(version, tuple(sys.path), packages)
    import subprocess  # only a profile with a Python of its own needs it

    try:
        done = subprocess.run([python, "-c", _ASKED, *modules], capture_output=True, text=True, timeout=60, check=True)
        name, version, search, found = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or [f"it ended with {error.returncode}"])[-1]
        raise BadInput(f"local.python: {python}: {said}; allowed: the path of a Python of 3.4 or newer") from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"local.python: {python}: {why}; allowed: the path of a Python of 3.4 or newer") from None
    return Interpreter(f"{name} {'.'.join(map(str, version))}", tuple(search), found)


def _own(hashes: FileHashes, packages: Mapping[str, str]) -> str:
    """Slipway's own source that jobs run."""
    total = hashlib.sha256()
    for source in SOURCES:
        root = packages.get(source.partition("/")[0])
        for path in _source_paths(f"{root}/{source}") if root is not None else ():
            total.update(f"{hashes.sha256(path)}  {path[len(str(root)) + 1 :]}\n".encode())
    return total.hexdigest()[:16]


def _version(one: Distribution, hashes: FileHashes) -> str:
    """A version, and what else says which code it is."""
    vcs = one.origin.get("vcs_info")
    if isinstance(vcs, dict):
        return f"{one.version} {vcs.get('commit_id', '')}".strip()
    if one.local and not one.editable:
        return f"{one.version} {listed(one.files(), Path(one.info).parent, hashes)[:16]}"
    archive = one.origin.get("archive_info")
    if isinstance(archive, dict) and archive.get("hash"):
        return f"{one.version} {str(archive['hash']).rpartition('=')[2][:16]}"
    return one.version


def _code(sites: Collection[str]) -> Iterator[tuple[str, str]]:
    for number, path in enumerate(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if path and os.path.basename(path) not in _SITES and os.path.exists(path):  # noqa: PTH110, PTH119
            yield f"PYTHONPATH[{number}]", path
    for site in sites:  # a .pth that names one more of them adds distributions
        yield from ((name, path) for name, path in roots(site) if os.path.basename(path) not in _SITES)  # noqa: PTH119


def _is_one_of(copied: str, ignored: Collection[str]) -> bool:
    return plain_name(copied.partition("/")[2].partition(".")[0]) in ignored


def _tools(found: Mapping[str, Distribution], ignore: Collection[str], remember: bool) -> set[str]:
    """`left_out`, remembered: reading what 200 distributions need takes longer than all the rest."""
    return set(_remembered("tools", found, sorted(ignore), lambda: left_out(found, ignore), remember))


def _copied(sites: Collection[str], found: Mapping[str, Distribution], remember: bool) -> Iterator[tuple[str, str]]:
    """What lies in the folders of distributions and belongs to none, remembered: the lists of their files are long."""
    for site in sites:
        names = sorted(os.listdir(site)) if os.path.isdir(site) else []  # noqa: PTH112, PTH208 - names
        for name in _remembered("copied", found, names, lambda: of_none(site, found), remember) if names else ():  # noqa: B023 - called at once
            yield f"{os.path.basename(site)}/{name}", f"{site}/{name}"  # noqa: PTH119


def _remembered(
    what: str,
    found: Mapping[str, Distribution],
    more: Collection[str],
    names: Callable[[], Iterable[str]],
    remember: bool,
) -> list[str]:
    """Names that follow from the distributions, from what their lists of files say, and from `more`."""
    text = "".join(f"{name} {one.version} {one.local}\n" for name, one in sorted(found.items()))
    key = hashlib.sha256(f"{what} {RULES}\n{text}{more}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    path = _cache() / f"{what}.json"
    try:
        rows = decode(path.read_bytes(), dict[str, list[str]])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        rows = {}
    if key not in rows:
        if (path, key) not in _answers:
            _answers[path, key] = sorted(names())
        rows = {**dict(list(rows.items())[-_ANSWERS_KEPT:]), key: _answers[path, key]}
        if remember:
            files.keep(path, msgspec.json.encode(rows))
    return rows[key]


def _cache() -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "slipway" / "environment"


def _kept(digest: str) -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    return (
        Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state")
        / "slipway"
        / "environments"
        / f"{digest}.json"
    )
