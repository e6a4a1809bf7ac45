"""A put whose connection broke may be executed by the server long after its own retry. Whatever comes late: the store
holds what the run made. Real runtimes on a store that executes the first try of every put when the process ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.logs import read_pieces
from launcher.store.manifest import read_manifest
from launcher.verbs.gather import gather

# from launcher.store.upload import key_of
from tests.integration.runtime.rig import Rig, python
from tests.integration.runtime.test_checkpoints import CHECKPOINTS

# the first try of each put fails after its body has left, and that body is what the server executes last
LATE = """
import hashlib, os, sys
if "launcher.runtime" in sys.orig_argv:
    from launcher.errors import Unreachable
    from launcher.store.file import FileStore
    tried, late = set(), []
    put, send, create = FileStore.put, FileStore.send, FileStore.create

    def first(key):
        if key in tried or "/beat/" in key or not key.startswith("runs/"):
            return False
        tried.add(key)
        return True

    def late_put(self, key, body):
        if first(key):
            late.append(lambda: put(self, key, body))
            raise Unreachable("the connection broke")
        put(self, key, body)

    def late_send(self, key, source, size, sha256=None, known=None):
        if first(key):
            body = b"".join(bytes(piece) for piece in source())
            if known is not None:
                known(len(body), hashlib.sha256(body).hexdigest())
            late.append(lambda: put(self, key, body))
            raise Unreachable("the connection broke")
        return send(self, key, source, size, sha256, known)

    def late_create(self, key, body):
        if ("/outputs/" in key or "/checkpoints/" in key) and first(key):
            late.append(lambda: create(self, key, body))
            raise Unreachable("the connection broke")
        return create(self, key, body)

    FileStore.put, FileStore.send, FileStore.create = late_put, late_send, late_create
    leave = os._exit

    def last(code):
        for act in late:
            act()
        leave(code)

    os._exit = last
"""

COMMAND = """
import json, os, time
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"], "results")
out.mkdir(exist_ok=True)
saved = Path(os.environ["SLIPWAY_OUTPUTS"], "checkpoints")
with open(os.environ["SLIPWAY_METRICS"], "a") as metrics:
    for step in range(10):
        print("line", step, flush=True)
        metrics.write(json.dumps({"step": step, "name": "loss", "value": step, "time": 0}) + "\\n")
        metrics.flush()
        with (out / "grows").open("a") as file:
            file.write(f"line {step}\\n")
        (out / "changes").write_text(str(step) * 10)
        (out / f"new-{step}").write_text(str(step))
        if step % 4 == 0:
            (saved / f"checkpoint-{step}").mkdir(parents=True)
            (saved / f"checkpoint-{step}" / "weights").write_text(str(step))
        time.sleep(0.15)
"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LATE)
    outputs = {"results": Output(sync="live"), **CHECKPOINTS}
    rig = Rig.of(tmp_path, python(COMMAND), outputs=outputs)
    rig.environ["PYTHONPATH"] = str(tmp_path / "site")
    return rig


def live_files(store: Store, rig: Rig) -> dict[str, bytes]:
    keys = rig.keys.attempt(1)
    manifest = read_manifest(store, keys.output_manifest("results"))
    assert manifest is not None
    return {name: store.get(keys.output("results") + name) for name, file in manifest.files.items()}


def test_what_comes_late_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    assert rig.go() == 0
    lines = [line for line in rig.log().decode().splitlines() if line.startswith("line")]
    assert lines == [f"line {step}" for step in range(10)]
    pieces = read_pieces(rig.store, rig.keys.attempt(1).metrics("main-0"), ".jsonl")
    points = [json.loads(line) for line in b"".join(piece.body for piece in pieces).splitlines()]
    assert [point["step"] for point in points] == list(range(10))
    files = live_files(rig.store, rig)
    assert files["grows"].decode() == "".join(f"line {step}\n" for step in range(10))
    assert files["changes"] == b"9" * 10
    assert {name for name in files if name.startswith("new")} == {f"new-{step}" for step in range(10)}
    (done,) = gather(rig.store, [rig.run], str(tmp_path / "to"))
    assert done.error is None
    assert (tmp_path / "to" / rig.run / "outputs/results/changes").read_bytes() == b"9" * 10
    # runtimes in older images read the final files at these keys
    assert FileStore.at(rig.job.store).get(rig.keys.attempt(1).output("results") + "changes") == b"9" * 10
