"""What an end state of a task is, and how it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from eval.benchmarks.linux_desktop import solutions
from eval.benchmarks.linux_desktop.template import Instance
from tests.support.folder_stage import FolderStage
from tests.unit.linux_desktop.solutions import post, solve

Kind = Literal["right", "wrong", "spoiled"]
Change = Callable[[FolderStage], Awaitable[None]]
TRASHED = ".local/share/Trash/files"


@dataclass(frozen=True)
class State:
    name: str
    kind: Kind
    make: Change


def after_solving(task: Instance, more: Callable[[FolderStage], object]) -> Change:
    async def make(stage: FolderStage) -> None:
        await solve(task, stage)
        more(stage)

    return make


def written(stage: FolderStage, path: str, content: bytes = b"x\n") -> None:
    file = stage.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def saved_at(path: str, content: bytes) -> Change:
    async def make(stage: FolderStage) -> None:
        await stage.write_file(path, content)

    return make


def posted(task: Instance, *requests: Callable[[FolderStage], object], solved: bool = True) -> Change:
    async def make(stage: FolderStage) -> None:
        if solved:
            await solve(task, stage)
        for request in requests:
            request(stage)

    return make


def send(stage: FolderStage, to: str, subject: str, words: str) -> None:
    where, fields = solutions.mail(to, subject, words)
    post(stage, where, **fields)


async def changed_mode(stage: FolderStage, path: str, mode: int) -> None:
    (stage.home / path).chmod(mode)
