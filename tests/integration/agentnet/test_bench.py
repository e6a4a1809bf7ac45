from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval import agentnetbench as entry
from eval.agents.base import Agent, decide
from eval.agents.config import AgentConfig
from eval.benchmarks.agentnetbench.data import load
from eval.prompts import PromptBuilder
from eval.replay import main as replay
from tests.integration.agentnet.material import bench, recording
from training.data.ingest import main as ingest

RIGHT = "## Code:\npyautogui.click(x=0.21, y=0.41)"


class Asked:
    """Answers by goal and number of past steps; remembers what it saw."""

    name = "asked"
    parallel = 1

    def __init__(self, builder: PromptBuilder, answers: dict[tuple[str, int], str]) -> None:
        self.builder, self.answers = builder, answers
        self.prompts: list[str] = []
        self.images: list[int] = []

    async def act(self, observations: Any, histories: Any) -> Any:
        found = []
        for observation, history in zip(observations, histories, strict=True):
            messages, images = self.builder.messages(history.task.instruction, history.past, observation)
            self.prompts.append(messages[-1]["content"][0]["text"])
            self.images.append(len(images))
            text = self.answers[history.task.instruction, len(history.past)]
            found.append(decide(self.builder.dialect.parse_response, text))
        return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The agents that were made; the answers are right, of no known form, half right, right."""
    made: list[Asked] = []
    answers = {
        ("Goal one", 0): RIGHT,
        ("Goal one", 1): "I write bob.",
        ("Goal one", 2): "## Code:\ncomputer.terminate(status='success')\npyautogui.press('a')",
        ("Goal two", 0): "## Code:\ncomputer.terminate(status='success')",
    }

    def make(config: AgentConfig, builder: PromptBuilder) -> Agent:
        made.append(Asked(builder, answers))
        return made[-1]

    monkeypatch.setattr(entry, "make_deciding", make)
    return made


def run(tmp_path: Path, **changes: Any) -> tuple[int, Path]:
    config = {
        "bench": str(tmp_path / "bench"),
        "agent": {"kind": "commonest", "episodes": str(tmp_path / "episodes"), "name": "asked"},
        "prompt": {"dialect": "pyautogui", "system": ""},
        "batch_size": 3,
        **changes,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return entry.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]), tmp_path / "out"


def values(out: Path) -> dict[tuple[str, str], float]:
    return {(r["version"], r["metric"]): r["value"] for r in json.loads((out / "summary.json").read_text())}


def test_every_step_is_scored_in_both_revisions(tmp_path: Path, asked: list[Asked]) -> None:
    bench(tmp_path / "bench")
    code, out = run(tmp_path)
    assert code == 0
    found = values(out)
    assert found["v1", "average"] == pytest.approx(3 / 4)
    assert found["v2", "average"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert found["v1", "coordinate"] == 1.0
    assert found["v1", "content"] == 0.0  # the answer that did not parse
    assert found["v1", "type/write"] == 0.0
    assert found["v2", "function"] == pytest.approx(0.75)
    assert found["v1", "parse_failures"] == 0.25
    tasks = [json.loads(line) for line in (out / "tasks.jsonl").read_text().splitlines()]
    assert [t["version"] for t in tasks] == ["v1"] * 4 + ["v2"] * 4
    assert [t["cluster"] for t in tasks[4:]] == ["one", "one", "one", "two"]
    assert len({json.dumps(t["rules"]) for t in tasks}) == 2  # each trajectory's own ground truth
    assert [(t["task_id"], t["score"], t["outcome"]) for t in tasks[4:]] == [
        ("one/2", 1.0, "scored"),
        ("one/3", 0.0, "scored"),
        ("one/4", 0.5, "scored"),
        ("two/2", 1.0, "scored"),
    ]
    assert "text before the first heading" in tasks[1]["error"]


def test_the_history_is_what_the_human_did(tmp_path: Path, asked: list[Asked]) -> None:
    bench(tmp_path / "bench")
    run(tmp_path, prompt={"dialect": "pyautogui", "system": "", "images": 2})
    (agent,) = asked
    assert agent.prompts[0] == "Goal: Goal one\n"
    assert agent.prompts[1] == "Goal: Goal one\nActions so far:\n"
    assert agent.images == [1, 2, 2, 1]


def test_a_run_that_was_cut_off_asks_only_what_is_left(tmp_path: Path, asked: list[Asked]) -> None:
    bench(tmp_path / "bench")
    run(tmp_path)
    path = tmp_path / "out" / "responses.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3]) + '\n{"task_id": "two", "st')
    run(tmp_path)
    assert [len(agent.prompts) for agent in asked] == [4, 1]
    assert path.read_text().splitlines() == lines


def test_a_picture_that_can_not_be_read_is_infra_and_stays_in_the_denominator(
    tmp_path: Path, asked: list[Asked]
) -> None:
    bench(tmp_path / "bench")
    good = (tmp_path / "bench" / "images" / "two_2.png").read_bytes()
    (tmp_path / "bench" / "images" / "two_2.png").write_bytes(good[:50])
    _, out = run(tmp_path)
    row = next(r for r in json.loads((out / "summary.json").read_text()) if r["metric"] == "average")
    assert (row["value"], row["n"], row["infra_failures"]) == (pytest.approx(2 / 4), 4, 1)
    tasks = [json.loads(line) for line in (out / "tasks.jsonl").read_text().splitlines()]
    assert [(t["version"], t["outcome"], t["score"]) for t in tasks if t["task_id"] == "two/2"] == [
        ("v1", "infra", None),
        ("v2", "infra", None),
    ]
    (tmp_path / "bench" / "images" / "two_2.png").write_bytes(good)
    _, out = run(tmp_path)  # asked again, as it was no score
    assert values(out)["v1", "average"] == pytest.approx(3 / 4)


def test_pictures_are_opened_only_when_they_are_used(tmp_path: Path) -> None:
    bench(tmp_path / "bench")
    for path in (tmp_path / "bench" / "images").iterdir():
        path.write_bytes(b"no picture")
    assert [len(trajectory.steps) for trajectory in load(tmp_path / "bench")] == [3, 1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"bench": "/nowhere"}, "no trajectory"),
        ({"versions": ["v3"]}, "Invalid enum value 'v3'"),
        ({"versions": []}, "versions must name each revision once"),
        ({"batch_size": 0}, "Expected `int` >= 1 - at `$.batch_size`"),
        ({"agent": {"kind": "scripted"}}, "Invalid value 'scripted'"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_78(
    changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(tmp_path / "bench")
    assert run(tmp_path, **changes)[0] == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line


@pytest.mark.parametrize("dialect", ["dsl", "pyautogui"])
def test_a_baseline_from_a_recording_is_scored(dialect: str, tmp_path: Path) -> None:
    bench(tmp_path / "bench")
    config = {"format": "agentnet", "recording": str(recording(tmp_path / "in"))}
    (tmp_path / "ingest.json").write_text(json.dumps(config))
    assert ingest(["--config", str(tmp_path / "ingest.json"), "--out", str(tmp_path / "episodes")]) == 0
    code, out = run(tmp_path, prompt={"dialect": dialect})
    assert code == 0
    assert values(out)["v1", "parse_failures"] == 0.0
    page = tmp_path / "replay.html"
    assert replay([str(tmp_path / "episodes" / "task-1"), str(page)]) == 0
    html = page.read_text()
    assert html.count("<img") == 6
    assert html.count("<circle") == 4
    assert html.count("<line") == 1
    assert 'src="data:' in html
    assert "://" not in html  # nothing is loaded from elsewhere
    assert replay([str(tmp_path / "nowhere"), str(page)]) == 2
