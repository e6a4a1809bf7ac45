"""GPUs that do nothing: a real runtime, with an `nvidia-smi` that says what a file says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from launcher.protocol.fold import fold
from launcher.protocol.records import GPU_IDLE
from launcher.reasons import Reason
from launcher.spec.model import Limits, Resources
from tests.integration.runtime.rig import Rig, started, until

# two GPUs: their use in per cent and their memory in MiB
SMI = '#!/bin/sh\nuse=$(cat "{use}")\necho "$use, 1024"\necho "0, 1024"\n'
WAITS = "echo up; trap 'exit 0' TERM; while :; do sleep 0.05; done"


def gpus(tmp_path: Path, **limits: Any) -> tuple[Rig, Path]:
    use = tmp_path / "use"
    use.write_text("80")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI.format(use=use))
    (folder / "nvidia-smi").chmod(0o755)
    role = {"resources": Resources(gpus=2)}
    rig = Rig.of(tmp_path, ("sh", "-c", WAITS), role=role, limits=Limits(grace=20.0, **limits))
    rig.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    rig.tuning |= {"usage": 0.1, "idle": 0.5}
    return rig, use


def idle(rig: Rig) -> float:
    beat = rig.view().attempts[-1].beats.get("main-0")
    return beat[0].usage.get(GPU_IDLE, 0.0) if beat else 0.0


def warnings(rig: Rig) -> list[str]:
    return [event.message for event in rig.view().events if event.kind == "warning"]


def test_idle_gpus_are_warned_about_once_and_again_after_work(tmp_path: Path) -> None:
    rig, use = gpus(tmp_path)
    process = started(rig)
    until(lambda: "gpu" in rig.view().attempts[-1].beats["main-0"][0].usage)
    assert (idle(rig), warnings(rig)) == (0.0, [])  # one of two GPUs works
    use.write_text("0")
    until(lambda: idle(rig) > 1.0)
    until(lambda: len(warnings(rig)) == 1)
    assert "have done nothing for" in warnings(rig)[0]
    use.write_text("40")
    until(lambda: idle(rig) == 0.0)
    use.write_text("0")
    until(lambda: len(warnings(rig)) == 2)
    assert process.poll() is None  # nobody asked for its end
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert rig.log().count(b"limits.gpu_idle would end the run") == 2


def test_a_run_that_asks_for_it_is_ended_when_its_gpus_do_nothing(tmp_path: Path) -> None:
    rig, use = gpus(tmp_path, gpu_idle=1.5, retries=3)
    process = started(rig)
    use.write_text("0")
    assert process.wait(timeout=60) == 78
    result = rig.result()
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.IDLE)
    assert "the GPUs have done nothing for" in result.message


def test_where_nobody_can_tell_nothing_is_ended(tmp_path: Path) -> None:
    rig, use = gpus(tmp_path, gpu_idle=0.2)
    use.write_text("[N/A]")  # as with MIG
    process = started(rig)
    until(lambda: rig.view().attempts[-1].beats["main-0"][0].seq >= 5)
    assert process.poll() is None
    assert warnings(rig) == []
    process.terminate()
    assert process.wait(timeout=60) == 143


def test_status_says_it_of_the_leader_after_fifteen_minutes(tmp_path: Path) -> None:
    rig, _ = gpus(tmp_path)
    process = started(rig)
    until(lambda: "main-0" in rig.view().attempts[-1].beats)
    view = rig.view()
    process.terminate()
    process.wait(timeout=60)
    last = view.attempts[-1]
    beat, seen = last.beats["main-0"]
    for seconds, told in ((899.0, ""), (1380.0, "its GPUs have done nothing for 23 min")):
        usage = {**beat.usage, GPU_IDLE: seconds}
        beats = {"main-0": (msgspec.structs.replace(beat, usage=usage, phase="running"), seen)}
        assert fold(replace(view, attempts=(replace(last, beats=beats),))).detail == told
