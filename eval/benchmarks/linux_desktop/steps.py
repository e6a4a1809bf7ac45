"""Steps that many templates share when they prepare and judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.desktop import ActionRefused, SetupFailed
from eval.desktops.stage import DesktopStage

LOOKS: Final = 150  # at programs that have nothing to do any more; the rollout's limit ends all others
LOOK_EVERY_S: Final = 0.2


async def content_of(stage: DesktopStage, path: str) -> bytes | None:
    """The content of a file; None where no such file is. Raises BrokenByAgent."""
    try:
        return await stage.read_file(path)
    except FileNotFoundError:
        return None


async def open_window(
    stage: DesktopStage,
    argv: Sequence[str],
    count: int,
    title: str,
    place: tuple[int, int] | None = None,
    shows: str | None = None,
) -> None:
    """Starts a program, waits for the window that makes `count`, and puts it at a place (pixels of the screen).

    shows  waits also for an element of this role whose name holds the title: for programs that take long to load
    """
    await stage.start(argv)
    await stage.windows(count)
    if shows is not None:
        await shown(stage, lambda tree: node_of(tree, shows, title), f"the {shows} of {title}")
    if place is not None:
        tree = await stage.tree()
        x, y = place[0] / tree.screen[0], place[1] / tree.screen[1]
        try:
            await stage.act([Action(ActionType.WINDOW_MOVE, x=x, y=y, window_title=title)])
        except ActionRefused as error:
            raise SetupFailed(str(error)) from None


async def shown(stage: DesktopStage, look: Callable[[Tree], TreeNode | None], what: str) -> TreeNode:
    """Waits until the accessibility tree holds what `look` finds. Raises SetupFailed."""
    looks = 0
    while looks < LOOKS:
        tree = await stage.tree()
        if (node := look(tree)) is not None:
            return node
        looks += not tree.working
        await asyncio.sleep(LOOK_EVERY_S)
    raise SetupFailed(f"the start state does not come: {what}")


async def written(stage: DesktopStage, path: str, content: bytes) -> None:
    """Waits until a program of the start state has written this into a file. Raises SetupFailed."""
    looks = 0
    while looks < LOOKS:
        working = (await stage.tree()).working
        if await content_of(stage, path) == content:
            return
        looks += not working
        await asyncio.sleep(LOOK_EVERY_S)
    raise SetupFailed(f"the start state does not come: {path} is not written")


def node_of(tree: Tree, role: str, name: str | None = None, program: str | None = None) -> TreeNode | None:
    """The first element of a role (several are divided by |) whose name holds a text; `program`: of this one only."""
    roles = role.split("|")
    for application in tree.applications:
        if program is not None and application.name.lower() != program:
            continue
        for node in Tree(applications=[application]).nodes():
            if node.role in roles and (name is None or name in node.name):
                return node
    return None
