"""What else the agent changed makes the score 0, of the forms and of the login: one rule judges the whole home."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.gtk_forms import environment as gtk_forms
from eval.benchmarks.gtk_forms.forms import form
from eval.benchmarks.gtk_login import environment as gtk_login
from eval.desktop import BrokenByAgent, Expected, Score
from eval.desktops.stage import DesktopStage
from eval.environments import login
from tests.support.folder_stage import FolderStage

SEED = 1_000_000
FORM = form("press", "test", SEED)
LOGIN = login.LoginForm(login.layout(SEED, "test"), *login.credentials(SEED, "test"))
START: dict[str, Any] = {
    gtk_forms.STATE: dict.fromkeys(FORM.goal, 0),
    gtk_login.STATE: {"screen": "form", "focus": None, "selected": False, "text": {"user": "", "pass": ""}},
}
SOLVED: dict[str, Any] = {
    gtk_forms.STATE: FORM.goal,
    gtk_login.STATE: {**START[gtk_login.STATE], "screen": "welcome", "text": {"user": "x", "pass": "y"}},
}


class FormStage(FolderStage):
    """A home in which the form's program has run: it writes its state once it is started."""

    async def start(self, argv: Any) -> None:
        await super().start(argv)
        path = self.state = argv[3]
        await self.write_file(path, json.dumps(START[path]).encode())


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], FormStage]:
    monkeypatch.setattr(gtk_forms, "next_action", lambda *_: Expected(Action(ActionType.DONE)))

    def begin(environment: str) -> FormStage:
        stage = FormStage(tmp_path)
        scene = gtk_forms.FormScene(FORM) if environment == "gtk-forms" else gtk_login.LoginScene(LOGIN)
        asyncio.run(stage.begin(scene))
        return stage

    return begin


def judged(stage: FormStage, change: Callable[[Path], object] = lambda home: None) -> Score:
    """The judgement of the solved form, after one more change of the home."""

    async def go() -> Score:
        await stage.write_file(stage.state, json.dumps(SOLVED[stage.state]).encode())
        change(stage.home)
        return await stage.judge([])

    return asyncio.run(go())


def folder(home: Path) -> str:
    return next(path.name for path in home.iterdir() if path.name in (".form", ".login"))


ENVIRONMENTS = pytest.mark.parametrize("environment", ["gtk-forms", "gtk-login"])
SPOILED: dict[str, Callable[[Path], object]] = {
    "result.txt is new": lambda home: (home / "result.txt").write_text("done"),
    ".notes is new": lambda home: (home / ".notes").write_text("done"),
    "Desktop is new": lambda home: (home / "Desktop").mkdir(),
    "link is new": lambda home: (home / "link").symlink_to("/etc/hostname"),
    "pipe is new": lambda home: os.mkfifo(home / "pipe"),
    "FOLDER/more.json is new": lambda home: (home / folder(home) / "more.json").write_text("{}"),
    "FOLDER/form.json was changed": lambda home: (home / folder(home) / "form.json").write_text("{}"),
    "FOLDER/program.py is gone": lambda home: (home / folder(home) / "program.py").unlink(),
    "the permissions of FOLDER/form.json were changed": lambda home: (home / folder(home) / "form.json").chmod(0o666),
    "the permissions of FOLDER/state.json were changed": lambda home: (home / folder(home) / "state.json").chmod(0o777),
    "the permissions of FOLDER were changed": lambda home: (home / folder(home)).chmod(0o777),
}


@ENVIRONMENTS
def test_a_solved_form_with_nothing_else_changed_is_paid(begun: Callable[[str], FormStage], environment: str) -> None:
    stage = begun(environment)
    assert judged(stage) == Score(1.0, True, judged(stage).detail)
    # what GTK writes of itself, and the program's next state
    own = {".config/dconf/user": b"x", ".cache/fontconfig/a": b"x", str(Path(stage.state).with_suffix(".new")): b"{}"}

    def written(home: Path) -> None:
        for path, content in own.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(content)

    assert judged(stage, written).success


@ENVIRONMENTS
@pytest.mark.parametrize("says", SPOILED)
def test_a_solved_form_with_something_else_changed_is_not(
    begun: Callable[[str], FormStage], environment: str, says: str
) -> None:
    stage = begun(environment)
    score = judged(stage, SPOILED[says])
    assert (score.value, score.success) == (0.0, False)
    assert says.replace("FOLDER", folder(stage.home)) in score.detail["spoiled"]


@ENVIRONMENTS
def test_the_start_state_and_giving_up_are_worth_nothing(begun: Callable[[str], FormStage], environment: str) -> None:
    stage = begun(environment)
    assert asyncio.run(stage.judge([])).value == 0.0
    asyncio.run(stage.write_file(stage.state, json.dumps(SOLVED[stage.state]).encode()))
    assert asyncio.run(stage.judge([Action(ActionType.FAIL)])).value == 0.0


@ENVIRONMENTS
@pytest.mark.parametrize("left", [b"", b"[]", b'{"more": 1}', None])
def test_a_state_that_the_program_does_not_write_is_the_agents_doing(
    begun: Callable[[str], FormStage], environment: str, left: bytes | None
) -> None:
    stage = begun(environment)
    path = stage.home / stage.state
    path.unlink() if left is None else path.write_bytes(left)
    with pytest.raises(BrokenByAgent):
        asyncio.run(stage.judge([]))


def test_more_names_than_the_form_has_are_no_state_of_it(begun: Callable[[str], FormStage]) -> None:
    stage = begun("gtk-forms")
    asyncio.run(stage.write_file(stage.state, json.dumps({**FORM.goal, "more": 1}).encode()))
    with pytest.raises(BrokenByAgent, match="more"):
        asyncio.run(stage.judge([]))


@ENVIRONMENTS
def test_a_file_that_goes_while_the_start_is_looked_at_is_no_part_of_it(
    begun: Callable[[str], FormStage], environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program renames its new state at any moment."""
    listed = FolderStage.list_files

    async def before(self: DesktopStage, name: str) -> Any:
        found = await listed(self, name)  # type: ignore[arg-type]
        return found | {".gone": next(entry for entry in found.values() if entry.kind == "file")}

    monkeypatch.setattr(FormStage, "list_files", before)
    stage = begun(environment)
    monkeypatch.setattr(FormStage, "list_files", listed)
    assert judged(stage).success


@ENVIRONMENTS
def test_the_instruction_says_what_may_not_change_and_the_version_counts(environment: str) -> None:
    module, says = (gtk_forms, "everything else") if environment == "gtk-forms" else (gtk_login, "all files")
    for task in module.tasks(10, SEED, {}):
        assert f"Leave {says} as " in task.instruction
    assert str(module.provenance({"role": "desk"})["revision"]).endswith(" 2")
