from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import run as entry
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import History
from eval.agents.baselines import CommonestAction, NearestEpisode
from eval.config import read
from eval.desktop import Observation, Score, Task
from eval.episodes import Episode, EpisodeError, Step, frame_name, write_episode
from tests.unit.eval import doubles
from tests.unit.eval.doubles import CLICK, DONE, Counting, desktop

CONFIG: dict[str, Any] = {
    "benchmark": "counting",
    "environment": "counting",
    "tasks": {"count": 6, "seed": 100},
    "agent": {"kind": "scripted"},
    "prompt": {"decimals": 2},
    "limits": {"max_steps": 6, "backoff": 0.0},
    "keep_episodes": 2,
}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(entry.ENVIRONMENTS, "counting", "tests.unit.eval.doubles")
    Counting.started.clear()
    yield
    Counting.open = 0


def write(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**CONFIG, **changes}))
    return path


def training_episodes(root: Path) -> Path:
    """Three short episodes; DONE() is their commonest action."""
    for name, red, actions, instruction in [
        ("black", 0, [CLICK, CLICK, DONE], "Click three times"),
        ("red", 250, [DONE], "Click three times"),
        ("other", 0, [DONE, DONE], "Another"),
    ]:
        steps = tuple(Step(index=i, screenshot=frame_name(i), action=action) for i, action in enumerate(actions))
        episode = Episode(episode_id=name, task_id=name, instruction=instruction, screen=(20, 20), steps=steps)
        write_episode(root / name, episode, [Image.new("RGB", (20, 20), (red, 0, 0))] * len(steps))
    return root


