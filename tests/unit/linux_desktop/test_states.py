"""How often the judges are wrong, by states that were not written by who wrote the judges (`states`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.environment import InstanceScene
from eval.desktops.judging.hacked import visible_files
from eval.scores.stats import wilson
from tests.support.cases import every_case
from tests.support.folder_stage import FolderStage
from tests.support.judged_homes import score_now, without_programs
from tests.unit.linux_desktop.state import State
from tests.unit.linux_desktop.states import states

SEED = 1_000_000
FEASIBLE = [name for name, template in TEMPLATES.items() if not template.about.infeasible]


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_programs(monkeypatch)


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[tuple[str, bool]]]:
    """How many states of each kind were judged rightly, and wrongly; pytest -s prints the rates."""
    counted: Counter[tuple[str, bool]] = Counter()
    yield counted
    for kind in sorted({kind for kind, _ in counted}):
        failed, many = counted[kind, False], counted[kind, True] + counted[kind, False]
        rate = wilson(failed, many)
        assert rate is not None
        print(f"{kind}: {failed} of {many} judged wrongly ({100 * rate.low:.1f} to {100 * rate.high:.1f} %)")


async def answers(stage: FolderStage, name: str, seed: int) -> list[tuple[State, float, bool, str]]:
    """Each state with its score, whether it is right that it has it, and why it has it."""
    task = instance(name, "test", seed)
    await stage.begin(InstanceScene(task))
    found = []
    for state in states(task, await visible_files(stage)):
        await stage.begin(InstanceScene(task))
        await state.make(stage)
        score = await score_now(stage)
        found.append((state, score.value, score.success == (state.kind == "right"), str(score.detail)))
    return found


@pytest.mark.ci
@every_case("name", FEASIBLE)
def test_nothing_right_is_refused_and_nothing_wrong_accepted(
    name: str, tmp_path: Path, tally: Counter[tuple[str, bool]]
) -> None:
    """pytest -s shows each state and what the judge says of it; --case=NAME takes one template."""
    found = asyncio.run(answers(FolderStage(tmp_path), name, SEED))
    for state, value, right, why in found:
        tally[state.kind, right] += 1
        print(f"{name}: {state.kind}: {state.name}: {value:g}{'' if right else f' WRONG: {why}'}")
    assert [f"{state.kind}: {state.name}: {value:g}: {why}" for state, value, right, why in found if not right] == []
    assert len({state.kind for state, *_ in found}) > 1


SAMPLE = ("mousepad-append", "thunar-delete-kind", "xterm-pack", "xterm-thunar-count", "calc-sum", "calc-column")


@every_case("name", (*SAMPLE, "calc-bold", "calc-three-sheets", "writer-bold", "web-rooms-move", "web-bookmark"))
def test_of_some_templates_before_every_commit(name: str, tmp_path: Path) -> None:
    wrong = [one for one in asyncio.run(answers(FolderStage(tmp_path), name, SEED)) if not one[2]]
    assert wrong == []
