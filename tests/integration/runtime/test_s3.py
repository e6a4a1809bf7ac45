"""The same runtime on an object store: checkpoints, live outputs, an outage, inputs; and what requests a run makes."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.runtime.uploads import stored_checkpoints
from launcher.spec.model import Input, Output, Timing
from tests.integration.runtime.rig import TIMING, Rig, python, terminate, until
from tests.integration.runtime.test_checkpoints import CHECKPOINTS, TRAINER
from tests.integration.runtime.test_data import CAT
from tests.support.needs import lacking
from tests.support.s3 import ENVIRONMENT, S3Server


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.s3
@pytest.mark.usefixtures("credentials")
def test_preempted_then_done(tmp_path: Path, s3_server: S3Server) -> None:
    code = TRAINER + (
        "results = out.parent / 'results'; results.mkdir(exist_ok=True); (results / f'at-{step}').write_text('x')\n"
        "step = step + 10\nif step == 10: print('up', flush=True); time.sleep(60)\nsave(step)"
    )
    outputs = {**CHECKPOINTS, "results": Output(sync="live")}
    rig = Rig.of(tmp_path, python(code), store=s3_server.url(), outputs=outputs)
    process = rig.start()
    until(lambda: rig.objects("attempts/1/outputs/results.live/manifest/") and b"up\n" in rig.log())
    assert terminate(process) == 143
    assert rig.go() == 0
    assert b"from 10 checkpoint-10\n" in rig.log(2)
    assert [found.step for found, _ in stored_checkpoints.complete(rig.store, rig.run)] == [20, 10]
    there = {key for key in rig.objects() if key.startswith("attempts/2/outputs/")}
    assert there == {f"attempts/2/outputs/results{name}" for name in (".manifest.json", "/at-0", "/at-10")}


@pytest.mark.s3
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("seconds", "timing"),
    [(1.5, TIMING), pytest.param(600.0, Timing(), marks=pytest.mark.nightly)],
    ids=["short", "ten minutes"],
)
def test_an_outage_does_not_end_a_run(tmp_path: Path, s3_server: S3Server, seconds: float, timing: Timing) -> None:
    if not s3_server.real:
        lacking("versitygw", "moto forgets its buckets when it stops")
    code = f"touch $SLIPWAY_OUTPUTS/../up; sleep {seconds}; echo x > $SLIPWAY_OUTPUTS/m/a"
    rig = Rig.of(tmp_path, ("sh", "-c", code), store=s3_server.url(), outputs={"m": Output()}, timing=timing)
    process = rig.start()
    until((tmp_path / "work/main-0/up").exists)
    s3_server.stop()
    try:
        until((tmp_path / "work/main-0/outputs/m/a").exists)
    finally:
        s3_server.start()
    assert process.wait(timeout=60) == 0
    assert rig.output("m/a") == b"x\n"
    assert rig.exit().reason is Reason.SUCCEEDED


@pytest.mark.s3
@pytest.mark.usefixtures("credentials")
def test_inputs_by_url(tmp_path: Path, s3_server: S3Server) -> None:
    url = s3_server.url()
    rig = Rig.of(tmp_path, ("sh", "-c", "echo weights > $SLIPWAY_OUTPUTS/m/w"), store=url,
                 outputs={"m": Output()})  # fmt: skip
    assert rig.go() == 0
    rig.store.put("data/set/a", b"1")
    rig.store.put("data/set/b/c", b"2")
    base, _, query = url.partition("?")

    def at(path: str) -> Input:
        return Input(url=f"{base}/{path}?{query}")

    inputs = {
        "folder": at("data/set"),
        "file": at("data/set/a"),
        "output": at(f"{rig.keys.prefix}attempts/1/outputs/m"),
    }
    reader = Rig.of(tmp_path, python(CAT), store=url, inputs=inputs)
    assert reader.go() == 0
    for line in (b"file . 1\n", b"folder a 1\n", b"folder b/c 2\n", b"output w weights\n"):
        assert line in reader.log()
    result = reader.result()
    assert result is not None
    assert result.data["file"] == f"sha256:{hashlib.sha256(b'1').hexdigest()}"
    missing = Rig.of(tmp_path, ("true",), store=url, inputs={"a": at("data/other")})
    assert missing.go() == 78
    assert "no such object, and nothing below it" in missing.exit().message


COUNTER = """
import os, sys
if "launcher.runtime" in sys.orig_argv:
    from launcher.store.file import FileStore
    def wrap(name, method):
        def call(*args, **kwargs):
            with open(os.environ["COUNT"], "a") as file:
                file.write(name + "\\n")
            return method(*args, **kwargs)
        return call
    for name in ("read", "get", "head", "create", "put", "send", "delete", "folders", "scan", "download"):
        setattr(FileStore, name, wrap(name, getattr(FileStore, name)))
"""


def test_what_a_run_costs_in_requests(tmp_path: Path) -> None:
    """docs/reference/runtime.md states these; a change here is a change there."""
    (tmp_path / "sitecustomize.py").write_text(COUNTER)

    def count(name: str, beats: int, timing: Timing) -> Counter[str]:
        """Of a run whose command ends once there were so many beats."""
        root = tmp_path / name
        rig = Rig.of(root, ("sh", "-c", f"until [ -e {root}/go ]; do sleep 0.05; done"), timing=timing)
        rig.tuning["log_first"] = 600  # one piece, at the end
        root.mkdir(exist_ok=True)
        rig.environ |= {"PYTHONPATH": str(tmp_path), "COUNT": str(tmp_path / f"count-{name}")}
        counted = tmp_path / f"count-{name}"
        process = rig.start()
        key = rig.keys.attempt(1).beat("main-0")
        until(lambda: (beat := rig.store.read(key)) and msgspec.json.decode(beat[0], type=Beat).seq >= beats)
        until(lambda: counted.read_text().split().count("head") >= 2 * beats)  # they come after the beat's put
        (root / "go").touch()
        assert process.wait() == 0
        return Counter(counted.read_text().split())

    short = count("short", 2, Timing())
    began = time.monotonic()
    long = count("long", 6, Timing(beat=0.3, stale=60.0, fence=30.0))
    took = time.monotonic() - began
    assert dict(short) == {
        "folders": 2,  # the attempts that are there, before and after job.json was written
        "read": 12,  # job, cancel, result, twice; three before the command; of each beat one; claim 2 before the exit
        "head": 4,  # two of each beat
        "create": 6,  # the event that it was applied, job, claim, exit, result, works
        "put": 2,  # a beat at the claim, one when the command starts
        "scan": 2,  # works/: whether another run has done this; the ceilings of the groups that the run is in
        "send": 1,  # the log
    }
    beats = long["put"] - short["put"]
    assert 3 <= beats <= took / 0.3 + 1
    more = long - short
    heads = more.pop("head")
    assert dict(more) == {"put": beats, "read": beats}
    assert 2 * beats - 2 <= heads <= 2 * beats  # the command may end between the last beat's put and its heads
