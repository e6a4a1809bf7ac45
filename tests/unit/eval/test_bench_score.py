"""A test for every rule of the benchmark, in both revisions, and for every fault that the published code has."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.actions import ParseError
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.geometry import NEAR
from eval.agentnetbench import BenchAnswer, score_step
from eval.benchmarks.agentnetbench.data import Act, BenchStep, load, load_trajectory
from eval.benchmarks.agentnetbench.score import (
    VERSIONS,
    Version,
    levenshtein,
    option_score,
    predicted_acts,
    step_score,
    text_score,
)
from eval.benchmarks.errors import BenchError


def at(x: float, y: float) -> dict[str, Any]:
    return {"position": {"x": x, "y": y}}


def gt(kind: str, box: tuple[float, ...] | None = None, **params: Any) -> dict[str, Any]:
    boxes = [] if box is None else [{"rel_bbox": list(box)}]
    return {"type": kind, "params": params, "metadata": {"bboxes": boxes}}


def step(tmp_path: Path, truth: list[dict[str, Any]], *alternatives: list[dict[str, Any]]) -> BenchStep:
    item = {
        "step_num": 1,
        "image": "1.png",
        "action": "",
        "ground_truth_actions": truth,
        "alternative_options": list(alternatives),
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"task_id": "t", "high_level_task_description": "g", "steps": [item]}))
    return load_trajectory(path, tmp_path).steps[0]


def score(
    tmp_path: Path, truth: list[dict[str, Any]], code: str, version: Version, *more: list[dict[str, Any]]
) -> float:
    predicted = predicted_acts(f"## Code:\n{code}", PyAutoGui())
    return step_score(step(tmp_path, truth, *more), predicted, version).total


both = pytest.mark.parametrize("version", VERSIONS)


@both
@pytest.mark.parametrize("kind", ["click", "doubleClick", "rightClick", "middleClick", "moveTo"])
def test_a_point_inside_a_box_scores_1(kind: str, version: Version, tmp_path: Path) -> None:
    truth = [gt(kind, box=(0.2, 0.2, 0.5, 0.1), **at(0.25, 0.25))]
    for point in ("x=0.2, y=0.2", "x=0.7, y=0.3", "x=0.6, y=0.21"):
        assert score(tmp_path, truth, f"pyautogui.{kind}({point})", version) == 1.0


@both
def test_any_of_several_boxes_counts(version: Version, tmp_path: Path) -> None:
    truth = [gt("click", box=(0.0, 0.0, 0.1, 0.1), **at(0.05, 0.05))]
    truth[0]["metadata"]["bboxes"].append({"rel_bbox": [0.8, 0.8, 0.1, 0.1]})
    assert score(tmp_path, truth, "pyautogui.click(x=0.85, y=0.85)", version) == 1.0


@both
def test_outside_the_box_the_distance_counts(version: Version, tmp_path: Path) -> None:
    truth = [gt("click", box=(0.5, 0.5, 0.001, 0.001), **at(0.5, 0.5))]
    assert score(tmp_path, truth, f"pyautogui.click(x={0.5 - NEAR + 1e-9}, y=0.5)", version) == 1.0
    assert score(tmp_path, truth, f"pyautogui.click(x={0.5 - NEAR - 0.01}, y=0.5)", version) == pytest.approx(
        math.exp(-1.2)
    )
    assert score(tmp_path, truth, "pyautogui.click(x=0.1, y=0.1)", version) < 1e-9


@both
def test_without_a_box_the_distance_counts(version: Version, tmp_path: Path) -> None:
    truth = [{"type": "click", "params": at(0.5, 0.5)}]
    assert score(tmp_path, truth, "pyautogui.click(x=0.509, y=0.509)", version) == 1.0


@both
def test_a_click_without_a_place_scores_0(version: Version, tmp_path: Path) -> None:
    assert score(tmp_path, [gt("click", **at(0.5, 0.5))], "pyautogui.click()", version) == 0.0


@both
def test_a_drag_is_moveto_and_dragto(version: Version, tmp_path: Path) -> None:
    truth = [gt("moveTo", **at(0.2, 0.2)), gt("dragTo", box=(0.5, 0.5, 0.2, 0.2), **at(0.5, 0.5))]
    right = "pyautogui.moveTo(x=0.2, y=0.2)\npyautogui.dragTo(x=0.6, y=0.6, button='left')"
    half = "pyautogui.moveTo(x=0.2, y=0.2)\npyautogui.dragTo(x=0.1, y=0.1)"
    assert score(tmp_path, truth, right, version) == 1.0
    assert score(tmp_path, truth, half, version) == pytest.approx(0.5)
    assert score(tmp_path, truth, "pyautogui.moveTo(x=0.2, y=0.2)", version) == 0.5


@both
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("George Orwell", 1.0),
        ("GEORGE ORWELL ", 1.0),
        ("george orwel", 1.0),  # similarity 12/13
        ("abcdefgh", 1 / 13 / 0.8),  # one letter in place, the e: similarity 1/13
        ("zzzz", 0.0),
        ("", 0.0),
    ],
)
def test_write_compares_by_similarity(written: str, expected: float, version: Version, tmp_path: Path) -> None:
    truth = [gt("write", text="george orwell")]
    found = score(tmp_path, truth, f"pyautogui.write(message={written!r})", version)
    assert found == pytest.approx(expected)


def test_below_the_threshold_the_similarity_counts_in_proportion() -> None:
    assert text_score("abcdefghij", "abcdefghij") == 1.0
    assert text_score("abcdefghij", "abcdefghxx") == 1.0  # exactly .8
    assert text_score("abcdefghij", "abcdefgxxx") == pytest.approx(0.7 / 0.8)
    assert text_score("abcd", "wxyz") == 0.0
    assert text_score("", "") == 1.0
    assert text_score("STRASSE", "straße") == 1.0


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_levenshtein_is_a_distance(a: str, b: str, c: str) -> None:
    assert levenshtein(a, b) == levenshtein(b, a)
    assert (levenshtein(a, b) == 0) == (a == b)
    assert levenshtein(a, c) <= levenshtein(a, b) + levenshtein(b, c)
    assert abs(len(a) - len(b)) <= levenshtein(a, b) <= max(len(a), len(b))


@both
@pytest.mark.parametrize("key", ["press('enter')", "press('return')", "hotkey('enter')"])
def test_a_write_and_the_enter_after_it_are_one(key: str, version: Version, tmp_path: Path) -> None:
    truth = [gt("write", text="abc"), gt("press", keys=["Enter"])]
    assert score(tmp_path, truth, f"pyautogui.write('abc')\npyautogui.{key}", version) == 1.0
    assert score(tmp_path, truth, "pyautogui.write('abc')", version) == 1.0
    assert score(tmp_path, [gt("write", text="abc")], f"pyautogui.write('abc')\npyautogui.{key}", version) == 1.0


@both
def test_other_keys_after_a_write_stay_apart(version: Version, tmp_path: Path) -> None:
    truth = [gt("write", text="abc"), gt("press", keys=["tab"])]
    assert score(tmp_path, truth, "pyautogui.write('abc')", version) == 0.5
    assert score(tmp_path, truth, "pyautogui.write('abc')\npyautogui.press('tab')", version) == 1.0


@both
def test_the_status_of_terminate_must_match(version: Version, tmp_path: Path) -> None:
    truth = [gt("terminate", status="success")]
    assert score(tmp_path, truth, "computer.terminate(status='success')", version) == 1.0
    assert score(tmp_path, truth, "computer.terminate(status='failure')", version) == 0.0
    assert score(tmp_path, truth, "pyautogui.click(x=0.5, y=0.5)", version) == 0.0
    assert score(tmp_path, [gt("click", **at(0.5, 0.5))], "computer.terminate(status='success')", version) == 0.0


@both
def test_a_first_type_that_is_not_asked_for_scores_0(version: Version, tmp_path: Path) -> None:
    truth = [gt("click", **at(0.5, 0.5)), gt("write", text="abc")]
    code = "pyautogui.press('tab')\npyautogui.write('abc')"
    assert score(tmp_path, truth, code, version) == 0.0
    # the first type is asked for, but actions are compared by position
    assert score(tmp_path, truth, "pyautogui.write('abc')", version) == 0.0


@both
def test_keys(version: Version, tmp_path: Path) -> None:
    truth = [gt("hotkey", keys=["Ctrl", "Shift", "t"])]
    assert score(tmp_path, truth, "pyautogui.hotkey('ctrl', 'shift', 't')", version) == 1.0
    assert score(tmp_path, truth, "pyautogui.hotkey('ctrl', 't')", version) == 0.0
    assert score(tmp_path, truth, "pyautogui.hotkey('shift', 'ctrl', 't')", version) == (
        1.0 if version == "v1" else 0.0
    )
    assert score(tmp_path, [gt("press", keys=["tab"])], "pyautogui.hotkey('tab')", version) == 0.0


@pytest.mark.parametrize(
    ("clicks", "v1", "v2"), [(-3, 1.0, 1.0), (-6, 1.0, 0.5), (-1, 1.0, 1 / 3), (3, 1.0, 0.0), (0, 1.0, 0.0)]
)
def test_scroll(clicks: int, v1: float, v2: float, tmp_path: Path) -> None:
    truth = [gt("scroll", amount=-3)]
    assert score(tmp_path, truth, f"pyautogui.scroll({clicks})", "v1") == v1
    assert score(tmp_path, truth, f"pyautogui.scroll({clicks})", "v2") == pytest.approx(v2)


def test_a_scroll_of_which_only_the_direction_is_known(tmp_path: Path) -> None:
    truth = [gt("scroll", direction="down")]
    assert score(tmp_path, truth, "pyautogui.scroll(-9)", "v2") == 1.0
    assert score(tmp_path, truth, "pyautogui.scroll(9)", "v2") == 0.0
    assert score(tmp_path, [gt("scroll")], "pyautogui.scroll(9)", "v2") == 1.0
    assert score(tmp_path, [gt("scroll", pixels=2)], "pyautogui.scroll(1)", "v2") == 0.5


@both
def test_a_horizontal_scroll_is_another_type(version: Version, tmp_path: Path) -> None:
    assert score(tmp_path, [gt("scroll", amount=3)], "pyautogui.hscroll(3)", version) == 0.0
    assert score(tmp_path, [gt("hscroll", amount=3)], "pyautogui.hscroll(3)", version) == 1.0


def test_more_than_asked_for_costs_in_v2_only(tmp_path: Path) -> None:
    truth = [gt("click", **at(0.5, 0.5))]
    code = "pyautogui.click(x=0.5, y=0.5)\npyautogui.press('a')\npyautogui.press('b')\npyautogui.press('c')"
    assert score(tmp_path, truth, code, "v1") == 1.0
    assert score(tmp_path, truth, code, "v2") == 0.25
    done = [gt("terminate", status="success")]
    code = "computer.terminate(status='success')\npyautogui.press('a')"
    assert score(tmp_path, done, code, "v1") == 1.0
    assert score(tmp_path, done, code, "v2") == 0.5


@both
def test_the_step_is_the_mean_over_types(version: Version, tmp_path: Path) -> None:
    """Two clicks and a write: the clicks share one half."""
    truth = [gt("click", **at(0.1, 0.1)), gt("click", **at(0.9, 0.9)), gt("write", text="abc")]
    code = "pyautogui.click(x=0.1, y=0.1)\npyautogui.click(x=0.1, y=0.1)\npyautogui.write('abc')"
    assert score(tmp_path, truth, code, version) == pytest.approx((0.5 + 1.0) / 2)


@both
def test_the_best_alternative_counts(version: Version, tmp_path: Path) -> None:
    truth = [gt("click", **at(0.1, 0.1))]
    other = [gt("hotkey", keys=["ctrl", "s"])]
    third = [gt("click", box=(0.8, 0.8, 0.1, 0.1), **at(0.9, 0.9))]
    assert score(tmp_path, truth, "pyautogui.hotkey('ctrl', 's')", version, other, third) == 1.0
    assert score(tmp_path, truth, "pyautogui.click(x=0.85, y=0.85)", version, other, third) == 1.0
    found = step_score(step(tmp_path, truth, other, third), predicted_acts("## Code:\nWAIT", PyAutoGui()), version)
    assert found.types == {"click": 0.0}


# Faults of the published code


@both
def test_scoring_changes_no_ground_truth(version: Version, tmp_path: Path) -> None:
    truth = [gt("write", text="abc"), gt("press", keys=["enter"])]
    it = step(tmp_path, truth)
    before = copy.deepcopy(it)
    scores = [
        step_score(it, predicted_acts("## Code:\npyautogui.write('abc')", PyAutoGui()), version) for _ in range(9)
    ]
    assert it == before
    assert {s.total for s in scores} == {1.0}


@both
@pytest.mark.parametrize("kind", ["triple_click", "tripleclick", "tripleClick"])
def test_spellings_of_one_type_are_one_type(kind: str, version: Version, tmp_path: Path) -> None:
    truth = [gt(kind, **at(0.5, 0.5))]
    for code in ("computer.triple_click(x=0.5, y=0.5)", "pyautogui.tripleClick(0.5, 0.5)"):
        assert score(tmp_path, truth, code, version) == 1.0


@both
def test_key_names_are_made_alike_on_both_sides(version: Version, tmp_path: Path) -> None:
    for truth in ("cmd", "command", "ctrl"):
        for said in ("cmd", "command", "ctrl"):
            keys = [gt("hotkey", keys=[truth, "c"])]
            assert score(tmp_path, keys, f"pyautogui.hotkey('{said}', 'c')", version) == 1.0


@both
def test_an_answer_that_does_not_parse_is_a_0_for_each_type(version: Version, tmp_path: Path) -> None:
    it = step(tmp_path, [gt("moveTo", **at(0.5, 0.5)), gt("scroll", amount=-3)])
    found = step_score(it, None, version)
    assert (found.total, found.types) == (0.0, {"moveto": 0.0, "scroll": 0.0})
    with pytest.raises(ParseError):
        predicted_acts("I would click.", PyAutoGui())


@pytest.mark.parametrize("code", ["pyautogui.click(x=960, y=540)", "pyautogui.moveTo(x=0.5, y=-0.1)"])
def test_a_point_off_the_screen_is_a_parse_failure_and_no_silent_0(code: str) -> None:
    with pytest.raises(ParseError, match="a point must lie within 0 to 1"):
        predicted_acts(f"## Code:\n{code}", PyAutoGui())


def test_an_answer_headed_like_a_past_turn_is_read() -> None:
    answer = "# Step 3:\n## Thought:\nGo on.\n\n## Code:\npyautogui.hotkey(keys=['cmd', 'c'])"
    assert predicted_acts(answer, PyAutoGui()) == [Act("hotkey", keys=("ctrl", "c"))]


# Answers in the DSL are compared like code


@pytest.mark.parametrize(
    ("answer", "acts"),
    [
        ("CLICK(x=0.123456, y=1.0)", [Act("click", point=(0.123456, 1.0))]),
        ("DRAG(x=0.1, y=0.2, x2=0.3, y2=0.4)", [Act("moveto", point=(0.1, 0.2)), Act("dragto", point=(0.3, 0.4))]),
        ('SCROLL(direction="down", amount=3)', [Act("scroll", amount=-3.0)]),
        ('TYPE(text="a\\"b")', [Act("write", text='a"b')]),
        ('KEY(key="return")', [Act("press", keys=("enter",))]),
        ('HOTKEY(keys=["cmd", "c"])', [Act("hotkey", keys=("ctrl", "c"))]),
        ("DONE()", [Act("terminate", status="success")]),
        ("FAIL()", [Act("terminate", status="failure")]),
        ('GOTO(url="x")', [Act("other goto")]),
    ],
)
def test_the_dsl(answer: str, acts: list[Act]) -> None:
    assert predicted_acts(f"Action: {answer}", Dsl()) == acts


@both
def test_nothing_predicted_scores_0(version: Version) -> None:
    assert option_score([Act("write", text="")], [], version).total == 0.0


# Files


@pytest.mark.parametrize(
    ("truth", "what"),
    [
        ([{"type": "click", "params": {}}], "step 1: no 'position'"),
        ([{"type": "write", "params": {}}], "step 1: no 'content'"),
        ([{"params": {}}], "step 1: no 'type'"),
        ([{"type": "press", "params": {"keys": 5}}], "step 1: keys must be a list"),
        ([{"type": "terminate", "params": {}}], "step 1: no 'status'"),
        (["click"], "step 1"),
    ],
)
def test_a_broken_file_says_where(truth: list[Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=what):
        step(tmp_path, truth)


@pytest.mark.parametrize(
    "body", ["", "[]", "null", "\xff", '{"steps": 1}', pytest.param("[" * 100_000, id="nested without end"), None]
)
def test_what_is_no_trajectory_is_one_line(tmp_path: Path, body: str | None) -> None:
    if body is None:
        (tmp_path / "a.json").mkdir()
    else:
        (tmp_path / "a.json").write_bytes(body.encode("latin-1"))
    with pytest.raises(BenchError, match=r"^a\.json: "):
        load(tmp_path)


def test_a_folder_without_trajectories_or_with_one_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no trajectory"):
        load(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"task_id": "t", "high_level_task_description": "g", "steps": []}')
    with pytest.raises(BenchError, match="same task_id"):
        load(tmp_path)
    (tmp_path / "b.json").write_text("[")
    with pytest.raises(BenchError, match=r"b\.json"):
        load(tmp_path)


def test_every_pixel_around_a_box_scores_as_the_published_code(tmp_path: Path) -> None:
    """OpenCUA, evaluation/agentnetbench/eval.py: 1 in a box (edges included), else the distance; points are pixels over
    the size of the frame."""
    frame, box, truth = (140, 84), (0.25, 0.25, 0.25, 0.25), (0.3, 0.3)
    step = BenchStep(1, tmp_path, "", None, ((Act("click", point=truth, boxes=(box,)),),))
    wrong = 0
    for x in range(30, 75):
        for y in range(18, 48):
            px, py = x / frame[0], y / frame[1]
            inside = box[0] <= px <= box[0] + box[2] and box[1] <= py <= box[1] + box[3]
            distance = ((px - truth[0]) ** 2 + (py - truth[1]) ** 2) ** 0.5
            near = 0.01 * 2**0.5
            expected = 1.0 if inside or distance <= near else math.exp(-120 * (distance - near))
            answer = BenchAnswer(task_id="t", step=1, response=f"## Code:\npyautogui.click(x={x}, y={y})", frame=frame)
            found, unparsed = score_step(step, answer, PyAutoGui(), "v2")
            assert unparsed is None
            wrong += abs(found.total - expected) > 1e-9
    assert wrong == 0
