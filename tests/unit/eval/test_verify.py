"""What an evaluation recorded is played again: honest results stand, and each forgery is found by its own verdict."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from eval import run, verify
from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.config import EXIT_CONFIG
from eval.desktop import Observation
from eval.prompts import PromptBuilder
from eval.verify import Verdict, Verification
from tests.bench import determinism
from tests.support.documented import ROOT

COUNT = 6


class SolvesEvenSeeds:
    """Follows the expert in tasks with an even seed; in the others it answers nonsense once, and then says done."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, name: str) -> None:
        self.name = name

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        return [self._decision(*pair) for pair in zip(observations, histories, strict=True)]

    def _decision(self, observation: Observation, history: History) -> Decision:
        if history.task.seed % 2 == 0:
            assert observation.expected is not None
            return Decision("as the expert", observation.expected.action)
        if not history.past:
            return Decision("nonsense", None, parse_error="no action")
        return Decision("done", Action(ActionType.DONE))


def config(folder: Path, **changes: Any) -> str:
    written = {
        "benchmark": "planted",
        "environment": "tests.unit.eval.planted:PlantedEnvironment",
        "options": {"hole": ""},
        "tasks": {"count": COUNT, "seed": 10},
        "agent": {"kind": "custom", "factory": "tests.unit.eval.test_verify:SolvesEvenSeeds"},
        "baselines": [{"kind": "random"}],
        "limits": {"attempts": 1, "backoff": 0.0, "parse_failures": 2},
        "keep_episodes": COUNT,
    }
    file = folder / "config.json"
    file.write_text(json.dumps({**written, **changes}))
    return str(file)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which replays would have waited; nothing waits here."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waited


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of an evaluation in which some tasks are solved, and some are not."""
    assert run.main(["--config", config(tmp_path), "--out", str(tmp_path / "results")]) == 0
    scores = [record["score"] for record in records(tmp_path / "results")]
    assert {0.0, 1.0} == set(scores)
    return tmp_path / "results"


def records(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (results / "tasks.jsonl").read_text().splitlines()]


def change(results: Path, which: Callable[[dict[str, Any]], bool], **fields: Any) -> dict[str, Any]:
    """Changes the first record that is meant, and gives it as it was."""
    all_ = records(results)
    index = next(index for index, record in enumerate(all_) if which(record))
    was, all_[index] = all_[index], {**all_[index], **fields}
    (results / "tasks.jsonl").write_text("".join(json.dumps(record) + "\n" for record in all_))
    return was


def solved(record: dict[str, Any]) -> bool:
    return record["score"] == 1.0


def verified(results: Path, *words: str, **changes: Any) -> tuple[int, Verification]:
    code = verify.main([str(results), "--config", config(results.parent, **changes), *words])
    return code, msgspec.json.decode((results / "verified" / "verified.json").read_bytes(), type=Verification)


def verdicts(report: Verification) -> set[str]:
    return {task.verdict for task in report.tasks}


def test_what_was_played_stands(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = verified(results)
    assert (code, report.scored, report.stand, report.summary) == (0, COUNT, COUNT, [])
    assert [task.replayed for task in report.tasks] == [[record["score"]] for record in records(results)]
    assert capsys.readouterr().out.endswith(f"{COUNT} of {COUNT} scores stand\n")


def test_a_swapped_score_contradicts_its_episode(results: Path) -> None:
    change(results, solved, score=0.0, success=False)
    code, report = verified(results)
    assert (code, report.stand) == (1, COUNT - 1)
    assert verdicts(report) == {"stands", "contradicts"}
    assert report.summary  # it is that of the records as they were


def test_a_score_that_record_and_episode_both_claim_does_not_survive_the_replay(results: Path) -> None:
    was = change(results, lambda record: not solved(record), score=1.0, success=True)
    file = results / was["episode"] / "episode.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "score": 1.0, "success": True}))
    code, report = verified(results)
    (found,) = (task for task in report.tasks if task.verdict != "stands")
    assert (code, found.task_id, found.verdict, found.replayed) == (1, was["task_id"], "differs", [0.0, 0.0])


def test_a_changed_action_is_found(results: Path) -> None:
    was = next(record for record in records(results) if solved(record) and record["task_id"] == "press")
    file = results / was["episode"] / "steps.jsonl"
    first, *rest = file.read_text().splitlines()
    step = json.loads(first)
    step["action"]["x"] = 1.0 - step["action"]["x"] / 2
    file.write_text("\n".join([json.dumps(step), *rest]) + "\n")
    code, report = verified(results)
    assert (code, verdicts(report)) == (1, {"stands", "differs"})


def test_what_differs_is_replayed_once_more_at_the_recorded_pace(results: Path, pauses: list[float]) -> None:
    was = next(record for record in records(results) if solved(record) and record["task_id"] == "write")
    file = results / was["episode"] / "steps.jsonl"
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    for step, time in zip(steps, (1000.0, 1002.5, 9000.0), strict=True):
        step["time"] = time
    steps[0]["action"]["text"] = "another word"
    file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    _, report = verified(results)
    assert next(task for task in report.tasks if task.verdict == "differs").replayed == [0.0, 0.0]
    assert pauses == [2.5, verify.PAUSE_S]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "2"},
        {"options": {"hole": "echo"}},
        {"tasks": {"count": COUNT, "seed": 500}},
        {"benchmark": "another"},
        {"limits": {"attempts": 1, "backoff": 0.0, "parse_failures": 3}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_results_by_other_rules_are_not_replayed(results: Path, changes: dict[str, Any]) -> None:
    code, report = verified(results, **changes)
    others = {"missing"} if "tasks" in changes else set()  # the configuration's own tasks
    assert (code, report.stand, verdicts(report)) == (1, 0, {"other rules", *others})
    assert not (results / "verified" / "replay-1").exists()


def test_another_judge_is_told(results: Path) -> None:
    change(results, solved, identity={"judge": "0123"})
    code, report = verified(results)
    (found,) = (task for task in report.tasks if task.verdict == "other rules")
    assert code == 1
    assert "identity" in found.why


def test_a_summary_that_is_not_of_the_records_is_told(results: Path) -> None:
    rows = json.loads((results / "summary.json").read_text())
    row = next(row for row in rows if row["metric"] == "success" and row["agent"] == "custom")
    row["value"] = 1.0
    (results / "summary.json").write_text(json.dumps(rows))
    code, report = verified(results)
    assert (code, report.stand, len(report.summary)) == (1, COUNT, 1)
    assert report.summary[0].startswith("success 1 of 6, the records give ")


def test_a_task_that_was_left_out_is_missing(results: Path) -> None:
    """Whoever deletes what failed, and makes the summary anew, has a better rate and no wrong score."""
    kept = [record for record in records(results) if solved(record)]
    (results / "tasks.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    (results / "summary.json").unlink()
    code, report = verified(results)
    assert (code, report.stand, report.scored, report.missing) == (1, len(kept), len(kept), COUNT - len(kept))
    assert verdicts(report) == {"stands", "missing"}


def test_a_task_that_counts_twice_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = next(record for record in records(results) if solved(record))
    with (results / "tasks.jsonl").open("a") as file:
        file.write(json.dumps(first) + "\n")
    assert verify.main([str(results), "--config", config(results.parent)]) == EXIT_CONFIG
    assert "holds press seed 10 twice" in capsys.readouterr().err


def test_a_record_cannot_borrow_the_episode_of_another(results: Path) -> None:
    one, other = [record for record in records(results) if solved(record)][:2]
    change(results, lambda record: record == one, episode=other["episode"])
    code, report = verified(results)
    assert (code, verdicts(report)) == (1, {"stands", "contradicts"})
    assert next(task.why for task in report.tasks if task.verdict == "contradicts").startswith("its episode would be")


def test_where_nothing_was_scored_nothing_is_verified(results: Path) -> None:
    lines = [{**record, "outcome": "infra", "score": None, "success": None} for record in records(results)]
    (results / "tasks.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    (results / "summary.json").unlink()
    code, report = verified(results)
    assert (code, report.scored, verdicts(report)) == (1, 0, {"not scored"})


def test_what_kept_no_episode_is_not_said_to_stand(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert run.main(["--config", config(tmp_path, keep_episodes=1), "--out", str(results)]) == 0
    code, report = verified(results, keep_episodes=1)
    assert (code, report.stand, report.scored) == (1, 2, COUNT)
    assert verdicts(report) == {"stands", "no episode"}


def test_a_baseline_is_verified_by_its_own_folder(tmp_path: Path) -> None:
    results = tmp_path / "results"
    agents = {"agent": {"kind": "random"}, "baselines": [{"kind": "scripted"}]}
    assert run.main(["--config", config(tmp_path, **agents), "--out", str(results)]) == 0
    code, report = verified(results, **agents)
    assert (code, report.stand) == (0, COUNT)


def test_it_goes_on_where_it_was_interrupted(results: Path) -> None:
    verified(results)
    file = results / "verified" / "replay-1" / "tasks.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]))
    started = len((results / "verified" / "replay-1" / "tasks.jsonl").read_text().splitlines())
    code, report = verified(results)
    assert (started, code, report.stand) == (2, 0, COUNT)
    assert file.read_text().splitlines(keepends=True)[:2] == lines[:2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tries", "0"], "--tries 0; allowed: 1 or more"),
        (["nowhere"], "nowhere/tasks.jsonl: No such file or directory; name a folder of results of an evaluation"),
    ],
)
def test_what_cannot_be_verified_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = [] if words[0] == "nowhere" else ["results"]
    code = verify.main([*folder, *words, "--config", config(tmp_path), "--out", str(tmp_path / "out")])
    assert code == EXIT_CONFIG
    assert message in capsys.readouterr().err


def test_the_page_s_commands_verify_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/howto/verify.md").read_text(encoding="utf-8")
    enter, *commands = page.partition("```sh\n")[2].partition("\n```\n")[0].splitlines()
    own = tmp_path / "own"
    shutil.copytree(ROOT / enter.removeprefix("cd "), own)
    monkeypatch.chdir(own)
    monkeypatch.syspath_prepend(str(own))
    try:
        for command in commands:
            _, _, name, *words = command.split()
            assert {"eval.run": run.main, "eval.verify": verify.main}[name](words) == 0
    finally:
        for module in ("my_environment", "my_agent"):
            sys.modules.pop(module, None)
    assert capsys.readouterr().out.endswith("20 of 20 scores stand\n")
    assert [verdict for verdict in get_args(Verdict) if f"\n| {verdict} | " not in page] == []


def test_determinism_of_an_unknown_template_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert determinism.main(["nothing"]) == EXIT_CONFIG
    told = capsys.readouterr().err
    assert told.startswith("config: options.templates: 'nothing' is unknown")
    assert told.count("\n") == 1
