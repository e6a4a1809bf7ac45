"""A task's identity: all that can change its start, its answer or its verdict, each part by its digest or version.

An environment says what a task is made of (`TaskParts`); `identity` reads what that is here. Results of one task are
compared, or go on, only where every part is the same (docs/explanation/identity.md). `code`: which code is reached;
`machine`: which versions are installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from eval.identity import machine
from eval.identity.code import OURS, Reached, Sources

CODE: Final = "code"
DESKTOP: Final = "desktop"
IMAGE: Final = "image"
PROGRAMS: Final = "programs"
FONTS: Final = "fonts"


@dataclass(frozen=True)
class TaskParts:
    """What a task is made of.

    code      what draws, prepares and judges it, each `package.module:name`; all that they reach counts
    desktop   the same of the desktop on which it is done
    apart     modules, or definitions as `package.module:name`, that list every task, of which none needs the others
    packages  Debian's packages of its programs
    started   programs besides, whose packages are looked up
    screen    whether programs draw letters on its screen: then fonts count
    role      of the run, whose image has the programs; None: they are here
    elsewhere the programs are in a machine of which nothing is known here
    told      what else counts, by name
    """

    code: tuple[str, ...]
    desktop: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()
    packages: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    screen: bool = False
    role: str | None = None
    elsewhere: bool = False
    told: Mapping[str, str] = field(default_factory=dict)


def identity(parts: TaskParts) -> dict[str, str]:
    """Each part by name: `code` and `desktop` are digests, packages have their versions."""
    code = _reached(parts.code, parts.apart)
    found = {CODE: code.digest}
    if parts.desktop:
        found[DESKTOP] = _reached(parts.desktop, parts.apart).digest
    for module in sorted(code.outside):
        if (package := machine.python_package(module)) is not None:
            distribution, _, version = package.partition(" ")
            found[f"python {distribution}"] = version
    if (image := machine.image(parts.role)) is not None:
        found[IMAGE] = image
    if parts.elsewhere or parts.role is not None:
        return found | ({PROGRAMS: machine.UNKNOWN} if image is None else {}) | dict(parts.told)
    named = [*parts.packages, *(name for each in parts.started if (name := machine.package_of(each)) is not None)]
    found |= machine.packages(sorted(set(named)))
    return found | ({FONTS: digest_of(machine.fonts())} if parts.screen else {}) | dict(parts.told)


def digest_of(value: Any) -> str:
    """The beginning of the sha256 of something that JSON can hold."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _reached(roots: tuple[str, ...], apart: frozenset[str]) -> Reached:
    return sources(frozenset((OURS, *(root.partition(".")[0].partition(":")[0] for root in roots)))).reached(
        roots, apart
    )


@cache
def sources(own: frozenset[str]) -> Sources:
    """Those of this process: each module is read once."""
    return Sources(own=own)
