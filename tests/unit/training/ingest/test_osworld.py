from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.episodes import Episode, iter_episodes, read_episode
from tests.support.cases import every_case
from tests.unit.training.ingest.material import FRAME, number_of, osworld, report, scene, snapshot
from training.data.__main__ import main
from training.data.faults import BadSample
from training.data.ingest.osworld_actions import Cursor, one_action
from training.data.ingest.tally import Lost

SCREEN = Screen(*FRAME)
ROOT = Path(__file__).parents[4]


def run(tmp_path: Path, **changes: Any) -> tuple[int, Path]:
    config = tmp_path / "config.json"
    given = {"format": "osworld", "recording": str(tmp_path / "results"), "tasks": str(tmp_path / "tasks"), **changes}
    config.write_text(json.dumps(given))
    return main(["ingest", "--config", str(config), "--out", str(tmp_path / "out")]), tmp_path / "out"


def folder(tmp_path: Path, name: str = "one", space: str = "pyautogui") -> Path:
    return tmp_path / "results" / space / "screenshot" / "gpt" / "chrome" / name


def result(tmp_path: Path, actions: list[Any], name: str = "one", space: str = "pyautogui", **more: Any) -> Path:
    return osworld(folder(tmp_path, name, space), actions, task=tmp_path / "tasks", **more)


def only(out: Path) -> tuple[Path, Episode]:
    ((path, episode),) = iter_episodes(out)
    return path, episode


def kinds(episode: Episode) -> list[str]:
    return [step.action.type.value for step in episode.steps if step.action]


def at(x: float, y: float) -> dict[str, float]:
    return {"x": (x + 0.5) / FRAME[0], "y": (y + 0.5) / FRAME[1]}


def uitars(code: str) -> str:
    """A row as UI-TARS's agent writes it: its thought is a string before the code."""
    thought = 'The folder is C:\\Users\\me, it\'s "open".'
    return f"import pyautogui\nimport time\n'''\nObservation:\n\n\nThought:\n{thought}\n'''\n{code}"


CODE = ["pyautogui.click(10, 20)", "pyautogui.write('a')", "pyautogui.press('enter')", "DONE"]


def test_a_step_stands_on_the_picture_after_the_step_before_it(tmp_path: Path) -> None:
    result(tmp_path, CODE)
    code, out = run(tmp_path)
    assert code == 0
    path, episode = only(out)
    assert kinds(episode) == ["type", "key", "done"]
    assert [number_of(path / step.screenshot) for step in episode.steps] == [1, 2, 3]
    assert number_of(path / "003.png") == 4
    assert [step.done for step in episode.steps] == [False, False, True]
    assert episode.steps[0].response == "So."
    assert episode.metadata["dropped"] == [
        {"index": 0, "reason": "no_frame_before", "source": "pyautogui.click(10, 20)"}
    ]
    assert report(out)["steps"]["dropped"] == {"no_frame_before": 1}
    assert (episode.instruction, episode.task_id, episode.agent) == ("Do it", "one", "gpt")
    assert (episode.success, episode.score, episode.source, episode.screen) == (True, 1.0, "osworld", FRAME)
    assert episode.episode_id == "pyautogui-screenshot-gpt-chrome-one"
    assert {k: v for k, v in episode.metadata.items() if k != "dropped"} == {
        "domain": "chrome",
        "action_space": "pyautogui",
        "observation": "screenshot",
    }


@pytest.mark.parametrize("name", ["initial_state.png", "step_0.png", "step_0_20251121@095959.png"])
def test_with_a_picture_of_the_beginning_the_first_step_is_kept(name: str, tmp_path: Path) -> None:
    scene(9).save(result(tmp_path, CODE) / name)
    path, episode = only(run(tmp_path)[1])
    assert kinds(episode) == ["click", "type", "key", "done"]
    assert number_of(path / "000.png") == 9
    assert episode.steps[0].action == Action(ActionType.CLICK, **at(10, 20))


def test_a_first_row_may_tell_the_instruction_and_the_beginning(tmp_path: Path) -> None:
    path = result(tmp_path, CODE)
    scene(9).save(path / "begin.png")
    told = json.dumps({"instruction": "From the row", "initial_state": "begin.png"})  # as with a human
    (path / "traj.jsonl").write_text(told + "\n" + (path / "traj.jsonl").read_text())
    _, episode = only(run(tmp_path, tasks=None)[1])
    assert (episode.instruction, kinds(episode)) == ("From the row", ["click", "type", "key", "done"])


