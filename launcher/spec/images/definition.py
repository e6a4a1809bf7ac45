"""An image's definition and its version, which is a hash of all files of the build.

images/NAME/ holds a Dockerfile, the inputs of the lock, the lock itself, and smoke.py. The build context is the
project's folder, but the builder gets only the files that the Dockerfile copies. The version is a hash of these same
files: equal files give equal versions, and a changed comment gives another version.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from launcher.errors import BadInput, NotFound
from launcher.spec.code.environment import source_files
from launcher.spec.images.catalogue import FOLDER as FOLDER
from launcher.spec.values.problems import near
from launcher.trees import PACKED, trees
from launcher.version import __version__

DOCKERFILE: Final = "Dockerfile"
BASE: Final = "BASE"
EPOCH: Final = "SOURCE_DATE_EPOCH"
# build arguments that leave no trace in an image: Docker's for proxies
_INDIFFERENT: Final = re.compile(r"(http|https|ftp|no|all)_proxy", re.IGNORECASE)


@dataclass(frozen=True)
class Definition:
    """One image. `root` is the project's folder and the build context. Packed into an installed Slipway it has no
    packages of its own: they are those that are installed."""

    name: str
    root: Path

    @property
    def folder(self) -> Path:
        return self.root / FOLDER / self.name

    @property
    def dockerfile(self) -> Path:
        return self.folder / DOCKERFILE

    def text(self) -> str:
        return self.dockerfile.read_text(encoding="utf-8")

    @property
    def base(self) -> str:
        """The base that the Dockerfile names. Raises BadInput unless it is pinned by a digest."""
        reference = argument(self.text(), BASE)
        if reference is None or "@sha256:" not in reference:
            raise BadInput(f"{FOLDER}/{self.name}/{DOCKERFILE}: ARG {BASE} must name an image with its @sha256: digest")
        return reference

    @property
    def epoch(self) -> int:
        """The time, in seconds, that the image and its files get: the Dockerfile's SOURCE_DATE_EPOCH; 0 without one.

        It stands in the Dockerfile, because a time from elsewhere (the clock, the commit) would give one version
        different images. Raises BadInput for anything but digits."""
        text = argument(self.text(), EPOCH) or "0"
        if not text.isdecimal():
            raise BadInput(f"{FOLDER}/{self.name}/{DOCKERFILE}: ARG {EPOCH}: `{text}`; allowed: seconds since 1970")
        return int(text)

    @property
    def description(self) -> str:
        """The image's description, from its label; empty without that label."""
        match = re.search(r'org\.opencontainers\.image\.description="([^"]*)"', self.text())
        return match[1] if match else ""

    @property
    def variants(self) -> list[str]:
        """The values of the build argument VARIANT that have a lock of their own: requirements-<variant>.lock."""
        return sorted(file.stem.partition("-")[2] for file in self.folder.glob("requirements-*.lock"))

    def context(self) -> dict[str, Path]:
        """The files that the builder gets: path in the context -> file. Raises BadInput for a missing source."""
        files = {f"{FOLDER}/{self.name}/{DOCKERFILE}": self.dockerfile}
        for path in copied(self.text(), f"{FOLDER}/{self.name}/{DOCKERFILE}"):
            source = self.root / path
            if self.root == PACKED and not source.exists():
                source = PACKED.parents[1] / path
            if source.is_dir():
                files.update((f"{path}/{file.relative_to(source).as_posix()}", file) for file in source_files(source))
            elif source.is_file():
                files[path] = source
            else:
                raise BadInput(f"{FOLDER}/{self.name}/{DOCKERFILE}: COPY: there is no `{path}` in {self.root}")
        return dict(sorted(files.items()))

    def version(self, base: str | None = None, arguments: Mapping[str, str] | None = None) -> str:
        """`<project version>-<hash8>`. The hash covers the context, a `base` other than the Dockerfile's, and further
        build arguments, because these give another image, which must have another name."""
        total = hashlib.sha256()
        for path, file in self.context().items():
            executable = "x" if file.stat().st_mode & stat.S_IXUSR else "-"
            total.update(f"{hashlib.sha256(file.read_bytes()).hexdigest()} {executable} {path}\n".encode())
        if base is not None and base != self.base:
            total.update(f"base {base}\n".encode())
        for name, value in sorted(changing(arguments or {}).items()):
            total.update(f"argument {name}={value}\n".encode())
        return f"{__version__}-{total.hexdigest()[:8]}"


