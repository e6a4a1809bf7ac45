"""What the self-teacher is shown, as the one prompt builder writes it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PIL import Image

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action
from eval.desktop import Observation
from eval.episodes import Episode, Step, ToolCall
from eval.prompts import PastStep, PromptBuilder, PromptConfig
from training.rl.learning.sdpo.prompts import TriedEpisode, teacher_demonstration

SHOWN = ("enabled", "sensitive", "showing", "visible")
CLICK = Action.from_json({"type": "click", "x": 0.25, "y": 0.5})


def tree(text: str) -> Tree:
    entry = TreeNode(role="text", name="user", states=(*SHOWN, "editable"), bounds=(10, 10, 80, 20), text=text)
    window = TreeNode(role="frame", name="Login", states=SHOWN, bounds=(0, 0, 100, 50), children=[entry])
    return Tree(
        applications=[TreeNode(role="application", name="app", children=[window])],
        screen=(100, 50),
        windows=[(0, 0, 100, 50)],
    )


def tried(folder: Path, success: bool | None, *steps: Step, trees: tuple[str, str] | None = None) -> TriedEpisode:
    folder.mkdir(exist_ok=True)
    shade = 10 * len(list(folder.parent.iterdir()))
    for number in range(len(steps) + 1):
        Image.new("RGB", (100, 50), (shade, number, 0)).save(folder / f"{number:03d}.png")
    episode = Episode(
        episode_id="t", task_id="login-1", instruction="Log in.", screen=(100, 50), success=success, steps=steps
    )
    first, last = (None, None) if trees is None else map(tree, trees)
    return TriedEpisode(episode, lambda name: folder / name, first, last)


def click(index: int, **fields: object) -> Step:
    return Step(**{"index": index, "screenshot": f"{index:03d}.png", "action": CLICK, **fields})  # type: ignore[arg-type]


def prompt(builder: PromptBuilder, group: list[TriedEpisode], index: int) -> tuple[str, list[Image.Image]]:
    """The teacher's prompt of the last turn, its pictures as <image>."""
    shown = teacher_demonstration(index, group, builder)
    assert shown is not None
    past = [PastStep(CLICK)]
    present = Observation(Image.new("RGB", (100, 50), "white"), (100, 50))
    messages, images = builder.messages("Log in.", past, present, shown)
    parts = [part for message in messages for part in message["content"]]
    return "".join(part.get("text", "<image>") for part in parts), images


def builder() -> PromptBuilder:
    return PromptConfig(decimals=2, system="").builder()


def test_a_sibling_s_success_is_shown(tmp_path: Path) -> None:
    group = [tried(tmp_path / "a", False, click(0)), tried(tmp_path / "b", True, click(0), click(1))]
    text, images = prompt(builder(), group, 0)
    assert text == (
        "Demonstration\nTask: Log in.\n"
        "Step 1\nScreen: <image>\nAction: CLICK(x=0.25, y=0.50)\nResult: the screen changed\n"
        "Step 2\nScreen: <image>\nAction: CLICK(x=0.25, y=0.50)\nResult: the task is done\n"
        "End of the demonstration\n"
        "Goal: Log in.\nActions so far:\n1. CLICK(x=0.25, y=0.50)\n<image>"
    )
    assert [image.getpixel((0, 0)) for image in images] == [(20, 0, 0), (20, 1, 0), (255, 255, 255)]


