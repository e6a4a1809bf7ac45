"""images/catalogue.yaml: image name -> the build that jobs get. Written after a push, read by `resolve`.

images/catalogues/VERSION.yaml is the same of each release, whose images nobody has to build: an installed launcher has
those of its own release and of all before it. No image contains them.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from launcher.errors import BadInput, SlipwayError
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.trees import PACKED, trees

FOLDER: Final = "images"  # of a project, with a folder for each image
FILE: Final = "catalogue.yaml"
RELEASES: Final = "catalogues"
REGISTRY: Final = r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"  # host and path, as in a reference
_HEAD: Final = """\
# Which build of each image a job gets that names it. Written by `launcher images push --registry REGISTRY`, checked by
# `launcher images check`; `version` is the hash of everything that went in, `reference` is what jobs run.
"""
# field -> (the pattern of its value, the same in words)
_FORMS: Final = {
    "version": (r"[0-9A-Za-z.]+-[0-9a-f]{8}", "<version>-<8 hex digits>"),
    "reference": (r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", "registry/name@sha256:<64 hex digits>"),
}


class CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One pushed image. `base` and `arguments` are the build arguments that differ from the Dockerfile's defaults.
    `check` uses them to tell whether the same build from today's sources would give another image. `signer`: whom its
    signature names, of a release (the address of the workflow's file at its tag)."""

    version: str
    reference: str
    base: str | None = None
    arguments: dict[str, str] = {}
    signer: str = ""


def path(root: Path) -> Path:
    """A project's catalogue. That of the installed Slipway's images is the working folder's: `load_profile` reads it
    there."""
    return (Path.cwd() if root == PACKED else root) / FOLDER / FILE


def load(file: Path) -> dict[str, CatalogueEntry]:
    """Image name -> entry; empty if the file does not exist. Raises BadInput for a malformed file."""
    import yaml

    if not file.is_file():
        return {}
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        entries = msgspec.convert(data, dict[str, CatalogueEntry])
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{file}: {' '.join(str(error).split())}; allowed: NAME: {{version, reference, base, arguments}}"
        ) from None
    for name, entry in entries.items():
        for field, (form, allowed) in _FORMS.items():
            if not re.fullmatch(form, value := getattr(entry, field)):
                raise BadInput(f"{file}: {name}.{field}: `{value}`; allowed: {allowed}")
    return entries


def released() -> dict[str, Path]:
    """The releases whose images this Slipway knows: version -> its catalogue, the newest first."""
    found = (file for file in (trees() / FOLDER / RELEASES).glob("*.yaml"))
    return {file.stem: file for file in sorted(found, key=lambda file: _numbers(file.stem), reverse=True)}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def own_release() -> str:
    """The release that an installed Slipway takes its images from where nobody names another; empty in a clone, whose
    sources may be others than any release's, and where none is known."""
    return next(iter(released()), "") if trees() == PACKED else ""


def references(file: Path, mirror: str = "") -> dict[str, str]:
    """Image name -> registry/name@sha256:... of a release's catalogue; `mirror` (host/path) replaces its registry."""
    found = {name: entry.reference for name, entry in load(file).items()}
    if mirror:
        return {name: f"{mirror}/{reference.rpartition('/')[2]}" for name, reference in found.items()}
    return found


def save(file: Path, entries: Mapping[str, CatalogueEntry]) -> None:
    """Writes the file atomically, names sorted, so equal catalogues have equal bytes. Raises SlipwayError."""
    import yaml

    body = yaml.safe_dump({name: msgspec.to_builtins(entries[name]) for name in sorted(entries)}, sort_keys=False)
    temporary = file.with_name(f".{file.name}")
    try:
        temporary.write_text(_HEAD + (body if entries else "{}\n"), encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise SlipwayError(f"{file} cannot be written: {error.strerror}; it was not changed") from None
    finally:
        with suppress(OSError):
            temporary.unlink()  # missing after the rename


def record(file: Path, name: str, entry: CatalogueEntry) -> None:
    """Writes one entry and keeps entries that other processes write at the same time. Raises BadInput, SlipwayError."""
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        save(file, {**load(file), name: entry})
    finally:
        os.close(folder)


# A run is a new one, which costs again, where an image's name means another digest than in an earlier run that is the
# same otherwise.


def with_images_of(
    before: ResolvedJob, job: ResolvedJob, names: Mapping[str, str]
) -> tuple[ResolvedJob, dict[str, str]]:
    """`before` with the images of `job` where a name means another digest now, and these images of before: name ->
    registry/name@sha256:... `names`: what the names mean now."""
    by_reference = {reference: name for name, reference in names.items()}
    roles, kept = dict(before.roles), {}
    for role in set(roles) & set(job.roles):
        old, new = roles[role].image, job.roles[role].image
        name = by_reference.get(f"{new.reference}@{new.digest}")
        same_name = old.reference.rpartition("/")[2] == new.reference.rpartition("/")[2]
        if name is not None and same_name and old.digest and old.digest != new.digest:
            roles[role] = msgspec.structs.replace(roles[role], image=new)
            kept[name] = f"{old.reference}@{old.digest}"
    return msgspec.structs.replace(before, roles=roles), kept


def how_to_keep(kept: Mapping[str, str]) -> str:
    """What to write into slipway.yaml so that these names mean these images."""
    digests = {name: reference.rpartition("@")[2] for name, reference in kept.items()}
    for version, file in released().items():
        listed = {name: entry.reference.rpartition("@")[2] for name, entry in load(file).items()}
        if digests.items() <= listed.items():
            return f"`catalogue: {version}` in slipway.yaml keeps the earlier image"
    text = ", ".join(f"{name}: '{reference}'" for name, reference in sorted(kept.items()))
    return f"`images: {{{text}}}` in slipway.yaml keeps the earlier image"


def only_images_differ(job: ResolvedJob, earlier: Iterable[ResolvedJob], names: Mapping[str, str]) -> str:
    """A line about the first of the earlier runs from which nothing but the image differs; empty without one."""
    for before in earlier:
        same, kept = with_images_of(before, job, names)
        if kept and run_hash(same) == run_hash(job):
            return (
                f"{run_id(job)} is a new run: nothing differs from {run_id(before)} but the image of "
                f"{', '.join(sorted(kept))}; {how_to_keep(kept)}"
            )
    return ""
