"""Each rule by an episode made by hand that it fits, and by one beside it that it does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from eval.accessibility.tree import Tree, TreeNode
from eval.accessibility.visible import points_at_control
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.environment import tasks as desktop_tasks
from eval.desktop import Expected, Task
from eval.episodes import Episode, Step, ToolCall, frame_name
from eval.records.failures import RULES, FailedEpisode, failure
from eval.records.task_record import TaskRecord, task_record
from tests.support.cases import every_case

DONE, FAIL, WAIT = Action(ActionType.DONE), Action(ActionType.FAIL), Action(ActionType.WAIT)
TYPE = Action(ActionType.TYPE, text="a")
BOX = (0.4, 0.4, 0.2, 0.2)


def click(x: float, y: float = 0.5) -> Action:
    return Action(ActionType.CLICK, x=x, y=y)


def episode(*parts: Action | Step | None, **fields: Any) -> Episode:
    steps = []
    for index, part in enumerate(parts):
        step = part if isinstance(part, Step) else Step(index=0, screenshot="", action=part)
        steps.append(msgspec.structs.replace(step, index=index, screenshot=frame_name(index)))
    told = {"success": False, "score": 0.0, **fields}
    return Episode(episode_id="e", task_id="t", instruction="Do it", screen=(100, 100), steps=tuple(steps), **told)


def answer(action: Action | None = None, **fields: Any) -> Step:
    return Step(index=0, screenshot="", action=action, **fields)


def kind(
    *parts: Action | Step | None, feasible: bool | None = True, limit: int | None = 9, **fields: Any
) -> str | None:
    found = failure(FailedEpisode(episode(*parts, **fields), feasible, limit))
    return None if found is None else found.kind


def pointing(*on: int) -> list[Step]:
    return [answer(click(0.1 + 0.05 * k), metrics={"on_control": float(hit)}) for k, hit in enumerate(on)]


def varied(count: int) -> list[Action]:
    return [Action(ActionType.TYPE, text=str(number)) for number in range(count)]


@every_case(
    ("expected", "parts", "more"),
    [
        ("infrastructure", [click(0.1)], {"outcome": "infra", "success": None, "score": None, "error": "gone"}),
        ("format", [TYPE, answer(parse_error="no action")], {}),
        ("format", [answer(parse_error="x"), DONE], {}),
        ("stopped early", [answer(parse_error="x"), TYPE, WAIT, DONE], {}),
        ("gave up a feasible task", [TYPE, FAIL], {}),
        ("gave up a feasible task", [TYPE, FAIL], {"feasible": None}),
        ("missed an infeasible task", [TYPE, DONE], {"feasible": False}),
        ("other", [TYPE, FAIL], {"feasible": False}),  # said so, and spoiled something else
        ("could not see", [answer(TYPE, response="I cannot see the screen."), DONE], {}),
        ("could not see", [answer(TYPE, thought="I can\u2019t see the image"), DONE], {}),
        ("stopped early", [answer(TYPE, response="I cannot see the screen."), TYPE, WAIT, DONE], {}),
        ("could not see", [*pointing(0, 0, 1), DONE], {}),
        ("stopped early", [*pointing(0, 1, 0, 1), DONE], {}),  # half
        ("stopped early", [*pointing(0, 0), DONE], {}),  # too few to say
        ("loop", [click(0.5), click(0.505), click(0.5), click(0.495)], {}),
        ("loop", [TYPE, click(0.5), click(0.5), click(0.5), click(0.5), DONE], {}),
        ("stopped early", [click(0.5), click(0.52), click(0.5), click(0.5), DONE], {}),
        ("loop", [TYPE, WAIT] * 3, {}),
        ("loop", [TYPE, WAIT, click(0.5)] * 3, {}),
        ("stopped early", [TYPE, WAIT, TYPE, WAIT, DONE], {}),
        ("loop", [answer(calls=(ToolCall(name="run"),))] * 4, {}),
        ("other", [answer()] * 4, {}),
        ("wrong target", [answer(click(0.1), expected=Expected(click(0.5), BOX)), DONE], {}),
        ("wrong action", [answer(TYPE, expected=Expected(click(0.5), BOX)), DONE], {}),
        ("stopped early", [answer(click(0.5), expected=Expected(click(0.5), BOX)), DONE], {}),
        ("stopped early", [answer(DONE, expected=Expected(click(0.5), BOX))], {}),
        ("wrong action", [answer(TYPE, refused="no keyboard"), DONE], {}),
        ("stopped early", [answer(TYPE, refused="no keyboard"), TYPE, WAIT, DONE], {}),
        ("stopped early", [TYPE, DONE], {}),
        ("never stopped", varied(9), {}),
        ("never stopped", [*varied(8), answer(TYPE, expected=Expected(DONE))], {}),
        ("other", varied(8), {}),
        ("other", varied(9), {"limit": None}),
        ("other", [], {}),
    ],
)
def test_each_rule(expected: str, parts: Sequence[Any], more: dict[str, Any]) -> None:
    assert kind(*parts, **more) == expected


def test_what_was_solved_or_not_judged_has_no_class() -> None:
    assert kind(TYPE, DONE, success=True, score=1.0) is None
    assert kind(TYPE, DONE, success=None, score=None) is None


def test_the_desktop_that_the_agent_broke_comes_before_its_answers() -> None:
    found = failure(FailedEpisode(episode(TYPE, answer(parse_error="x")), True, 9, "the session ended"))
    assert found is not None
    assert (found.kind, found.why) == ("broke the desktop", "the session ended")


def test_a_class_tells_its_rule_and_what_fitted() -> None:
    found = failure(FailedEpisode(episode(answer(click(0.1), expected=Expected(click(0.5), BOX)), DONE), True, 9))
    assert found is not None
    assert found.rule == next(rule.words for rule in RULES if rule.kind == "wrong target")
    assert found.why == "answer 1: click at 0.100, 0.500, the solution's is elsewhere"


def test_every_class_is_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/formats.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| ([a-z ]+) \| ([A-Z].*) \|$", page, re.MULTILINE))
    assert {rule.kind: rule.words for rule in RULES}.items() <= shown.items()


def test_a_record_holds_the_class_and_what_is_known_of_the_task() -> None:
    task = Task("t", "Do it", programs=("mousepad", "thunar"), difficulty="hard", feasible=True)
    record = task_record(
        task,
        episode(TYPE, FAIL),
        benchmark="b",
        version="1",
        took=1,
        attempt=1,
        kept=False,
        rules={},
        used={},
        max_steps=9,
        broke="",
        content="c",
        cut=False,
    )
    again = msgspec.json.decode(msgspec.json.encode(record), type=TaskRecord)
    assert (again.programs, again.difficulty, again.feasible) == (("mousepad", "thunar"), "hard", True)
    assert again.failure is not None
    assert again.failure.kind == "gave up a feasible task"


def test_the_tasks_of_our_desktops_tell_program_difficulty_and_whether_they_can_be_done() -> None:
    tasks = desktop_tasks(60, 1000000, {})
    assert all(task.programs and task.difficulty in ("easy", "medium", "hard") for task in tasks)
    assert {task.feasible for task in tasks} == {True, False}
    assert all(task.feasible is ("infeasible" not in task.tags) for task in tasks)


def test_a_point_is_on_a_control_only_where_one_is_used() -> None:
    button = TreeNode(role="push button", bounds=(10, 10, 20, 10), states=("showing", "enabled"))
    label = TreeNode(role="label", bounds=(50, 10, 20, 10), states=("showing", "enabled"))
    frame = TreeNode(role="frame", bounds=(0, 0, 100, 50), states=("showing",), children=[button, label])
    tree = Tree(applications=[TreeNode(role="application", children=[frame])], screen=(100, 100))
    assert points_at_control(tree, (0.15, 0.15))
    assert not points_at_control(tree, (0.55, 0.15))
    assert not points_at_control(tree, (0.3, 0.15))  # the first pixel beside it
