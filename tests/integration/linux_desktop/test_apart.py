"""The judges of linux-desktop by the states of others than their author, who saw instructions and start states only."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.scores.stats import wilson
from tests.data.apart import kit
from tests.data.apart.every import AFTER, FRESH, STATES
from tests.support.folder_stage import FolderStage
from tests.support.judged_homes import judge_home, without_programs, write_start
from tests.support.needs import lacking

# what their calculator shows says it alone, and no folder holds it
ON_SCREEN = ("galculator-compute", "gpicview-galculator-sum")


def test_there_are_states_of_both_kinds_for_every_template_that_folders_show() -> None:
    feasible = {name for name, template in TEMPLATES.items() if not template.about.infeasible}
    assert {*STATES} == feasible - {*ON_SCREEN}
    labels = {name: {state.split("-")[0] for state in states} for name, states in STATES.items()}
    assert {name for name, found in labels.items() if "right" not in found} == {"mousepad-undo"}
    assert {name for name, found in labels.items() if "wrong" not in found} == set()


def test_the_third_authors_states_are_of_templates_drawn_at_random() -> None:
    assert {*FRESH} == {*random.Random(20261130).sample(sorted(STATES), 48)}
    assert {*AFTER} == {*STATES} - {*FRESH}
    for of_all in (FRESH, AFTER):
        labels = Counter(state.split("-")[0] for states in of_all.values() for state in states)
        assert min(labels[kind] for kind in ("right", "wrong", "spoiled")) >= 70


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "authors", [(STATES, kit.SEED), (FRESH, kit.FRESH_SEED), (AFTER, kit.AFTER_SEED)], ids=["second", "third", "after"]
)
def test_of_anothers_states_nothing_right_is_refused_and_nothing_wrong_accepted(
    authors: tuple[Mapping[str, Mapping[str, kit.State]], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest -s shows each state and what the judge says of it, and the rates."""
    of_all, seed = authors
    if shutil.which("soffice") is None:
        lacking("office", "no soffice")
    without_programs(monkeypatch)
    starts, made = tmp_path / "starts", tmp_path / "made"
    for name in of_all:
        asyncio.run(write_start(name, seed, starts))
    kit.make(of_all, starts, made)
    stage = FolderStage(tmp_path / "home")
    stage.home.mkdir()
    wrongly, many, counted = [], Counter[str](), Counter[str]()
    for template, states in of_all.items():
        for state in states:
            score = asyncio.run(judge_home(stage, template, seed, made / template / state))
            print(f"{template} {state}: {score.value:g}")
            kind = state.split("-")[0]
            many[kind] += 1
            if kind != "ambiguous" and score.success != (kind == "right"):
                counted[kind] += 1
                wrongly.append(f"{template} {state}: {score.value:g}: {score.detail}")
    for kind, of in many.items():
        rate = wilson(counted[kind], of)
        assert rate is not None
        print(f"{kind}: {counted[kind]} of {of} judged wrongly ({100 * rate.low:.1f} to {100 * rate.high:.1f} %)")
    assert wrongly == []
