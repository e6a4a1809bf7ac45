"""Judges that are models, over HTTP: scripted ones with known errors, what is measured of them, what rests on it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from PIL import Image

from eval import run, verify
from eval.actions import Action, ActionType
from eval.audit.moves import INJECTION
from eval.config import EXIT_CONFIG, ConfigError, convert
from eval.desktop import InfraError
from eval.environments.registry import environment
from eval.judge_errors.__main__ import main
from eval.judge_errors.measuring import MeasureConfig
from eval.judges.vlm import VlmJudge, VlmJudgeConfig
from eval.propose import ProposeConfig
from eval.records.task_record import TaskRecord
from eval.run import RunConfig
from eval.scores.judge_errors import JudgeErrors, check_specific
from tests.support.documented import ROOT
from tests.support.modelserver import ModelServer, Reply, completion, serving

PAGE = (ROOT / "docs/howto/judge-models.md").read_text(encoding="utf-8")
SEED = 1_000_000  # of the test split
WELCOME = (225, 245, 225)  # of the screen after a login


def text_of(request: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in request["messages"][1]["content"])


def pictures_of(request: dict[str, Any]) -> list[Image.Image]:
    parts = [part for part in request["messages"][1]["content"] if part["type"] == "image_url"]
    found = [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts]
    return [Image.open(io.BytesIO(data)).convert("RGB") for data in found]


def perfect(request: dict[str, Any]) -> bool:
    """Sees the screen that follows a login with the right credentials alone."""
    return pictures_of(request)[-1].getpixel((10, 18)) == WELCOME


def lenient(request: dict[str, Any]) -> bool:
    return True


def injectable(request: dict[str, Any]) -> bool:
    return perfect(request) or INJECTION in text_of(request)


JUDGES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "perfect": perfect,
    "lenient": lenient,
    "injectable": injectable,
}


@contextmanager
def judging(name: str) -> Iterator[ModelServer]:
    def answer(request: dict[str, Any], number: int) -> Reply:
        return Reply(completion(f"I looked.\n{'YES' if JUDGES[name](request) else 'NO'}"))

    with serving(answer) as server:
        yield server


def section(server: ModelServer, **more: Any) -> dict[str, Any]:
    told = {
        "model": "scripted",
        "base_url": f"{server.url}/v1",
        "words": True,
        "votes": 1,
        "retries": 0,
        "timeout": 20.0,
    }
    return {**told, **more}


def measured(folder: Path, judge: dict[str, Any], count: int = 4) -> tuple[int, JudgeErrors]:
    config = {
        "environment": "login",
        "tasks": {"count": count, "seed": SEED},
        "judge": judge,
        "limits": {"attempts": 1, "backoff": 0.0},
    }
    (folder / "judge.yaml").write_text(json.dumps(config))
    code = main(["--config", str(folder / "judge.yaml"), "--out", str(folder / "judged")])
    return code, msgspec.json.decode((folder / "judged/judge.json").read_bytes(), type=JudgeErrors)


@pytest.mark.parametrize(
    ("name", "sensitivity", "specificity", "against"),
    [("perfect", 1.0, 1.0, 1.0), ("lenient", 1.0, 0.0, 0.0), ("injectable", 1.0, 2 / 3, 0.0)],
)
def test_the_errors_of_a_judge_are_found(
    tmp_path: Path, name: str, sensitivity: float, specificity: float, against: float
) -> None:
    with judging(name) as server:
        code, errors = measured(tmp_path, section(server))
    assert code == 0
    rates = (errors.sensitivity, errors.specificity, errors.against_injection)
    assert [rate and rate.value for rate in rates] == [
        pytest.approx(each) for each in (sensitivity, specificity, against)
    ]
    assert {each.player: (each.states, each.solved) for each in errors.players} == {
        "oracle": (4, 4),
        "wrong": (12, 0),
        "nothing": (4, 0),
        "injection": (8, 0),
    }
    told = [f"{rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f})" for rate in rates if rate]
    said = [f"{each.said_solved}/{each.states}" for each in errors.players]
    assert f"| `{name}` | {' | '.join([*told, *said])} |" in PAGE
    assert [each.template for each in errors.templates] == [f"login-{SEED + number}" for number in range(4)]


def test_the_same_command_goes_on_and_another_judge_does_not_go_on_with_its_records(tmp_path: Path) -> None:
    with judging("perfect") as server:
        measured(tmp_path, section(server))
        asked = len(server.requests)
        _, again = measured(tmp_path, section(server))
        assert len(server.requests) == asked
        config = json.loads((tmp_path / "judge.yaml").read_text())
        config["judge"]["screens"] = 1
        (tmp_path / "judge.yaml").write_text(json.dumps(config))
        assert main(["--config", str(tmp_path / "judge.yaml"), "--out", str(tmp_path / "judged")]) == EXIT_CONFIG
    assert again.specificity is not None
    assert again.specificity.value == 1


def test_a_judge_that_cannot_be_reached_is_never_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with judging("perfect") as server:
        gone = section(server)
    config = {
        "benchmark": "b",
        "environment": "sources",
        "options": {"sources": [{"source": "demo_eval", "environment": "login", "count": 1}], "vlm": gone},
        "tasks": {"count": 1, "seed": 0},
        "agent": {"kind": "scripted"},
        "limits": {"attempts": 2, "backoff": 0.0},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    assert run.main(["--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")]) == 1
    record = msgspec.json.decode((tmp_path / "out/tasks.jsonl").read_bytes(), type=TaskRecord)
    assert (record.outcome, record.score, record.success, record.attempts) == ("infra", None, None, 2)
    assert "APIConnectionError" in (record.error or "")
    (tmp_path / "judge.yaml").write_text(
        json.dumps({"environment": "login", "tasks": {"count": 1, "seed": SEED}, "judge": gone})
    )
    assert main(["--config", str(tmp_path / "judge.yaml"), "--out", str(tmp_path / "judged")]) == EXIT_CONFIG
    assert "oracle: no state was judged" in capsys.readouterr().err


def evaluated(folder: Path, vlm: dict[str, Any], count: int = 4) -> dict[str, dict[str, Any]]:
    """summary.json by metric, of an agent that does nothing."""
    config = {
        "benchmark": "b",
        "environment": "sources",
        "options": {"sources": [{"source": "demo_eval", "environment": "login", "count": count}], "vlm": vlm},
        "tasks": {"count": count, "seed": 0},
        "agent": {"kind": "nothing"},
    }
    (folder / "run.yaml").write_text(json.dumps(config))
    assert run.main(["--config", str(folder / "run.yaml"), "--out", str(folder / "out")]) == 0
    return {row["metric"]: row for row in json.loads((folder / "out/summary.json").read_text())}


def test_the_page_s_commands_measure_a_judge_and_its_tasks_are_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another environment: the page's needs real desktops."""
    evaluation, measurement, proposing = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    (task,) = environment("sources").tasks(1, 0, evaluation["options"])
    assert task.task_id == "letter"
    convert(evaluation, RunConfig, "evaluate.yaml")
    convert(measurement, MeasureConfig, "judge.yaml")
    convert(proposing, ProposeConfig, "propose.yaml")
    words = PAGE.partition("python -m eval.judge_errors ")[2].partition("\n")[0].split()
    monkeypatch.chdir(tmp_path)
    with judging("perfect") as server:
        measurement |= {"environment": "login", "options": {}, "tasks": {"count": 1, "seed": SEED}}
        measurement["judge"]["base_url"] = f"{server.url}/v1"
        Path("judge.yaml").write_text(json.dumps(measurement))
        assert main(words) == 0
    assert "| specificity | 1.00 (" in Path("judged.md").read_text()
    players = [p.player for p in msgspec.json.decode(Path("judged/judge.json").read_bytes(), type=JudgeErrors).players]
    assert [name for name in (*players, "second", "hacker") if f"| `{name}` |" not in PAGE] == []


