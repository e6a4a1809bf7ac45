"""An environment and an agent of a user's own, named by import path, from a folder that holds nothing but them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval import run as entry
from eval.agents.baselines import ScriptedAgent
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from tests.integration.own_parts import parts
from training import make_episodes
from training.common.measuring import in_training


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the user's two modules, which is where `python -m` would find them."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "pages.py").write_text(parts.ENVIRONMENT)
    (own / "http_agent.py").write_text(parts.AGENT)
    (own / "fails.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(own)
    yield own
    for name in ("pages", "http_agent", "fails"):
        sys.modules.pop(name, None)


def config(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "benchmark": "shop",
        "environment": "pages:Shop",
        "options": {"url": url},
        "tasks": {"count": 4, "seed": 10},
        "agent": {"kind": "scripted"},
        "limits": {"backoff": 0.0, "max_steps": 4},
        **changes,
    }


def test_an_evaluation_from_a_folder_of_ones_own(folder: Path) -> None:
    asked: list[str] = []
    with parts.page() as url, parts.agent(asked) as model:
        agent = {"kind": "custom", "factory": "http_agent:HttpAgent", "name": "mine", "options": {"url": model}}
        written = config(url, agent=agent, baselines=[{"kind": "scripted"}])
        (folder / "config.json").write_text(json.dumps(written))
        # no PYTHONPATH and no -P: `python -m` itself puts the folder on the path
        run = subprocess.run(
            [sys.executable, "-m", "eval.run", "--config", "config.json", "--out", "results"],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    assert run.returncode == 0, run.stderr
    rows = {(r["agent"], r["metric"]): r["value"] for r in json.loads((folder / "results/summary.json").read_text())}
    assert rows["mine", "success"] == 1.0
    assert rows["mine", "mean_steps"] == 2.0
    assert rows["mine", "step_accuracy"] == 1.0
    assert len(asked) == 8
    assert all("Goal: Press " in prompt for prompt in asked)
    episode = json.loads((folder / "results/episodes/shop-10-10/episode.json").read_text())
    assert (episode["environment"], episode["agent"]) == ("pages:Shop", "mine")


def test_training_episodes_and_the_closed_loop_of_a_training_take_them_as_well(folder: Path, tmp_path: Path) -> None:
    with parts.page() as url, parts.agent([]) as model:
        agent = {"kind": "custom", "factory": "http_agent:HttpAgent", "options": {"url": model}}
        written = {name: value for name, value in config(url, agent=agent).items() if name != "benchmark"}
        (tmp_path / "config.json").write_text(json.dumps(written))
        arguments = ["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]
        assert make_episodes.main(arguments) == 0
        assert len(list((tmp_path / "out" / "episodes").iterdir())) == 4

        tasks = TasksConfig(count=2, seed=50)
        settings = in_training.EvaluationConfig(environment="pages:Shop", tasks=tasks, options={"url": url})
        settings.check()
        builder = PromptConfig().builder()
        scores = in_training.evaluate(settings, ScriptedAgent(builder.dialect), builder)
        assert scores["success"].value == 1.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"environment": "nowhere:Shop"},
            "environment: nowhere:Shop: there is no module nowhere in the working",
        ),
        ({"environment": "pages:Show"}, "environment: pages:Show: pages has no Show"),
        ({"environment": "pages:"}, "environment: pages:: is not an import path; allowed: package.module:name"),
        ({"environment": "fails:Shop"}, "fails cannot be imported: ZeroDivisionError: division by zero"),
        ({"environment": "pages:NoTasks"}, "pages:NoTasks has no method tasks; needed: tasks(count, seed, options)"),
        (
            {"environment": "pages:Page"},
            "environment pages:Page: cannot be called with (): missing",
        ),
        ({"environment": "pages:WrongTasks"}, "tasks must give a list of eval.desktop.Task, not a str"),
        ({"environment": "pages:Blocking"}, "step is not a coroutine; needed: async def step(action)"),
        ({"options": {}}, "environment pages:Shop: KeyError: 'url'"),
        ({"agent": {"kind": "custom", "factory": "nowhere:A"}}, "agent custom: factory: nowhere:A: there is no module"),
        ({"agent": {"kind": "custom", "factory": "http_agent:broken"}}, "http_agent:broken is a int; needed: a class"),
        ({"agent": {"kind": "custom", "factory": "http_agent:HttpAgent"}}, "missing a required argument: 'url'"),
        (
            {"agent": {"kind": "custom", "factory": "http_agent:Nameless", "options": {"url": "x"}}},
            "must have the name that it was given; needed: .name == 'custom'",
        ),
        (
            {"agent": {"kind": "custom", "factory": "http_agent:Mute", "options": {"url": "x"}}},
            "act must give a list of eval.agents.base.Decision, one per observation",
        ),
    ],
)
def test_what_breaks_the_protocol_is_one_line_and_78(
    changes: dict[str, Any], expected: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with parts.page() as url:
        (tmp_path / "config.json").write_text(json.dumps(config(url, **changes)))
        code = entry.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")])
    assert code == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("config: ")
    assert expected in line
