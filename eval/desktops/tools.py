"""Tools that an agent may be given beside the mouse and the keyboard, as ComputerRL's API-GUI agents have them.

Whatever a tool runs, it runs as the desktop's user, in the desktop's own namespaces and limits. What goes wrong is told
to the agent in words; only the end of the desktop is an error of the infrastructure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from eval.accessibility.tree import Tree, TreeNode
from eval.desktop import ActionRefused
from eval.desktops.display.running_desktop import NotOffered, Program, ProgramNotStarted
from eval.desktops.session import DesktopSession

RUN_S: Final = 60.0  # seconds that a command may run
OPEN_S: Final = 20.0  # seconds that a program has to open a window
MAX_GIVEN: Final = 20_000  # characters of an argument
MAX_RESULT: Final = 10_000  # characters of a result; what is longer is cut in its middle


@dataclass(frozen=True)
class Tool:
    """`arguments`: name -> what it means; all are texts, and all are needed. `strict`: the schema names them all."""

    name: str
    description: str
    arguments: Mapping[str, str]
    strict: ClassVar[bool] = True

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        properties = {name: {"type": "string", "description": text} for name, text in self.arguments.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.arguments),
            "additionalProperties": False,
        }

    def check(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The arguments. Raises ActionRefused, in words for the agent."""
        if set(given) != set(self.arguments):
            wanted = ", ".join(self.arguments) or "no arguments"
            raise ActionRefused(f"{self.name} takes {wanted}; given: {', '.join(sorted(given)) or 'none'}")
        for name, value in given.items():
            if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > MAX_GIVEN:
                raise ActionRefused(f"{self.name}: {name} must be a text of 1 to {MAX_GIVEN} characters")
            if any("\ud800" <= char <= "\udfff" for char in value):
                raise ActionRefused(f"{self.name}: {name} holds one half of a surrogate pair, which is no character")
        return dict(given)


TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        Tool(
            "open_file",
            "Open a file in a program, in a window of its own.",
            {"program": "the program's command, such as mousepad", "path": "the file; relative to the home folder"},
        ),
        Tool(
            "run_command",
            f"Run a shell command in the home folder, at most {RUN_S:g} seconds, and read what it prints.",
            {"command": "the command, as for sh -c"},
        ),
        Tool("read_tree", "Read what the open windows contain, as a tree of roles, names, texts and places.", {}),
    )
}


async def call(session: DesktopSession, name: str, given: Mapping[str, Any]) -> str:
    """Does a call of a tool on the session's desktop and gives its result in words.

    Raises ActionRefused for a tool that is not there, for arguments that are none, and for what failed; the message is
    for the agent. Raises what `DesktopSession.check` raises.
    """
    if (tool := TOOLS.get(name)) is None:
        raise ActionRefused(f"there is no tool {name[:60]!r}; there are {', '.join(TOOLS)}")
    arguments = tool.check(given)
    try:
        if name == "open_file":
            return await _open(session, arguments["program"], arguments["path"])
        if name == "run_command":
            return await _run(session, arguments["command"])
        return await _tree(session)
    except (NotOffered, ProgramNotStarted) as error:
        raise ActionRefused(f"{name}: {error}") from None


async def _open(session: DesktopSession, program: str, path: str) -> str:
    shown = session.window_count
    started = await session.run([program, path])
    opened = asyncio.create_task(session.more_windows(shown, OPEN_S))
    ended = asyncio.create_task(started.wait())
    try:
        await asyncio.wait((opened, ended), return_when=asyncio.FIRST_COMPLETED)
        if opened.done() and opened.result():
            return f"{program} has opened a window"
        return _how(started, program)
    finally:
        for task in (opened, ended):
            task.cancel()
        await asyncio.gather(opened, ended, return_exceptions=True)


def _how(started: Program, program: str) -> str:
    if started.status is None:
        return f"{program} runs, and has opened no window within {OPEN_S:g} s"
    if started.status == 0:
        return f"{program} has ended; a window of a program that ran before may show the file"
    raise ActionRefused(f"open_file: {program} ended with status {started.status}")


async def _run(session: DesktopSession, command: str) -> str:
    from eval.desktops.server import commands
    from eval.desktops.server.errors import Refused

    if not session.terminal_offered:
        missing = "; ".join(session.isolation.missing)
        raise ActionRefused(f"run_command: no commands without limits; missing here: {missing}")
    try:
        output = await commands.run(session, ["sh", "-c", command], limit_s=RUN_S)
    except Refused as error:
        raise ActionRefused(f"run_command: {error}") from None
    ended = f"it ran longer than {RUN_S:g} s and was ended" if output.status is None else f"status {output.status}"
    return "\n".join(filter(None, [ended, cut(output.stdout), cut(output.stderr)]))


async def _tree(session: DesktopSession) -> str:
    from eval.desktops.trees import read_tree

    return cut(tree_text(await asyncio.to_thread(read_tree, session.place))) or "there is nothing to read"


def tree_text(tree: Tree) -> str:
    """A line for each object that says something, two blanks further in than what holds it."""
    lines: list[str] = []
    left: list[tuple[TreeNode, int]] = [(node, 0) for node in reversed(tree.applications)]
    while left:
        node, depth = left.pop()
        words = [node.role, *(repr(text) for text in (node.name, node.text) if text)]
        if node.bounds is not None:
            x, y, width, height = node.bounds
            words.append(f"at ({x}, {y}) {width}x{height}")
        says = bool(node.name or node.text)
        if says:
            lines.append("  " * depth + " ".join(words))
        left.extend((child, depth + says) for child in reversed(node.children))
    return "\n".join([*lines, *(f"left out: {line}" for line in tree.cut)])


def cut(text: str) -> str:
    """A result of at most MAX_RESULT characters."""
    text = text.rstrip()
    if len(text) <= MAX_RESULT:
        return text
    half = MAX_RESULT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"
