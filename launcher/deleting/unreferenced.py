"""Classifies the objects of a run (markers, manifests, bytes) and finds the unreferenced ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from launcher.store import manifest as manifests
from launcher.store.base import Meta, Store
from launcher.store.layout import LOG, METRICS, AttemptKeys, RunKeys, live_manifests, live_version, span
from launcher.store.logs import cover
from launcher.store.manifest import final_key

MARKER, MANIFEST, BYTES, RECORD = range(4)  # the order in which they are deleted
_RECORDS: Final = ("claim", "beat", "exit", "endpoints", "formed.json", "broken.json")
_PIECES: Final = {"logs": LOG, "metrics": METRICS}


def deletion_order(run: str, key: str) -> int:
    """The position of a key in the order of deletion: first the objects that make readers trust others, last the
    records of attempts."""
    match key.removeprefix(RunKeys(run).prefix).split("/"):
        case ["attempts", _, "checkpoints", _, "complete.json"]:
            return MARKER
        case ["attempts", _, "outputs", name] if name.endswith(".json"):
            return MARKER
        case ["attempts", _, "outputs", name, "manifest", _] if name.endswith(".live"):
            return MARKER
        case ["attempts", _, "checkpoints", _, "manifest", *_]:
            return MANIFEST
        case ["attempts", _, kind, *_] if kind not in _RECORDS:
            return BYTES
    return RECORD


def unreferenced(store: Store, run: str, metas: Iterable[Meta]) -> list[Meta]:
    """The objects of an ended run that readers ignore: checkpoints without their marker, pieces of logs and metrics
    that others cover, and output files that no valid manifest lists. Manifests are read only where names do not
    suffice."""
    prefix = RunKeys(run).attempts
    parts: dict[tuple[str, str, str], list[Meta]] = defaultdict(list)
    for meta in metas:
        words = meta.key.removeprefix(prefix).split("/")
        if meta.key.startswith(prefix) and len(words) > 2 and words[0].isdecimal():
            name = words[2].partition(".")[0] if words[1] == "outputs" else words[2]
            parts[words[0], words[1], name].append(meta)
    garbage: list[Meta] = []
    for (number, kind, name), some in parts.items():
        keys = RunKeys(run).attempt(int(number))
        if kind == "checkpoints" and name.isdecimal():
            complete = keys.checkpoint_complete(int(name))
            garbage += [] if any(meta.key == complete for meta in some) else some
        elif kind in _PIECES:
            garbage += _covered(some, _PIECES[kind])
        elif kind == "outputs":
            garbage += _outside(store, keys, name, some)
    return garbage


def _covered(metas: Sequence[Meta], suffix: str) -> list[Meta]:
    pieces: dict[str, tuple[int, int, str]] = {}
    for meta in metas:
        bounds = span(meta.key.rpartition("/")[2], suffix)
        if bounds is not None:
            first, end = bounds
            pieces[meta.key] = first, meta.size if end is None else min(meta.size, end - first), meta.key
    taken = {key for _, _, key in cover(list(pieces.values()))}
    return [meta for meta in metas if meta.key in pieces and meta.key not in taken]


def _outside(store: Store, keys: AttemptKeys, name: str, metas: Sequence[Meta]) -> list[Meta]:
    """The files of one output that its final manifest (or, without one, its newest live manifest) does not list."""
    folder = keys.output(name)
    by_key = {meta.key: meta for meta in metas}
    plain = all(key.startswith(folder) or key == final_key(folder) for key in by_key)
    if plain and final_key(folder) in by_key:
        return []  # each key has one body, and the manifest lists all keys
    counts = _counting(folder, by_key)
    if counts is None:
        return list(metas)
    manifest = manifests.read_manifest(store, counts)
    if manifest is None:
        return []  # being deleted at this moment: the next call sees what is left
    named = {manifests.key_of(folder, path, file.at) for path, file in manifest.files.items()}
    return [meta for key, meta in by_key.items() if key not in named and key != counts]


def _counting(folder: str, keys: Mapping[str, Meta]) -> str | None:
    """The key of the manifest that readers use."""
    if final_key(folder) in keys:
        return final_key(folder)
    live = [(live_version(key) or 0, key) for key in keys if key.startswith(live_manifests(folder))]
    return max(live)[1] if live else None
