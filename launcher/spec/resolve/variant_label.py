"""The label of a matrix variant, as users see it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from launcher.spec.hashing import canonical


def label(picks: Mapping[tuple[str, str], Any]) -> str:
    """`lr=1e-05,seed=0`, from (job, path) -> value; empty without a matrix. It is also the variant's folder name in an
    `all: true` input, so it has only safe characters."""
    shorts = [path.rpartition(".")[2] for _, path in picks]
    parts = []
    for ((job, path), value), short in zip(picks.items(), shorts, strict=True):
        name = short if shorts.count(short) == 1 else f"{job}.{path}"
        text = value if type(value) is str else canonical(value).decode()
        if not re.fullmatch(r"[A-Za-z0-9._+-]{1,40}", text) or text in (".", ".."):
            text = hashlib.sha256(canonical(value)).hexdigest()[:8]
        parts.append(f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}={text}")
    return ",".join(parts)


def label_of(name: str, variant: Mapping[str, Any]) -> str:
    """The label of a resolved job `name`. In its `variant`, an axis of another job has the key `job:path`."""
    picks = {}
    for path, value in variant.items():
        job, colon, rest = path.partition(":")
        picks[(job, rest) if colon else (name, path)] = value
    return label(picks)
