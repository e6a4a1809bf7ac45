"""ScreenSpot, v2 and Pro: the published layouts, made here with pictures of ours, and the published rule."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.benchmarks.errors import BenchError
from eval.benchmarks.screenspot.data import SpotTarget, load
from eval.config import EXIT_CONFIG
from eval.prompts import PromptConfig
from eval.screenspot import Judged, SpotAnswer, estimates, judge, macro, main

SIZE = (200, 100)


def shot(path: Path, size: tuple[int, int] = SIZE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "white").save(path)


def plain(folder: Path, edition: str = "v1", annotations: str = ".", images: str = "") -> None:
    """One screenshot a platform, with a text and an icon each."""
    ending, place = ("", "screenspot_imgs") if edition == "v1" else ("_v2", "screenspotv2_image")
    for platform, source in (("mobile", "ios"), ("desktop", "windows"), ("web", "shop")):
        shot(folder / (images or place) / f"{platform}.png")
        items = [
            {"img_filename": f"{platform}.png", "bbox": [20, 10, 40, 20], "instruction": f"open {platform} {kind}"}
            | {"data_type": kind, "data_source": source}
            for kind in ("text", "icon")
        ]
        (folder / annotations).mkdir(parents=True, exist_ok=True)
        (folder / annotations / f"screenspot_{platform}{ending}.json").write_text(json.dumps(items))


def pro_item(**changes: Any) -> dict[str, Any]:
    return {
        "img_filename": "vscode_mac/screenshot_1.png",
        "bbox": [20, 10, 60, 30],
        "instruction": "open the settings",
        "instruction_cn": "打开设置",
        "id": "vscode_mac_0",
        "application": "vscode",
        "platform": "macos",
        "img_size": list(SIZE),
        "ui_type": "icon",
        "group": "Dev",
        **changes,
    }


def pro(folder: Path, *items: dict[str, Any]) -> None:
    (folder / "annotations").mkdir(parents=True)
    for item in items:
        shot(folder / "images" / item["img_filename"])
    (folder / "annotations/vscode_macos.json").write_text(json.dumps(items))


def evaluated(tmp_path: Path, url: str, **changes: Any) -> tuple[int, dict[str, Any]]:
    """(exit code, metric -> row)."""
    agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{url}/v1", "retries": 0}
    config = {"bench": str(tmp_path / "bench"), "agent": agent, "prompt": {"dialect": "place"}, **changes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code = main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")])
    summary = tmp_path / "out/summary.json"
    return code, {r["metric"]: r for r in json.loads(summary.read_text())} if summary.exists() else {}


# the files


@pytest.mark.parametrize(
    ("edition", "annotations", "images"),
    [
        ("v1", ".", "screenspot_imgs"),
        ("v1", "annotations", "images"),
        ("v1", "metadata", "images"),
        ("v2", ".", "screenspotv2_image"),
        ("v2", "annotations", "images"),
    ],
)
def test_a_published_layout_is_found_by_itself(tmp_path: Path, edition: str, annotations: str, images: str) -> None:
    plain(tmp_path, edition, annotations, images)
    questions = load(tmp_path)
    assert (questions.edition, len(questions.targets)) == (edition, 6)
    first = questions.targets[0]
    assert first == SpotTarget("mobile/0", "mobile.png", "open mobile text", (20, 10, 60, 30), "text", "mobile", "ios")
    assert questions.open(first).size == SIZE


@pytest.mark.parametrize("platform", ["mobile", "desktop", "web"])
def test_one_platforms_file_alone_is_loaded(tmp_path: Path, platform: str) -> None:
    plain(tmp_path)
    for other in {"mobile", "desktop", "web"} - {platform}:
        (tmp_path / f"screenspot_{other}.json").unlink()
    assert {target.platform for target in load(tmp_path).targets} == {platform}


def test_pro_s_box_is_left_top_right_bottom_of_img_size(tmp_path: Path) -> None:
    pro(tmp_path, pro_item())
    (target,) = load(tmp_path).targets
    assert target.pixels == (20, 10, 60, 30)
    assert (target.task_id, target.group, target.source, target.platform) == ("vscode_mac_0", "Dev", "vscode", "macos")
    assert load(tmp_path, language="cn").targets[0].instruction == "打开设置"


def test_both_editions_in_one_folder_must_be_told_apart(tmp_path: Path) -> None:
    plain(tmp_path)
    plain(tmp_path, "v2")
    with pytest.raises(BenchError, match="holds v1 and v2; choose with `edition`"):
        load(tmp_path)
    assert load(tmp_path, "v2").edition == "v2"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"bbox": [1, 2, 3]}, "bbox must be four numbers"),
        ({"bbox": [60, 10, 20, 30]}, "has no inside"),
        ({"bbox": ["1", 2, 3, 4]}, "bbox must be four numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, "bbox must be four numbers"),
        ({"ui_type": "button"}, "text or icon, not 'button'"),
        ({"img_filename": "../../etc/passwd.png"}, "must stay in the folder"),
        ({"img_filename": "/etc/passwd.png"}, "must stay in the folder"),
        ({"img_size": [0, 100]}, "img_size must be"),
        ({"instruction": " "}, "instruction must be a text"),
    ],
)
def test_a_wrong_item_is_refused_by_file_and_number(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "images").mkdir()
    items = [pro_item(), pro_item(id="second", **change)]
    (tmp_path / "annotations/a.json").write_text(json.dumps(items))
    with pytest.raises(BenchError, match=r"^a\.json: item 1: ") as told:
        load(tmp_path)
    assert fault in str(told.value)


@pytest.mark.parametrize("missing", ["bbox", "id", "group", "img_size", "application"])
def test_a_missing_field_is_named(tmp_path: Path, missing: str) -> None:
    item = pro_item()
    pro(tmp_path, {key: value for key, value in item.items() if key != missing})
    with pytest.raises(BenchError, match=f"item 0: no '{missing}'"):
        load(tmp_path)


@pytest.mark.parametrize(
    "body", ["", "{}", "[]", "[1]", "\xff", '[{"id": "a"', pytest.param("[" * 100_000, id="nested without end")]
)
def test_a_file_that_is_no_list_of_items_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "annotations/a.json").write_bytes(body.encode("latin-1"))
    with pytest.raises(BenchError, match=r"^a\.json"):
        load(tmp_path)


def test_two_items_of_one_id_are_refused(tmp_path: Path) -> None:
    pro(tmp_path, pro_item(), pro_item())
    with pytest.raises(BenchError, match="two items have the id vscode_mac_0"):
        load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"language": "cn"}, {"edition": "pro"}, {"images": "nowhere"}, {"bench": "nowhere"}]
)
def test_what_the_folder_does_not_have_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    plain(tmp_path / "bench")
    code, _ = evaluated(tmp_path, "http://127.0.0.1:9", **change)
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (EXIT_CONFIG, 1)
    assert told.startswith("config: ")


# the rule


def test_a_point_counts_as_the_published_scorers_count_it() -> None:
    """Their rule: each edge divided by the picture's size, edges included."""
    dice = random.Random(3)
    for _ in range(2000):
        width, height = dice.randint(1, 4000), dice.randint(1, 4000)
        left, top = dice.randint(0, width - 1), dice.randint(0, height - 1)
        right, bottom = dice.randint(left, width), dice.randint(top, height)
        target = SpotTarget("t", "i", "go", (left, top, right, bottom), "text", "web", "s")
        edge = dice.choice(((left / width, top / height), (right / width, bottom / height)))
        point = dice.choice((edge, (dice.random(), dice.random())))
        box = [left / width, top / height, right / width, bottom / height]
        theirs = (box[0] <= point[0] <= box[2]) and (box[1] <= point[1] <= box[3])
        assert target.hit(point, (width, height)) == theirs