@pytest.mark.parametrize(
    ("score", "success", "value"), [("0.0", False, 0.0), ("0.5\n", False, 0.5), ("1", True, 1.0), (None, None, None)]
)
def test_what_nobody_judged_has_no_score(
    score: str | None, success: bool | None, value: float | None, tmp_path: Path
) -> None:
    result(tmp_path, CODE, score=score)
    _, episode = only(run(tmp_path)[1])
    assert (episode.success, episode.score, episode.outcome) == (success, value, "scored")


def test_a_try_that_broke_down_is_no_failure_of_the_agent(tmp_path: Path) -> None:
    path = result(tmp_path, CODE[:3], score=None)
    with (path / "traj.jsonl").open("a") as file:
        file.write(json.dumps({"Error": "Time limit exceeded"}) + "\n")
    _, episode = only(run(tmp_path)[1])
    assert (episode.success, episode.outcome, episode.error) == (None, "infra", "Time limit exceeded")


def test_only_the_last_try_in_a_file_counts(tmp_path: Path) -> None:
    path = result(tmp_path, CODE)
    first = (path / "traj.jsonl").read_text()
    result(tmp_path, ["pyautogui.press('x')", "pyautogui.press('y')", "FAIL"])
    (path / "traj.jsonl").write_text(first + (path / "traj.jsonl").read_text())
    out = run(tmp_path)[1]
    assert kinds(only(out)[1]) == ["key", "fail"]
    assert report(out)["notes"] == {"earlier_tries": 1}


