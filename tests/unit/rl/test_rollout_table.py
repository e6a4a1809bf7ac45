"""A generation's rollouts as rows of a table for trackers."""

from __future__ import annotations

from PIL import Image

from eval.desktop import Task
from eval.episodes import Episode, Step
from training.rl.records.step_metrics import rollout_rows
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn

SCREENS = [Image.new("RGB", (8, 6), (number, 0, 0)) for number in range(4)]


def turn(*images: Image.Image) -> SampledTurn:
    return SampledTurn((1, 2), images, (3,), (-0.5,))


def played(
    number: int, *turns: SampledTurn, answers: tuple[str | None, ...] = (), success: bool | None = None
) -> PlayedRollout:
    steps = tuple(Step(index=at, screenshot=f"{at}.png", action=None, response=text) for at, text in enumerate(answers))
    episode = Episode(
        episode_id="e", task_id="t", instruction="", goal="", seed=0, screen=(8, 6), success=success, steps=steps
    )
    return PlayedRollout(number, episode, turns, number / 4)


def made(*groups: tuple[PlayedRollout, ...]) -> RolloutGeneration:
    return RolloutGeneration(
        5, [RolloutGroup(Task(f"task-{n}", f"Do {n}"), each, n + 7) for n, each in enumerate(groups)]
    )


def test_a_row_tells_what_was_asked_answered_and_earned() -> None:
    first = played(
        0, turn(SCREENS[0]), turn(SCREENS[0], SCREENS[1]), answers=("CLICK(1)", None, "DONE()"), success=True
    )
    rows = rollout_rows(made((first, played(3, turn(SCREENS[2])))), step=12, groups=8)
    assert rows[0] == {
        "step": 12, "group": 7, "rollout": 0, "task": "task-0", "instruction": "Do 0", "return": 0.0, "success": True,
        "turns": 2, "answers": "CLICK(1)\n\nDONE()", "first": SCREENS[0], "last": SCREENS[1],
    }  # fmt: skip
    assert (rows[1]["rollout"], rows[1]["return"], rows[1]["success"], rows[1]["answers"]) == (3, 0.75, None, "")


def test_the_screen_is_the_last_picture_of_a_prompt_and_turns_without_one_are_passed_over() -> None:
    """A demonstration's and the history's pictures come before it."""
    shown = played(0, turn(), turn(SCREENS[3], SCREENS[0]), turn(SCREENS[3], SCREENS[1]), turn())
    bare = played(1, turn(), turn())
    rows = rollout_rows(made((shown, bare)), step=0, groups=1)
    assert [(row["first"], row["last"]) for row in rows] == [(SCREENS[0], SCREENS[1]), (None, None)]
    assert [list(row) for row in rows] == [list(rows[0])] * 2  # a table has the same columns in each row


def test_of_a_generation_the_first_groups_are_told() -> None:
    groups = [(played(0, turn(SCREENS[0])), played(1, turn(SCREENS[1]))) for _ in range(3)]
    rows = rollout_rows(made(*groups), step=0, groups=2)
    assert [(row["group"], row["rollout"]) for row in rows] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert rollout_rows(made(), step=0, groups=2) == []
