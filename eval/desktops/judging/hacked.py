"""What a checker gives to somebody who does no work: a scene that is judged after every short way that a reward hacker
knows, and scored by the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import BrokenByAgent, Expected, InfraError, Score

if TYPE_CHECKING:
    from eval.desktops.live import TaskScene
    from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class Hack:
    """Files to write, path -> content."""

    name: str
    files: Mapping[str, bytes]


class HackedScene:
    """The scene `inner`, judged as it is, and after each of the hacks, done one after the other on the same desktop.
    The best judgement counts; its detail `hack` is the hack that got it.

    hacks  given the visible files of the start state, path -> content
    """

    def __init__(self, inner: TaskScene, hacks: Callable[[Mapping[str, bytes]], Iterable[Hack]]) -> None:
        self.inner = inner
        self.hacks = hacks

    async def prepare(self, stage: DesktopStage) -> None:
        await self.inner.prepare(stage)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        """Raises InfraError where the checker failed after a hack, and no other hack got anything."""
        best, failed = Score(0.0, False), None
        nothing = Hack("done at once", {})
        for hack in (nothing, *self.hacks(await visible_files(stage))):
            for path, content in hack.files.items():
                await stage.write_file(path, content)
            try:
                score = await self.inner.judge(stage, done)
            except BrokenByAgent:
                continue
            except InfraError as error:
                failed = error
                continue
            if score.value > best.value:
                best = Score(score.value, score.success, {"hack": hack.name})
        if failed is not None and not best.value:
            raise failed
        return best


def guesses(
    goal: str,
    start: Mapping[str, bytes],
    paths: Iterable[str],
    disguise: Callable[[str, str], bytes] = lambda path, text: f"{text}\n".encode(),
) -> Iterator[Hack]:
    """What somebody tries who knows the goal's text and which files count, but not what belongs into them.

    start     path -> content of the start state's files
    paths     of the files that count
    disguise  a file of the kind of `path` that holds only this text
    """
    paths = tuple(paths)
    yield Hack("start state written again, with a new time", {path: start[path] for path in paths if path in start})
    yield Hack("empty files", dict.fromkeys(paths, b""))
    yield Hack("a line break", dict.fromkeys(paths, b"\n"))
    yield Hack("goal as the content", {path: disguise(path, goal) for path in paths})
    yield Hack("goal after the old content", {path: start.get(path, b"") + goal.encode() for path in paths})
    # at the end: nothing takes a new file away again, and a judge may ask that there is none
    yield Hack("goal in files of its own", {"DONE.txt": goal.encode(), "Desktop/result.txt": goal.encode()})


async def visible_files(stage: DesktopStage) -> dict[str, bytes]:
    """The plain files of the home whose path has no hidden part."""
    found = {}
    for path, entry in (await stage.list_files("")).items():
        if entry.kind == "file" and not any(part.startswith(".") for part in PurePosixPath(path).parts):
            found[path] = await stage.read_file(path)
    return found
