"""What of the public evaluators' failures is the agent's, and what the machine's; the program itself is not started."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eval.benchmarks.osworld.judging import JudgeFailed, MetricRaised, PublicJudge, on_right_files
from eval.desktop import BrokenByAgent, EnvironmentFault

VM = {"type": "vm_file", "path": "/home/user/a.xlsx", "dest": "a.xlsx"}
GOLD = {"type": "cloud_file", "path": "https://example.test/gold.xlsx", "dest": "gold.xlsx"}
RULE = {"type": "rule", "rules": {"expected": "x"}}
TABLE = {"func": "compare_table", "result": VM, "expected": GOLD, "postconfig": [{"type": "sleep"}]}


def verdict(score: float | None = None, raised: str | None = None, failures: tuple[str, ...] = ()) -> bytes:
    told = {"package": "1.0.2", "score": score, "failures": failures, "raised": raised, "broken": None}
    return json.dumps(told).encode()


class Scripted(PublicJudge):
    """Gives an output for each type of the result that it is asked for."""

    def __init__(self, outputs: Mapping[str, bytes]) -> None:
        super().__init__(Path(sys.executable))
        object.__setattr__(self, "outputs", outputs)

    async def _run(self, order: bytes, cache: Path) -> tuple[bytes, str, int]:
        asked = json.loads(order)["evaluator"]["result"]
        outputs: Mapping[str, bytes] = self.outputs  # type: ignore[attr-defined]
        return outputs[asked["type"]], "", -11


def judge(evaluator: Mapping[str, Any], tmp_path: Path, **outputs: bytes) -> Any:
    order: dict[str, Any] = {"address": "http://127.0.0.1:1", "token": None, "cache": tmp_path, "screen": (640, 480)}
    return asyncio.run(Scripted(outputs).judge(dict(evaluator), **order))


BAD = verdict(raised="BadZipFile: File is not a zip file")


def test_a_metric_that_fails_on_the_agents_file_and_judges_the_right_one_is_the_agents_doing(tmp_path: Path) -> None:
    """Red before: JudgeFailed, so `infra`."""
    with pytest.raises(BrokenByAgent, match="judges the right file, and fails on what is there: BadZipFile"):
        judge(TABLE, tmp_path, vm_file=BAD, cloud_file=verdict(1.0))
    with pytest.raises(BrokenByAgent, match="status -11 and no verdict"):  # the agent's file ended the program
        judge(TABLE, tmp_path, vm_file=b"", cloud_file=verdict(1.0))


def test_a_metric_that_fails_on_the_right_file_too_or_has_none_waits_for_the_untouched_state(tmp_path: Path) -> None:
    """The rollout asks it there: eval.rollout.task_run does so for an EnvironmentFault of a checker."""
    for evaluator, outputs in ((TABLE, {"cloud_file": BAD}), ({**TABLE, "expected": RULE}, {})):
        with pytest.raises(MetricRaised, match="BadZipFile") as raised:
            judge(evaluator, tmp_path, vm_file=BAD, **outputs)
        assert isinstance(raised.value, EnvironmentFault)


def test_a_machine_that_failed_meanwhile_is_never_the_agents_doing(tmp_path: Path) -> None:
    gone = verdict(raised="TypeError: None", failures=("POST /file: ConnectionError",))
    with pytest.raises(JudgeFailed, match="ConnectionError; TypeError") as failed:
        judge(TABLE, tmp_path, vm_file=gone, cloud_file=verdict(1.0))
    assert not isinstance(failed.value, EnvironmentFault)
    with pytest.raises(MetricRaised):  # nor where the right file could not be fetched
        judge(TABLE, tmp_path, vm_file=BAD, cloud_file=verdict(failures=("GET /gold: status 503",)))


def test_only_files_that_come_with_the_task_are_right_ones() -> None:
    assert on_right_files(TABLE) == {"func": "compare_table", "result": GOLD, "expected": GOLD}
    assert on_right_files({**TABLE, "expected": VM}) is None  # an agent could have written it
    assert on_right_files({**TABLE, "result": {"type": "vm_command_line"}}) is None
    two = {"func": ["a", "b"], "result": [VM, VM], "expected": [GOLD, GOLD]}
    assert on_right_files(two) == {**two, "result": [GOLD, GOLD]}
    assert on_right_files({**two, "expected": [GOLD]}) is None
    assert on_right_files({"func": "infeasible"}) is None
