"""What an oracle works with: the actions of an agent, at places that it finds in the accessibility tree.

An oracle is a generator: it yields an action and is sent the tree of the screen after it. `OracleActions` keeps the
last tree.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.desktop import Expected

T = TypeVar("T")
Work = Generator[Expected, Tree, None]
TITLE_PIXELS: Final = 20  # the height of a window's title, which is the upper part of its frame
BESIDE: Final = 40  # pixels from a label to the middle of its field, at least
PAUSE_S: Final = 0.5
LONG_PAUSE_S: Final = 8.0  # pauses grow to this while programs are at work: each is a step of an episode
LOOKS: Final = 60  # at programs that have nothing to do any more; then what is missing does not come
LOOKS_AT_WORK: Final = 150  # 20 minutes: only what hangs, or never rests, works for so long
ENTERS: Final = 10  # in a dialog for files, each followed by
LOOKS_OF_KEY: Final = 6


class OracleLost(Exception):
    """The screen does not show what the oracle counts on."""


class OracleActions:
    """`tree`: the screen as it is now."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    # Looking

    def seen(self, role: str, name: str | None = None, program: str | None = None) -> TreeNode | None:
        """The first element that is shown, has this role and, in its name, this text (all of it where the text begins
        with =), in this program, if one is named. Several roles are divided by |."""
        roles = role.split("|")
        for application in self.tree.applications:
            if program is None or program == application.name.lower():
                for node in Tree(applications=[application]).nodes():
                    if node.role in roles and "showing" in node.states and node.bounds and _named(node, name):
                        return node
        return None

    def wait(
        self, role: str, name: str | None = None, program: str | None = None
    ) -> Generator[Expected, Tree, TreeNode]:
        """Waits until such an element is shown. Raises OracleLost."""
        return (yield from self.wait_for(lambda: self.seen(role, name, program), f"{role} {name or ''}".strip()))

    def wait_for(self, look: Callable[[], T | None], what: str) -> Generator[Expected, Tree, T]:
        """Waits until `look` gives something. Raises OracleLost."""
        if (found := (yield from self._looks(look, LOOKS))) is None:
            raise OracleLost(f"not to be seen: {what}")
        return found

    def soon(self, look: Callable[[], T | None]) -> Generator[Expected, Tree, T | None]:
        """Waits a little until `look` gives something; None when it did not."""
        return (yield from self._looks(look, LOOKS_OF_KEY))

    def _looks(self, look: Callable[[], T | None], looks: int) -> Generator[Expected, Tree, T | None]:
        """Waits until `look` gives something; None when it did not, as often as `looks`, while every program rested. A
        look at programs that are at work does not count: a busy machine shows later, and it shows the same."""
        resting, working, pause = 0, 0, PAUSE_S
        while (found := look()) is None and resting < looks and working < LOOKS_AT_WORK:
            if self.tree.working:
                working += 1
                pause = min(pause * 2, LONG_PAUSE_S) if working > 1 else PAUSE_S
            else:
                resting, pause = resting + 1, PAUSE_S
            yield from self.do(Action(ActionType.WAIT, duration=pause))
        return found

    def in_front(self, name: str) -> Generator[Expected, Tree, TreeNode]:
        """Waits until a window with this text in its title has the keyboard: a new one is shown before it has."""

        def look() -> TreeNode | None:
            shown = (node for node in self.tree.nodes() if node.role == "frame" and "active" in node.states)
            return next((node for node in shown if name in node.name), None)

        return (yield from self.wait_for(look, f"the window {name} with the keyboard"))

    def wait_gone(self, role: str, name: str | None = None) -> Work:
        """Waits until no such element is shown."""
        yield from self.wait_for(lambda: None if self.seen(role, name) else True, f"the end of {role} {name}")

    # Acting

    def do(self, action: Action, node: TreeNode | None = None) -> Work:
        """One action; `node` is what it points at."""
        box = None
        if node is not None and node.bounds is not None and action.point is not None:
            left, top, wide, high = node.bounds
            width, height = self.tree.screen
            x0, y0 = max(0, left) / width, max(0, top) / height
            box = (x0, y0, min(width, left + wide) / width - x0, min(height, top + high) / height - y0)
        self.tree = yield Expected(action, box)

    def press(self, *keys: str) -> Work:
        """Keys together."""
        kind = ActionType.KEY if len(keys) == 1 else ActionType.HOTKEY
        yield from self.do(Action(kind, keys=keys))

    def type(self, text: str) -> Work:
        yield from self.do(Action(ActionType.TYPE, text=text))

    def click(
        self, role: str, name: str | None = None, kind: ActionType = ActionType.CLICK, program: str | None = None
    ) -> Work:
        """Waits for an element, and clicks its middle."""
        node = yield from self.wait(role, name, program)
        yield from self.click_on(node, kind)

    def click_on(self, node: TreeNode, kind: ActionType = ActionType.CLICK, modifiers: tuple[str, ...] = ()) -> Work:
        x, y = self.middle(node)
        yield from self.do(Action(kind, x=x, y=y, modifiers=modifiers or None), node)

    def click_field_of(self, role: str, name: str) -> Work:
        """Clicks the field on the right of its label, for fields that the tree does not tell."""
        node = yield from self.wait(role, name)
        assert node.bounds is not None
        left, top, wide, high = node.bounds
        x, y = Screen(*self.tree.screen).to_norm(left + wide + BESIDE, top + high // 2)
        yield from self.do(Action(ActionType.CLICK, x=x, y=y))

    def menu(self, *names: str) -> Work:
        """Opens a menu of the menu bar and chooses in it, level by level."""
        for number, name in enumerate(names):
            yield from self.click("menu" if number == 0 else "menu item|menu|check menu item|radio menu item", name)

    def focused(self, role: str) -> Generator[Expected, Tree, TreeNode]:
        """Waits until an element of this role has the keyboard."""

        def look() -> TreeNode | None:
            shown = (node for node in self.tree.nodes() if "showing" in node.states)
            return next((node for node in shown if node.role in role.split("|") and "focused" in node.states), None)

        return (yield from self.wait_for(look, f"{role} with the keyboard"))

    def choose_file(self, path: str) -> Work:
        """Gives a name or a path to GTK's dialog for files, and waits until it has closed. The dialog that opens a file
        has a field for the path only once it was asked for, and takes whole paths alone."""
        yield from self.wait("file chooser|dialog")
        if self.seen("push button", "=Open") is not None:
            yield from self.focused("table|tree table|table cell|text")
            yield from self.press("ctrl", "l")
        yield from self.focused("text")
        yield from self.press("ctrl", "a")
        yield from self.type(path)
        for _ in range(ENTERS):  # the dialog does not take the key while it still reads the folder of the path
            yield from self.press("enter")
            closed = yield from self.soon(lambda: None if self.seen("file chooser|dialog") else True)
            if closed:
                return
        raise OracleLost("the dialog for files does not close")

    def to_window(self, name: str) -> Work:
        """Clicks the title of a window that has not the keyboard: two clicks in a row would be a double click."""
        frame = yield from self.wait("frame", name)
        assert frame.bounds is not None
        if "active" in frame.states:
            return
        left, top, wide, _ = frame.bounds
        x, y = Screen(*self.tree.screen).to_norm(left + wide // 2, top + TITLE_PIXELS // 2)
        yield from self.do(Action(ActionType.CLICK, x=x, y=y))

    def give_up(self) -> Work:
        """Says that the task cannot be done."""
        yield from self.do(Action(ActionType.FAIL))

    def middle(self, node: TreeNode) -> tuple[float, float]:
        """The middle of an element, as fractions of the screen."""
        if node.bounds is None:
            raise OracleLost(f"{node.role} {node.name} has no place")
        left, top, wide, high = node.bounds
        width, height = self.tree.screen
        x, y = left + wide // 2, top + high // 2
        if not (0 <= x < width and 0 <= y < height):
            raise OracleLost(f"{node.role} {node.name} lies outside of the screen")
        return Screen(width, height).to_norm(x, y)


def _named(node: TreeNode, name: str | None) -> bool:
    if name is None:
        return True
    return node.name == name[1:] if name.startswith("=") else name in node.name
