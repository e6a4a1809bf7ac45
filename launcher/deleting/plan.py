"""Plans a deletion: what would be deleted, with counts and sizes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.deleting.choose import DeletionSelection, find_needed, selected
from launcher.deleting.survey import Known, Survey, glance, leftovers, sized, survey
from launcher.errors import Conflict, Unreachable
from launcher.protocol.records import Complete
from launcher.spec.model import Timing
from launcher.store.base import Meta, Store
from launcher.store.layout import RunKeys
from launcher.store.proof import ListProof

GRACE: Final = 7 * 86400.0  # seconds for which unreferenced objects stay: jobs that wait elsewhere may need them


@dataclass(frozen=True)
class StoredCheckpoint:
    """One complete checkpoint of a run that has ended."""

    run: str
    attempt: int
    step: int
    metas: tuple[Meta, ...]

    @property
    def prefix(self) -> str:
        return f"{RunKeys(self.run).attempt(self.attempt).checkpoints}{self.step}/"


@dataclass(frozen=True)
class UnusedOverlay:
    """A code overlay that no job.json refers to. `blob` is None when only its note is left."""

    digest: str
    blob: Meta | None
    note: Meta | None

    @property
    def metas(self) -> tuple[Meta, ...]:
        return tuple(meta for meta in (self.blob, self.note) if meta is not None)


@dataclass(frozen=True)
class DeletionPlan:
    """What would be deleted. `kept`: run -> why it stays although it was selected. `leftovers`: description ->
    unreferenced objects, of deleted runs or of uploads that were never completed. `proof`: of the lists from which the
    plan was made; whoever has the plan clears it."""

    proof: ListProof = field(repr=False)
    runs: tuple[Known, ...] = ()
    checkpoints: tuple[StoredCheckpoint, ...] = ()
    overlays: tuple[UnusedOverlay, ...] = ()
    leftovers: Mapping[str, tuple[Meta, ...]] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Known] = field(default_factory=dict, repr=False)  # the runs on which the decision is based

    @property
    def empty(self) -> bool:
        return not (self.runs or self.checkpoints or self.overlays or self.leftovers)

    @property
    def objects(self) -> int:
        return sum(known.objects for known in self.runs) + len(self._metas())

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(known.size for known in self.runs) + sum(meta.size for meta in self._metas())

    def _metas(self) -> list[Meta]:
        parts = [*(item.metas for item in self.checkpoints), *(item.metas for item in self.overlays)]
        return [meta for part in (*parts, *self.leftovers.values()) for meta in part]


def plan_gc(
    store: Store, wanted: DeletionSelection, *, checkpoints: bool = False, grace: float = GRACE, may_act: bool = True
) -> DeletionPlan:
    """What `launcher gc` would delete. `checkpoints`: only checkpoints of the selected runs, except the newest
    `wanted.keep` of each run and the trainer's best; `wanted.keep` then selects no runs. `may_act`: False writes
    nothing, and the plan must not be carried out. Raises BadInput, Unreachable.
    """
    with ListProof(store, may_act=may_act).cleared_if_refused() as proof:
        return _plan_gc(store, wanted, checkpoints, grace, proof)


def _plan_gc(
    store: Store, wanted: DeletionSelection, checkpoints: bool, grace: float, proof: ListProof
) -> DeletionPlan:
    surveyed = survey(store, proof, checkpoints=checkpoints)
    which = replace(wanted, keep=None, older_than=wanted.older_than or 0.0) if checkpoints else wanted
    going = selected(surveyed.runs, which, surveyed.now)
    kept = find_needed(surveyed.runs, going, whole=not checkpoints)
    kept |= {known.run: f"cannot be read: {known.unreadable}" for known in surveyed.runs.values() if known.unreadable}
    runs = [surveyed.runs[run] for run in going if run not in kept]
    unreferenced = _leftovers(surveyed, grace)
    if checkpoints:
        thin = tuple(checkpoint for known in runs for checkpoint in _older(store, known, wanted.keep or 1))
        return DeletionPlan(proof, (), thin, (), unreferenced, kept, surveyed.runs)
    return DeletionPlan(proof, tuple(runs), (), _overlays(surveyed, grace), unreferenced, kept, surveyed.runs)


def plan_rm(store: Store, runs: Sequence[str], *, may_act: bool = True) -> DeletionPlan:
    """What `launcher rm` of these runs would delete. `may_act`: as in `plan_gc`. Raises Conflict when one of them has
    to stay, Unreachable."""
    with ListProof(store, may_act=may_act).cleared_if_refused() as proof:
        return _plan_rm(store, runs, proof)


def _plan_rm(store: Store, runs: Sequence[str], proof: ListProof) -> DeletionPlan:
    known = glance(store, proof)
    going = [run for run in dict.fromkeys(runs) if run in known and not known[run].deleted]
    kept = find_needed(known, going)
    kept |= {run: why for run in going if known[run].unreadable and (why := _lives(store, run))}
    if kept:
        raise Conflict("\n".join(f"{run} is kept: {why}" for run, why in kept.items()))
    gone = [run for run in dict.fromkeys(runs) if run in known and known[run].deleted]
    remaining = {run: tuple(leftovers(store, run)) for run in gone}
    return DeletionPlan(
        proof,
        tuple(sized(store, known[run]) for run in going),
        leftovers={f"of {run}, which was deleted": metas for run, metas in remaining.items() if metas},
        kept={run: "was deleted before" for run in gone if not remaining[run]},
        known=known,
    )


def _lives(store: Store, run: str) -> str:
    """Why a run whose records cannot be read may still be running; "" for one that has ended, never began, or is silent
    for long."""
    metas = {meta.key: meta for meta in store.scan(RunKeys(run).prefix)}
    beats = [meta.modified for key, meta in metas.items() if "/claim/" in key or "/beat/" in key]
    ended = RunKeys(run).result in metas or any("/exit/" in key for key in metas)
    silent = store.now() - max(beats, default=0.0)
    if ended or silent > Timing().stale:
        return ""
    return f"its records cannot be read, and it gave a sign of life {silent:.0f} s ago: launcher cancel {run}"


def check_named(names: Sequence[str], plan: DeletionPlan, runs: Collection[str]) -> None:
    """Checks against the proved list that `names` mean `runs`: they were found by lists that nobody has proved. Raises
    Unreachable for a name that means another run as well: the newest of a job, or one more id that begins so."""
    for name in (given.partition("/")[0] for given in names if given not in runs):
        job = re.compile(re.escape(name.partition("[")[0]) + r"-[0-9a-f]{12}")
        of_job = [known for known in plan.known.values() if job.fullmatch(known.run)]
        chosen = max((known.created for known in of_job if known.run in runs), default=0.0)
        other = [known.run for known in of_job if known.run not in runs and known.created > chosen]
        if not of_job:
            other = [run for run in plan.known if run.startswith(name) and run not in runs]
        if other:
            raise Unreachable(f"`{name}` means {other[0]}, too, which the store's list lacked a moment ago; try again")


def _overlays(surveyed: Survey, grace: float) -> tuple[UnusedOverlay, ...]:
    """The unused overlays; none beside a run that cannot be read, which may need each. Overlays of runs that this call
    deletes stay until the next call: a retry may need them."""
    if any(known.unreadable for known in surveyed.runs.values()):
        return ()
    used = {blob for known in surveyed.runs.values() for blob in known.blobs}
    old = [
        UnusedOverlay(digest, surveyed.blobs.get(digest), surveyed.notes.get(digest))
        for digest in sorted({*surveyed.blobs, *surveyed.notes} - used)
    ]
    return tuple(overlay for overlay in old if all(surveyed.now - meta.modified > grace for meta in overlay.metas))


def _leftovers(surveyed: Survey, grace: float) -> dict[str, tuple[Meta, ...]]:
    """The unreferenced objects. Objects of a deleted run need no grace time: only late requests still write there."""
    by_kind = {f"of {run}, which was deleted": metas for run, metas in surveyed.leftovers.items()}
    if surveyed.strays:
        by_kind["records of work whose outputs were deleted"] = surveyed.strays
    if old := tuple(meta for meta in surveyed.checks if surveyed.now - meta.modified > grace):
        by_kind["of checks of the store that were cut off"] = old
    for known in surveyed.runs.values():
        if known.unused and surveyed.now - (known.ended or 0.0) > grace:
            by_kind[f"of {known.run}, ignored by readers"] = known.unused
    return by_kind


def _older(store: Store, known: Known, keep: int) -> list[StoredCheckpoint]:
    """The complete checkpoints of a run, except the newest `keep` and the trainer's best."""
    run = known.run
    objects: dict[tuple[int, int], list[Meta]] = {}
    complete: list[tuple[int, int]] = []
    prefix = RunKeys(run).attempts
    for meta in known.steps:
        parts = meta.key.removeprefix(prefix).split("/")
        if len(parts) > 3 and parts[1] == "checkpoints" and parts[0].isdecimal() and parts[2].isdecimal():
            place = int(parts[2]), int(parts[0])
            objects.setdefault(place, []).append(meta)
            if parts[3:] == ["complete.json"]:
                complete.append(place)
    newest = sorted(complete, reverse=True)
    best = _best(store, run, newest)
    return [
        StoredCheckpoint(run, attempt, step, tuple(objects[step, attempt]))
        for step, attempt in newest[keep:]
        if step != best
    ]


def _best(store: Store, run: str, newest: Sequence[tuple[int, int]]) -> int | None:
    if not newest:
        return None
    step, attempt = newest[0]
    body = store.read(RunKeys(run).attempt(attempt).checkpoint_complete(step))
    try:
        return decode(body[0], Complete).best if body is not None else None
    except msgspec.MsgspecError:
        return None