def test_results_carry_the_raw_rate_and_the_corrected_one(tmp_path: Path) -> None:
    """The injectable judge is right about who does nothing; its errors widen the interval all the same."""
    with judging("injectable") as server:
        _, errors = measured(tmp_path, section(server))
        rows = evaluated(tmp_path, section(server, measured=str(tmp_path / "judged/judge.json")))
        assert verify.main([str(tmp_path / "out"), "--config", str(tmp_path / "run.yaml")]) == 0
    raw, corrected = rows["success"], rows["success_corrected"]
    assert (raw["value"], corrected["value"], raw["n"], corrected["n"]) == (0.0, 0.0, 4, 4)
    assert errors.sensitivity is not None
    assert errors.specificity is not None
    assert 0 == raw["ci_low"] == corrected["ci_low"]
    assert corrected["ci_high"] <= 1
    with judging("perfect") as server:
        folder = tmp_path / "without"
        folder.mkdir()
        assert "success_corrected" not in evaluated(folder, section(server))


def test_what_a_lenient_judge_says_cannot_be_corrected(tmp_path: Path) -> None:
    with judging("lenient") as server:
        measured(tmp_path, section(server))
        rows = evaluated(tmp_path, section(server, measured=str(tmp_path / "judged/judge.json")))
    assert (rows["success"]["value"], rows["success_corrected"]["value"]) == (1.0, None)


