"""Outputs that appear in the store while the command writes them, and come back to the next attempt."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.protocol.records import Beat
from launcher.spec.model import Output
from tests.integration.runtime.rig import Rig, python, until
from tests.support.fakerun import write_output


def test_live_outputs_appear_and_come_back(tmp_path: Path) -> None:
    code = """
import os, sys, time
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"]) / "results"
there = sorted(path.name for path in out.glob("episode-*"))
print("there", there, (out / "sub").is_dir(), flush=True)
(out / "sub").mkdir(parents=True, exist_ok=True)
(out / f"episode-{len(there)}").write_text("x" * 100)
if not there:
    time.sleep(60)
"""
    rig = Rig.of(tmp_path, python(code), outputs={"results": Output(sync="live")})
    process = rig.start()
    until(lambda: "attempts/1/outputs/results.live/manifest/00000001.json" in rig.objects())
    assert process.poll() is None
    assert rig.output("results/episode-0") == b"x" * 100
    process.kill()
    process.wait()
    assert rig.go() == 0
    assert b"there ['episode-0'] True" in rig.log(2)
    assert rig.output("results/episode-0", 2) == b"x" * 100
    assert rig.output("results/episode-1", 2) == b"x" * 100
    # of an attempt that succeeded nothing is left but the final files
    assert [key for key in rig.objects("attempts/2/outputs/") if ".live" in key] == []


def test_a_version_that_no_beat_told_of_comes_back_too(tmp_path: Path) -> None:
    code = "cd $SLIPWAY_OUTPUTS; cat r/a; mkdir -p r; echo new > r/a; test $SLIPWAY_ATTEMPT = 2 || sleep 60"
    rig = Rig.of(tmp_path, ("sh", "-c", code), outputs={"r": Output(sync="live")})
    process = rig.start()
    until(lambda: "attempts/1/outputs/r.live/manifest/00000001.json" in rig.objects())
    until(lambda: "attempts/1/beat/main-0.json" in rig.objects())
    process.kill()
    process.wait()
    key = rig.keys.attempt(1).beat("main-0")
    beat = msgspec.json.decode(rig.store.get(key), type=Beat)
    rig.store.put(key, msgspec.json.encode(msgspec.structs.replace(beat, outputs={})))
    assert rig.go() == 0
    assert b"new\n" in rig.log(2)


def test_older_versions_go_once_a_beat_names_a_newer_one(tmp_path: Path) -> None:
    code = """
import os, time
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"]) / "results"
out.mkdir(exist_ok=True)
(out / "once").write_text("x")
for count in range(1000):
    (out / "often").write_text(str(count))
    time.sleep(0.05)
"""
    rig = Rig.of(tmp_path, python(code), outputs={"results": Output(sync="live")})
    rig.tuning["linger"] = 0.0
    process = rig.start()

    def versions() -> list[int]:
        prefix = "attempts/1/outputs/results.live/manifest/"
        return [int(key.removeprefix(prefix).removesuffix(".json")) for key in rig.objects(prefix)]

    until(lambda: (found := versions()) and min(found) > 3)
    oldest = min(versions())  # looked at before the beat: a version goes only after a beat that names a newer one
    named = rig.view().attempts[0].live("main-0")["results"]
    assert oldest <= named
    until(lambda: min(versions()) >= named)  # and it does go
    first = "attempts/1/outputs/results.live/00000001/"
    until(lambda: f"{first}often" not in rig.objects(first))
    assert f"{first}once" in rig.objects(first)  # it is in every version
    process.kill()
    process.wait()


@pytest.mark.two_bodies
def test_live_outputs_of_an_older_runtime_come_back(tmp_path: Path) -> None:
    """It wrote a live file again under its key; killed in between, the file was newer than its manifest."""
    code = "cat $SLIPWAY_OUTPUTS/results/*; test $SLIPWAY_ATTEMPT = 2 || sleep 60"
    rig = Rig.of(tmp_path, ("sh", "-c", code), outputs={"results": Output(sync="live")})
    process = rig.start()
    until(lambda: rig.store.head(rig.keys.attempt(1).beat("main-0")))
    process.kill()
    process.wait()
    write_output(rig.store, rig.keys.attempt(1), "results", {"a": b"x" * 100, "b": b"as it was\n"})
    rig.store.put(rig.keys.attempt(1).output("results") + "a", b"y" * 120)
    assert rig.go() == 0
    assert b"y" * 120 + b"as it was\n" in rig.log(2)
    assert rig.output("results/a", 2) == b"y" * 120


def test_failed_attempts_leave_their_live_outputs_only(tmp_path: Path) -> None:
    code = "touch $SLIPWAY_OUTPUTS/live/a $SLIPWAY_OUTPUTS/end/a; exit 1"
    rig = Rig.of(tmp_path, ("sh", "-c", code), outputs={"live": Output(sync="live"), "end": Output()})
    assert rig.go() == 78
    attempt = rig.view().attempts[0]
    assert (attempt.outputs, attempt.live("main-0")) == (set(), {"live": 1})
    assert rig.output("live/a") == b""
    assert not [key for key in rig.objects() if "/outputs/end" in key]