def test_a_failure_is_shown_with_its_end_its_errors_and_what_it_changed(tmp_path: Path) -> None:
    steps = (
        click(0, refused="action 1: nothing <|image_pad|> there"),
        click(1, calls=(ToolCall(name="bash", error="no such file"),)),
        Step(index=2, screenshot="002.png", parse_error="no action"),
    )
    group = [tried(tmp_path / "a", False, *steps, trees=("", "alice")), tried(tmp_path / "b", False, click(0))]
    text, images = prompt(builder(), group, 0)
    before, after = (builder().tree_text(tree(name)).splitlines() for name in ("", "alice"))
    gone, new = (
        next(line for line in lines if line not in others) for lines, others in ((before, after), (after, before))
    )
    assert text == (
        "Failed attempt\nTask: Log in.\n"
        "Step 1\nScreen: <image>\nAction: CLICK(x=0.25, y=0.50)\nResult: the screen changed\n"
        "Step 2\nScreen: <image>\nAction: CLICK(x=0.25, y=0.50)\nResult: the screen changed\n"
        "Last screen: <image>\n"
        "The task was not done.\n"
        "Step 1: refused: action 1: nothing < |image_pad|> there\n"
        "Step 2: bash failed: no such file\n"
        "Step 3: the answer was no action: no action\n"
        f"Gone since the start:\n{gone}\nNew since the start:\n{new}\n"
        "End of the failed attempt\n"
        "Goal: Log in.\nActions so far:\n1. CLICK(x=0.25, y=0.50)\n<image>"
    )
    assert "alice" in new
    assert [image.getpixel((0, 0)) for image in images] == [(10, 0, 0), (10, 1, 0), (10, 3, 0), (255, 255, 255)]


def test_the_student_s_own_prompt_is_the_end_of_the_teacher_s(tmp_path: Path) -> None:
    """Nothing of what the student saw is missing or written otherwise."""
    group = [tried(tmp_path / "a", False, click(0)), tried(tmp_path / "b", True, click(0))]
    present = Observation(Image.new("RGB", (100, 50), "white"), (100, 50))
    for config in (PromptConfig(decimals=2), PromptConfig(decimals=2, history_style="turns", images=3)):
        made = config.builder()
        shown = teacher_demonstration(0, group, made)
        assert shown is not None
        past = [PastStep(CLICK, Image.new("RGB", (100, 50), "grey"))]
        alone = made.messages("Log in.", past, present)[0]
        told = made.messages("Log in.", past, present, shown)[0]
        assert told[0] == alone[0]  # the system turn
        assert written(told).endswith(written(alone[1:]))


def written(messages: list[dict[str, object]]) -> str:
    return "".join(
        str(part.get("text", "<image>"))
        for message in messages
        for part in message["content"]  # type: ignore[attr-defined]
    )


def test_siblings_teach_in_a_circle_and_never_oneself(tmp_path: Path) -> None:
    outcomes = [False, True, None, True, False]
    group = [tried(tmp_path / str(number), outcome, click(0)) for number, outcome in enumerate(outcomes)]
    group = [of_task(one, f"task of {number}") for number, one in enumerate(group)]
    taught = [teacher_demonstration(number, group, builder()) for number in range(5)]
    assert [None if shown is None else shown.task for shown in taught] == [
        "task of 1",
        "task of 3",
        None,  # not judged: a broken desktop teaches nothing
        "task of 1",
        "task of 1",
    ]


def of_task(one: TriedEpisode, instruction: str) -> TriedEpisode:
    return TriedEpisode(msgspec.structs.replace(one.episode, instruction=instruction), one.frame)


def test_nothing_is_told_where_there_is_nothing(tmp_path: Path) -> None:
    alone = tried(tmp_path / "a", True, click(0))
    assert teacher_demonstration(0, [alone, tried(tmp_path / "b", False, click(0))], builder()) is None
    assert teacher_demonstration(0, [tried(tmp_path / "c", False)], builder()) is None


def test_without_a_final_frame_the_last_one_is_the_end(tmp_path: Path) -> None:
    one = tried(tmp_path / "a", False, click(0))
    (tmp_path / "a" / "001.png").unlink()
    shown = teacher_demonstration(0, [one], builder())
    assert shown is not None
    assert shown.end == tmp_path / "a" / "000.png"
    same = tried(tmp_path / "b", False, click(0), trees=("x", "x"))
    shown = teacher_demonstration(0, [same], builder())
    assert shown is not None
    assert shown.failed == "The task was not done.\nThe screen is as it was at the start."
