"""The end states of documents, once more as LibreOffice itself writes them: it opens each, and saves it anew."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.environment import InstanceScene
from eval.benchmarks.linux_desktop.template import Instance
from tests.support.folder_stage import FolderStage
from tests.support.judged_homes import without_programs
from tests.support.needs import lacking
from tests.unit.linux_desktop.state import State
from tests.unit.linux_desktop.states_office import of_sheets, of_texts

SEED = 1_000_000
# a kind of number without its style: LibreOffice saves a plain number
LOST = ("a price is percent", "the prices too")
OFFICE = [
    name
    for name, template in TEMPLATES.items()
    if {"localc", "lowriter"} & {*template.about.programs} and not template.about.infeasible
]


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_programs(monkeypatch)


def office_states() -> Iterator[tuple[Instance, State]]:
    for name in OFFICE:
        task = instance(name, "test", SEED)
        for state in (*of_sheets(task), *of_texts(task)):
            if state.name not in LOST:
                yield task, state


async def begin(stage: FolderStage, task: Instance, state: State) -> None:
    await stage.begin(InstanceScene(task))
    await state.make(stage)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_documents_that_libreoffice_saved_are_judged_as_those_that_were_written(tmp_path: Path) -> None:
    if shutil.which("soffice") is None:
        lacking("office", "no soffice")
    stage = FolderStage(tmp_path / "home")
    stage.home.mkdir()
    folder, told = tmp_path / "in", []
    folder.mkdir()
    for number, (task, state) in enumerate(office_states()):
        asyncio.run(begin(stage, task, state))
        file: str = task.file  # type: ignore[attr-defined]
        name = f"{number}{Path(file).suffix}"
        (folder / name).write_bytes((stage.home / file).read_bytes())
        told.append((task, state, file, name))
    for kind in ("ods", "odt"):
        command = ["soffice", f"-env:UserInstallation=file://{tmp_path}/profile", "--headless", "--convert-to", kind]
        files = [str(folder / name) for *_, name in told if name.endswith(kind)]
        subprocess.run(
            [*command, "--outdir", str(tmp_path / "out"), *files], check=True, capture_output=True, timeout=1000
        )
    wrong = []
    for task, state, file, name in told:
        asyncio.run(stage.begin(InstanceScene(task)))
        (stage.home / file).write_bytes((tmp_path / "out" / name).read_bytes())
        score = asyncio.run(stage.judge([Action(ActionType.DONE)]))
        if score.success != (state.kind == "right"):
            wrong.append(f"{task.about.name}: {state.kind}: {state.name}: {score}")
    assert len(told) > 75
    assert wrong == []
