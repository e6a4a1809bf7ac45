"""ScreenSpot, v2 and Pro: the published layouts, made here with pictures of ours, and the published rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.config import EXIT_CONFIG
from tests.support.modelserver import Reply, completion, serving
from tests.unit.eval.test_screenspot import evaluated, plain, pro, pro_item, shot


def said(answers: Callable[[str], str]) -> Callable[[dict[str, Any], int], Reply]:
    """A model that answers by the instruction it finds in the prompt."""

    def answer(request: dict[str, Any], number: int) -> Reply:
        texts = [part["text"] for part in request["messages"][-1]["content"] if part["type"] == "text"]
        return Reply(completion(answers(" ".join(texts))))

    return answer


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
    with serving(said(lambda text: "(61, 30)" if "save" in text else "(60, 30)")) as server:
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", "frame": "absolute"}
        _, rows = evaluated(tmp_path, server.url, agent=agent)
    right = {name: row["value"] for name, row in rows.items()}
    # (60, 30) is the box's last corner, which the published scorer takes for a hit
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
