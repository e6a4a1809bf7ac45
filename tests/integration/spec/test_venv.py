"""A Python environment in place of an image: what a lock must be, and that it is a part of what the run is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from launcher.deleting.guard import needs
from launcher.deleting.survey import survey
from launcher.spec.hashing import encode_job, run_id
from launcher.store import open_store
from launcher.store.layout import RunKeys, blob
from launcher.verbs.overlays import upload_overlays
from tests.unit.spec.test_venv import made


def test_a_store_gets_the_archive_once_and_keeps_it(tmp_path: Path) -> None:
    packed = made(tmp_path)
    job = packed.runs[0]
    (digest,) = packed.packed
    store = open_store((tmp_path / "store").as_uri())
    assert upload_overlays(store, [job], packed.packed) == {digest: True}
    assert upload_overlays(store, [job], {}) == {digest: False}
    assert needs(job)[2] == {digest}
    store.create(RunKeys(run_id(job)).job, encode_job(job))
    (known,) = survey(store).runs.values()
    assert known.blobs == {digest}  # so `launcher gc` deletes it after the run only
    assert hashlib.sha256(store.get(blob(digest))).hexdigest() == digest
