"""Says that a run is a new one, which costs again, because an image's name means another digest than in an earlier run
that is the same otherwise; and how to keep the earlier image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from launcher.spec.hashing import run_hash, run_id
from launcher.spec.images.catalogue import load, released
from launcher.spec.model import ResolvedJob


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
