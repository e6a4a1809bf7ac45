"""Manifests on disk: which files of a folder are sent to a cluster, which are only input of kustomize, and what is in
them as Kubernetes reads YAML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

import yaml

from launcher.errors import BadInput, NotFound, Problem
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import STDIN, Composer, Node, YamlDocument, read_text

SUFFIXES: Final = (".yaml", ".yml")
KUSTOMIZATION: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_OBJECT: Final = r"""^[\s{-]*["']?(?:apiVersion|kind)["']?\s*:"""
MAX_BYTES: Final = 16 << 20
MAX_FOLDERS: Final = 20_000  # below the named ones; more are a mistake, `/` for example


@dataclass
class ManifestFiles:
    """File, as it was named -> its text.

    whole           objects that are complete in their file
    built           objects that a kustomization beside them changes, so that images may get their digest there
    patches         parts of objects, which kustomize merges into others
    kustomizations  the kustomization files themselves
    others          YAML in a folder without apiVersion and kind: jobs, profiles, workflows
    """

    whole: dict[str, str] = field(default_factory=dict)
    built: dict[str, str] = field(default_factory=dict)
    patches: dict[str, str] = field(default_factory=dict)
    kustomizations: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)  # device and inode of the folders: links can make circles

    @property
    def objects(self) -> dict[str, str]:
        return {**self.whole, **self.built, **self.patches}


def gather(paths: Iterable[Path]) -> ManifestFiles:
    """The manifests among files and folders (with all subfolders, except names that begin with a dot); `-` is standard
    input. A folder that links lead to several times is read once. A file that is named itself counts as a manifest,
    whatever is beside it. Raises NotFound, and BadInput when there is none or a folder cannot be read."""
    manifests = ManifestFiles()
    named = list(paths)
    for path in named:
        if str(path) == "-":
            _take(None, manifests, manifests.whole)
        elif path.is_dir():
            _folder(path, manifests)
        elif path.exists():
            _take(path, manifests, manifests.whole)
        else:
            raise NotFound(f"{path}: no such file or folder")
    if not (manifests.objects or manifests.kustomizations or manifests.problems):
        raise BadInput(
            f"{', '.join(map(str, named))}: no manifests; allowed: files that end in {' or '.join(SUFFIXES)}"
        )
    return manifests


def _folder(folder: Path, manifests: ManifestFiles) -> None:
    try:
        there = folder.stat()
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {error.strerror}") from None
    if (there.st_dev, there.st_ino) in manifests.seen:
        return
    manifests.seen.add((there.st_dev, there.st_ino))
    if len(manifests.seen) > MAX_FOLDERS:
        raise BadInput(f"{folder}: this is folder {MAX_FOLDERS + 1:,}; name the folder that holds the manifests")
    known = next((folder / name for name in KUSTOMIZATION if (folder / name).is_file()), None)
    patches, others = _parts(known, manifests) if known is not None else (set(), set())
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            _folder(path, manifests)
        elif path.suffix in SUFFIXES and path.name not in KUSTOMIZATION and path.name not in others:
            target = (
                manifests.patches if path.name in patches else manifests.built if known is not None else manifests.whole
            )
            _take(path, manifests, target)
            if not re.search(_OBJECT, target.get(str(path), "kind:"), re.MULTILINE):
                manifests.others.append(str(path))
                del target[str(path)]


def _parts(path: Path, manifests: ManifestFiles) -> tuple[set[str], set[str]]:
    """Names of the files beside a kustomization that are patches, and of those that are not manifests."""
    _take(path, manifests, manifests.kustomizations)
    try:
        value: Any = yaml.load(
            manifests.kustomizations.get(str(path), ""), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except yaml.YAMLError:
        return set(), set()  # the reader of the file reports the error
    if not isinstance(value, dict):
        return set(), set()
    patches = {str(entry.get("path")) for entry in _dicts(value.get("patches"))}
    patches |= {str(entry) for entry in value.get("patchesStrategicMerge") or () if isinstance(entry, str)}
    others: set[str] = set()
    for key in ("configMapGenerator", "secretGenerator"):
        for entry in _dicts(value.get(key)):
            others |= {str(file).rpartition("=")[2] for file in entry.get("files") or ()}
    return patches, others


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _take(path: Path | None, manifests: ManifestFiles, target: dict[str, str]) -> None:
    """Reads a file, or with None standard input, into `target`."""
    shown = str(path) if path is not None else STDIN
    if path is None and sys.stdin is None:
        manifests.problems.append(Problem(shown, 0, 0, "", "cannot be read: it is closed"))
        return
    try:
        with path.open("rb") if path is not None else nullcontext(sys.stdin.buffer) as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            manifests.problems.append(
                Problem(shown, 0, 0, "", "too large for a manifest", f"at most {MAX_BYTES >> 20} MiB")
            )
            return
        if path is None and not data.strip():
            # the program before the pipe may have failed: a pipe's exit code is that of its last command
            manifests.problems.append(Problem(shown, 0, 0, "", "is empty", "manifests"))
            return
        target[shown] = data.decode("utf-8-sig")
    except OSError as error:
        manifests.problems.append(Problem(shown, 0, 0, "", f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} at {error.start} is not UTF-8"
        manifests.problems.append(Problem(shown, 0, 0, "", message, "UTF-8 text"))


# YAML as Kubernetes reads it, with the place of every value.
#
# Kubernetes' parser follows YAML 1.1 (`on` is true, `0444` is 292), ours follows 1.2. Here numbers have Kubernetes'
# meaning. A word that is a boolean to one parser and a string to the other is refused: in quotes, it means the same to
# both.

_WORDS: Final = frozenset(
    form for word in ("y", "n", "yes", "no", "on", "off") for form in (word, word.capitalize(), word.upper())
)
_STARTS: Final = frozenset("yYnNoO+-0")


class ManifestComposer(Composer):
    """Reads scalars as YAML 1.1 where it differs from 1.2."""

    def scalar(self, event: Any) -> Node:
        text = event.value
        if text[:1] in _STARTS and event.tag is None and event.implicit[0]:
            if text in _WORDS:
                self.problem(
                    event, f"`{text}` is a boolean to Kubernetes and a text to others", f'"{text}" or true, false'
                )
            elif re.fullmatch(r"[-+]?0[0-7]+", text):
                return Node("scalar", int(text, 8), event.start_mark.line + 1, event.start_mark.column + 1, text)
        return super().scalar(event)


def read(texts: Mapping[str, str], problems: Problems) -> list[YamlDocument]:
    """The documents of all files. `texts`: file name -> text; a text that cannot be read is reported in `problems`."""
    documents: list[YamlDocument] = []
    for name, text in texts.items():
        documents += read_text(text, name, problems, composer=ManifestComposer)
    return documents


# File names that Windows reserves for devices. Flux reads Git with go-git, which refuses a whole commit that has such a
# name anywhere in its tree, on every system; then no file of the repository is applied.
# go-git 5.19, internal/pathutil/ntfs.go; the same list as Git's compat/mingw.c
_DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com[1-9]|lpt[1-9]|conin\$|conout\$)(?:[ .:]|\Z)", re.IGNORECASE)


def device_name(path: str) -> str:
    """The part of a path that is the name of a device, with any extension (`aux.yaml`); empty if there is none. Of an
    absolute path only the last part counts: where the repository begins is not known."""
    named = PurePath(path)
    return next(
        (part for part in (named.parts if not named.is_absolute() else (named.name,)) if _DEVICE.match(part)), ""
    )


def device_refusal(path: str) -> str:
    """Why a path cannot be in a repository that Flux reads; empty if it can."""
    name = device_name(path)
    return f"`{name}` is a device on Windows, so Flux takes no commit that holds this file" if name else ""