def test_pictures_that_overwrote_each_other_belong_to_the_last_of_them(tmp_path: Path) -> None:
    path = result(tmp_path, ["pyautogui.press('a')", "pyautogui.press('b')", "pyautogui.press('c')", "DONE"])
    rows = [json.loads(line) for line in (path / "traj.jsonl").read_text().splitlines()]
    rows[1]["screenshot_file"] = rows[2]["screenshot_file"]  # two actions in one second
    (path / "traj.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = run(tmp_path)[1]
    saved, episode = only(out)
    assert kinds(episode) == ["key", "done"]
    assert [number_of(saved / step.screenshot) for step in episode.steps] == [1, 3]
    assert report(out)["steps"]["dropped"] == {"frame_overwritten": 1, "no_frame_before": 1}


def test_nothing_comes_after_the_end_and_losses_are_counted(tmp_path: Path) -> None:
    actions = [
        "pyautogui.moveRel(1, 2)",
        "import os; os.system('x')",
        "pyautogui.click(1, 2)\npyautogui.press('a')",
        "pyautogui.hscroll(0)",
        None,
        "time.sleep(1)\npyautogui.press('a')\ntime.sleep(2)",
        "WAIT",
        "DONE",
        "pyautogui.press('a')",
    ]
    result(tmp_path, actions)
    out = run(tmp_path)[1]
    path, episode = only(out)
    assert kinds(episode) == ["key", "wait", "done"]
    assert report(out)["steps"]["dropped"] == {
        "after_the_end": 1,
        "no_action": 1,
        "not_understood": 2,
        "several_actions": 1,
        "unrepresentable": 1,
    }
    assert report(out)["notes"] == {"sleeps_left_out": 2}
    assert not (path / "003.png").exists()  # the last picture comes after another action than DONE


def test_two_agents_at_one_task_are_two_episodes(tmp_path: Path) -> None:
    for model in ("a", "b"):
        path = tmp_path / "results" / "pyautogui" / "screenshot" / model / "chrome" / "one"
        osworld(path, CODE, task=tmp_path / "tasks")
    out = run(tmp_path)[1]
    assert {episode.agent for _, episode in iter_episodes(out)} == {"a", "b"}
    assert {episode.task_id for _, episode in iter_episodes(out)} == {"one"}


def bad_line(path: Path) -> None:
    lines = (path / "traj.jsonl").read_text().splitlines()
    lines[1] = "{half"
    (path / "traj.jsonl").write_text("\n".join(lines))


def rewrite(name: str, text: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_text(text) and None


def unlink(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def action(code: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = (path / "traj.jsonl").read_text()
        (path / "traj.jsonl").write_text(text.replace("pyautogui.write('a')", code))

    return change


def cut(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:100]) and None


@pytest.mark.parametrize(
    ("damage", "what", "faults"),
    [
        (bad_line, "step 1: bad_line: traj.jsonl:2 is no JSON object", {"bad_line": 1, "no_image": 1}),
        (unlink("step_1_20251121@100001.png"), "step 1: image_missing: step_1_", {"image_missing": 1}),
        (cut("step_1_20251121@100001.png"), "step 1: image_broken: step_1_", {"image_broken": 1}),
        (action("pyautogui.click(321, 5)"), "step 1: off_screen: (321, 5) on 320x200", {"off_screen": 1}),
        (rewrite("result.txt", "__import__('os')"), "one: bad_result: result.txt holds", {"bad_result": 1}),
        (rewrite("result.txt", "nan"), "bad_result: result.txt holds nan", {"bad_result": 1}),
        (rewrite("traj.jsonl", ""), "one: no_steps", {"no_steps": 1}),
        (unlink("traj.jsonl"), "one: no_trajectory: begun, but there is no traj.jsonl", {"no_trajectory": 1}),
        (
            unlink("../../../../../../tasks/chrome/one.json"),
            "one: no_task: there is no chrome/one.json",
            {"no_task": 1},
        ),
        (rewrite("../../../../../../tasks/chrome/one.json", "{"), "one: bad_task", {"bad_task": 1}),
        (rewrite("../../../../../../tasks/chrome/one.json", '{"id": 1}'), "one: bad_task", {"bad_task": 1}),
    ],
)
def test_damage_is_one_line_and_78_or_a_counted_skip(
    damage: Callable[[Path], None],
    what: str,
    faults: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result(tmp_path, CODE, name="two")
    damage(result(tmp_path, CODE))
    code, out = run(tmp_path)
    assert code == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line
    code, out = run(tmp_path, on_bad_sample="skip")
    assert code == 0
    assert report(out)["faults"]["by_reason"] == faults
    assert read_episode(out / "pyautogui-screenshot-gpt-chrome-two")


def test_without_tasks_there_is_no_instruction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path, CODE)
    assert run(tmp_path, tasks=None)[0] == 78
    assert "no_instruction: name the folder" in capsys.readouterr().err
    assert run(tmp_path, tasks="/nowhere")[0] == 78
    assert "tasks: there is no folder /nowhere" in capsys.readouterr().err


def test_running_again_changes_nothing(tmp_path: Path) -> None:
    result(tmp_path, CODE)
    first = snapshot(run(tmp_path)[1])
    assert snapshot(run(tmp_path)[1]) == first


# actions


def made(*actions: Any) -> list[Action | str]:
    cursor, notes = Cursor(), Counter[str]()
    found: list[Action | str] = []
    for one in actions:
        try:
            found.append(one_action(one, SCREEN, cursor, notes))
        except (Lost, BadSample) as trouble:
            found.append(trouble.reason)
    return found


def act(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"action_type": kind, "parameters": parameters}


@every_case(
    ("action", "expected"),
    [
        (act("MOVE_TO", x=10, y=20), Action(ActionType.HOVER, **at(10, 20))),
        (act("CLICK", x=10, y=20), Action(ActionType.CLICK, **at(10, 20))),
        (act("CLICK", x=10, y=20, num_clicks=2), Action(ActionType.DOUBLE_CLICK, **at(10, 20))),
        (act("CLICK", x=10, y=20, num_clicks=3), Action(ActionType.TRIPLE_CLICK, **at(10, 20))),
        (act("CLICK", x=10, y=20, button="right"), Action(ActionType.RIGHT_CLICK, **at(10, 20))),
        (act("CLICK", x=10, y=20, button="middle"), Action(ActionType.MIDDLE_CLICK, **at(10, 20))),
        ({"action_type": "CLICK", "x": 10, "y": 20}, Action(ActionType.CLICK, **at(10, 20))),
        (act("RIGHT_CLICK", x=10, y=20), Action(ActionType.RIGHT_CLICK, **at(10, 20))),
        (act("DOUBLE_CLICK", x=10, y=20), Action(ActionType.DOUBLE_CLICK, **at(10, 20))),
        (act("MOUSE_DOWN"), Action(ActionType.MOUSE_DOWN)),
        (act("MOUSE_UP", button="right"), Action(ActionType.MOUSE_UP, button="right")),
        (act("SCROLL", dx=0, dy=-3), Action(ActionType.SCROLL, direction="down", amount=3)),
        (act("SCROLL", dx=2, dy=0), Action(ActionType.SCROLL, direction="right", amount=2)),
        (act("TYPING", text="hi"), Action(ActionType.TYPE, text="hi")),
        (act("PRESS", key="Enter"), Action(ActionType.KEY, keys=("enter",))),
        (act("KEY_DOWN", key="shift"), Action(ActionType.KEY_DOWN, keys=("shift",))),
        (act("KEY_UP", key="shift"), Action(ActionType.KEY_UP, keys=("shift",))),
        (act("HOTKEY", keys=["ctrl", "c"]), Action(ActionType.HOTKEY, keys=("ctrl", "c"))),
        (act("WAIT"), Action(ActionType.WAIT)),
        ({"action_type": "DONE"}, Action(ActionType.DONE)),
        ({"action_type": "FAIL", "parameters": None}, Action(ActionType.FAIL)),
        ({"action_space": "pyautogui", "action": "pyautogui.click(10, 20)"}, Action(ActionType.CLICK, **at(10, 20))),
        ("FAIL", Action(ActionType.FAIL)),
        ("pyautogui.moveTo(10, 20)\npyautogui.click()", Action(ActionType.CLICK, **at(10, 20))),
        ("pyautogui.click(10.5, 20.0, clicks=2)", Action(ActionType.DOUBLE_CLICK, x=10.5 / 320, y=20.5 / 200)),
        # rows of UI-TARS (bytedance/UI-TARS, codes/ui_tars/action_parser.py: parsing_response_to_pyautogui_code)
        (uitars("\npyautogui.click(10.0, 20.0, button='left')"), Action(ActionType.CLICK, **at(10, 20))),
        (uitars("\npyautogui.doubleClick(10, 20, button='left')"), Action(ActionType.DOUBLE_CLICK, **at(10, 20))),
        (uitars("\npyautogui.hotkey('ctrl', 's')"), Action(ActionType.HOTKEY, keys=("ctrl", "s"))),
        (
            uitars("\npyautogui.scroll(-5, x=10, y=20)"),
            Action(ActionType.SCROLL, **at(10, 20), direction="down", amount=5),
        ),
        (
            uitars("\npyautogui.moveTo(10, 20)\n\npyautogui.dragTo(30, 40, duration=1.0)\n"),
            Action(ActionType.DRAG, **at(10, 20), x2=at(30, 40)["x"], y2=at(30, 40)["y"], duration=1.0),
        ),
        (
            uitars("\nimport pyperclip\npyperclip.copy('it\\'s')\npyautogui.hotkey('ctrl', 'v')\ntime.sleep(0.5)\n"),
            Action(ActionType.TYPE, text="it's"),
        ),
        (
            uitars(
                "\nimport pyperclip\npyperclip.copy('bob')\npyautogui.hotkey('ctrl', 'v')\ntime.sleep(0.5)\n"
                "\npyautogui.press('enter')"
            ),
            Action(ActionType.TYPE, text="bob\n"),
        ),
        (
            uitars("\npyautogui.write('bob', interval=0.1)\ntime.sleep(0.5)\n\npyautogui.press('enter')"),
            Action(ActionType.TYPE, text="bob\n"),
        ),
        (uitars("\n# Unrecognized action type: call_user"), "not_understood"),
        # rows of OSWorld's agent for Claude (mm_agents/anthropic/main.py: parse_actions_from_tool_call)
        (
            "pyautogui.keyDown('ctrl')\npyautogui.keyDown('c')\npyautogui.keyUp('c')\npyautogui.keyUp('ctrl')\n",
            Action(ActionType.HOTKEY, keys=("ctrl", "c")),
        ),
        ("pyautogui.keyDown('Enter')\npyautogui.keyUp('enter')\n", Action(ActionType.KEY, keys=("enter",))),
        (
            "pyautogui.keyDown('shift')\npyautogui.click(10, 20)\npyautogui.keyUp('shift')\n",
            Action(ActionType.CLICK, **at(10, 20), modifiers=("shift",)),
        ),
        ('pyautogui.typewrite("""bob""", interval=0.01)\n', Action(ActionType.TYPE, text="bob")),
        ("pyautogui.scroll(-5, 10, 20)\n", Action(ActionType.SCROLL, **at(10, 20), direction="down", amount=5)),
        ("pyautogui.keyDown('a')\npyautogui.keyUp('b')", "several_actions"),
        ("pyautogui.keyDown('shift')\npyautogui.write('a')\npyautogui.keyUp('shift')", "several_actions"),
        (act("SCROLL", dx=1, dy=1), "unrepresentable"),
        (act("SCROLL"), "unrepresentable"),
        (act("CLICK"), "unrepresentable"),
        (act("DRAG_TO", x=1, y=2), "unrepresentable"),
        (act("CLICK", x=10), "not_understood"),
        (act("CLICK", x="a", y="b"), "not_understood"),
        (act("CLICK", x=10, y=20, speed=3), "not_understood"),
        (act("CLICK", x=10, y=200), Action(ActionType.CLICK, **at(10, 199))),
        (act("CLICK", x=10, y=201), "off_screen"),
        (act("CLICK", x=-1, y=20), "off_screen"),
        (act("TELEPORT", x=10, y=20), "not_understood"),
        (act("HOTKEY", keys="ctrl"), "not_understood"),
        (act("PRESS"), "not_understood"),
        (act("TYPING"), "unrepresentable"),
        ({"action_type": "CLICK", "parameters": [10, 20]}, "not_understood"),
        ([10, 20], "not_understood"),
        (7, "not_understood"),
        ("time.sleep(1)\ntime.sleep(1)", "several_actions"),
        ("pyautogui.click(10, 20)\npyautogui.click(10, 20)", "several_actions"),
    ],
)
def test_both_action_spaces_become_actions(action: Any, expected: Action | str) -> None:
    assert made(action) == [expected]


def test_what_names_no_place_happens_where_the_pointer_is() -> None:
    assert made(
        act("MOVE_TO", x=10, y=20),
        act("CLICK"),
        act("TYPING", text="a"),
        act("DRAG_TO", x=30, y=40),
        "pyautogui.rightClick()",
        "pyautogui.teleport(5, 5)",
        "pyautogui.click()",
        "pyautogui.click(1, 2)\npyautogui.press('a')",
        "pyautogui.click()",
    ) == [
        Action(ActionType.HOVER, **at(10, 20)),
        Action(ActionType.CLICK, **at(10, 20)),
        Action(ActionType.TYPE, text="a"),
        Action(ActionType.DRAG, **at(10, 20), x2=at(30, 40)["x"], y2=at(30, 40)["y"]),
        Action(ActionType.RIGHT_CLICK, **at(30, 40)),
        "not_understood",
        "unrepresentable",
        "several_actions",
        Action(ActionType.CLICK, **at(1, 2)),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["x", "y", "button", "num_clicks", "dx", "dy", "text", "key", "keys", "other"])
KINDS = st.sampled_from(["CLICK", "MOVE_TO", "DRAG_TO", "SCROLL", "TYPING", "PRESS", "HOTKEY", "DONE", "click", ""])


@given(JSON | st.builds(lambda k, p: {"action_type": k, "parameters": p}, KINDS, st.dictionaries(NAMES, JSON)))
def test_anything_else_is_a_reason_and_never_a_click(action: Any) -> None:
    (found,) = made(action)
    if isinstance(found, Action) and found.type.value.endswith("click"):
        assert action["action_type"] == "CLICK"
        x, y = action["parameters"]["x"], action["parameters"]["y"]
        assert 0 <= x <= FRAME[0]
        assert 0 <= y <= FRAME[1]


def claudes(text: str) -> str:
    """A row as OSWorld's agent for Claude writes `type` (mm_agents/anthropic/main.py): a press for each character."""
    quoted = {"\n": "'enter'", "'": '"\'"', "\\": "'\\\\'", '"': "'\"'"}
    return "".join(f"pyautogui.press({quoted.get(char, repr(char))})\n" for char in text)


@pytest.mark.parametrize("text", ["he", "Hello World", "a\nb\n", 'it\'s "C:\\x"', "3 + 4 = 7", "caf\u00e9"])
def test_a_text_that_claudes_agent_wrote_key_by_key_is_one_text(text: str) -> None:
    notes: Counter[str] = Counter()
    assert one_action(claudes(text), SCREEN, Cursor(), notes) == Action(ActionType.TYPE, text=text)
    assert notes["keys_joined"] == 1


@pytest.mark.parametrize(
    "code", ["pyautogui.press('tab')\npyautogui.press('enter')", f"{claudes('ab')}pyautogui.press('f5')"]
)
def test_keys_that_write_no_text_stay_several_actions(code: str) -> None:
    with pytest.raises(Lost, match="several_actions"):
        one_action(code, SCREEN, Cursor(), Counter())
