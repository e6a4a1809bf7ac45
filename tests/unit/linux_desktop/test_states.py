"""How often the judges are wrong, by states that were not written by who wrote the judges (`states`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop import documents, steps
from eval.benchmarks.linux_desktop.registry import TEMPLATES, instance
from eval.benchmarks.linux_desktop.scene import InstanceScene
from eval.benchmarks.linux_desktop.templates import web_pages
from eval.desktop import BrokenByAgent
from eval.desktops.hacked import visible_files
from eval.scores.stats import wilson
from tests.support.folder_stage import FolderStage
from tests.unit.linux_desktop.states import states

SEED = 1_000_000
FEASIBLE = [name for name, template in TEMPLATES.items() if not template.about.infeasible]


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def shown(*_: object) -> None:
        pass

    async def written(stage: FolderStage, path: str, content: bytes) -> None:
        await stage.write_file(path, content)

    monkeypatch.setattr(steps, "shown", shown)
    monkeypatch.setattr(steps, "written", written)
    for module in (documents, web_pages):
        monkeypatch.setattr(module, "SAVING", 1)
        monkeypatch.setattr(module, "SAVING_S", 0.0)


async def mistakes(stage: FolderStage, name: str, seed: int) -> tuple[Counter[str], list[str]]:
    """How many states of each kind, and those on which the judge is wrong."""
    task = instance(name, "test", seed)
    await stage.begin(InstanceScene(task))
    counted: Counter[str] = Counter()
    wrong = []
    for state in states(task, await visible_files(stage)):
        await stage.begin(InstanceScene(task))
        await state.make(stage)
        try:
            score = await stage.judge([Action(ActionType.DONE)])
            success, value, detail = score.success, score.value, score.detail
        except BrokenByAgent as error:
            success, value, detail = False, 0.0, {"broken": str(error)}
        counted[state.kind] += 1
        if success != (state.kind == "right") or (state.kind == "spoiled" and value == 1.0):
            wrong.append(f"{name}: {state.kind}: {state.name}: {value:g} {detail}")
    return counted, wrong


@pytest.mark.parametrize("seed", [SEED])
def test_nothing_right_is_refused_and_nothing_wrong_accepted(seed: int, tmp_path: Path) -> None:
    """On all templates; the numbers and their intervals are printed (pytest -s)."""
    stage = FolderStage(tmp_path)
    counted: Counter[str] = Counter()
    found: list[str] = []
    for name in FEASIBLE:
        some, wrong = asyncio.run(mistakes(stage, name, seed))
        counted += some
        found += wrong
    for kind, many in counted.items():
        failed = sum(f": {kind}: " in line for line in found)
        rate = wilson(failed, many)
        assert rate is not None
        print(f"{kind}: {failed} of {many} judged wrongly ({100 * rate.low:.1f} to {100 * rate.high:.1f} %)")
    assert sum(counted.values()) >= 300
    assert found == []
