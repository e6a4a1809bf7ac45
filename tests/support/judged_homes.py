"""What judges of linux-desktop say of homes in folders, without a desktop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop import steps
from eval.benchmarks.linux_desktop.all_templates import instance
from eval.benchmarks.linux_desktop.environment import InstanceScene
from eval.benchmarks.linux_desktop.office import documents
from eval.benchmarks.linux_desktop.templates import web_pages
from eval.benchmarks.linux_desktop.webapps.serving import answer
from eval.desktop import BrokenByAgent, Score
from tests.support.folder_stage import FolderStage

REQUESTS = "requests.json"  # of a home: what is posted to the web application, as [["POST", PATH, {FIELD: VALUE}]]


def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates and judges wait for no window and for no file."""

    async def shown(*_: object) -> None:
        pass

    async def written(stage: FolderStage, path: str, content: bytes) -> None:
        await stage.write_file(path, content)

    monkeypatch.setattr(steps, "shown", shown)
    monkeypatch.setattr(steps, "written", written)
    for module in (documents, web_pages):
        monkeypatch.setattr(module, "SAVING", 1)
        monkeypatch.setattr(module, "SAVING_S", 0.0)


async def score_now(stage: FolderStage) -> Score:
    """The score of the home as it is; 0 where the judge raises BrokenByAgent."""
    try:
        return await stage.judge([Action(ActionType.DONE)])
    except BrokenByAgent as error:
        return Score(0.0, False, {"broken": str(error)})


async def write_start(template: str, seed: int, to: Path) -> None:
    """Writes the home of a template's start state (split test) to TO/TEMPLATE/start."""
    home = to / template / "start"
    home.mkdir(parents=True)
    await FolderStage(home).begin(InstanceScene(instance(template, "test", seed)))


async def judge_home(stage: FolderStage, template: str, seed: int, home: Path) -> Score:
    """Judges a home, a changed copy of a start state, and what its REQUESTS made of the web application."""
    await stage.begin(InstanceScene(instance(template, "test", seed)))
    shutil.rmtree(stage.home)
    shutil.copytree(home, stage.home, symlinks=True, ignore=shutil.ignore_patterns(REQUESTS))
    if (home / REQUESTS).exists():
        assert stage.app is not None
        for method, path, fields in json.loads((home / REQUESTS).read_text()):
            answer(stage.app, method, path, urlencode(fields, doseq=True).encode())
    return await score_now(stage)