def changing(arguments: Mapping[str, str]) -> dict[str, str]:
    """The build arguments without those that only set proxies."""
    return {name: value for name, value in arguments.items() if not _INDIFFERENT.fullmatch(name)}


@cache
def own_version(name: str) -> str | None:
    """The version of an image that this Slipway defines, in a clone or installed; None for any other name.

    It identifies the sources without a request to a container engine.
    """
    root = trees()
    return Definition(name, root).version() if name in names(root) else None


def project_root(start: Path) -> Path:
    """The nearest folder from `start` upwards that has images/*/Dockerfile. Raises NotFound."""
    for folder in (start, *start.parents):
        if names(folder):
            return folder
    raise NotFound(
        f"there is no {FOLDER}/NAME/{DOCKERFILE} in {start} or above it; images are built in a clone of Slipway"
    )


def defining_root(start: Path) -> Path:
    """`project_root`; outside a project, Slipway's own. Raises NotFound where neither has images."""
    try:
        return project_root(start)
    except NotFound:
        if not names(trees()):
            raise
        return trees()


def names(root: Path) -> list[str]:
    """The images that a project defines, sorted."""
    folder = root / FOLDER
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / DOCKERFILE).is_file())


def select(root: Path, wanted: list[str]) -> list[Definition]:
    """The named images, or all. Raises BadInput for an unknown name."""
    known = names(root)
    for name in wanted:
        if name not in known:
            raise BadInput(f"image `{name}` is unknown{near(name, known)}; allowed: {', '.join(known)}")
    return [Definition(name, root) for name in wanted or known]


# Two things are read from a Dockerfile: the files that it copies from the context, and the defaults of its arguments.

_FLAG = re.compile(r"--[a-z]+(=\S*)?")


@dataclass(frozen=True)
class Instruction:
    """One instruction, continuation lines joined. `line` is the number of its first line, from 1."""

    line: int
    name: str
    value: str


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile in order, without comments. Heredocs are not supported."""
    begun, parts = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        begun = begun or number
        if stripped.endswith("\\"):
            parts += stripped[:-1] + " "
            continue
        name, _, value = (parts + stripped).partition(" ")
        yield Instruction(begun, name.upper(), value.strip())
        begun, parts = 0, ""


def copied(text: str, where: str) -> list[str]:
    """The paths of the context that a Dockerfile copies, sorted. Copies from other stages are skipped.

    Raises BadInput for a source that is not a plain path: a variable, a pattern, an address.
    """
    sources: set[str] = set()
    for instruction in instructions(text):
        if instruction.name == "ADD":
            raise BadInput(f"{where}:{instruction.line}: ADD: use COPY, which never fetches or unpacks")
        if instruction.name != "COPY":
            continue
        words = instruction.value.split()
        flags = []
        while words and _FLAG.fullmatch(words[0]):
            flags.append(words.pop(0))
        if any(flag.startswith("--from=") for flag in flags):
            continue
        rest = " ".join(words)
        paths: list[str] = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
        for path in paths[:-1]:
            if any(sign in path for sign in "$*?[") or path.startswith("/") or ".." in path.split("/"):
                raise BadInput(f"{where}:{instruction.line}: COPY: `{path}` must be a plain path inside the project")
            sources.add(path.removeprefix("./").rstrip("/"))
    return sorted(sources)


def argument(text: str, name: str) -> str | None:
    """The default of the first `ARG name=...`, or None."""
    for instruction in instructions(text):
        if instruction.name == "ARG" and instruction.value.startswith(f"{name}="):
            return instruction.value.partition("=")[2].strip("\"'")
    return None