def judged(counts: dict[tuple[str, str], tuple[int, int]]) -> list[Judged]:
    """(right, all) of each cell, every question on a screenshot of its own."""
    return [
        Judged(SpotTarget(f"{p}/{k}/{n}", f"{p}{k}{n}", "go", (0, 0, 1, 1), k, p, "s"), n < right)
        for (p, k), (right, count) in counts.items()
        for n in range(count)
    ]


# SeeClick's paper has this table of ScreenSpot (its own model): cells in percent, and their mean 53.4
SEECLICK = {
    ("mobile", "text"): (213, 273),
    ("mobile", "icon"): (119, 229),
    ("desktop", "text"): (140, 194),
    ("desktop", "icon"): (42, 140),
    ("web", "text"): (128, 230),
    ("web", "icon"): (67, 206),
}


def test_the_mean_of_cells_is_the_papers_average_and_accuracy_the_mean_of_questions() -> None:
    rows = dict(estimates(judged(SEECLICK), "v1"))
    cells = [round(100 * rows[f"accuracy/{p}/{k}"].value, 1) for p, k in SEECLICK]  # type: ignore[union-attr]
    assert cells == [78.0, 52.0, 72.2, 30.0, 55.7, 32.5]
    mean, whole = rows["macro"], rows["accuracy"]
    assert mean is not None
    assert whole is not None
    assert round(100 * mean.value, 1) == 53.4
    assert whole.value == pytest.approx(sum(right for right, _ in SEECLICK.values()) / 1272)
    assert (mean.n, whole.n) == (1272, 1272)


