"""The reward model of whole episodes: it learns how they ended from their last screens, and judges others by it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.config import ConfigError
from eval.episodes import Episode, Step, frame_name, write_episode
from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from tests.unit.training.material import model
from training.data.faults import Faults
from training.data.packed.pack import SplitConfig
from training.make_episodes import keep_judged
from training.reward.episodes import (
    EpisodeJudge,
    JudgedEpisode,
    JudgedEpisodesConfig,
    judge_prompt,
    outcomes,
    sigmoid,
)
from training.reward.raters import RatersConfig, compare
from training.reward.train import RewardConfig, train
from training.rewards.builtin import RewardModelScore

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", images=2)
TASKS, TRIES = 40, 4


def material() -> Path:
    """A tiny `model`; `episodes` whose last screen is dark where they are solved, and `random`, the same with outcomes
    that nothing tells."""
    return made_once("judged-episodes", _fill)


def _fill(root: Path) -> None:
    from PIL import Image

    draw = random.Random(0)
    for task in range(TASKS):
        for number in range(TRIES):
            solved = draw.random() < 0.5
            shades = [*(draw.randint(180, 255) for _ in range(draw.randint(1, 3))), 20 if solved else 230]
            frames = [Image.new("RGB", (32, 32), (shade, shade, shade)) for shade in shades]
            steps = tuple(
                Step(index=at, screenshot=frame_name(at), action=Action(ActionType.CLICK, x=0.25, y=0.5))
                for at in range(len(frames) - 1)
            )
            name = f"task-{task}-{number}"
            for folder, ended in (("episodes", solved), ("random", draw.random() < 0.5)):
                episode = Episode(
                    episode_id=name,
                    task_id=f"task-{task}",
                    instruction="make it dark",
                    screen=(32, 32),
                    success=ended,
                    score=float(ended),
                    steps=steps,
                )
                write_episode(root / folder / name, episode, frames)
    model(root / "model", root / "episodes", PROMPT)


def section(folder: str, **changes: Any) -> JudgedEpisodesConfig:
    split = SplitConfig(test=0.4, by="task")
    return JudgedEpisodesConfig(path=str(material() / folder), prompt=PROMPT, split=split, **changes)


def config(episodes: JudgedEpisodesConfig, **changes: Any) -> RewardConfig:
    values: dict[str, Any] = {"steps": 40, "batch_size": 8, "learning_rate": 3e-3, "warmup_steps": 2, "log_every": 10}
    return RewardConfig(model=str(material() / "model"), episodes=episodes, **{**values, **changes})


@pytest.fixture(scope="module")
def trained() -> Path:
    """The outputs of a training on outcomes that the last screen tells."""
    return made_once("judge-of-episodes", _train, "episodes")


def _train(out: Path, folder: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config(section(folder)), out, None)


def summary(out: Path) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in json.loads((out / "results" / "summary.json").read_text())}


def told(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results" / "judged.jsonl").read_text().splitlines()]


def test_what_the_last_screen_tells_is_learnt_and_held_out_by_task(trained: Path) -> None:
    rows, lines = summary(trained), told(trained)
    assert rows["auc"]["value"] > 0.95
    assert rows["accuracy"]["value"] > 0.9 > rows["commonest"]["value"] >= 0.5
    assert rows["agreement"]["value"] > 0.9
    assert rows["calibration_error"]["value"] < 0.3
    assert rows["auc"]["ci_low"] <= rows["auc"]["value"] <= rows["auc"]["ci_high"]
    assert rows["accuracy"]["n"] == len(lines)
    train_side, test_side, _ = outcomes(section("episodes"), None, Faults())
    assert [line["episode"] for line in lines] == [each.name for each in test_side]
    assert len(train_side) + len(test_side) == TASKS * TRIES
    assert not {each.task_id for each in train_side} & {each.task_id for each in test_side}
    assert (trained / "results" / "plots" / "reliability.png").exists()


def test_where_nothing_tells_the_outcome_nothing_is_learnt(tmp_path: Path) -> None:
    _train(tmp_path, "random")
    assert 0.3 < summary(tmp_path)["auc"]["value"] < 0.7


def test_the_judge_gives_what_was_measured_and_keeps_what_it_holds_for_solved(trained: Path, tmp_path: Path) -> None:
    judge = EpisodeJudge.load(str(trained / "model"))
    lines = told(trained)[:6]
    found = [judge.of_folder(material() / "episodes" / line["episode"]) for line in lines]
    assert found == pytest.approx([line["probability"] for line in lines], abs=1e-5)
    for line in lines:
        (tmp_path / "episodes").mkdir(exist_ok=True)
        place = tmp_path / "episodes" / line["episode"]
        place.mkdir()
        for file in (material() / "episodes" / line["episode"]).iterdir():
            (place / file.name).write_bytes(file.read_bytes())
    for _ in range(2):  # a run that was interrupted judges what is left once more
        keep_judged(tmp_path, judge.of_folder, 0.5)
        kept = {line["episode"] for line in lines if line["probability"] >= 0.5}
        assert {folder.name for folder in (tmp_path / "episodes").iterdir()} == kept
        written = [json.loads(line) for line in (tmp_path / "judged.jsonl").read_text().splitlines()]
        assert {line["episode"] for line in written} == {line["episode"] for line in lines}
        assert {line["episode"] for line in written if line["kept"]} == kept


def test_ratings_of_episodes_teach_it_and_are_compared_with_it(trained: Path, tmp_path: Path) -> None:
    """Raters who see what the checker saw: 1 to 5, solved from 3 on."""
    train_side, test_side, _ = outcomes(section("episodes"), None, Faults())
    draw = random.Random(1)

    def rated(name: str, episodes: Sequence[JudgedEpisode]) -> str:
        rows = [
            f"{each.name},{draw.choice([4, 5] if each.solved else [1, 2])},{rater}"
            for each in episodes
            for rater in ("ann", "bob")
        ]
        (tmp_path / name).write_text("\n".join(["episode,rating,rater", *rows]) + "\n")
        return str(tmp_path / name)

    all_rated = section("episodes", ratings=rated("all.csv", [*train_side, *test_side]), solved=3.0)
    both = outcomes(all_rated, None, Faults())
    assert [len(side) for side in both[:2]] == [len(train_side), len(test_side)]
    assert all(each.solved == (sum(each.ratings.values()) >= 6) for side in both[:2] for each in side)
    held_out = rated("held_out.csv", test_side)  # what it did not learn from
    made = RatersConfig(model=str(trained / "model"), ratings=held_out, episodes=all_rated.path)
    found = {row.metric: row for row in compare(made, tmp_path)}
    for name, least in (("agreement", 0.7), ("rater_agreement", 0.7), ("rank_correlation", 0.5)):
        value = found[name].value
        assert value is not None
        assert value > least, name


def test_judges_of_episodes_and_of_answers_are_not_taken_for_each_other(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="judges whole episodes, not answers"):
        RewardModelScore(path=str(trained / "model")).check()
    (tmp_path / "reward.json").write_text(json.dumps({"format": "slipway-reward-model", "pairs": 3}))
    with pytest.raises(ConfigError, match="scores single answers"):
        judge_prompt(str(tmp_path))


def test_folders_that_teach_nothing_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"episodes\.split: no episode is held out"):
        outcomes(JudgedEpisodesConfig(path=str(material() / "episodes"), split=SplitConfig()), None, Faults())
    with pytest.raises(ConfigError, match="tasks are on both sides"):
        outcomes(section("episodes"), str(material() / "random"), Faults())
    with pytest.raises(ConfigError, match="there is nothing to tell apart"):
        outcomes(section("episodes", ratings=str(_one(tmp_path))), None, Faults())
    assert sigmoid(-800.0) == 0.0


def _one(folder: Path) -> Path:
    file = folder / "one.json"
    file.write_text(json.dumps({"task-0-0": 1.0, "task-1-0": 1.0}))
    return file
