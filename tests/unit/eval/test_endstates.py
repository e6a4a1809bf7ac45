"""What an author is shown of a judge: its answers to ends that are right in another way, nearly right, or spoiled."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError, convert
from eval.desktops.judging.end_states import file_states
from eval.endstates import JudgedState, action_states, judged_states, main
from eval.environments import sources
from eval.run import RunConfig
from tests.support.documented import ROOT

PAGE = ROOT / "docs/howto/task-sources.md"
OWN = ("my_task", "my_environment", "my_checks")


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    yield
    sources._of_sources.cache_clear()
    for name in OWN:
        sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page on tasks of one's own, in the present folder."""
    for block in re.finditer(
        r"```(?:yaml|python)\n# (\S+)[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    ):
        (tmp_path / block[1]).write_text(block[2])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_page_s_validator_answers_every_end_as_it_should(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "check.yaml"]) == 0
    said = capsys.readouterr().out
    assert "WRONG" not in said
    assert "right: 0 of 5 refused\nwrong: 0 of 14 paid\nspoiled: 0 of 12 paid" in said


def test_without_changes_every_spoiled_end_is_paid_and_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "check.yaml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "changes:" not in line))
    assert main(["--config", "check.yaml"]) == 1
    said = capsys.readouterr().out
    assert said.count("WRONG") == 12
    assert "spoiled: 12 of 12 paid" in said


def judged(folder: Path, check: str, **more: Any) -> list[JudgedState]:
    """What a validator with this body says; `text` is note.txt."""
    body = f"async def right(stage, actions):\n    text = (await stage.read_file('note.txt')).decode()\n    {check}\n"
    (folder / "my_checks.py").write_text(body)
    task = {"id": "t", "instruction": "x", "files": {"note.txt": "soap\n"}, "validator": "my_checks:right"}
    task |= {"solved": {"note.txt": "soap\nbread\n"}, **more}
    options = {"sources": [{"source": "custom", "tasks": [task]}]}
    config: dict[str, Any] = {"benchmark": "x", "environment": "sources", "agent": {"kind": "random"}}
    config |= {"options": options, "tasks": {"count": 1, "seed": 0}}
    return asyncio.run(judged_states(convert(config, RunConfig, ""), 1))


def wrong(found: list[JudgedState]) -> set[str]:
    return {each.name for each in found if not each.right and each.kind != "spoiled"}


def test_a_careless_validator_is_shown_what_it_pays_and_a_strict_one_what_it_refuses(folder: Path) -> None:
    assert wrong(judged(folder, "return 'bread' in text")) == {
        "note.txt: without its first letter",
        "note.txt: a line more",
        "note.txt: twice",
        "note.txt: without its first line",
        "note.txt: its lines in the other order",
        "note.txt: the start and the end one after the other",
    }


def test_a_strict_validator_is_shown_what_it_refuses(folder: Path) -> None:
    assert wrong(judged(folder, "return text == 'soap\\nbread\\n'")) == {"note.txt: no line break at its end"}


def test_a_validator_that_raises_on_an_end_has_answered_0(folder: Path) -> None:
    found = judged(folder, "return text.splitlines()[1] == 'bread' and text.count('\\n') < 3")
    (empty,) = [each for each in found if each.name == "note.txt: empty"]
    assert empty.right
    assert "IndexError" in empty.score.detail["failure"]


def test_changes_lets_the_task_s_own_paths_change_and_nothing_else(folder: Path) -> None:
    found = judged(folder, "return text.splitlines() == ['soap', 'bread']", changes=["note.txt"])
    assert [each.name for each in found if not each.right] == []


def test_what_is_to_go_is_gone_or_in_the_trash(tmp_path: Path) -> None:
    kinds = {each.name: each.kind for each in file_states({"a/b.txt": "x\n"}, {"a/b.txt": None})}
    assert kinds["a/b.txt: in the trash"] == kinds["solved"] == "right"
    assert kinds["a/b.txt: it stays"] == "wrong"
    assert kinds["a/b.txt: moved to a/.b.txt"] == kinds["a/b.txt: moved to .cache/b.txt"] == "spoiled"


def test_every_state_can_be_made_and_no_two_have_one_name(tmp_path: Path) -> None:
    start = {"a/b.txt": "one\ntwo\n", "c.txt": "x", "d.txt": "stays\n", "e.txt": "stays, too\n"}
    states = list(file_states(start, {"a/b.txt": "two\none\n", "c.txt": None, "new.txt": "n"}))
    assert len({each.name for each in states}) == len(states)
    for number, state in enumerate(states):
        home = tmp_path / str(number)
        for path, text in start.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        state.make(home)


@pytest.mark.parametrize("only", ["changes", "solved"])
def test_what_a_judge_of_the_screen_cannot_use_is_refused(folder: Path, only: str) -> None:
    given: dict[str, Any] = {"changes": ["a"], "solved": {"a": "b"}}
    with pytest.raises(ConfigError, match=f"{only}: says nothing with `judge`"):
        judged(
            folder, "return True", **{"solved": None, "validator": None, "judge": "my_checks:right", only: given[only]}
        )


@pytest.mark.parametrize("solved", [{}, {"note.txt": "soap\n"}, {"other.txt": None}])
def test_a_right_end_that_is_the_start_is_refused(folder: Path, solved: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"tasks\[0\]\.solved: no file of it is other than at the start"):
        judged(folder, "return True", solved=solved)


def test_no_task_at_all_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "check.yaml", "--tasks", "0"]) == 78
    assert "--tasks 0; allowed: 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("example", "config", "many"),
    [("own-task", "check.yaml", 8), ("own", "evaluate.yaml", 3)],
)
def test_the_checkers_that_tutorials_teach(
    example: str, config: str, many: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "examples" / example)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / example))
    assert main(["--config", config]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == many + 3
    assert any("given up" in line and line.endswith(" 0") for line in said)


@pytest.mark.parametrize("name", ["login", "click", "versions"])
def test_our_drawn_environments_answer_every_end_as_they_should(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    tasks = "tasks: {count: 3, seed: 1000000}\nagent: {kind: scripted}"
    file.write_text(f"benchmark: x\nenvironment: {name}\n{tasks}\n")
    assert main(["--config", str(file), "--tasks", "3"]) == 0
    assert "right: 0 of " in capsys.readouterr().out


def test_a_task_without_an_expert_says_what_it_needs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert next(action_states([]))[0] == "the expert's way"
    (folder / "bare.py").write_text(
        "from PIL import Image\n"
        "from eval.desktop import Observation, Score, Task\n"
        "class World:\n"
        "    def tasks(self, count, seed, options):\n        return [Task('t', 'x', 0)]\n"
        "    def desktop(self, options):\n        return self\n"
        "    async def reset(self, task, seed):\n        return Observation(Image.new('RGB', (9, 9)), (9, 9))\n"
        "    async def step(self, action):\n        return await self.reset(None, 0)\n"
        "    async def score(self):\n        return Score(0.0, False)\n"
        "    async def close(self):\n        pass\n"
    )
    (folder / "x.yaml").write_text(
        "benchmark: x\nenvironment: bare:World\ntasks: {count: 1, seed: 0}\nagent: {kind: nothing}\n"
    )
    assert main(["--config", "x.yaml"]) == 78
    assert "t: there is no expert; a task of your own in `sources` needs `solved`" in capsys.readouterr().err
    sys.modules.pop("bare", None)
