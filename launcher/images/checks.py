"""`launcher images check`: finds faults in the definitions and stale entries in the catalogue.

A definition with a fault must not be built. A catalogue entry is stale when its version differs from that of the
sources: jobs that name the image run the older build until somebody pushes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.errors import BadInput, SlipwayError
from launcher.images import bake
from launcher.spec.images import catalogue
from launcher.spec.images.definition import FOLDER, Definition, names, select

COMMON: Final = "common.Dockerfile"
INPUTS: Final = "# inputs: sha256:"
# Pairs of packages that write the same files. Each build looks at all of them (images/records.py); these are the ones
# that a resolver really chose, known before anything is fetched. True: fine if both have the same version.
SAME_FILES: Final = (
    ("cuda-python", "cuda-bindings", True),  # up to 12.6 it holds what cuda-bindings holds; 25 files of other bytes
    ("opencv-python", "opencv-python-headless", False),
)
# From this version on torchaudio works with its own version of torch and all later ones (a stable ABI), before it with
# one minor version only; its packages do not say so until 2.11.1 (docs.pytorch.org/audio/2.11.0/installation.html).
STABLE_AUDIO: Final = (2, 11)


@dataclass(frozen=True)
class CatalogueFinding:
    """A problem of one image. `fault`: the definition must be corrected; otherwise the catalogue is stale."""

    image: str
    fault: bool
    text: str


def check(root: Path) -> list[CatalogueFinding]:
    """All problems, ordered by the images' names."""
    findings: list[CatalogueFinding] = []
    entries = catalogue.load(catalogue.path(root))
    for definition in select(root, []):
        faults = _faults(definition)
        findings += [CatalogueFinding(definition.name, True, text) for text in faults]
        if faults:
            continue
        entry = entries.get(definition.name)
        version = definition.version() if entry is None else current(definition, entry)
        if entry is None:
            findings.append(
                CatalogueFinding(
                    definition.name, False, f"{version} was never pushed: jobs that name it need a profile"
                )
            )
        elif entry.version != version:
            again = f"`launcher images build {definition.name} --push REGISTRY`"
            text = f"stale: the catalogue has {entry.version}, the sources {version}: {again}"
            findings.append(CatalogueFinding(definition.name, False, text))
    if not any(finding.fault for finding in findings) and (other := bake.differs(root)):
        findings.append(CatalogueFinding(bake.FILE, True, other))
    for name in sorted(set(entries) - set(names(root))):
        findings.append(CatalogueFinding(name, True, f"in {FOLDER}/{catalogue.FILE}, but there is no {FOLDER}/{name}"))
    return findings


def current(definition: Definition, entry: catalogue.CatalogueEntry) -> str:
    """The version that these sources give to a build with the entry's settings."""
    return definition.version(entry.base, entry.arguments)


def refuse_faults(images: Iterable[Definition]) -> None:
    """Raises BadInput that lists every fault of the definitions to be built."""
    faults = [f"{definition.name}: {text}" for definition in images for text in _faults(definition)]
    if faults:
        raise BadInput("\n".join(faults))


def _faults(definition: Definition) -> list[str]:
    try:
        _ = definition.base
        definition.context()
    except SlipwayError as error:
        return [str(error)]
    faults = []
    common = definition.root / FOLDER / COMMON
    if not common.is_file():
        faults.append(f"there is no {FOLDER}/{COMMON}, with which every Dockerfile of a project begins")
    elif not definition.text().startswith(common.read_text(encoding="utf-8")):
        faults.append(f"the Dockerfile does not begin with {FOLDER}/{COMMON}: `python -m launcher.images.common`")
    for lock in locks(definition.folder):
        faults += [text for text in (stale_lock(lock), overlapping(lock), unfit(lock)) if text]
    return faults


def locks(folder: Path) -> Sequence[Path]:
    """requirements.lock and the requirements-VARIANT.lock of each variant."""
    return sorted(folder.glob("requirements*.lock"))


def lock_inputs(lock: Path) -> list[Path]:
    """The files from which a lock is compiled: the .in file of the same name, and its overrides if there are any."""
    overrides = lock.with_name(lock.name.replace("requirements", "overrides")).with_suffix(".txt")
    return [lock.with_suffix(".in"), *([overrides] if overrides.is_file() else [])]


def inputs_digest(lock: Path) -> str:
    """The sha256 (hex) of the lock's inputs without comments and blank lines."""
    total = hashlib.sha256()
    for file in lock_inputs(lock):
        for line in file.read_text(encoding="utf-8").split("\n"):
            if plain := line.partition("#")[0].strip():
                total.update(f"{plain}\n".encode())
        total.update(b"\0")
    return total.hexdigest()


def pins(lock: Path) -> dict[str, str]:
    """Package -> version of a lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ \\\n]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))


def unfit(lock: Path) -> str | None:
    """That the lock's torchaudio was built for another torch, whose library it cannot load; no resolver knows that."""
    if not lock.is_file():
        return None
    locked = pins(lock)
    if "torch" not in locked or "torchaudio" not in locked:
        return None
    torch, audio = (tuple(map(int, re.findall(r"\d+", locked[name])[:2])) for name in ("torch", "torchaudio"))
    if audio == torch or STABLE_AUDIO <= audio <= torch:
        return None
    where = f"{FOLDER}/{lock.parent.name}/{lock.name}"
    return (
        f"{where}: torchaudio {locked['torchaudio']} does not work with torch {locked['torch']}: pin torchaudio "
        f"{torch[0]}.{torch[1]}, or 2.11 with a torch that is not older, in {lock_inputs(lock)[0].name}, then "
        "`make lock-images`"
    )


def overlapping(lock: Path) -> str | None:
    """The packages of a lock that write the same files (SAME_FILES), with what to do."""
    if not lock.is_file():
        return None
    locked = pins(lock)
    for first, second, equal in SAME_FILES:
        versions = locked.get(first), locked.get(second)
        if None in versions or (equal and versions[0] == versions[1]):
            continue
        where = f"{FOLDER}/{lock.parent.name}/{lock.name}"
        return (
            f"{where}: {first} {versions[0]} and {second} {versions[1]} write the same files with other bytes; pin "
            f"versions in {lock_inputs(lock)[0].name} that do not, then `make lock-images`"
        )
    return None


def stale_lock(lock: Path) -> str | None:
    """What is wrong with a lock: it has no digest of its inputs, or one that differs from the files beside it."""
    where = f"{FOLDER}/{lock.parent.name}/{lock.name}"
    if missing := next((file for file in lock_inputs(lock) if not file.is_file()), None):
        return f"{where}: there is no {missing.name} beside it"
    first = lock.read_text(encoding="utf-8").partition("\n")[0]
    if first != INPUTS + inputs_digest(lock):
        return f"{where} was not made from {lock_inputs(lock)[0].name} as it is: `make lock-images`"
    return None