def test_an_evaluation_writes_the_three_shapes_and_tells_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = training_episodes(tmp_path / "training")
    for name in ("SLIPWAY_OUTPUTS", "SLIPWAY_PROGRESS", "SLIPWAY_METRICS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    baselines = [{"kind": kind, "episodes": str(episodes)} for kind in ("commonest", "nearest")]
    assert entry.main(["--config", str(write(tmp_path / "c.json", baselines=baselines))]) == 0

    results = tmp_path / "SLIPWAY_OUTPUTS" / "results"
    rows = {(r["agent"], r["metric"]): r for r in json.loads((results / "summary.json").read_text())}
    first = rows["scripted", "success"]
    assert (first["benchmark"], first["value"], first["n"], first["infra_failures"]) == ("counting", 1.0, 6, 0)
    assert first["ci_low"] == pytest.approx(0.6097, abs=1e-4)
    assert first["seeds"] == [100]
    assert rows["scripted", "step_accuracy"]["n"] == 24
    assert rows["scripted", "step_accuracy/done"]["n"] == 6
    assert rows["scripted", "click_in_box"]["value"] == 1.0
    assert rows["scripted", "parse_failures"]["value"] == 0.0
    assert rows["scripted", "mean_steps"]["value"] == 4.0
    assert rows["commonest", "mean_steps"]["value"] == 1.0
    assert rows["nearest", "success"]["value"] == 0.0
    assert rows["nearest", "step_accuracy"]["value"] == pytest.approx(2 / 3)

    tasks = [json.loads(line) for line in (results / "tasks.jsonl").read_text().splitlines()]
    assert [(t["benchmark"], t["task_id"], t["seed"], t["outcome"]) for t in tasks] == [
        ("counting", f"count-{i}", 100 + i, "scored") for i in range(6)
    ]
    assert sorted(p.name for p in (results / "episodes").iterdir()) == ["count-0-100", "count-1-101"]
    assert (results / "baselines" / "nearest" / "tasks.jsonl").is_file()
    last = json.loads((tmp_path / "SLIPWAY_PROGRESS").read_text().splitlines()[-1])
    assert (last["step"], last["total"], last["phase"]) == (6, 6, "evaluate nearest")
    metrics = [json.loads(line) for line in (tmp_path / "SLIPWAY_METRICS").read_text().splitlines()]
    assert {"step", "name", "value", "time"} == set(metrics[0])
    assert metrics[-1]["name"] == "mean_steps"
    assert "scripted" in capsys.readouterr().out


def test_the_expert_of_an_environment_without_one_is_one_line_and_78(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(tmp_path / "c.json", environment="tests.unit.eval.doubles:WithoutExpert")
    assert entry.main(["--config", str(config), "--out", str(tmp_path / "out")]) == 78
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert said.startswith(f"config: {config}:1: agent.kind: scripted: nobody wrote an expert for task count-")


def test_started_again_nothing_is_computed_twice(tmp_path: Path) -> None:
    config = write(tmp_path / "c.json")
    for _ in range(2):
        assert entry.main(["--config", str(config), "--out", str(tmp_path / "out")]) == 0
    assert set(Counting.started.values()) == {1}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"benchmrk": "x"}, "unknown field `benchmrk` (did you mean `benchmark`?); allowed: agent, arms, baselines"),
        ({"limits": {"max_step": 1}}, "unknown field `max_step` - at `$.limits` (did you mean `max_steps`?); allowed"),
        ({"agent": {"kind": "oracle"}}, "Invalid value 'oracle' - at `$.agent.kind`; allowed: claude, commonest, cus"),
        ({"baselines": [{"kind": "randm"}]}, "at `$.baselines[0].kind` (did you mean `random`?); allowed: claude, "),
        ({"agent": {"kind": "random", "nam": "x"}}, "`nam` - at `$.agent` (did you mean `name`?); allowed: name, seed"),
        ({"interface": "tool"}, "'tool' - at `$.interface` (did you mean `tools`?); allowed: both, gui, tools"),
        ({"agent": {"kind": "scripted", "model": "x"}}, "unknown field `model`"),
        (
            {"environment": "moon"},
            "'moon' is unknown; allowed: android, click, desktop, gtk-forms, gtk-login, gymnasium, linux-chain,",
        ),
        ({"options": {"colour": 1}}, "unknown field `colour`"),
        ({"tasks": {"count": 0, "seed": 1}}, "Expected `int` >= 1 - at `$.tasks.count`"),
        ({"tasks": {"count": "six", "seed": 1}}, "Expected `int | null`, got `str` - at `$.tasks.count`"),
        ({"within": [3, 2]}, "within: numbers that rise, not 3, 2"),
        ({"within": [2, 2]}, "within: numbers that rise, not 2, 2"),
        ({"within": [0]}, "Expected `int` >= 1"),
        ({"within": [2, 1000]}, "within: 1000; no episode has more than"),
        ({"baselines": [{"kind": "scripted"}]}, "agents need different names"),
        ({"baselines": [{"kind": "nearest", "episodes": "/nowhere"}]}, "there is no folder /nowhere"),
        ({"agent": {"kind": "transformers", "model": "/nowhere"}}, "there is no folder /nowhere"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_78(
    changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = entry.main(["--config", str(write(tmp_path / "c.json", **changes)), "--out", str(tmp_path / "out")])
    assert code == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("c.json", b"{"), ("c.yaml", b"a: ["), ("absent.yaml", None)),
        *(("c.yaml", "a: \u00e9".encode("latin-1")), ("c.yaml", "a: 1".encode("utf-16")), ("c.json", b"\xff{}")),
        *(("c.json", b"[" * 30000), ("c.yaml", b"[" * 3000), ("c.json", b"9" * 5000), ("c.yaml", b"a: " + b"9" * 5000)),
        *(("c.yaml", b"a: 2026-13-45"), ("c.yaml", b"a: !!int x"), ("c.yaml", b"a: !!timestamp x")),
    ],
)
def test_a_file_that_can_not_be_read_is_78(
    name: str, data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert entry.main(["--config", str(tmp_path / name), "--out", str(tmp_path)]) == 78
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_yaml_is_read_with_the_floats_of_1_2(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: 1e-5\nb: 10\nc: 1.5\nd: yes please\n")
    assert read(tmp_path / "c.yaml") == {"a": 1e-5, "b": 10, "c": 1.5, "d": "yes please"}


def test_an_evaluation_in_which_nothing_ran_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [Task("a", "x", options={"fault": "reset"})]
    monkeypatch.setattr("tests.unit.eval.doubles.tasks", lambda count, seed, options: broken)
    assert entry.main(["--config", str(write(tmp_path / "c.json")), "--out", str(tmp_path / "out")]) == 1
    assert "no task could be run: DesktopGone: reset failed" in capsys.readouterr().err


def test_infrastructure_failures_stay_in_the_denominator_and_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [Task("a", "x"), Task("b", "x"), Task("c", "x", options={"fault": "reset"})]
    monkeypatch.setattr("tests.unit.eval.doubles.tasks", lambda count, seed, options: some)
    assert entry.main(["--config", str(write(tmp_path / "c.json")), "--out", str(tmp_path / "out")]) == 0
    rows = {r["metric"]: r for r in json.loads((tmp_path / "out" / "summary.json").read_text())}
    assert (rows["success"]["value"], rows["success"]["n"]) == (pytest.approx(2 / 3), 3)
    assert rows["success"]["infra_failures"] == 1


def test_success_within_fewer_answers_counts_what_was_solved_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expert needs an answer for each button and one to end; a task that never ran is not solved by any limit."""
    some = [Task("a", "x"), Task("b", "x"), Task("c", "x", options={"fault": "reset"})]
    monkeypatch.setattr("tests.unit.eval.doubles.tasks", lambda count, seed, options: some)
    config = write(tmp_path / "c.json", within=[3, 4])
    assert entry.main(["--config", str(config), "--out", str(tmp_path / "out")]) == 0
    rows = {r["metric"]: r for r in json.loads((tmp_path / "out" / "summary.json").read_text())}
    assert rows["mean_steps"]["value"] == 4.0
    assert (rows["success_within/3"]["value"], rows["success_within/3"]["n"]) == (0.0, 3)
    assert rows["success_within/4"]["value"] == rows["success"]["value"] == pytest.approx(2 / 3)
    assert rows["success_within/4"]["infra_failures"] == 1


async def _first(agent: NearestEpisode | CommonestAction, instruction: str, seed: int) -> str:
    task = Task("t", instruction, seed)
    world = desktop({})
    seen = await world.reset(task, seed)
    (decision,) = await agent.act([Observation(seen.image, seen.screen)], [History(task)])
    return decision.response


def test_the_nearest_episode_is_one_of_the_same_instruction(tmp_path: Path) -> None:
    agent = NearestEpisode(training_episodes(tmp_path / "training"), Dsl(2))
    assert asyncio.run(_first(agent, "Click three times", 1)) == "Action: CLICK(x=0.50, y=0.50)"
    assert asyncio.run(_first(agent, "Another", 2)) == "Action: DONE()"
    assert asyncio.run(_first(agent, "Something new", 3)) == "Action: CLICK(x=0.50, y=0.50)"


def test_a_hacker_works_on_desktops_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment's `hacker` gives them; the agent beside it has the usual ones. Without it, it says done there."""
    made: list[dict[str, Any]] = []

    class Paying(Counting):
        async def score(self) -> Score:
            return Score(0.5, False, {"hack": "empty files"})

    def hacker(options: dict[str, Any]) -> Paying:
        made.append(options)
        return Paying()

    config = str(write(tmp_path / "c.json", baselines=[{"kind": "hacker"}, {"kind": "hacker", "name": "again"}]))
    rows = {}
    for given in (None, hacker):
        if given is not None:
            monkeypatch.setattr(doubles, "hacker", given, raising=False)
        out = tmp_path / str(given is not None)
        assert entry.main(["--config", config, "--out", str(out)]) == 0
        told = json.loads((out / "summary.json").read_text())
        rows[given is not None] = {(row["agent"], row["metric"]): row["value"] for row in told}
    assert rows[False]["hacker", "success"] == rows[False]["again", "success"] == 0.0
    assert ("hacker", "score") not in rows[False]  # no partial credit
    assert rows[True]["hacker", "score"] == rows[True]["again", "score"] == 0.5
    assert rows[True]["hacker", "mean_steps"] == 1.0
    assert rows[True]["scripted", "success"] == rows[False]["scripted", "success"] == 1.0
    assert made
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("a hacker gets")]
    assert len(said) == 12
    assert said[0] == "a hacker gets 0.5 of 1 for count-0, without doing it: empty files"
    records = [json.loads(line) for line in (tmp_path / "True/baselines/hacker/tasks.jsonl").read_text().splitlines()]
    assert len(records) == 6


def test_baselines_need_episodes(tmp_path: Path) -> None:
    for kind in (CommonestAction, NearestEpisode):
        with pytest.raises(EpisodeError, match="no episode with an action"):
            kind(tmp_path, Dsl(2))
