"""Demonstrations: which episode is shown for which task, and what a prompt shows of it."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - what a data loader does with its samples
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import run
from eval.actions import Action, ActionType
from eval.config import ConfigError, convert
from eval.desktop import Observation, Task
from eval.environments import versions
from eval.environments.splits import SPLIT_SEED
from eval.episodes import Episode, Step, frame_name, read_episode, write_episode
from eval.prompts import PastStep, PromptBuilder, PromptConfig
from eval.prompts.demonstrations import (
    NO_DEMONSTRATION,
    Demonstration,
    DemonstrationConfig,
    Pool,
    demonstrate,
    family,
    in_share,
)

CLICK = Action(ActionType.CLICK, x=0.5, y=0.25)
DONE = Action(ActionType.DONE)


def frame(shade: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (shade, 0, 0))


def write(
    root: Path,
    name: str,
    actions: Sequence[Action | None] = (CLICK, DONE),
    shades: Sequence[int] | None = None,
    **changes: Any,
) -> Path:
    """An episode `name`; by default of task "app-<digits of name>", successful, every frame another."""
    values: dict[str, Any] = {
        "episode_id": name,
        "task_id": f"app-{name[-1]}",
        "instruction": f"Do {name}",
        "screen": (8, 8),
        "success": True,
        "steps": tuple(Step(index=i, screenshot=frame_name(i), action=a) for i, a in enumerate(actions)),
    }
    shades = shades or range(1, len(actions) + 2)
    write_episode(root / name, Episode(**{**values, **changes}), [frame(shade) for shade in shades])
    return root / name


def task(task_id: str, instruction: str = "Do it", seed: int = 0, tags: tuple[str, ...] = ()) -> Task:
    return Task(task_id, instruction, seed, tags=tags)


def shown(pool: Pool, asked: Task, rule: Any = "right", seed: int = 0) -> str | None:
    found = pool.choose(asked, rule, seed)
    return None if found is None else found.task


def test_a_family_is_a_tag_or_the_name_without_its_number() -> None:
    assert family("login-17", ()) == family("login-4", ("hard",)) == "family:login"
    assert family("login-17", ("hard", "family:forms")) == "family:forms"
    assert family("click-1", ()) != family("login-1", ())
    assert family("17", ()) != family("18", ())


def test_the_right_one_is_a_success_of_the_family_and_never_the_task_itself(tmp_path: Path) -> None:
    for name in ("a1", "a2", "a3"):
        write(tmp_path, name)
    write(tmp_path, "again", task_id="app-1")  # another try at task 1: its actions would be the answer
    write(tmp_path, "failed", task_id="app-8", success=False)
    write(tmp_path, "unjudged", task_id="app-9", success=None)
    write(tmp_path, "person failed", task_id="app-9", success=False, source="human")
    write(tmp_path, "person cut off", task_id="app-9", success=None, outcome="infra", source="human")
    write(tmp_path, "other", task_id="mail-1")
    pool = Pool.folder(tmp_path)
    chosen = {shown(pool, task("app-1"), seed=seed) for seed in range(50)}
    assert chosen == {"Do a2", "Do a3"}
    assert {shown(pool, task("app-1", seed=7), seed=seed) for seed in range(50)} == {
        "Do a1",
        "Do a2",
        "Do a3",
        "Do again",
    }
    assert shown(pool, task("mail-1")) is None
    assert shown(pool, task("chess-1")) is None


def test_what_a_person_recorded_and_nobody_judged_is_shown(tmp_path: Path) -> None:
    write(tmp_path, "a1", success=None, source="human")
    assert shown(Pool.folder(tmp_path), task("app-2")) == "Do a1"


def test_the_choice_is_the_same_each_time_and_differs_between_tasks(tmp_path: Path) -> None:
    for name in (f"a{i}" for i in range(9)):
        write(tmp_path, name)
    pool, again = Pool.folder(tmp_path), Pool.folder(tmp_path)
    tasks = [task(f"app-{number}") for number in range(100, 130)]
    assert [shown(pool, t) for t in tasks] == [shown(again, t) for t in tasks]
    assert len({shown(pool, t) for t in tasks}) > 5


def test_a_wrong_one_is_of_another_family_and_says_the_same_if_it_can(tmp_path: Path) -> None:
    write(tmp_path, "a1")
    write(tmp_path, "b1", instruction="Press zib", tags=("family:b",))
    write(tmp_path, "c1", instruction="Press zib", tags=("family:c",))
    pool = Pool.folder(tmp_path)
    assert {shown(pool, task("x", "Press zib", tags=("family:b",)), "wrong", s) for s in range(20)} == {"Press zib"}
    assert {shown(pool, task("app-5"), "wrong", s) for s in range(20)} == {"Press zib"}
    assert shown(pool, task("x", "Press mop", tags=("family:b",)), "wrong") in {"Do a1", "Press zib"}
    assert pool.choose(task("app-1"), "none", 0) == NO_DEMONSTRATION


def test_by_words_the_nearest_goal_of_another_task_is_shown_whatever_its_family(tmp_path: Path) -> None:
    for name, goal in (
        ("a1", "Rename the file notes.txt to plan.txt"),
        ("b2", "Book a room for Friday"),
        ("c3", "Delete the file draft.txt"),
    ):
        write(tmp_path, name, instruction=goal, task_id=name)
    write(tmp_path, "failed", instruction="Rename the file a.txt to b.txt", task_id="d4", success=False)
    pool = Pool.folder(tmp_path)

    def found(asked: Task, rule: Any, seed: int = 0) -> str | None:
        chosen = pool.choose(asked, rule, seed, "words")
        return None if chosen is None else chosen.task

    asked = task("new", "RENAME the file a.txt to b.txt!")
    assert {found(asked, "right", seed) for seed in range(20)} == {"Rename the file notes.txt to plan.txt"}
    assert {found(asked, "wrong", seed) for seed in range(20)} == {"Book a room for Friday"}
    assert pool.has(asked, "right", "words")
    assert not pool.has(asked, "right")  # of no family that is there
    # its own recording would be the answer
    assert found(task("a1", "Rename the file notes.txt to plan.txt"), "right") == "Delete the file draft.txt"
    right, control = (pool.choose(asked, rule, 0, "words") for rule in ("right", "control"))
    assert right is not None
    assert control is not None
    assert (control.blank, control.task, len(control.steps)) == (True, right.task, len(right.steps))
    assert Pool([]).choose(asked, "right", 0, "words") is None


def test_evaluation_and_training_choose_by_what_the_configuration_says(tmp_path: Path) -> None:
    write(tmp_path, "a1", instruction="Rename the file", task_id="a1")
    write(tmp_path, "b2", instruction="Book a room", task_id="b2")
    for by, said in (("words", "Book a room"), ("family", "")):
        config = PromptConfig(demonstration=DemonstrationConfig(folder=str(tmp_path), required=False, by=by))
        assert config.builder().choose(task("new", "Book a small room")).task == said


def block(builder: PromptBuilder, demonstration: Demonstration) -> tuple[list[dict[str, Any]], list[Image.Image]]:
    messages, images = builder.messages("Now", [], Observation(frame(99), (8, 8)), demonstration)
    return messages[-1]["content"], images


def text_of(content: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "<image>") for part in content)


def test_a_prompt_shows_the_task_the_screens_the_actions_and_their_results(tmp_path: Path) -> None:
    folder = write(tmp_path, "a1", (CLICK, None, CLICK, CLICK, DONE), (1, 1, 2, 2, 3, 3))
    demonstration = demonstrate(read_episode(folder), folder.__truediv__)
    builder = PromptConfig(decimals=2, system="", demonstration=DemonstrationConfig(images=2)).builder()
    content, images = block(builder, demonstration)
    assert text_of(content) == (
        "Demonstration\nTask: Do a1\n"
        "Step 1\nScreen: <image>\nAction: CLICK(x=0.50, y=0.25)\nResult: nothing changed\n"
        "Step 2\nScreen: 8x8\nAction: CLICK(x=0.50, y=0.25)\nResult: nothing changed\n"
        "Step 3\nScreen: 8x8\nAction: CLICK(x=0.50, y=0.25)\nResult: the screen changed\n"
        "Step 4\nScreen: <image>\nAction: DONE()\nResult: the task is done\n"
        "End of the demonstration\n"
        "Goal: Now\n<image>"
    )
    assert [image.getpixel((0, 0)) for image in images] == [(1, 0, 0), (3, 0, 0), (99, 0, 0)]


@pytest.mark.parametrize(("wanted", "shades"), [(0, []), (1, [1]), (3, [1, 7, 12]), (5, [1, 4, 7, 9, 12])])
def test_at_most_so_many_images_the_first_one_among_them(tmp_path: Path, wanted: int, shades: list[int]) -> None:
    folder = write(tmp_path, "a1", (CLICK,) * 12)
    builder = PromptConfig(demonstration=DemonstrationConfig(images=wanted)).builder()
    _, images = block(builder, demonstrate(read_episode(folder), folder.__truediv__))
    assert [image.getpixel((0, 0)) for image in images] == [(shade, 0, 0) for shade in [*shades, 99]]


def test_a_long_demonstration_is_cut_and_does_not_say_by_how_much(tmp_path: Path) -> None:
    folder = write(tmp_path, "a1", (CLICK,) * 12)
    builder = PromptConfig(demonstration=DemonstrationConfig(steps=3)).builder()
    text = text_of(block(builder, demonstrate(read_episode(folder), folder.__truediv__))[0])
    assert "Step 3\n" in text
    assert "Step 4" not in text
    assert "and so on\nEnd" in text
    assert "12" not in text


def test_a_control_is_as_long_and_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a1", (CLICK, DONE))
    write(tmp_path, "a2", (CLICK, DONE))
    builder = PromptConfig(decimals=2, demonstration=DemonstrationConfig()).builder()
    pool = Pool.folder(tmp_path)
    pairs = [pool.choose(task("app-1"), rule, 0) for rule in ("right", "control")]
    assert pairs[0] is not None
    assert pairs[1] is not None
    (right, pictures), (control, blank) = (block(builder, found) for found in pairs if found)
    assert [len(part.get("text", "")) for part in control] == [len(part.get("text", "")) for part in right]
    assert [i.size for i in blank] == [i.size for i in pictures]
    assert [i.getpixel((0, 0)) for i in blank] == [(128, 128, 128)] * 2 + [(99, 0, 0)]
    text = text_of(control)
    for said in ("CLICK", "DONE", "Do a2", "0.50", "changed", "the task is done"):
        assert said in text_of(right)
        assert said not in text


def config(folder: Path, **changes: Any) -> PromptBuilder:
    return PromptConfig(demonstration=DemonstrationConfig(folder=str(folder), **changes)).builder()


def test_an_evaluation_without_the_demonstration_that_it_needs_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a1")
    seen = Observation(frame(9), (8, 8))
    with pytest.raises(ConfigError, match=r"no right one for task app-1; required: false"):
        config(tmp_path).ask(task("app-1"), [], seen)
    assert len(config(tmp_path, required=False).ask(task("app-1"), [], seen)[1]) == 1
    assert len(config(tmp_path).ask(task("app-2"), [], seen)[1]) == 3
    assert len(config(tmp_path, rule="none").ask(task("app-2"), [], seen)[1]) == 1
    with pytest.raises(ConfigError, match=r"demonstration\.folder: name the episodes"):
        PromptConfig(demonstration=DemonstrationConfig()).builder().ask(task("app-2"), [], seen)
    with pytest.raises(ConfigError, match="there is no folder"):
        config(tmp_path / "missing")


@pytest.mark.parametrize(
    "value", [{"images": 6}, {"images": -1}, {"steps": 0}, {"share": 1.1}, {"rule": "best"}, {"n": 1}]
)
def test_nonsense_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="prompt"):
        convert({"demonstration": value}, PromptConfig, "prompt")


def test_a_share_of_the_tasks_gets_one(tmp_path: Path) -> None:
    part = DemonstrationConfig(share=0.7)
    chosen = [in_share(part, task(f"app-{number}")) for number in range(1000)]
    assert 650 < sum(chosen) < 750
    assert chosen == [in_share(part, task(f"app-{number}")) for number in range(1000)]
    assert all(in_share(DemonstrationConfig(), task(f"app-{number}")) for number in range(100))


def test_a_pool_may_be_sent_to_another_process(tmp_path: Path) -> None:
    for name in ("a1", "a2", "a3"):
        write(tmp_path, name)
    pool = Pool.folder(tmp_path)
    before = shown(pool, task("app-1"))
    assert shown(pickle.loads(pickle.dumps(pool)), task("app-1")) == before


@pytest.mark.parametrize(("folder", "code"), [("versions", 0), ("apps", 78), ("missing", 78), (None, 78)])
def test_an_evaluation_looks_for_its_demonstrations_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str | None, code: int
) -> None:
    write(tmp_path / "apps", "a1")
    task = versions.tasks(1, SPLIT_SEED, {})[0]
    write(tmp_path / "versions", "v1", task_id="versions-1", tags=task.tags)
    shown = {} if folder is None else {"folder": str(tmp_path / folder)}
    values = {
        "benchmark": "versions",
        "environment": "versions",
        "tasks": {"count": 1, "seed": SPLIT_SEED},
        "agent": {"kind": "scripted"},
        "prompt": {"demonstration": shown},
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert run.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == code
    said = capsys.readouterr().err
    assert (said.count("\n") == 1 and "demonstration" in said) == bool(code)
    assert (tmp_path / "out").exists() == (not code)


def test_by_screen_the_first_screens_decide_between_goals_that_are_as_near(tmp_path: Path) -> None:
    for name, shade in (("a1", 40), ("b2", 120), ("c3", 200)):
        write(tmp_path, name, shades=(shade, 250, 250), instruction="Press the button", task_id=name)
    write(tmp_path, "d4", shades=(40, 250, 250), instruction="Book a room", task_id="d4")
    pool = Pool.folder(tmp_path)

    def chosen(shade: int, rule: Any, goal: str = "Press the button") -> str:
        found = pool.choose(task("new", goal), rule, 0, "screen", frame(shade))
        assert found is not None
        (entry,) = [e for e in pool.entries if pool.kept.get(e.episode_id) is found]
        return entry.episode_id

    assert [chosen(shade, "right") for shade in (45, 110, 210)] == ["a1", "b2", "c3"]
    assert chosen(45, "right", "Book a small room") == "d4"  # the goal counts as much as the screen
    assert chosen(250, "wrong") == "d4"
    # without a screen, as where only the question is whether there is one at all, the words decide
    assert pool.has(task("new", "Press the button"), "right", "screen")
    builder = PromptConfig(
        decimals=2, system="", demonstration=DemonstrationConfig(folder=str(tmp_path), by="screen", images=1)
    ).builder()
    # the episode's first screen decides, not the present one
    for past, now in (([], 190), ([PastStep(CLICK, frame(190))], 40)):
        _, images = builder.ask(task("new", "Press the button"), past, Observation(frame(now), (8, 8)))
        assert images[0].getpixel((0, 0)) == (200, 0, 0)


def test_a_rare_word_tells_more_than_a_common_one(tmp_path: Path) -> None:
    """Three of five words are the same in "I want the loud bell", and two of seven in the right one."""
    for number, goal in enumerate(
        ("I want the loud bell", "I want the big pointer", "I want the slow keys", "Switch the night light on")
    ):
        write(tmp_path, f"e{number}", instruction=goal, task_id=f"e{number}")
    pool = Pool.folder(tmp_path)
    found = pool.choose(task("new", "I want the night light"), "right", 0, "words")
    assert found is not None
    assert found.task == "Switch the night light on"
