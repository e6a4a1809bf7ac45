"""Tasks from several sources: what is chosen, that each has somebody who judges it, and whose desktop it gets."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.audit.auditing import BlindPlayer
from eval.audit.moves import nothing
from eval.config import ConfigError
from eval.desktop import ActionRefused, InfraError, Observation, Score, Task
from eval.environments import custom, sources
from eval.environments.login import tasks as login_tasks
from eval.environments.registry import environment
from eval.rollout.loop import rollout
from tests.support.documented import ROOT

TRAIN = {"source": "demo_training", "environment": "login"}


@pytest.fixture(autouse=True)
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's own."""
    module = ModuleType("own_checks")

    async def no_file(stage: Any, done: Any) -> bool:
        return "note.txt" not in await stage.list_files("")

    def white(task: Task, shown: Any, done: Any) -> float:
        return float(shown.getpixel((0, 0)) == (255, 255, 255))

    module.__dict__.update(no_file=no_file, white=white, number=3, broken=lambda *_: 1 / 0, odd=lambda *_: 7)
    monkeypatch.setitem(sys.modules, "own_checks", module)
    sources._of_sources.cache_clear()


def chosen(*given: dict[str, Any], count: int | None = None) -> list[Task]:
    found = sources._sourced({"sources": list(given)})
    return environment("sources").tasks(count or len(found), 0, {"sources": list(given)})


def test_training_and_evaluation_are_apart() -> None:
    assert chosen(TRAIN | {"count": 3}) == login_tasks(3, 0, {"split": "train"})
    assert chosen(TRAIN | {"count": 2, "first": 5}) == login_tasks(2, 5, {"split": "train"})
    assert chosen({"source": "demo_eval", "environment": "login", "count": 2}) == login_tasks(
        2, 1_000_000, {"split": "test"}
    )


def test_filters() -> None:
    world = {"source": "demo_training", "environment": "linux-desktop", "count": 200}
    everything = chosen(world)
    easy = chosen(world | {"difficulty": "easy"})
    assert easy == [task for task in everything if task.difficulty == "easy"]
    assert 0 < len(easy) < len(everything)
    program = everything[0].programs[0]
    both = chosen(world | {"category": program, "difficulty": everything[0].difficulty})
    assert both == [t for t in everything if program in t.programs and t.difficulty == everything[0].difficulty]
    assert chosen(world | {"limit": 3}) == everything[:3]
    drawn = chosen(world | {"limit": 5, "seed": 42})
    assert drawn == chosen(world | {"limit": 5, "seed": 42})
    assert drawn != chosen(world | {"limit": 5, "seed": 43})
    assert [everything.index(task) for task in drawn] == sorted(everything.index(task) for task in drawn)
    with pytest.raises(ConfigError, match=r"sources\[0\]: no task is left after the filters; categories here: .*easy"):
        chosen(world | {"category": "no such"})


def test_ids_in_their_order() -> None:
    named = {"source": "ids", "environment": "login", "ids": ["login-7", "login-2"]}
    assert [task.task_id for task in chosen(named)] == ["login-7", "login-2"]
    with pytest.raises(
        ConfigError, match=r"sources\[0\].ids: 'login-700' is none of the 100 tasks drawn; allowed: login-0"
    ):
        chosen(named | {"ids": ["login-700"]})


def test_several_sources_name_each_task_once() -> None:
    first, second = TRAIN | {"count": 3}, {"source": "ids", "environment": "login", "ids": ["login-2", "login-9"]}
    assert [task.task_id for task in chosen(first, second)] == ["login-0", "login-1", "login-2", "login-9"]
    with pytest.raises(ConfigError, match=r"sources\[1\]: task login-0 with seed 0 is another one"):
        chosen(first, TRAIN | {"options": {"disturb": 0.5}})
    with pytest.raises(ConfigError, match=r"tasks.count: 4, and the sources have 3 tasks"):
        chosen(first, count=4)


