"""Tasks on desktops behind servers, and tasks whose program is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.benchmarks.linux_desktop import environment
from eval.desktops.remote import TOKEN_VARIABLE
from eval.desktops.stage import LocalStage
from eval.environments.desktop import servers_of
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.support.served import TOKEN, served

SEED = 1_000_000
BEHIND = ["mousepad-append", "thunar-rename", "galculator-compute", "mousepad-no-such-line"]

pytestmark = pytest.mark.timeout(300)


async def played(options: dict[str, object], out: Path, concurrency: int = 1) -> Sequence[Rollout]:
    names = options["templates"]
    assert isinstance(names, list)
    return await rollout(
        ScriptedAgent(Dsl(4)),
        lambda: environment.desktop(options),
        environment.tasks(len(names), SEED, options),
        out=out,
        benchmark="linux-desktop",
        environment="linux-desktop",
        limits=RolloutLimits(attempts=1, concurrency=concurrency),
    )


def test_the_oracle_solves_tasks_on_desktops_behind_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files, windows and the tree come through the server; one desktop has one task after the other."""

    async def go() -> Sequence[Rollout]:
        async with AsyncExitStack() as stack:
            desks = [await stack.enter_async_context(served()) for _ in range(2)]
            hosts = [desk.address.removeprefix("http://") for desk in desks]
            monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", ",".join(hosts))
            monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
            return await played({"templates": BEHIND, "role": "desktop"}, tmp_path, concurrency=2)

    servers_of.cache_clear()
    results = asyncio.run(go())
    told = {
        result.record.task_id: (result.record.outcome, result.record.error, result.record.score) for result in results
    }
    assert told == dict.fromkeys(BEHIND, ("scored", None, 1.0))


def test_a_task_whose_program_is_missing_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = LocalStage.start

    async def start(stage: LocalStage, argv: Sequence[str]) -> None:
        await real(stage, ["no-such-program", *argv[1:]] if argv[0] == "mousepad" else argv)

    monkeypatch.setattr(LocalStage, "start", start)
    results = asyncio.run(played({"templates": ["mousepad-append", "galculator-compute"]}, tmp_path))
    lacking, solved = (result.record for result in results)
    assert (lacking.outcome, lacking.score, lacking.success, lacking.attempts) == ("not run", None, None, 1)
    assert lacking.error is not None
    assert "missing dependency" in lacking.error
    assert "no-such-program" in lacking.error
    assert (solved.outcome, solved.score) == ("scored", 1.0)