def test_the_interval_of_the_mean_of_cells_holds_the_truth_as_often_as_it_says() -> None:
    """Drawn again from known cells: with independent questions the truth lies inside about 95 times in 100."""
    truth = {cell: right / count for cell, (right, count) in SEECLICK.items()}
    dice, inside = random.Random(5), 0
    for _ in range(300):
        drawn = {
            cell: (sum(dice.random() < truth[cell] for _ in range(count // 4)), count // 4)
            for cell, (_, count) in SEECLICK.items()
        }
        found = macro(judged(drawn))
        assert found is not None
        inside += found.low <= sum(truth.values()) / 6 <= found.high
    assert 274 <= inside <= 300  # 285 expected; its standard deviation is 3.8


def test_without_a_question_in_a_cell_there_is_no_mean_of_cells() -> None:
    assert macro(judged({**SEECLICK, ("web", "icon"): (0, 0)})) is None


# the whole evaluation, through the real SDK


# frame: how the agent's coordinates are; the published scorers divide a pixel by the size of the frame
@pytest.mark.parametrize(
    ("dialect", "frame", "answer"),
    [
        ("place", (100, 50), "({x}, {y})"),
        ("qwen2.5-vl", (100, 50), '<tool_call>\n{{"name": "computer_use", "arguments": {{"action": "left_click", '
         '"coordinate": [{x}, {y}]}}}}\n</tool_call>'),
        ("place-1000", (1000, 1000), "({x}, {y})"),
        ("pyautogui", (100, 50), "## Code:\npyautogui.click(x={x}, y={y})"),
    ],
)  # fmt: skip
def test_every_pixel_around_a_box_hits_or_misses_as_in_screenspot_pros_scorer(
    dialect: str, frame: tuple[int, int], answer: str
) -> None:
    """ScreenSpot-Pro, eval_screenspot_pro.py and models/qwen2_5vl.py: point / size of the frame, the box over the size
    of the image, both edges in it."""
    size, box = (100, 50), (20, 10, 45, 30)
    target = SpotTarget("t", "i", "go", box, "text", "web", "s")
    builder, across, down = PromptConfig(dialect=dialect).builder(), frame[0] // size[0], frame[1] // size[1]
    wrong = hits = 0
    for x in range(15 * across, 50 * across, across):
        for y in range(5 * down, 35 * down, down):
            px, py = x / frame[0], y / frame[1]
            expected = box[0] / size[0] <= px <= box[2] / size[0] and box[1] / size[1] <= py <= box[3] / size[1]
            given = SpotAnswer(task_id="t", size=size, response=answer.format(x=x, y=y), frame=frame)
            wrong += judge(target, given, builder).correct is not expected
            hits += expected
    assert hits == 26 * 21
    assert wrong == 0
