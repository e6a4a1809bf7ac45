"""An answer of a model ends no evaluation and no training, whatever it holds, not even when it is already stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval import agentnetbench as entry
from eval.actions.dialects.registry import make_dialect
from eval.agents.base import Agent, Decision, History, decide
from eval.agents.config import AgentConfig
from eval.desktop import Observation, Task
from eval.episodes import iter_episodes, jsonl
from eval.prompts import PromptBuilder
from eval.rollout.loop import RECORDS, RolloutLimits, TaskRecord, rollout
from tests.contract.dialect.answers import NASTY
from tests.integration.agentnet.material import bench
from tests.unit.eval.doubles import Counting

LIMITS = RolloutLimits(max_steps=3, attempts=1, backoff=0.0)


class Nasty:
    """Answers task `i` with the i-th nasty answer."""

    name = "nasty"
    parallel = 1

    def __init__(self, dialect: str) -> None:
        self.builder = PromptBuilder(make_dialect(dialect, 4, False), system="")

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        texts = list(NASTY.values())
        return [decide(self.builder.read, texts[history.task.seed]) for history in histories]


@pytest.mark.parametrize("dialect", ["dsl", "pyautogui", "tests.contract.dialect.own:JsonLines"])
def test_a_rollout_records_every_answer_and_its_failure(dialect: str, tmp_path: Path) -> None:
    Counting.started.clear()
    tasks = [Task(f"t{index}", "Click", index) for index in range(len(NASTY))]
    for _ in range(2):  # the second time from the records
        results = asyncio.run(
            rollout(Nasty(dialect), Counting, tasks, out=tmp_path, benchmark="b", environment="counting", limits=LIMITS)
        )
        assert [result.record.outcome for result in results] == ["scored"] * len(NASTY)
    records = jsonl.read(tmp_path / RECORDS, TaskRecord)
    assert len(records) == len(NASTY)
    assert sum(record.parse_failures for record in records) > len(NASTY) / 2
    answers = {episode.task_id: episode.steps[0] for _, episode in iter_episodes(tmp_path / "episodes")}
    for index, text in enumerate(NASTY.values()):
        step = answers[f"t{index}"]
        assert step.response == text.encode(errors="backslashreplace").decode()
        assert (step.action is None) == (step.parse_error is not None or step.refused is not None)


def test_the_offline_benchmark_scores_every_answer_also_when_it_is_already_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(tmp_path / "bench")
    number = iter(range(10**6))

    class Asked:
        name = "asked"
        parallel = 1

        def __init__(self, builder: PromptBuilder) -> None:
            self.builder = builder

        async def act(self, observations: Any, histories: Any) -> Any:
            texts = list(NASTY.values())
            return [decide(self.builder.read, texts[next(number) % len(texts)]) for _ in observations]

    def make(config: AgentConfig, builder: PromptBuilder) -> Agent:
        return Asked(builder)

    monkeypatch.setattr(entry, "make_deciding", make)
    config = {
        "bench": str(tmp_path / "bench"),
        "agent": {"kind": "commonest", "episodes": str(tmp_path), "name": "asked"},
        "prompt": {"dialect": "pyautogui", "system": ""},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for start in range(0, len(NASTY), 4):
        out = tmp_path / f"out{start}"
        for _ in range(2):
            assert entry.main(["--config", str(tmp_path / "config.json"), "--out", str(out)]) == 0
        assert len({record.task_id for record in jsonl.read(out / "tasks.jsonl", TaskRecord)}) == 4
