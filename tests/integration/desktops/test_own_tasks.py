"""A task of one's own on a real desktop: its files and programs are there, and its validator reads the final state."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.desktop import InfraError, Score, Task
from eval.environments.registry import environment, for_hacker

pytestmark = pytest.mark.usefixtures("folder")


def test_a_validator_judges_what_the_desktop_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_desktop_checks")

    async def noted(stage: Any, done: Sequence[Action]) -> bool:
        text: bytes = await stage.read_file("note.txt")
        return text.splitlines() == [b"soap", b"bread"]

    async def elsewhere(stage: Any, done: Sequence[Action]) -> bool:
        return bool(await stage.read_file("no such file"))

    module.__dict__.update(noted=noted, elsewhere=elsewhere)
    monkeypatch.setitem(sys.modules, "own_desktop_checks", module)
    task = {"instruction": "Add bread.", "files": {"note.txt": "soap\n"}, "start": [["mousepad", "note.txt"]]}
    checks = [task | {"validator": f"own_desktop_checks:{name}"} for name in ("noted", "elsewhere")]
    options = {"sources": [{"source": "custom", "tasks": checks}], "screen": (640, 480)}

    async def play() -> list[Score]:
        world = environment("sources")
        desktop = world.desktop(options)
        good, broken = world.tasks(2, 0, options)
        scores = []
        try:
            await desktop.reset(good, 0)
            scores.append(await desktop.score())
            await desktop.step(Action(ActionType.HOTKEY, keys=("ctrl", "end")))
            await desktop.step(Action(ActionType.TYPE, text="bread"))
            observation = await desktop.step(Action(ActionType.HOTKEY, keys=("ctrl", "s")))
            assert observation.info["pointer"]
            scores.append(await desktop.score())
            await desktop.reset(broken, 0)
            with pytest.raises(InfraError, match="own_desktop_checks:elsewhere: FileNotFoundError"):
                await desktop.score()
        finally:
            await desktop.close()
        return scores

    assert asyncio.run(play()) == [Score(0.0, False), Score(1.0, True)]


def test_a_hacker_is_paid_by_a_careless_validator_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the desktops of sources: of one's own tasks, of one of linux-desktop, and of one that has a judge."""
    module = ModuleType("hacked_checks")

    async def careful(stage: Any, done: Sequence[Action]) -> bool:
        return (await stage.read_file("note.txt")).splitlines() == [b"soap", b"bread"]  # type: ignore[no-any-return]

    async def careless(stage: Any, done: Sequence[Action]) -> bool:
        return b"bread" in await stage.read_file("note.txt")

    def seen(task: Task, picture: Any, done: Sequence[Action]) -> bool:
        assert picture.size == (640, 480)
        return len(done) > 1

    module.__dict__.update(careful=careful, careless=careless, seen=seen)
    monkeypatch.setitem(sys.modules, "hacked_checks", module)
    task = {"instruction": "Add a line bread.", "files": {"note.txt": "soap\n"}}
    own = [task | {"id": name, "validator": f"hacked_checks:{name}"} for name in ("careful", "careless")]
    ours = {"source": "demo_eval", "environment": "linux-desktop", "options": {"templates": ["mousepad-append"]}}
    options = {
        "sources": [
            {"source": "custom", "tasks": [*own, task | {"id": "seen", "judge": "hacked_checks:seen"}]},
            ours | {"count": 1},
        ],
        "screen": (640, 480),
    }

    async def play() -> dict[str, Score]:
        scores = {}
        desktop = for_hacker("sources")(options)
        try:
            for each in environment("sources").tasks(4, 0, options):
                await desktop.reset(each, each.seed)
                await desktop.step(Action(ActionType.DONE))
                scores[each.task_id] = await desktop.score()
        finally:
            await desktop.close()
        return scores

    paid = Score(1.0, True, {"hack": "goal as the content"})
    nothing = Score(0.0, False)
    assert asyncio.run(play()) == {"careful": nothing, "careless": paid, "seen": nothing, "mousepad-append": nothing}
