"""Compute instances, disks and public addresses of a workspace's resource group that nobody uses and that are billed.

Whoever makes one gives it the tag `slipway-store` with a store's URL: a reaper of that store may then delete it. What
has no such tag is a stranger's and is only listed by `launcher status --paid`. An instance that runs is unused once the
run in its tag `slipway-run` is over; else only Azure's idle shutdown knows, which stops it.

A reaper that finds one unused leaves a mark in the store, whose name holds when Azure last changed it. A reaper that
finds the mark GRACE later looks at the resource itself once more and deletes it. Any step may be interrupted and
repeated, by several reapers at once: a mark is create-only, and what is deleted twice is gone once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from launcher.backends.azureml import names
from launcher.backends.azureml.resources import ADDRESSES, COMPUTES, DISKS
from launcher.errors import NotFound, SlipwayError
from launcher.protocol.finish import seconds_silent
from launcher.protocol.read import read_run
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.layout import RunKeys

if TYPE_CHECKING:
    from launcher.backends.azureml.workspace import Workspace


GRACE: Final = 3600.0  # seconds of the store's clock between the first look and the deletion
LEAVING: Final = 300.0  # seconds after its result in which a run may still use its instance
MARK: Final = b"{}"  # always the same: its time is what it says
WORDS: Final = {COMPUTES: "compute instance", DISKS: "disk", ADDRESSES: "address"}


@dataclass(frozen=True)
class UnusedResource:
    """`id`: of Azure; `kind`: with the version of its API; `state`: changes whenever somebody uses it, "" where Azure
    does not say; `why`: why nobody uses it."""

    id: str
    kind: tuple[str, str]
    name: str
    owner: str
    state: str
    why: str

    @property
    def told(self) -> str:
        return f"{WORDS[self.kind]} {self.name}"

    def mark(self, prefix: str) -> str:
        return f"{prefix}{hashlib.sha256(f'{self.id.lower()} {self.state}'.encode()).hexdigest()[:32]}.json"


def end_unused(workspace: Workspace, store: Store, *, plan: bool) -> Iterator[tuple[str, str]]:
    """Deletes what nobody has used for GRACE; yields (stopped | unknown | unreachable, what it was and why). `plan`:
    deletes and writes nothing. Raises Unreachable where this login does not see the workspace."""
    workspace.must_exist()
    prefix = layout.unused(names.NAME, hashlib.sha256(workspace.name.encode()).hexdigest()[:16])
    marks: set[str] = set()
    whole = True
    for kind in WORDS:
        try:
            listed = workspace.raw(kind)
        except SlipwayError as error:
            whole = False
            yield "unreachable", f"{WORDS[kind]}s cannot be listed, so none is ended: {error}"
            continue
        for body in listed:
            if not isinstance((body.get("tags") or {}).get(names.OWNER), str):
                continue
            try:
                if (each := _unused(kind, body, store)) is None:
                    continue
                marks.add(each.mark(prefix))
                yield from _one(workspace, store, each, each.mark(prefix), plan=plan)
            except SlipwayError as error:
                whole = False
                yield "unreachable", f"{WORDS[kind]} {body.get('name', '')}: {error}"
    if whole and not plan:  # what is used again, or gone, must be found unused twice anew
        store.delete([meta.key for meta in store.scan(prefix) if meta.key not in marks])


def _one(
    workspace: Workspace, store: Store, each: UnusedResource, mark: str, *, plan: bool
) -> Iterator[tuple[str, str]]:
    if each.owner != store.url.rstrip("/"):
        yield "unknown", f"{each.told} belongs to another store, {each.owner}: {each.why}"
        return
    if not each.state:
        yield "unknown", f"{each.told}: {each.why}, but Azure does not say since when"
        return
    found = store.head(mark)
    if found is None:
        if not plan:
            store.create(mark, MARK)
        return
    unused = store.now() - found.modified
    if unused < GRACE:
        return
    body = workspace.resource(each.id, each.kind)
    if body is None or _unused(each.kind, body, store) != each:  # gone, or used since the list was made
        return
    if not plan:
        workspace.delete(each.id, each.kind)
    yield "stopped", f"{each.told} deleted: {each.why}, and nobody used it for {unused / 60:.0f} min"


def _unused(kind: tuple[str, str], body: Mapping[str, Any], store: Store) -> UnusedResource | None:
    """None: somebody uses it, or nobody can tell."""
    given, tags = body.get("properties") or {}, body.get("tags") or {}
    why, state = "", ""
    if kind == DISKS:
        held = body.get("managedBy") or body.get("managedByExtended")
        free = given.get("diskState") == "Unattached" and not held
        why = "no machine has it" if free else ""
        state = str(given.get("LastOwnershipUpdateTime") or given.get("timeCreated") or "")
    elif kind == ADDRESSES:
        free = not given.get("ipConfiguration") and not given.get("natGateway")
        why = "no machine has it" if free else ""
        state = str(body.get("etag") or "")
    elif str(given.get("computeType", "")).lower() == "computeinstance":
        inner = given.get("properties") or {}
        now, last = str(inner.get("state") or ""), inner.get("lastOperation") or {}
        busy = last.get("operationStatus") == "InProgress"
        if not busy and now == "Stopped":
            why = "it is stopped, and its disk and address are billed"
        elif not busy and now == "Running":
            why = _over(store, str(tags.get(names.TAG) or "")) if _owner(tags) == store.url.rstrip("/") else ""
        state = f"{now} since {last['operationTime']}" if last.get("operationTime") else ""
    if not why:
        return None
    return UnusedResource(str(body["id"]), kind, str(body.get("name", "")), _owner(tags), state, why)


def _owner(tags: Mapping[str, str]) -> str:
    return str(tags.get(names.OWNER) or "").rstrip("/")


def _over(store: Store, run: str) -> str:
    """Why the run of an instance needs it no more; "" if it may. Raises Unreachable."""
    if not run:
        return ""
    try:
        view = read_run(store, run, full=False)
    except NotFound:
        return ""
    head = store.head(RunKeys(run).result)
    if view.result is None or head is None or view.now - head.modified <= LEAVING:
        return ""
    return f"its run {run} has {view.result.outcome}"


# A job whose run has no result must end where nobody else would end it, because its nodes are billed.

UNSENT: Final = 45 * 60.0  # seconds that a node waits for a job that no launcher has sent
SILENT: Final = 900.0  # seconds without a heartbeat, beyond those after which another node may take over


def overdue(store: Store, run: str, status: str, missing: str) -> str:
    """Why the jobs of a run must end; "" if they may go on. Two witnesses: Azure ML says that the nodes do not respond,
    and their heartbeat has stopped; or the workspace has no job `missing`, for which a node has waited for long: the
    launcher that was to send it is gone. Raises Unreachable when the store cannot be read.

    A job that waits in a queue costs nothing. One that runs without a heartbeat may have waited for hours until a
    moment ago, after its spot nodes were taken back; nothing says since when it runs, so the limit in it must end it.
    """
    if status != "NotResponding" and not missing:
        return ""
    try:
        view = read_run(store, run, full=False)
    except NotFound:
        return ""  # a submit on another machine is about to write it, or its store is another
    if missing and view.attempts:
        waiting = view.now - max(view.attempts[-1].claimed.values(), default=view.now)
        if waiting > UNSENT:
            return f"{missing} was never sent, and the others have waited for it for {waiting / 60:.0f} min"
    if status != "NotResponding":
        return ""
    silent = seconds_silent(view) if view.attempts else 0.0
    stale = view.job.timing.stale if view.job is not None else 0.0
    if silent <= stale + SILENT:
        return ""
    return f"Azure ML says that its nodes do not respond, and they have been silent for {silent / 60:.0f} min"
