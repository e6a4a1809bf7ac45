"""What tests/bench/rl_curves.py and rl_algorithms.py compute, and that what they start can begin."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from eval.actions import Action, ActionType
from eval.config import convert
from eval.desktop import Desktop, Task
from eval.environments import login
from eval.environments.registry import TasksConfig
from eval.episodes import read_episode
from eval.prompts import PromptConfig
from eval.prompts.demonstrations import Pool
from eval.run import RunConfig
from tests.bench.rl_algorithms import ARMS, GENERATIONS
from tests.bench.rl_curves import FORMS, FRESH, Bench, bootstrap, contrast, holm, jobs, twins
from tests.bench.slow_login import SlowLogin
from training.make_episodes import MakeEpisodesConfig, make
from training.rl.config import RlConfig

pytestmark = pytest.mark.ml


def test_holms_p_values_by_hand() -> None:
    # sorted: .01 x 3 = .03; .02 x 2 = .04; .03 x 1 = .03, which may not be below the one before: .04
    assert holm({"a": 0.02, "b": 0.03, "c": 0.01}) == pytest.approx({"c": 0.03, "a": 0.04, "b": 0.04})
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}


def test_a_contrast_is_by_task() -> None:
    arms = [{"a": [True, False, True], "b": [False, False, True]}, {"a": [False] * 3, "b": [True, False, False]}]
    assert contrast(arms, "a", "b") == [[1, 0, 0], [-1, 0, 0]]


def test_the_bootstrap_is_as_wide_as_the_variance_of_seeds_and_tasks() -> None:
    # one seed's differences alone: the mean of 400 values of +-1, whose deviation is 1/20: 1.96/20 each way
    low, high, p = bootstrap([[1, -1] * 200], draws=4000)
    assert (low, high) == pytest.approx((-0.098, 0.098), abs=0.01)
    assert p > 0.9
    # seeds that differ and tasks that do not: the mean of three draws from {0, 0, 1}; all three are 1 in 1 of 27
    low, high, p = bootstrap([[0] * 50, [0] * 50, [1] * 50], draws=4000)
    assert (low, high) == (0.0, 1.0)
    assert p == pytest.approx(2 * 8 / 27, abs=0.05)  # none is 1
    assert bootstrap([[0] * 10], draws=1000) == (0.0, 0.0, 1.0)
    assert bootstrap([[1] * 10], draws=1000) == (1.0, 1.0, 0.002)  # no draw is beyond 0


@pytest.mark.parametrize("form", ["login", "login-shown"])
@pytest.mark.parametrize("name", list(ARMS))
def test_each_arm_is_a_training_that_may_begin(name: str, form: str, tmp_path: Path) -> None:
    """Hours before its turn comes."""
    bench = Bench(tmp_path, FORMS[form])
    convert(bench.config("rl-train", steps=GENERATIONS, model=str(tmp_path), **ARMS[name]), RlConfig, "").check()


@pytest.mark.parametrize("name", list(FORMS))
def test_the_training_and_the_evaluation_of_each_form_may_begin(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    bench = Bench(tmp_path, form)
    chosen = bench.config("rl-train", steps=form.generations, model=str(tmp_path), **form.training)
    convert(chosen, RlConfig, "").check()
    found = convert(bench.config("rl-before", tasks=FRESH, **form.evaluation), RunConfig, "")
    assert found.environment == form.evaluation.get("environment", "login")


def test_a_demonstration_is_in_half_of_the_sft_s_prompts_alone(tmp_path: Path) -> None:
    shown = Bench(tmp_path, FORMS["login-shown"])
    told = {job: convert(shown.config(job)["prompt"], PromptConfig, "").demonstration for job in jobs("rl-login")}
    assert told["rl-episodes"] is None
    assert {
        job for job, each in told.items() if each and each.folder == "$SLIPWAY_INPUTS/shown" and each.share == 0.5
    } == {
        "rl-model",
        "rl-start",
    }
    assert {each.rule for job, each in told.items() if each and job not in ("rl-model", "rl-start")} == {"none"}


def test_what_is_shown_before_an_episode_is_the_same_task_solved(tmp_path: Path) -> None:
    episodes = tmp_path / "episodes"
    make(
        MakeEpisodesConfig(environment="login", tasks=TasksConfig(count=3, seed=0), options={"split": "train"}),
        tmp_path,
    )
    found = twins(episodes, tmp_path / "twins")
    assert twins(episodes, tmp_path / "twins") == found  # once is enough
    pool = Pool.folder(found["shown"])
    for each in sorted(episodes.iterdir()):
        original, taught = read_episode(each), read_episode(found["episodes"] / each.name)
        assert original.tags == ()
        assert structs.replace(taught, tags=()) == original
        task = Task(taught.task_id, taught.instruction, taught.seed, tags=taught.tags)
        shown = pool.choose(task, "right", 0)
        assert shown is not None
        assert [step.action for step in shown.steps] == [step.action for step in original.steps]
        assert shown.steps[0].image != each / "000.png"
        assert pool.choose(Task("login-9", "Log in.", 9), "right", 0) is None


def test_slow_desktops_take_their_time_and_nothing_else_differs() -> None:
    options = {"split": "train", "seconds": 0.01}
    world = SlowLogin()
    (task,) = world.tasks(1, 7, options)
    assert [task] == login.tasks(1, 7, {"split": "train"})

    async def play(desktop: Desktop) -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await desktop.reset(task, task.seed)
        shown = await desktop.step(Action(ActionType.CLICK, x=0.5, y=0.5))
        took = loop.time() - began
        await desktop.score()
        await desktop.close()
        return shown.image.tobytes(), took

    slow, took = asyncio.run(play(world.desktop(options)))
    assert took >= 0.02
    assert slow == asyncio.run(play(login.desktop({"split": "train"})))[0]
