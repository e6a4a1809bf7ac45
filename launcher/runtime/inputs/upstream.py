"""Outputs and checkpoints of other runs of the same store: of any run that did a work, of every variant of a matrix
job, or of one run by its id."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from launcher.decoding import decode
from launcher.errors import NotFound
from launcher.protocol.deleted import why_missing
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime.folders import remove
from launcher.runtime.inputs import Fetch
from launcher.runtime.settings import AttemptError
from launcher.runtime.uploads import stored_checkpoints
from launcher.store.base import Store
from launcher.store.layout import RunKeys, works
from launcher.store.manifest import read_manifest

T = TypeVar("T")
_CHOICES: Final = 5  # how often another checkpoint is chosen because `keep` deleted the chosen one


def fetch(request: Fetch) -> str:
    if request.spec.works:
        lines = []
        for variant, work in sorted(request.spec.works.items()):
            single = replace(request, spec=replace(request.spec, works={}, work=work), expected=None)
            lines.append(f"{variant} {_of_work(replace(single, dest=request.dest / variant), work)}\n")
        return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
    if request.spec.work:
        return _of_work(request, request.spec.work)
    assert request.spec.run is not None
    return _of_run(request, request.spec.run)


def _of_work(request: Fetch, work: str) -> str:
    """Takes the input from a run that did this work. If several did, the first by name is taken, unless an earlier
    attempt has read another one's."""
    store = request.context.store
    outcome = _wait(request, lambda: _runs(store, work) or _in_vain(request, work))
    if isinstance(outcome, AttemptError):
        raise outcome
    runs = outcome
    if not runs:
        job = f"job {request.spec.job}: " if request.spec.job else ""
        raise request.missing(f"{job}no run has done work {work[:12]} in {store.url}, or its outputs were deleted")
    digest = ""
    for run, attempt in runs.items():
        digest = _take(request, run, attempt)
        if request.expected in (None, digest):
            break
    return digest


def _in_vain(request: Fetch, work: str) -> AttemptError | None:
    """The error of a stage whose upstream run ended without doing its work; None if there is no such run. A stage
    starts when the stages before it have ended."""
    for run in request.context.address.stage or ():
        record = request.context.store.read(RunKeys(run).result)
        result = decode(record[0], Result) if record else None
        if result is not None and result.outcome != "succeeded" and result.work == work:
            return _failed(request, run, result)
    return None


def _failed(request: Fetch, run: str, result: Result) -> AttemptError:
    return request.fault(Reason.UPSTREAM_FAILED, f"run {run} is {result.outcome} ({result.reason}): {result.message}")


def _runs(store: Store, work: str) -> dict[str, int]:
    attempts = {}
    for meta in store.scan(works(work)):
        body = store.read(meta.key)
        if body is not None:
            run = meta.key.removeprefix(works(work)).removesuffix(".json")
            if store.head(RunKeys(run).deleted) is not None:
                continue  # its outputs were deleted; its record will be deleted next
            attempts[run] = decode(body[0], Result).attempt
    return attempts


def _of_run(request: Fetch, run: str) -> str:
    store, keys = request.context.store, RunKeys(run)

    def final() -> Result | None:
        record = store.read(keys.result)
        return decode(record[0], Result) if record else None

    if gone := why_missing(store, run):
        raise request.missing(f"run {run}: {gone}")
    if request.spec.step is not None:  # a checkpoint may be taken from a run that is not finished, or that failed
        ended = final()
        return _checkpoint(request, ended.source(run)[0] if ended else run, request.spec.step)
    result = _wait(request, final)
    if result is None:
        there = "has not ended" if store.head(keys.job) else f"is not in {store.url}"
        raise request.missing(f"run {run} {there}")
    if result.outcome != "succeeded":
        raise _failed(request, run, result)
    return _take(request, *result.source(run))


def _wait(request: Fetch, look: Callable[[], T]) -> T:
    """Repeats `look` until it returns something true, or until `tuning.upstream` seconds have passed. An upstream run
    is recorded a moment after its end, and this run may have been started before that."""
    until = time.monotonic() + request.context.address.tuning.upstream
    while not (answer := look()) and time.monotonic() < until:
        request.check()
        time.sleep(0.2)
    return answer


def _take(request: Fetch, run: str, attempt: int) -> str:
    """Fetches a folder of files; or a checkpoint, if the output is of that kind or the input names a step."""
    store, keys = request.context.store, RunKeys(run).attempt(attempt)
    if request.spec.output is None:
        raise request.fault(Reason.CONFIG_ERROR, f"no output of run {run} is named")
    if gone := why_missing(store, run):
        raise request.missing(f"run {run}: {gone}")
    if request.spec.step is None:
        manifest = read_manifest(store, keys.output_manifest(request.spec.output))
        if manifest is not None:
            stored_checkpoints.fetch_tree(
                store, keys.output(request.spec.output), manifest, request.dest, request.progress
            )
            return f"sha256:{manifest.digest}"
    return _checkpoint(request, run, request.spec.step or "latest")


def _checkpoint(request: Fetch, run: str, step: str) -> str:
    for choice in range(_CHOICES):
        try:
            chosen, record = stored_checkpoints.select(request.context.store, run, step)
            remove(request.dest)
            manifest = stored_checkpoints.fetch(
                request.context.store, chosen, record, request.dest, progress=request.progress
            )
            request.context.say(f"input {request.name}: checkpoint {chosen.step} of {run}")
            return f"sha256:{manifest.digest}"
        except NotFound:
            if choice == _CHOICES - 1 or not any(stored_checkpoints.complete(request.context.store, run)):
                raise
    raise AssertionError
