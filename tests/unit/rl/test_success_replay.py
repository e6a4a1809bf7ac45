"""Which successes are kept, what they replace, and that a checkpoint gives them back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from eval.config import ConfigError
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.success_replay import SuccessReplay
from training.rl.sections import ReplayConfig

pytestmark = pytest.mark.ml
TASKS = [Task(f"t{number}", "do", number) for number in range(4)]


def turn(mark: int) -> SampledTurn:
    shown = (Image.new("RGB", (5, 4), (mark, 1, 2)), Image.new("RGB", (6, 3), (mark, 3, 4)))
    return SampledTurn((7, 8, mark), shown, (mark, 2), (-0.1 * mark, -1 / 3), cut=bool(mark % 2))


def played(number: int, success: bool, mark: int = 0) -> PlayedRollout:
    episode = Episode(
        episode_id="e", task_id="t", instruction="i", screen=(5, 4), success=success, score=float(success)
    )
    return PlayedRollout(number, episode, (turn(mark), turn(mark + 1)), 0.9 if success else 0.0)


def group(task: int, *outcomes: bool, mark: int = 0) -> RolloutGroup:
    rollouts = tuple(played(number, outcome, mark + 10 * number) for number, outcome in enumerate(outcomes))
    return RolloutGroup(TASKS[task], rollouts, task)


def generation(number: int, *groups: RolloutGroup) -> RolloutGeneration:
    return RolloutGeneration(number, groups=list(groups))


def replay(resume: Path | None = None, **options: int) -> SuccessReplay:
    trainer = SimpleNamespace(_save_optimizer_and_scheduler=lambda folder: None)
    return SuccessReplay(trainer, ReplayConfig(**options), lambda: None if resume is None else str(resume))


def replaced(groups: list[RolloutGroup]) -> set[tuple[int, int]]:
    """(group, rollout) in whose place a success stands."""
    return {(number, at) for number, each in enumerate(groups) for at, one in enumerate(each.rollouts) if one.replayed}


def test_the_newest_success_takes_the_place_of_the_last_failure_of_a_group_that_failed() -> None:
    kept = replay()
    kept.note(generation(0, group(0, True, False, True, mark=1), group(1, False, False)))
    failed = generation(1, group(0, False, False, mark=50), group(1, False, False), group(2, True, False))
    groups = kept.stand_in(failed).groups
    assert replaced(groups) == {(0, 1)}
    assert [each.turns for each in groups[0].rollouts] == [failed.groups[0].rollouts[0].turns, (turn(21), turn(22))]
    assert [each.reward for each in groups[0].rollouts] == [0.0, 0.9]
    assert groups[1:] == failed.groups[1:]
    assert failed.groups[0].rollouts[1].turns == (turn(60), turn(61))  # what was played is told as it was


def test_a_success_gets_too_old_and_too_many_are_forgotten() -> None:
    kept = replay(max_age=2, kept=2)
    kept.note(generation(0, group(0, True, False), group(1, True, False)))
    kept.note(generation(1, group(2, True, False)))
    kept.note(generation(2, group(1, True, False)))  # the newest of task 1
    lost = [group(task, False, False) for task in (0, 1, 2)]
    assert replaced(kept.stand_in(generation(3, *lost)).groups) == {(1, 1), (2, 1)}
    assert replaced(kept.stand_in(generation(4, *lost)).groups) == {(1, 1)}  # that of task 2 is three generations old
    assert sorted(kept.rollouts) == ["1-2-0", "2-1-0"]


def test_a_checkpoint_gives_every_token_number_and_pixel_back(tmp_path: Path) -> None:
    kept = replay(kept=3)
    kept.note(generation(0, group(0, True, False, mark=3), group(1, True, True, mark=5)))
    kept.save(tmp_path)
    again = replay(tmp_path, kept=3)
    again.on_train_begin(None, None, None)  # type: ignore[arg-type]
    assert again.rollouts == kept.rollouts
    assert list(again.rollouts) == list(kept.rollouts)
    assert again.pool.stored == kept.pool.stored
    for one in (kept, again):
        one.note(generation(1, group(2, True, False), group(3, True, False)))
    assert list(again.rollouts) == list(kept.rollouts) == ["0-1-1", "1-2-0", "1-3-0"]


@pytest.mark.parametrize("wrong", ["picture", "index", "rollout"])
def test_what_cannot_be_read_is_one_error(tmp_path: Path, wrong: str) -> None:
    kept = replay()
    kept.note(generation(0, group(0, True, False)))
    kept.save(tmp_path)
    folder = tmp_path / "successes"
    if wrong == "picture":
        (folder / "0-0-0-1-0.png").unlink()
    elif wrong == "index":
        (folder / "index.json").write_text("{")
    else:
        held = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps({**held, "rollouts": {}}))
    with pytest.raises(ConfigError, match=r"^resume: ") as said:
        replay(tmp_path).on_train_begin(None, None, None)  # type: ignore[arg-type]
    assert "\n" not in str(said.value)
