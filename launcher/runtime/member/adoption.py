"""Finds another run that has already done a job's work, so that its outputs can be used as the job's own (adopted).

A run of the same `work` computes the same thing from the same inputs. Its outputs may be adopted if every input is
pinned or still has the content that run read, and if the outputs are still in the store. A job with `fresh` is always
computed, and nobody adopts from a run that went on from a checkpoint of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound
from launcher.protocol.deleted import going
from launcher.protocol.records import Adopted, Exit, Result
from launcher.runtime.inputs.hub import names_commit
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.hashing import work_hash
from launcher.spec.model import Input, ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys, works
from launcher.store.manifest import read_manifest

Holds = Callable[[str, Input, str], bool]
MOST: Final = 20  # at most so many runs of one work are looked at


def cannot_tell(name: str, spec: Input, digest: str) -> bool:
    """The `holds` of a caller that cannot read inputs outside the store; the runtime will look at them itself."""
    return False


def find_done(store: Store, job: ResolvedJob, run: str, holds: Holds = cannot_tell) -> Result | None:
    """The works/ record, with `adopted` set, of another run that has done the job's work. None if there is none, or if
    its inputs have changed or its outputs are gone.

    `holds(name, spec, digest)`: whether an input outside the store has the content with this digest now.

    Costs one listing, and a few requests for each run that did the work. Raises Unreachable.
    """
    if job.fresh:
        return None
    for other, result in _done(store, work_hash(job), run):
        if result.resumed is not None:
            continue
        kept = _outputs_there(store, job, other, result.attempt)
        same = kept and all(_same(store, job, name, spec, result, holds) for name, spec in job.inputs.items())
        if same and not going(store, other):
            return msgspec.structs.replace(result, adopted=Adopted(other, result.attempt))
    return None


def _done(store: Store, work: str, run: str) -> Iterator[tuple[str, Result]]:
    for count, meta in enumerate(store.scan(works(work))):
        other = meta.key.removeprefix(works(work)).removesuffix(".json")
        if count == MOST:
            return
        record = store.read(meta.key) if other != run else None
        if record is not None:
            with suppress(msgspec.MsgspecError):  # a damaged record proves nothing
                yield other, decode(record[0], Result)


def _outputs_there(store: Store, job: ResolvedJob, run: str, attempt: int) -> bool:
    keys = RunKeys(run).attempt(attempt)
    for name, output in job.outputs.items():
        if output.kind == "files":
            if store.head(keys.output_manifest(name)) is None:
                return False
        elif _had_checkpoint(store, job, run, attempt) and next(stored_checkpoints.complete(store, run), None) is None:
            return False
    return True


def _had_checkpoint(store: Store, job: ResolvedJob, run: str, attempt: int) -> bool:
    """Whether the run had a complete checkpoint when it ended; True also if that is not known."""
    record = store.read(RunKeys(run).attempt(attempt).exit(job.members()[0]))
    if record is None:
        return True
    try:
        return decode(record[0], Exit).checkpoint is not None
    except msgspec.MsgspecError:
        return True


def _same(store: Store, job: ResolvedJob, name: str, spec: Input, result: Result, holds: Holds) -> bool:
    """Whether an input still has the content that the run with this `result` read."""
    if spec.digest or (spec.url and names_commit(spec.url)) or (spec.run and spec.step is None):
        return True  # pinned by a digest or a commit, or the output of one run, which never changes
    digest = result.data.get(name)
    if digest is None:
        return False
    if spec.url:
        return holds(name, spec, digest)
    with suppress(NotFound):  # it was deleted
        if spec.run:
            return checkpoint_digest(store, spec.run, spec.step or "latest") == digest
        if spec.work:
            return digest in _upstream(store, spec.work, spec)
    return False


def _upstream(store: Store, work: str, spec: Input) -> Iterator[str]:
    """The digests of an output of all runs that did an upstream work, as it is in the store now."""
    for run, result in _done(store, work, ""):
        keys = RunKeys(run).attempt(result.attempt)
        manifest = read_manifest(store, keys.output_manifest(spec.output)) if spec.output and not spec.step else None
        if manifest is not None:
            yield f"sha256:{manifest.digest}"
        else:
            with suppress(NotFound):
                yield checkpoint_digest(store, run, spec.step or "latest")


def checkpoint_digest(store: Store, run: str, step: str) -> str:
    """The digest of an input that is this checkpoint of a run. Raises NotFound."""
    checkpoint, record = stored_checkpoints.select(store, run, step)
    return f"sha256:{stored_checkpoints.whole_manifest(store, checkpoint, record).digest}"
