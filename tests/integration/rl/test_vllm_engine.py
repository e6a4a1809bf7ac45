"""When the sampler in the worker gives vLLM new weights, and which version each answer is of; vLLM by a script."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.rl.test_vllm_engine import ScriptedEngine, asked, play, there, whole
from training.rl.asynchronous.vllm_engine import EngineSampler

pytestmark = pytest.mark.ml


def test_all_weights_change_only_when_nothing_runs_and_nothing_begins_before(tmp_path: Path) -> None:
    whole(tmp_path / "w", 2)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(tmp_path / "w" / "0.safetensors"))
        old = asked(sampler, [10])
        await there(lambda: len(engine.asked) == 1)
        sampler.follow(1, str(tmp_path / "w" / "1.safetensors"))
        new = asked(sampler, [11, 12])
        await asyncio.sleep(0.1)
        assert len(engine.asked) == 1
        engine.ended |= {10, 11, 12}
        answers = [await each for each in (*old, *new)]
        assert [each.version for each in answers] == [0, 1, 1]

    told = play(tmp_path / "w", script).told
    assert told == [
        *(("take", 0), ("ask", 10, None)),
        *(("take", 1), ("ask", 11, None), ("ask", 12, None)),
        ("close",),
    ]
