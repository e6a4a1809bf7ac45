"""Successes become episodes, the newest ones, and an interrupted training's are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.agents.base import History
from eval.desktop import Observation, Task
from eval.episodes import Episode, Step, frame_name, read_episode
from training.rl.records.success_episodes import SuccessEpisodes
from training.rl.rollouts.generation import AskedTurn, PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn

pytestmark = pytest.mark.ml
TASK = Task("t", "Click.", 3)


def played(number: int, success: bool, shade: int) -> PlayedRollout:
    screens = [Observation(Image.new("RGB", (8, 6), (shade, at, 0)), (8, 6)) for at in range(2)]
    step = Step(index=0, screenshot=frame_name(0), action=Action(ActionType.DONE), response="done()")
    episode = Episode(
        episode_id="e",
        task_id="t",
        instruction="Click.",
        screen=(8, 6),
        success=success,
        score=float(success),
        steps=(step,),
    )
    return PlayedRollout(
        number,
        episode,
        (SampledTurn((1,), (), (2,), (-0.5,)),),
        float(success),
        asked=(AskedTurn(screens[0], History(TASK)),),
        end=screens[1],
    )


def made(number: int, shade: int = 0) -> RolloutGeneration:
    return RolloutGeneration(number, groups=[RolloutGroup(TASK, (played(0, False, shade), played(1, True, shade)), 2)])


def test_the_newest_successes_are_episodes_with_their_screens(tmp_path: Path) -> None:
    kept = SuccessEpisodes(tmp_path, most=2)
    for number in (8, 9, 10):
        kept.keep(made(number, number))
    assert [folder.name for folder in kept.folders()] == ["9-2-1", "10-2-1"]
    episode = read_episode(tmp_path / "10-2-1")
    assert (episode.success, episode.instruction, len(episode.steps)) == (True, "Click.", 1)
    with Image.open(tmp_path / "10-2-1" / episode.steps[0].screenshot) as screen:
        assert (screen.size, screen.getpixel((0, 0))) == ((8, 6), (10, 0, 0))


def test_a_training_that_goes_on_writes_anew_what_it_plays_anew(tmp_path: Path) -> None:
    kept = SuccessEpisodes(tmp_path, most=9)
    for number in (0, 1, 2):
        kept.keep(made(number))
    kept.keep(made(1, shade=7))
    assert [folder.name for folder in kept.folders()] == ["0-2-1", "1-2-1"]
    with Image.open(tmp_path / "1-2-1" / read_episode(tmp_path / "1-2-1").steps[0].screenshot) as screen:
        assert screen.getpixel((0, 0)) == (7, 0, 0)
