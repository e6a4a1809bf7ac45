"""What tests/bench/few_demonstrations.py computes, and that what it starts can begin."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eval.config import convert
from eval.run import RunConfig
from tests.bench import forked
from tests.bench.few_demonstrations import FORMS, WAYS, Cell, Grid, complete, differences, effort, model, report, steps
from training.data.packed.pack import PackConfig
from training.make_episodes import MakeEpisodesConfig
from training.rl.config import RlConfig
from training.sft.train import SftConfig
from training.tiny import TinyConfig

pytestmark = pytest.mark.ml
KINDS: dict[str, Any] = {
    "words": MakeEpisodesConfig,
    "forms": MakeEpisodesConfig,
    "model": TinyConfig,
    "demos": MakeEpisodesConfig,
    "data": PackConfig,
    "sft": SftConfig,
    "more": SftConfig,
    "rl": RlConfig,
    "tries": RlConfig,
    "own": SftConfig,
    "sft-asked": RunConfig,
}


def checkpoint(folder: Path, step: int) -> Path:
    """A checkpoint as a trainer leaves it, as far as the bench reads it."""
    made = folder / f"checkpoints/checkpoint-{step}"
    made.mkdir(parents=True)
    (made / forked.STATE).write_text(json.dumps({"global_step": step}))
    return made


def asked(folder: Path, cell: Cell, way: str, solved: list[bool]) -> None:
    """An evaluation as `eval.run` leaves it."""
    out = folder / f"{cell}/asked-{way.replace(' ', '-')}"
    (out / "results").mkdir(parents=True)
    rows = [{"task_id": f"login-{n}", "outcome": "scored", "success": each} for n, each in enumerate(solved)]
    (out / "results/tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    (out / "done.json").write_text(json.dumps({"cpu": 1.0, "budget": None}))


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("job", sorted(KINDS))
def test_each_job_may_begin(form: str, job: str, tmp_path: Path) -> None:
    """Hours before its turn comes."""
    (tmp_path / "inputs").mkdir()
    text = json.dumps(Grid(tmp_path, form).config(job)).replace("$SLIPWAY_INPUTS", str(tmp_path / "inputs"))
    config = convert(json.loads(text), KINDS[job], "")
    named = "dim_form:DimForm" if form == "dim-form" else form
    world = getattr(config, "environment", named)
    assert world == ("login" if job in ("words", "forms") else named)


def test_what_is_tried_and_asked_is_in_no_demonstration() -> None:
    grid = Grid(Path())
    drawn = {name: grid.config(name)["tasks"] for name in ("forms", "rl", "tries", "sft-asked")}
    taken = [range(each["seed"], each["seed"] + each["count"]) for each in drawn.values() if each is not drawn["tries"]]
    taken += [range(200_000 + 10_000 * seed, 200_800 + 10_000 * seed) for seed in (0, 1, 2)]
    numbers = [number for each in taken for number in each]
    assert len(numbers) == len(set(numbers))


def test_a_training_goes_on_with_the_cpu_of_its_newest_checkpoint(tmp_path: Path) -> None:
    first = forked.Spent(tmp_path)
    assert first.newest() is None
    checkpoint(tmp_path, 8)
    first.look(3.0)
    checkpoint(tmp_path, 12)
    first.look(5.0)
    first.look(9.0)  # what is computed after the last checkpoint is lost when it is killed
    again = forked.Spent(tmp_path)
    assert again.newest() == tmp_path / "checkpoints/checkpoint-12"
    assert again.before == 5.0
    checkpoint(tmp_path, 16)
    again.look(2.0)
    assert json.loads(again.file.read_text()) == {"checkpoint-8": 3.0, "checkpoint-12": 5.0, "checkpoint-16": 7.0}


def test_a_checkpoint_that_nobody_saw_is_not_gone_on_from(tmp_path: Path) -> None:
    checkpoint(tmp_path, 8)
    forked.Spent(tmp_path).look(3.0)
    checkpoint(tmp_path, 12)
    (tmp_path / "checkpoints/checkpoint-20").mkdir()  # not complete
    again = forked.Spent(tmp_path)
    assert again.newest() == tmp_path / "checkpoints/checkpoint-8"
    assert again.before == 3.0


def test_the_cpu_of_a_process_is_read(tmp_path: Path) -> None:
    before = forked.used(os.getpid())
    while forked.used(os.getpid()) < before + 0.02:
        sum(range(10_000))
    assert 0 < before < sum(os.times()[:4])
    assert forked.used(2**30) == 0.0


def ended(made: Path, budget: float | None, **seen: float) -> None:
    """A training that has ended, with the seconds of CPU at each of its checkpoints."""
    (made / "spent.json").write_text(json.dumps({name.replace("_", "-"): cpu for name, cpu in seen.items()}))
    (made / "done.json").write_text(json.dumps({"cpu": max(seen.values(), default=0.0), "budget": budget}))


def test_a_way_ends_with_its_newest_checkpoint_within_the_budget_and_without_one_with_its_start(tmp_path: Path) -> None:
    made = tmp_path / "rl"
    (tmp_path / "start").mkdir()
    (made / "inputs").mkdir(parents=True)
    (made / "inputs/model").symlink_to(tmp_path / "start")
    ended(made, 30.0)
    assert (model(made), steps(made)) == (tmp_path / "start", 0)
    for step in (95, 100, 101):
        checkpoint(made, step)
    ended(made, 30.0, checkpoint_95=28.0, checkpoint_100=29.9, checkpoint_101=30.2)
    assert (model(made), steps(made)) == (made / "checkpoints/checkpoint-100", 100)
    ended(made, None, checkpoint_95=28.0, checkpoint_100=29.9, checkpoint_101=30.2)
    assert (model(made), steps(made)) == (made / "checkpoints/checkpoint-101", 101)
    (made / "model").mkdir()
    assert model(made) == made / "model"


def solved(rl: list[bool], more: list[bool]) -> dict[str, list[bool]]:
    return {"SFT": more, "more SFT": more, "training.rl": rl, "own successes": more}


def test_differences_are_paired_by_task_and_corrected_over_all_rows() -> None:
    whole = {50: [solved([True] * 10, [True] * 5 + [False] * 5)] * 2, 200: [solved([True] * 10, [True] * 10)]}
    rows = {(row[0], row[1]): row[2:] for row in differences(whole)}
    assert len(rows) == 8
    mean, interval, p, seeds = rows["50", "training.rl - more SFT"]
    assert (mean, seeds) == ("+50.0", "+50.0, +50.0")
    low, high = (float(each) for each in interval.split(" to "))
    assert 0 < low < 50 < high < 100
    assert float(p) > 8 * 0.0002 - 1e-9  # the smallest of eight, by Holm
    assert rows["200", "training.rl - more SFT"] == ["+0.0", "+0.0 to +0.0", "1.0000", "+0.0"]


def test_a_half_run_grid_says_which_cells_are_missing_and_counts_none_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = Grid(tmp_path, fresh={"count": 2, "seed": 0})
    cells = [Cell(size, seed) for seed in (0, 1) for size in (50, 200)]
    for way in WAYS:
        asked(tmp_path, cells[0], way, [True, way == "training.rl"])
    asked(tmp_path, cells[1], "SFT", [True, False])
    found = {cell: grid.there(cell) for cell in cells}
    assert list(complete(found)) == [50]
    assert complete(found)[50] == [solved([True, True], [True, False])]
    assert report(grid, cells, tmp_path / "plot.svg") == 1
    told = capsys.readouterr().out
    assert "HALF RUN: of 4 cells (demonstrations-seed) these are missing: 200-0, 50-1, 200-1" in told
    assert "| 50 | training.rl - more SFT | +50.0 |" in told
    assert "| 200 | 0 | 1, 50.0% (9.5% to 90.5%) | - | - | - |" in told
    assert "| 200 | training.rl" not in told
    drawn = (tmp_path / "plot.svg").read_text()
    assert drawn.count('r="2"') == len(WAYS)  # a dot for each way of the one seed that is there


def test_a_whole_grid_is_not_called_half_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid, cell = Grid(tmp_path, fresh={"count": 1, "seed": 0}), Cell(50, 0)
    for way in WAYS:
        asked(tmp_path, cell, way, [True])
    assert report(grid, [cell], None) == 0
    assert "HALF RUN" not in capsys.readouterr().out


def test_the_work_of_a_cell_is_told_in_seconds_and_steps(tmp_path: Path) -> None:
    assert effort(tmp_path / "50-0") == []
    made = tmp_path / "50-0/sft"
    checkpoint(made, 700)
    (made / "done.json").write_text(json.dumps({"cpu": 61.4, "budget": None}))
    assert effort(tmp_path / "50-0") == ["50-0", "61 s, 700", "-", "-", "-", "-"]
