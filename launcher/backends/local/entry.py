"""The queue entry: `launcher render` prints it and `submit` writes it, byte for byte the same.

An entry is complete: the resolved job (with its store and the names of its secrets), its fingerprint, and the runs of
the same submit whose outputs it reads. What depends on the submitter's shell is in a file of its own (state.Site).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from launcher.backends.base import Rendered
from launcher.errors import BadInput
from launcher.protocol.records import Placement
from launcher.spec.hashing import canonical, decode_job, plain, run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob
from launcher.spec.values.yaml_text import dump

VERSION = 1

_HEAD = re.compile(f'entry: {VERSION}\\nfingerprint: "?([0-9a-f]{{64}})"?\\njob:\\n')

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entry: int
    run: str
    fingerprint: str
    job: dict[str, Any]
    upstream: dict[str, str] = {}


class QueueEntry(msgspec.Struct, frozen=True):
    """A run in the queue. `upstream`: run id -> work hash of the runs of the same submit whose outputs it reads."""

    run: str
    fingerprint: str
    job: ResolvedJob
    upstream: Mapping[str, str] = {}

    @property
    def works(self) -> frozenset[str]:
        """The work hashes whose outputs must be in the store before the run may start."""
        inputs = self.job.inputs.values()
        return frozenset(work for item in inputs for work in (item.work, *item.works.values()) if work)

    def text(self) -> str:
        document = {"entry": VERSION, "run": self.run, "fingerprint": self.fingerprint, "job": plain(self.job)}
        if self.upstream:
            document["upstream"] = dict(self.upstream)
        return dump(document, sort=True)


def parse(text: str) -> QueueEntry:
    """Reads an entry back. Raises BadInput when it is damaged, of a newer version, or does not match its
    fingerprint."""
    try:
        document = msgspec.convert(yaml.load(text, Loader=Loader), _Document)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadInput(f"queue entry: {error}") from None
    if document.entry > VERSION:
        raise BadInput(f"queue entry of version {document.entry}; this launcher reads up to {VERSION}")
    job = decode_job(canonical(document.job))
    if run_hash(job) != document.fingerprint or run_id(job) != document.run:
        raise BadInput(f"queue entry {document.run}: the job in it is not the one its fingerprint names")
    return QueueEntry(document.run, document.fingerprint, job, document.upstream)


def fingerprint(text: str) -> str:
    """The fingerprint that an entry names. It is in the second line as `text` writes it; of any other form the whole
    entry is read. Raises BadInput as `parse`."""
    head = _HEAD.match(text)
    return head[1] if head is not None else parse(text).fingerprint


def entries(group: Sequence[ResolvedJob]) -> list[QueueEntry]:
    """The entries of a group, in its order."""
    new = [QueueEntry(run_id(job, fingerprint), fingerprint, job) for job in group for fingerprint in (run_hash(job),)]
    if not any(entry.works for entry in new):
        return new
    by_work: dict[str, list[str]] = {}
    for entry in new:
        by_work.setdefault(work_hash(entry.job), []).append(entry.run)
    for index, entry in enumerate(new):
        upstream = {
            other: work for work in sorted(entry.works) for other in by_work.get(work, ()) if other != entry.run
        }
        new[index] = msgspec.structs.replace(entry, upstream=upstream)
    return new


def render(group: Sequence[ResolvedJob]) -> Rendered:
    new = entries(group)
    return Rendered(_Texts({name(entry.run): entry for entry in new}), {entry.run: name(entry.run) for entry in new})


class _Texts(Mapping[str, str]):
    """File name -> text, written when it is asked for: submit needs those of the runs that are not in the queue."""

    def __init__(self, entries: Mapping[str, QueueEntry]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> str:
        return self._entries[name].text()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def where(queue: str, run: str, host: str) -> str:
    """The `where` of a placement in this queue; `queue`: the id in its state folder."""
    return f"{host}/{queue}/{run}"


def queue_of(placement: Placement) -> str:
    """The id of the queue that started a rank; "" where no queue did."""
    parts = placement.where.split("/")
    return parts[-2] if len(parts) == 3 and placement.kind in ("process", "container") else ""


def name(run: str) -> str:
    return f"{run}.yaml"