CUSTOM = {"instruction": "Open Settings.", "validator": "own_checks:no_file"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"tasks": ["Open Settings"]}, r"sources\[0\].tasks\[0\]: 'Open Settings' has nobody who judges it"),
        ({"tasks": [CUSTOM, {"instruction": "x"}]}, r"tasks\[1\]: nobody judges it; allowed: one of `validator` or"),
        ({"tasks": [CUSTOM | {"judge": "own_checks:white"}]}, r"tasks\[0\]: has both"),
        (
            {"tasks": [CUSTOM | {"validator": "own_checks:gone"}]},
            r"tasks\[0\].validator: own_checks:gone: .*has no gone",
        ),
        ({"tasks": [CUSTOM | {"validator": "own_checks:number"}]}, r"validator: own_checks:number: is a int, not a fu"),
        ({"tasks": [CUSTOM | {"validatr": "x"}]}, r"tasks\[0\]: .*unknown field `validatr`"),
        ({"tasks": [CUSTOM | {"id": "a"}, CUSTOM | {"id": "a"}]}, r"two tasks have the id a"),
        ({}, r"sources\[0\].tasks: is missing; source custom needs it"),
        ({"tasks": [CUSTOM], "environment": "login"}, r"environment: says nothing with source custom"),
    ],
)
def test_a_task_of_one_s_own_that_cannot_be_judged_is_refused(source: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen({"source": "custom", **source})


@pytest.mark.parametrize("form", ["jsonl", "json", "yaml"])
def test_a_file_s_errors_name_file_and_line(tmp_path: Path, form: str) -> None:
    entries: list[dict[str, Any]] = [CUSTOM | {"id": "good"}, {"instruction": "Enable Wi-Fi."}]
    path = tmp_path / f"tasks.{form}"
    lines = [json.dumps(entry) for entry in entries]
    wrapped = {
        "jsonl": "\n".join(lines),
        "json": "[\n" + ",\n".join(lines) + "\n]",
        "yaml": f"- {lines[0]}\n- {lines[1]}",
    }
    path.write_text(wrapped[form])
    bad = {"jsonl": 2, "json": 3, "yaml": 2}[form]
    with pytest.raises(ConfigError, match=rf"tasks\.{form}:{bad}: nobody judges it"):
        chosen({"source": "file", "path": str(path)})
    path.write_text(wrapped[form].replace(lines[1], lines[0].replace("good", "better")))
    assert [task.task_id for task in chosen({"source": "file", "path": str(path)})] == ["good", "better"]


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for name, text, said in (
        ("a.yaml", "instruction: x", "is no list of tasks"),
        ("b.yaml", "[", "b.yaml: while parsing"),
        ("c.jsonl", "{", "c.jsonl:1: "),
        ("d.txt", "Open Settings\n", "d.txt: is no list of tasks"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=said):
            chosen({"source": "file", "path": str(tmp_path / name)})
    with pytest.raises(ConfigError, match=r"e\.json: No such file"):
        chosen({"source": "file", "path": str(tmp_path / "e.json")})


def test_what_says_nothing_is_refused() -> None:
    for source, said in (
        (TRAIN | {"options": {"split": "test"}}, "options.split: source demo_training says which split"),
        (TRAIN | {"environment": "sources"}, "sources within sources"),
        (TRAIN | {"environment": "nowhere"}, r"sources\[0\]: environment nowhere: environment: 'nowhere' is unknown"),
        (TRAIN | {"environment": None}, "environment: is missing"),
    ):
        with pytest.raises(ConfigError, match=said):
            chosen(source)


def test_each_task_gets_the_desktop_of_its_own_environment() -> None:
    options = {"sources": [TRAIN | {"count": 1}, {"source": "demo_training", "environment": "click", "count": 1}]}

    async def play() -> list[tuple[tuple[int, int], float]]:
        world = environment("sources")
        desktop = world.desktop(options)
        seen = []
        for task in world.tasks(2, 0, options):
            observation = await desktop.reset(task, task.seed)
            assert observation.expected is not None
            await desktop.step(observation.expected.action)
            seen.append((observation.image.size, (await desktop.score()).value))
        await desktop.close()
        return seen

    (login, _), (click, solved) = asyncio.run(play())
    assert login != click
    assert solved == 1.0


def test_what_a_validator_gives_is_a_score_or_an_infrastructure_failure() -> None:
    """A checker that fails is never a score of 0."""

    async def judged(path: str, *arguments: Any) -> Score:
        return await custom.judged_by(path, *arguments)

    class Stage:
        async def list_files(self, folder: str) -> dict[str, Any]:
            return {"note.txt": None}

    assert asyncio.run(judged("own_checks:no_file", Stage(), [])) == Score(0.0, False)
    with pytest.raises(InfraError, match="own_checks:broken: ZeroDivisionError"):
        asyncio.run(judged("own_checks:broken", None, []))
    with pytest.raises(InfraError, match="own_checks:odd: gave 7; allowed: True, False"):
        asyncio.run(judged("own_checks:odd", None, []))


def test_a_judge_looks_at_the_last_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the desktop of another environment, in place of a real one."""
    task = {"instruction": "Click.", "judge": "own_checks:white"}
    options = {"sources": [{"source": "custom", "tasks": [task]}]}
    click = environment("click")
    (inner_task,) = click.tasks(1, 0, {"split": "train"})
    inner = click.desktop({"split": "train"})
    monkeypatch.setattr(sources.SourcedDesktop, "_desktop", lambda *_: inner)

    async def play() -> Score:
        desktop = environment("sources").desktop(options)
        assert isinstance(desktop, sources.SourcedDesktop)
        own = desktop.known["custom-0", 0]
        desktop.known[inner_task.task_id, inner_task.seed] = own
        await desktop.reset(inner_task, inner_task.seed)
        observation = await desktop.step(Action(ActionType.WAIT, duration=0.0))
        expected = float(observation.image.getpixel((0, 0)) == (255, 255, 255))
        score = await desktop.score()
        assert score.value == expected
        return score

    asyncio.run(play())


def test_a_task_has_the_tools_of_its_own_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that has none a call is refused, and so is an evaluation by tools alone."""
    options = {"sources": [TRAIN | {"count": 1}]}
    (task,) = environment("sources").tasks(1, 0, options)
    inner = environment("login").desktop({"split": "train"})
    monkeypatch.setattr(sources.SourcedDesktop, "_desktop", lambda *_: inner)

    async def call(name: str, arguments: dict[str, str]) -> tuple[str, Observation]:
        return f"{name} {arguments}", await inner.step(Action(ActionType.WAIT, duration=0.0))

    async def play() -> None:
        desktop = environment("sources").desktop(options)
        assert isinstance(desktop, sources.SourcedDesktop)
        await desktop.reset(task, task.seed)
        assert desktop.tools == ()
        with pytest.raises(ActionRefused, match="no tool 'run_command' here"):
            await desktop.call("run_command", {"command": "ls"})
        monkeypatch.setattr(inner, "tools", ("run_command",), raising=False)
        monkeypatch.setattr(inner, "call", call, raising=False)
        assert desktop.tools == ("run_command",)
        assert (await desktop.call("run_command", {"command": "ls"}))[0] == "run_command {'command': 'ls'}"

    asyncio.run(play())
    monkeypatch.delattr(inner, "tools")
    agent = BlindPlayer("blind", nothing, Dsl(4))
    with pytest.raises(ConfigError, match="interface: tools: the desktops of environment sources have no tools"):
        asyncio.run(
            rollout(
                agent,
                lambda: sources.SourcedDesktop(sources._sourced(options), sources.SourcesOptions(sources=[])),
                [task],
                out=tmp_path,
                benchmark="b",
                environment="sources",
                interface="tools",
            )
        )


def test_the_page_s_configuration_gives_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/howto/task-sources.md, with the function that it shows."""
    page = (ROOT / "docs/howto/task-sources.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(# evaluate.yaml\n.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = yaml.safe_load(text)
    module = ModuleType("my_checks")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "my_checks", module)
    found = environment(shown["environment"]).tasks(shown["tasks"]["count"], shown["tasks"]["seed"], shown["options"])
    assert [task.difficulty for task in found[:20]] == ["easy"] * 20
    assert [task.task_id for task in found[20:]] == ["login-3", "login-7", "custom-0"]
    assert len(sources._sourced(shown["options"])) == 23

    class Stage:
        async def read_file(self, path: str) -> bytes:
            return b"soap\nbread\n"

    assert asyncio.run(custom.judged_by("my_checks:note_has_bread", Stage(), [])).success