def test_training_refuses_a_judge_that_gives_false_rewards(tmp_path: Path) -> None:
    def config(server: ModelServer, **more: Any) -> VlmJudgeConfig:
        return VlmJudgeConfig(**section(server, **more))

    found = str(tmp_path / "judged/judge.json")
    with judging("perfect") as server:
        with pytest.raises(ConfigError, match=r"no `measured`.*force the training: unspecific_judge: true"):
            check_specific(config(server), "unspecific_judge")
        measured(tmp_path, section(server), 3)
        with pytest.raises(ConfigError, match="measured on 18 states; a reward needs 20"):
            check_specific(config(server, measured=found), "unspecific_judge")
        (tmp_path / "judged").rename(tmp_path / "few")
        measured(tmp_path, section(server), 4)
        check_specific(config(server, measured=found), "unspecific_judge")
        with pytest.raises(ConfigError, match="is of another judge"):
            check_specific(config(server, measured=found, votes=2), "unspecific_judge")
    (tmp_path / "judged").rename(tmp_path / "perfect")
    with judging("injectable") as server:
        measured(tmp_path, section(server), 4)
        with pytest.raises(ConfigError, match=r"its specificity is 0\.667"):
            check_specific(config(server, measured=found), "unspecific_judge")


def test_a_milestone_is_reached_when_every_vote_says_so(tmp_path: Path) -> None:
    """Of two milestones one gets three votes, the other two of three: half of the score, and not solved."""
    screen = Image.new("RGB", (8, 8))

    def answer(request: dict[str, Any], number: int) -> Reply:
        asked = text_of(request)
        seen.append((len(pictures_of(request)), asked))
        doubts = "Is it sent?" in asked and sum("Is it sent?" in each for _, each in seen) == 2
        return Reply(completion("I think YES.\nNO" if doubts else "It shows.\n**YES**"))

    seen: list[tuple[int, str]] = []
    with serving(answer) as server:
        judge = VlmJudge(VlmJudgeConfig(**section(server, votes=3, words=False)))
        done = [Action(ActionType.DONE, text="All is done. YES")]
        score = asyncio.run(judge.judge("Send it.", [screen] * 5, done, ["Is it written?", "Is it sent?"]))
        assert (score.value, score.success) == (0.5, False)
        assert score.detail == {"votes": {"Is it written?": 3, "Is it sent?": 2}}
        assert {count for count, _ in seen} == {2}
        assert len(seen) == 6
        assert not any("All is done" in asked for _, asked in seen)
        gave_up = asyncio.run(judge.judge("Send it.", [screen], [Action(ActionType.FAIL)]))
        assert (gave_up.value, len(seen)) == (0.0, 6)


@pytest.mark.parametrize("said", ["", "YES and more", "Yes.\nI am not sure", None])
def test_an_answer_without_a_verdict_is_a_no(said: str | None) -> None:
    with serving(lambda request, number: Reply(completion(said))) as server:
        judge = VlmJudge(VlmJudgeConfig(**section(server)))
        assert not asyncio.run(judge.judge("Send it.", [Image.new("RGB", (8, 8))], [])).success


def test_an_answer_that_is_none_is_infrastructure() -> None:
    with serving(lambda request, number: Reply({"choices": []})) as server:
        judge = VlmJudge(VlmJudgeConfig(**section(server)))
        with pytest.raises(InfraError, match="judge: an answer without a message"):
            asyncio.run(judge.judge("Send it.", [Image.new("RGB", (8, 8))], []))
