"""Tasks that are judged by files: what lies in the home at the start, and what must lie there in the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, same_text
from eval.desktop import BrokenByAgent
from eval.desktops.stage import DesktopStage

Files = dict[str, bytes]
Part = tuple[str, float, Sequence[str]]


class FileTask(Instance):
    """`before` becomes `after`; a file of `before` that `after` does not have must go."""

    @property
    @abstractmethod
    def before(self) -> Files:
        """The files of the start state."""

    @property
    @abstractmethod
    def after(self) -> Files:
        """The files of the final state."""

    @property
    def parts(self) -> Sequence[Part]:
        """The phases: name, share, and the paths that must be as in `after`. All together have every path that
        changes."""
        return [("the files are right", 1.0, self.changed)]

    @property
    def changed(self) -> list[str]:
        before, after = self.before, self.after
        return [path for path in before | after if before.get(path) != after.get(path)]

    @property
    def copied(self) -> Collection[bytes]:
        """The contents that are there at the start, and only get another place."""
        return self.before.values()

    @abstractmethod
    async def open(self, stage: DesktopStage) -> None:
        """Starts the programs."""

    async def prepare(self, stage: DesktopStage) -> None:
        for path, content in sorted(self.before.items()):
            await stage.write_file(path, content)
        await self.open(stage)

    def targets(self) -> Mapping[str, bytes]:
        return {path: self.after[path] for path in self.changed if path in self.after}

    def removed(self) -> tuple[str, ...]:
        return tuple(path for path in self.changed if path not in self.after)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        after = self.after
        right = {path: await self._is(stage, path, after.get(path)) for path in self.changed}
        return judged(*((name, share, all(right[path] for path in paths)) for name, share, paths in self.parts))

    async def _is(self, stage: DesktopStage, path: str, wanted: bytes | None) -> bool:
        """Whether a file has this content; None: whether it is gone. A new text may lack its last line break; what was
        moved or copied is the same to the last byte."""
        try:
            found = await content_of(stage, path)
        except BrokenByAgent:  # a trap in the place of one file says nothing of the others
            return False
        if wanted is None:
            return found is None
        return found == wanted or (wanted not in self.copied and same_text(found, wanted))


def shared_out(groups: Mapping[str, Sequence[str]]) -> list[Part]:
    """Phases with equal shares."""
    return [(name, 1 / len(groups), paths) for name, paths in groups.items()]


async def open_editor(
    stage: DesktopStage, *files: str, count: int = 1, place: tuple[int, int] | None = None, wait: str | None = None
) -> None:
    """The editor with these files, one in each tab; it shows the last one. `wait`: a part of the title."""
    await open_window(stage, [EDITOR, *files], count, wait or files[-1], place)


def rewrite(hand: OracleActions, text: str) -> Work:
    """Puts this text into the place of all that the editor shows, and saves it."""
    yield from hand.press("ctrl", "a")
    yield from hand.type(text)
    yield from hand.press("ctrl", "s")
