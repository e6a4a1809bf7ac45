"""docs/tutorials/own-task.md: a task of one's own with a checker of one's own. The commands that it can type without
minutes of two cores are run by tests/integration/documents, as those of every page."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from eval.actions import Action, ActionType
from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.documents.test_run import run
from tests.integration.rl.conftest import rl_config
from tests.support.documented import ROOT, blocks, tracked

PAGE = ROOT / "docs/tutorials/own-task.md"
FILE = ROOT / "examples/own-task/my_task.py"


@pytest.fixture(scope="module")
def own() -> ModuleType:
    spec = spec_from_file_location("my_task", FILE)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def click(box: tuple[float, float, float, float]) -> Action:
    left, top, width, height = box
    return Action(ActionType.CLICK, x=left + width / 2, y=top + height / 2)


def scored(own: ModuleType, acts: Sequence[str]) -> tuple[float, bool]:
    """What the checker gives after these: a field's or button's name is clicked, `=TEXT` is typed."""

    async def play() -> tuple[float, bool]:
        world = own.Names()
        (task,) = world.tasks(1, 7, {"split": "train"})
        desktop = world.desktop({"split": "train"})
        await desktop.reset(task, task.seed)
        form = desktop.inside.form
        places = {**form.layout.fields, **form.layout.buttons}
        for act in acts:
            text = act.removeprefix("=").format(user=form.user, password=form.password)
            box = None if act.startswith("=") else own.login.normalised(places[act])
            await desktop.step(Action(ActionType.TYPE, text=text) if box is None else click(box))
        judged = await desktop.score()
        return judged.value, judged.success

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("acts", "score"),
    [
        ((), 0.0),
        (("user",), 0.0),
        (("user", "={user}"), 1.0),
        (("user", "={user}x"), 0.5),
        (("pass", "={user}"), 0.0),
        (("user", "={user}", "pass", "={password}"), 0.0),
        (("user", "={user}", "pass", "={password}", "login"), 0.0),
        (("user", "={user}", "login"), 0.0),
        (("user", "={user}", "cancel"), 0.0),
    ],
)
def test_the_checker_judges_the_state_that_is_left(own: ModuleType, acts: Sequence[str], score: float) -> None:
    assert scored(own, acts) == (score, score == 1.0)


def test_the_page_shows_the_checker_of_the_file() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    held = [line.strip() for line in FILE.read_text(encoding="utf-8").splitlines()]
    for line in shown.strip().splitlines():
        assert line.strip() in held, line


@pytest.mark.ml
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_the_reward_is_what_the_checker_gives(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step on the tutorial's task, by a model that learned another one."""
    from training.rl.train import train

    monkeypatch.syspath_prepend(str(FILE.parent))
    chosen = rl_config(
        start, environment="my_task:Names", options={"split": "train"}, tasks=TasksConfig(count=2, seed=0), steps=1
    )
    assert train(chosen, tmp_path, None)
    told = list(read_folder(tmp_path / "results"))
    judged = {(line.group, line.rollout): line for line in told if isinstance(line, reading.RlValidation)}
    rollouts = [line for line in told if isinstance(line, reading.RlRollout)]
    assert len(rollouts) == 8
    for line in rollouts:
        assert line.total == judged[line.group, line.rollout].score
        assert line.total in (0.0, 0.5, 1.0)
    asked = {line.instruction for line in told if isinstance(line, reading.RlGroup)}
    assert all(re.fullmatch(r'Type "\w+" into the field User. Do not log in.', text) for text in asked)


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_the_tutorial_is_followed_as_it_stands(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for path in tracked("."):
        target = clone / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    try:
        for block in blocks(PAGE):
            for one in block:
                done = run(one.line, clone, timeout=2500)
                assert done.returncode == 0, f"{one.place}\n$ {one.line}\n{done.stdout}{done.stderr}"
        told = json.loads(run("launcher status -o json", clone).stdout)
        table = run("launcher results task-train", clone).stdout
    finally:
        run("launcher local stop --runs", clone)
    assert {each["name"]: each["state"] for each in told} == dict.fromkeys(
        ("task-episodes", "task-model", "task-start", "task-train"), "succeeded"
    )
    assert "success" in table
    assert "untrained" in table  # the baseline before the first step
