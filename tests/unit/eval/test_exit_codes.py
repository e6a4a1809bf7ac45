"""The exit code of a program that refuses its configuration, or what an earlier attempt left, or finds no tasks now."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from eval import run as evaluation
from eval.config import EXIT_CONFIG, ConfigError, ResumeError, exit_code, run
from eval.desktop import Desktop, SetupFailed, Task
from eval.export import __main__ as export
from eval.rollout.single_screens import open_answers
from eval.serve import __main__ as serving
from training import make_episodes
from training.common.entry import read_state

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("attempt", [None, "", "1", "2", "17"])
def test_a_refused_resume_is_final_only_in_the_first_attempt(
    attempt: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLIPWAY_ATTEMPT", raising=False)
    if attempt is not None:
        monkeypatch.setenv("SLIPWAY_ATTEMPT", attempt)
    again = attempt in ("2", "17")
    assert exit_code(ConfigError("epochs: 0 is too few")) == EXIT_CONFIG
    assert exit_code(ResumeError("resume: no weights")) == (1 if again else EXIT_CONFIG)

    def refuses() -> int:
        read_state(str(tmp_path))
        return 0

    assert run(refuses) == (1 if again else EXIT_CONFIG)
    assert capsys.readouterr().err.startswith("config: resume: ")


def test_what_an_earlier_attempt_answered_is_refused_as_a_resume(tmp_path: Path) -> None:
    from eval.agents.config import RandomConfig
    from eval.prompts import PromptConfig

    agent, prompt = RandomConfig(), PromptConfig()
    path = open_answers(tmp_path, agent, prompt)
    path.write_text("{}\n")
    note = next(file for file in tmp_path.iterdir() if file != path)
    told = json.loads(note.read_text())
    note.write_text(json.dumps({**told, next(iter(told)): "another"}) + "\n")
    with pytest.raises(ResumeError, match="asked for otherwise"):
        open_answers(tmp_path, agent, prompt)


def test_every_refusal_of_a_checkpoint_is_a_resume_error() -> None:
    sources = [file for folder in ("eval", "training") for file in (ROOT / folder).rglob("*.py")]
    wrong = [str(file) for file in sources if re.search(r'[^e]ConfigError\(\s*f?"resume', file.read_text())]
    assert not wrong, "raise ResumeError: in a restart of the same run the exit code is then 1"


class Away:
    """An environment whose server of tasks is not there."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        raise SetupFailed("the server of tasks is away")

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        raise AssertionError("no task is there")


TASKS: Final = {"count": 1, "seed": 0}
NO_SERVER: Final[dict[str, dict[str, Any]]] = {
    "openenv": {"url": "http://127.0.0.1:9"},
    "mcp": {"mcp": "http://127.0.0.1:9/mcp", "start": "start"},
    f"{__name__}:Away": {},
}
Main = Callable[[Sequence[str]], int]
PROGRAMS: Final[dict[str, tuple[Main, str, dict[str, Any]]]] = {
    "eval.run": (evaluation.main, "--config FILE --out OUT", {"benchmark": "b", "agent": {"kind": "scripted"}}),
    "eval.serve": (serving.main, "mcp --config FILE --out OUT", {}),
    "eval.export": (export.main, "harbor FILE OUT", {}),
    "training.make_episodes": (make_episodes.main, "--config FILE --out OUT", {}),
}


@pytest.mark.parametrize("environment", NO_SERVER)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_server_of_tasks_that_is_away_is_no_fault_of_the_configuration(
    program: str, environment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, words, more = PROGRAMS[program]
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"environment": environment, "options": NO_SERVER[environment], "tasks": TASKS, **more}))
    places = {"FILE": str(file), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words.split()]) == 1
    told = capsys.readouterr().err
    assert "is away" in told or "127.0.0.1:9" in told
    assert "Traceback" not in told
