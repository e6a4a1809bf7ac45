"""ScreenSpot, v2 and Pro: the published layouts, made here with pictures of ours, and the published rule."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.benchmarks.errors import BenchError
from eval.benchmarks.screenspot.data import SpotTarget, load
from eval.benchmarks.screenspot.run import main
from eval.benchmarks.screenspot.score import Judged, estimates, macro
from eval.config import EXIT_CONFIG
from tests.unit.eval.modelserver import Reply, completion, serving

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


def said(answers: Callable[[str], str]) -> Callable[[dict[str, Any], int], Reply]:
    """A model that answers by the instruction it finds in the prompt."""

    def answer(request: dict[str, Any], number: int) -> Reply:
        texts = [part["text"] for part in request["messages"][-1]["content"] if part["type"] == "text"]
        return Reply(completion(answers(" ".join(texts))))

    return answer


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


@pytest.mark.parametrize("body", ["", "{}", "[]", "[1]", "\xff", '[{"id": "a"'])
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


def test_an_evaluation_of_v2(tmp_path: Path) -> None:
    plain(tmp_path / "bench", "v2")
    answers = {"mobile text": "(0.2, 0.2)", "web icon": "[0.1, 0.1, 0.3, 0.3]", "desktop icon": "I cannot see it."}

    def answer(text: str) -> str:
        return next((a for key, a in answers.items() if key in text), "(0.9, 0.9)")

    with serving(said(answer)) as server:
        code, rows = evaluated(tmp_path, server.url)
        assert len(server.requests) == 6
        assert evaluated(tmp_path, server.url)[1] == rows
        assert len(server.requests) == 6  # a second run asks nothing again
    assert code == 0
    right = {name: row["value"] * row["n"] for name, row in rows.items()}
    assert right["accuracy"] == pytest.approx(2)
    assert rows["macro"]["value"] == pytest.approx(2 / 6)
    assert (right["accuracy/mobile/text"], right["accuracy/web/icon"], right["accuracy/web"]) == (1, 1, 1)
    assert (right["source/ios"], right["source/windows"]) == (1, 0)
    assert right["parse_failures"] == 1
    assert {(row["benchmark"], row["version"]) for row in rows.values()} == {("screenspot", "v2")}
    records = [json.loads(line) for line in (tmp_path / "out/tasks.jsonl").read_text().splitlines()]
    assert [record["score"] for record in records] == [1, 0, 0, 0, 0, 1]
    assert records[0]["cluster"] == "mobile.png"
    assert records[3]["error"].startswith("no place")


def test_an_evaluation_of_pro_in_pixels_by_group_and_program(tmp_path: Path) -> None:
    items = [
        pro_item(),
        pro_item(id="b", ui_type="text", instruction="save"),
        pro_item(id="c", group="CAD", application="autocad", platform="windows", instruction="zoom"),
    ]
    pro(tmp_path / "bench", *items)
    with serving(said(lambda text: "(60, 30)" if "save" in text else "(59, 29)")) as server:
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", "frame": "absolute"}
        _, rows = evaluated(tmp_path, server.url, agent=agent)
    right = {name: row["value"] for name, row in rows.items()}
    # the cell (60, 30) begins at the box's last edge, and its centre lies beyond it
    assert (right["accuracy/Dev/icon"], right["accuracy/Dev/text"], right["accuracy/CAD/icon"]) == (1, 0, 1)
    assert (right["platform/macos"], right["source/autocad"], right["accuracy"]) == (0.5, 1, pytest.approx(2 / 3))
    assert "macro" not in right


def test_an_agent_s_own_actions_are_points_too(tmp_path: Path) -> None:
    """A computer-use model answers with its tool: what it would click counts, and typing has no place."""
    pro(tmp_path / "bench", pro_item(), pro_item(id="b", instruction="save"))
    call = '<tool_call>\n{"name": "computer_use", "arguments": %s}\n</tool_call>'
    click = call % '{"action": "left_click", "coordinate": [200, 200]}'
    typed = call % '{"action": "type", "text": "a"}'
    with serving(said(lambda text: typed if "save" in text else click)) as server:
        _, rows = evaluated(tmp_path, server.url, prompt={"dialect": "qwen3-vl"})
    assert (rows["accuracy"]["value"], rows["parse_failures"]["value"]) == (0.5, 0.5)
    record = json.loads((tmp_path / "out/tasks.jsonl").read_text().splitlines()[1])
    assert record["error"] == "no place in: type"


def test_a_screenshot_that_is_missing_or_of_another_size_is_infrastructure(tmp_path: Path) -> None:
    items = [pro_item(), pro_item(id="b", img_filename="b.png"), pro_item(id="c", img_filename="c.png")]
    pro(tmp_path / "bench", *items)
    shot(tmp_path / "bench/images/b.png", (100, 100))
    (tmp_path / "bench/images/c.png").unlink()
    with serving(said(lambda text: "(0.2, 0.2)")) as server:
        code, rows = evaluated(tmp_path, server.url)
    assert (code, rows["accuracy"]["n"], rows["accuracy"]["infra_failures"]) == (0, 3, 2)
    assert rows["accuracy"]["value"] == pytest.approx(1 / 3)  # every question stays in the denominator
    errors = [json.loads(line)["error"] for line in (tmp_path / "out/tasks.jsonl").read_text().splitlines()]
    assert errors[1] == "BadFrame: b.png: 100x100, and the annotation says 200x100"
    assert errors[2].startswith("BadFrame: c.png: ")


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"prompt": {"dialect": "place", "system": "Be brief."}}, "prompt.system None where it is 'Be brief.' now"),
        ({"agent": {"model": "n"}}, "agent.model 'm' where it is 'n' now"),
        ({"agent": {"temperature": 0.5}}, "agent.temperature 0.0 where it is 0.5 now"),
    ],
)
def test_answers_of_another_agent_are_never_scored_as_its_own(
    tmp_path: Path, change: dict[str, Any], differs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain(tmp_path / "bench")
    asked = []

    def answer(request: dict[str, Any], number: int) -> Reply:
        asked.append(number)
        return Reply(completion("0.2 0.2"))

    with serving(answer) as server:
        code, _ = evaluated(tmp_path, server.url)
        before = {file.name: file.read_bytes() for file in (tmp_path / "out").glob("*")}
        count = len(asked)
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", "retries": 0}
        changed, _ = evaluated(tmp_path, server.url, **{**change, "agent": {**agent, **change.get("agent", {})}})
        told = capsys.readouterr().err
        again, _ = evaluated(tmp_path, server.url, agent={**agent, "base_url": f"{server.url}/v1/", "timeout": 60.0})
    assert (code, changed, again) == (0, EXIT_CONFIG, 0)
    assert differs in told
    assert "name another folder" in told
    assert len(asked) == count, "nothing was asked again"
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
