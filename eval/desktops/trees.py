"""Reads the accessibility tree of a running desktop over its accessibility bus.

The programs that answer are the agent's, so nothing that they say is trusted: a tree may be endless, or a circle, and
its program may answer slowly, never, with megabytes, or end in the middle. Every limit that is met is told in
`Tree.cut`, and reading ends in time whatever the programs do. The text of a password field is never asked for.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from jeepney.wrappers import DBusAddress

from eval.accessibility.names import PASSWORD, role_name, state_names
from eval.accessibility.tree import Tree, TreeNode, mend_places
from eval.desktop import DesktopGone
from eval.desktops.bus.atspi import (
    Bus,
    ProgramEnded,
    Reference,
    Unanswered,
    UnreadableAnswer,
    read_bounds,
    read_references,
    read_value,
    socket_of,
)
from eval.desktops.display.running_desktop import RunningDesktop

PREFIX: Final = "org.a11y.atspi."
REGISTRY: Final = DBusAddress("/org/a11y/atspi/accessible/root", "org.a11y.atspi.Registry", f"{PREFIX}Accessible")
SCREEN: Final = 0  # coordinates of the screen, not of the window
AT_ONCE: Final = 64  # objects that are asked at once of one program
# one for each desktop that is read now; those of desktops that have ended go by themselves
_LOCKS: Final[WeakValueDictionary[str, threading.Lock]] = WeakValueDictionary()
_LOCKING: Final = threading.Lock()


@dataclass(frozen=True)
class TreeLimits:
    """Where reading stops.

    nodes        objects of one program; OSWorld's server stops at 5,000 of all
    depth        objects above one another, and `width` objects below one; both as OSWorld's server has them
    programs     programs that are read, the first that came
    characters   of one name, description or text, and `total` of all of one program
    program_s    seconds for one program, and `all_s` for all, which are read side by side
    """

    nodes: int = 2000
    depth: int = 50
    width: int = 1024
    programs: int = 64
    characters: int = 2000
    total: int = 500_000
    program_s: float = 5.0
    all_s: float = 10.0


WHOLE: Final = TreeLimits(nodes=5000, characters=50_000, total=2_000_000, program_s=10.0, all_s=20.0)


def read_tree(place: RunningDesktop, limits: TreeLimits | None = None, *, whole: bool = False) -> Tree:
    """The desktop's accessibility tree, as it is now. It waits: call it on a thread
    (`asyncio.to_thread`). Of many callers one reads at a time.

    limits  without them those of `TreeLimits`, and `WHOLE` for a whole tree
    whole   also what is not shown, and attributes and actions, which only OSWorld's form holds

    Raises DesktopGone when the accessibility bus does not answer.
    """
    path = socket_of(place)
    with _LOCKING:
        lock = _LOCKS.setdefault(str(path), threading.Lock())
    with lock:
        return asyncio.run(_read(path, limits or (WHOLE if whole else TreeLimits()), whole))


async def _read(path: Path, limits: TreeLimits, whole: bool) -> Tree:
    tree = Tree(applications=[], cut=[])
    try:
        async with asyncio.timeout(limits.all_s):
            bus = await Bus.open(path)
            try:
                await _applications(bus, tree, limits, whole)
            finally:
                await bus.close()
    except TimeoutError:
        if not tree.cut:
            raise DesktopGone(f"the accessibility bus did not answer within {limits.all_s:g} s") from None
    except UnreadableAnswer as error:  # it lists what the programs told it: they made it so
        tree.cut.append(f"no program was read: the list of the programs is {error}")
    except Unanswered as error:
        raise DesktopGone(f"the accessibility registry does not answer: {error}") from None
    return tree


async def _applications(bus: Bus, tree: Tree, limits: TreeLimits, whole: bool) -> None:
    """Reads all programs side by side, so that a slow one costs the others nothing."""
    (found,) = await bus.call(REGISTRY, "GetChildren")
    references = read_references(found)
    if len(references) > limits.programs:
        tree.cut.append(f"{len(references)} programs: only the first {limits.programs} were read")
    names = {name for name, _ in references}
    programs = [_Program(bus, reference, names, limits, whole) for reference in references[: limits.programs]]
    tasks = [asyncio.create_task(program.read()) for program in programs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for program in programs:
            if program.root is not None:
                tree.applications.append(program.root)
            tree.cut += program.cut
        mend_places(tree)


class _Program:
    """Walks one program's tree, level by level, so that a limit cuts what lies deepest."""

    def __init__(self, bus: Bus, reference: Reference, names: set[str], limits: TreeLimits, whole: bool) -> None:
        self._bus = bus
        self._start = reference
        self._others = names - {reference[0]}
        self._limits = limits
        self._whole = whole
        self._seen: set[Reference] = {reference}
        self.root: TreeNode | None = None
        self.cut: list[str] = []
        self._deep = 0
        self._full = False
        self._ended = False
        self._left = limits.total
        self._poor = False

    def _cut(self, why: str) -> None:
        name = (self.root.name if self.root else "") or self._start[0]
        self.cut.append(f"{name}: {why}")

    async def read(self) -> None:
        """Fills `root` and `cut`. Raises DesktopGone."""
        done = False
        try:
            async with asyncio.timeout(self._limits.program_s):
                await self._walk()
                done = True
        except TimeoutError:
            self._cut(f"no whole answer within {self._limits.program_s:g} s")
            done = True
        except Unanswered as error:
            self._cut(f"it cannot be read: {error}")
            done = True
        finally:
            if not done:
                self._cut("no time was left for it")

    async def _walk(self) -> None:
        root = await self._look(self._start)
        if not isinstance(root, _Seen):
            raise root or Unanswered("it is hidden")
        self.root = root.node
        left: deque[tuple[_Seen, int]] = deque([(root, 1)])
        count = 1
        while left and not self._ended:
            batch = self._next(left, self._limits.nodes - count)
            below = await _together([self._below(seen) for seen, _ in batch])
            found: list[tuple[TreeNode, Reference, int]] = []
            for (seen, depth), references in zip(batch, below, strict=True):
                if references and depth >= self._limits.depth:
                    self._deep += 1
                    continue
                found += [(seen.node, reference, depth + 1) for reference in references]
            if count + len(found) > self._limits.nodes:
                self._cut(f"more than {self._limits.nodes} objects; those deepest in the tree are left out")
                self._full = True
                found, left = found[: self._limits.nodes - count], deque()
            for start in range(0, len(found), AT_ONCE):
                part = found[start : start + AT_ONCE]
                looks = await _together([self._look(reference) for _, reference, _ in part])
                for (parent, _, depth), seen in zip(part, looks, strict=True):
                    count += not isinstance(seen, Unanswered)  # else it went away meanwhile
                    if isinstance(seen, _Seen):
                        parent.children.append(seen.node)
                        left.append((seen, depth))
            if self._full:
                break
        if self._ended:
            self._cut("it ended while it was read")
        if self._poor:
            self._cut(
                f"more than {self._limits.total} characters: the names and texts of the last objects are left out"
            )
        if self._deep:
            self._cut(f"{self._deep} objects at depth {self._limits.depth}: what lies below them was not read")

    def _next(self, left: deque[tuple[_Seen, int]], room: int) -> list[tuple[_Seen, int]]:
        """The objects whose children come next: no more than there is room for, by what they say themselves."""
        batch = [left.popleft()]
        expected = batch[0][0].count
        while left and len(batch) < AT_ONCE and expected <= room:
            batch.append(left.popleft())
            expected += batch[-1][0].count
        return batch

    def _to(self, reference: Reference, interface: str) -> DBusAddress:
        return DBusAddress(reference[1], reference[0], interface if "." in interface else PREFIX + interface)

    async def _ask(self, reference: Reference, interface: str, method: str, signature: str = "", *body: Any) -> Any:
        """The first value of an answer; None where the program has no answer that can be used."""
        try:
            answer = await self._bus.call(self._to(reference, interface), method, signature or None, body)
        except Unanswered as error:
            self._note(reference, error)
            return None
        return answer[0] if answer else None

    def _note(self, reference: Reference, error: Unanswered) -> None:
        self._ended |= isinstance(error, ProgramEnded) and reference[0] == self._start[0]

    async def _properties(self, reference: Reference, interface: str) -> dict[str, Any]:
        answer = await self._ask(reference, "org.freedesktop.DBus.Properties", "GetAll", "s", PREFIX + interface)
        if not isinstance(answer, dict):
            return {}
        return {name: value[1] for name, value in answer.items() if isinstance(value, tuple) and len(value) == 2}

    async def _look(self, reference: Reference) -> _Seen | Unanswered | None:
        """One object without what lies below it; Unanswered where it is gone, None where it is hidden and not wanted.

        The state is asked first: most objects of a program are the closed menus' and are hidden.
        """
        try:
            (words,) = await self._bus.call(self._to(reference, "Accessible"), "GetState")
        except Unanswered as error:
            self._note(reference, error)
            return error
        except ValueError:
            return Unanswered("an answer of another kind")
        words = [word for word in words if isinstance(word, int)] if isinstance(words, list) else []
        states = state_names(words)
        if not self._whole and "showing" not in states and reference != self._start:
            return None
        number, properties, interfaces = await asyncio.gather(
            self._ask(reference, "Accessible", "GetRole"),
            self._properties(reference, "Accessible"),
            self._ask(reference, "Accessible", "GetInterfaces"),
        )
        names = [name for name in interfaces if isinstance(name, str)] if isinstance(interfaces, list) else []
        node = TreeNode(
            role=role_name(number) if isinstance(number, int) else "unknown",
            name=self._short(properties.get("Name")),
            description=self._short(properties.get("Description")),
            states=states,
            interfaces=tuple(sorted({name.removeprefix(PREFIX)[:64] for name in names[:32]})),
            children=[],
        )
        count = properties.get("ChildCount")
        await self._more(reference, node)
        return _Seen(node, reference, count if isinstance(count, int) and count > 0 else 0)

    async def _more(self, reference: Reference, node: TreeNode) -> None:
        """What only some objects have: a place, a text, a value, and in a whole tree attributes and actions."""
        has = set(node.interfaces)
        if "Component" in has and {"showing", "visible"} <= set(node.states):
            node.bounds = read_bounds(await self._ask(reference, "Component", "GetExtents", "u", SCREEN))
        secret = node.role == PASSWORD
        if "Text" in has and not secret and (self._whole or "showing" in node.states):
            node.text = await self._text(reference, node.role)
        if "Value" in has and not secret:
            node.value = read_value(await self._properties(reference, "Value"))
        if self._whole:
            node.attributes = self._attributes(await self._ask(reference, "Accessible", "GetAttributes"))
            if "Action" in has:
                node.actions = self._actions(await self._ask(reference, "Action", "GetActions"))

    async def _text(self, reference: Reference, role: str) -> str | None:
        """The beginning of a text, of a terminal its end. LibreOffice gives nothing where more is asked for than is."""
        properties = await self._properties(reference, "Text")
        count, limit = properties.get("CharacterCount"), self._limits.characters
        if not isinstance(count, int) or count < 1:
            return "" if count == 0 else None
        start = max(0, count - limit) if role == "terminal" else 0
        text = await self._ask(reference, "Text", "GetText", "ii", start, min(count, start + limit))
        if not isinstance(text, str):
            return None
        return self._short(f"…{text[1:]}" if start else text if count <= limit else f"{text}…")

    async def _below(self, seen: _Seen) -> list[Reference]:
        """The objects below one, each only once in the tree, none of another program that is read itself."""
        if not seen.count or seen.node.role == PASSWORD:
            return []
        width = self._limits.width
        if seen.count <= width:
            references = read_references(await self._ask(seen.reference, "Accessible", "GetChildren"))
        else:
            references = await self._visible(seen)
            self._cut(f"{seen.node.role} with {seen.count} objects below it: {len(references)} were read")
        fresh = []
        for reference in references[:width]:
            if reference not in self._seen and reference[0] not in self._others:
                self._seen.add(reference)
                fresh.append(reference)
        return fresh

    async def _visible(self, seen: _Seen) -> list[Reference]:
        """Of more objects than can be listed, those between the two that lie in the left upper and the right lower
        corner; the first ones where the program cannot tell. A sheet of LibreOffice has 2^31 - 1 cells."""
        first, last = await self._corners(seen)
        width = self._limits.width
        if "Table" in seen.node.interfaces:
            (top, left), (bottom, right) = await _together([self._cell(seen, index) for index in (first, last)])
            columns = range(left, min(right + 1, left + width))
            rows = range(top, min(bottom + 1, top + width // max(1, len(columns))))
            asked = [(row, column) for row in rows for column in columns]
            calls = [self._ask(seen.reference, "Table", "GetAccessibleAt", "ii", *cell) for cell in asked]
        else:
            indices = range(first, min(last + 1, first + width))
            calls = [self._ask(seen.reference, "Accessible", "GetChildAtIndex", "i", index) for index in indices]
        return read_references(await _together(calls))

    async def _corners(self, seen: _Seen) -> tuple[int, int]:
        """The numbers of the children in two corners, the lower one first."""
        last = min(seen.count, AT_ONCE) - 1
        if seen.node.bounds is None:
            return 0, last
        left, top, width, height = seen.node.bounds
        found = []
        for place in ((left + 1, top + 1), (left + width - 2, top + height - 2)):
            child = await self._ask(seen.reference, "Component", "GetAccessibleAtPoint", "iiu", *place, SCREEN)
            references = read_references([child])
            index = await self._ask(references[0], "Accessible", "GetIndexInParent") if references else None
            if not isinstance(index, int) or not 0 <= index < seen.count:
                return 0, last
            found.append(index)
        return min(found), max(found)

    async def _cell(self, seen: _Seen, index: int) -> tuple[int, int]:
        """The row and the column of a child of a table; the first ones where the program tells nonsense."""
        asked = [self._ask(seen.reference, "Table", f"Get{name}AtIndex", "i", index) for name in ("Row", "Column")]
        row, column = [
            n if isinstance(n, int) and 0 <= n < 2**31 - self._limits.width else 0 for n in await _together(asked)
        ]
        return row, column

    def _short(self, text: Any) -> str:
        limit = min(self._limits.characters, self._left)
        if not isinstance(text, str) or not text:
            return ""
        if limit < 1:
            self._poor = True
            return ""
        self._left -= min(len(text), limit)
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def _attributes(self, found: Any) -> dict[str, str]:
        pairs = list(found.items())[:64] if isinstance(found, dict) else []
        return {self._short(name): self._short(value) for name, value in pairs if isinstance(name, str)}

    def _actions(self, found: Any) -> tuple[tuple[str, str, str], ...]:
        if not isinstance(found, list):
            return ()
        rows = [row for row in found[:16] if isinstance(row, tuple) and len(row) == 3]
        return tuple((self._short(name), self._short(told), self._short(keys)) for name, told, keys in rows)


@dataclass(frozen=True)
class _Seen:
    """A node, where it is on the bus, and how many objects it says are below it."""

    node: TreeNode
    reference: Reference
    count: int


async def _together(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*calls))
