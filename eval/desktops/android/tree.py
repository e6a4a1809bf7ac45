"""Android's view hierarchy (`uiautomator dump`) as an accessibility tree, in the words of real desktops' trees."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

from eval.accessibility.names import APPLICATION, PASSWORD
from eval.accessibility.tree import Bounds, Tree, TreeNode

MOST_NODES: Final = 3000
DEEPEST: Final = 100
LONGEST: Final = 2000  # characters of one text
# the last part of the name of a class -> what AT-SPI calls such a thing
ROLES: Final = {
    **dict.fromkeys(("Button", "ImageButton", "FloatingActionButton", "Chip"), "push button"),
    **dict.fromkeys(("EditText", "AutoCompleteTextView", "MultiAutoCompleteTextView"), "entry"),
    **dict.fromkeys(("CheckBox", "CheckedTextView"), "check box"),
    **dict.fromkeys(("Switch", "SwitchCompat", "ToggleButton"), "toggle button"),
    **dict.fromkeys(("ListView", "RecyclerView", "GridView", "AbsListView"), "list"),
    **dict.fromkeys(("ScrollView", "HorizontalScrollView", "NestedScrollView", "ViewPager"), "scroll pane"),
    **{"RadioButton": "radio button", "Spinner": "combo box", "SeekBar": "slider", "ProgressBar": "progress bar"},
    **{"TextView": "label", "ImageView": "image", "WebView": "document web", "TabWidget": "page tab list"},
}
BOUNDS: Final = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


def tree_of(dump: str, screen: tuple[int, int]) -> Tree:
    """The tree of a dump. `screen`: width and height in pixels, as the dump's places are.

    What cannot be read, or is too much, is told in `cut`: an app decides what its views tell, and an evaluation must
    not end with it.
    """
    reader = _Reader(Tree(screen=screen))
    tree = reader.tree
    start = dump.find("<hierarchy")
    if start < 0:
        tree.cut.append(f"uiautomator: {' '.join(dump.split())[-200:] or 'no answer'}")
        return tree
    parser = ElementTree.XMLParser(target=reader)
    try:
        parser.feed(dump[start : dump.rfind(">") + 1])
        parser.close()
    except ElementTree.ParseError as error:
        tree.cut.append(f"uiautomator: a dump that cannot be read: {error}")
    if reader.left_out:
        tree.cut.append(f"uiautomator: {reader.left_out} views more than {MOST_NODES}, or deeper than {DEEPEST}")
    for node in tree.nodes():
        _name(node)
    return tree


class _Reader:
    """Takes the elements of a dump as they are parsed. `left_out`: how many were too many or too deep."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.left_out = 0
        self._count = 0
        self._path: list[TreeNode | None] = []  # from the top; None: one that is left out

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag != "node":
            return
        above = self._path[-1] if self._path else None
        node = None
        if self._count < MOST_NODES and len(self._path) < DEEPEST and (above is not None or not self._path):
            node = _node(given)
            self._count += 1
            if above is None:
                _window(self.tree, node, given.get("package", ""))
            else:
                above.children.append(node)
        else:
            self.left_out += 1
        self._path.append(node)

    def end(self, tag: str) -> None:
        if tag == "node":
            self._path.pop()


def _window(tree: Tree, root: TreeNode, package: str) -> None:
    """A window of the screen: a frame below the program that it belongs to."""
    program = next((each for each in tree.applications if each.name == package), None)
    if program is None:
        program = TreeNode(role=APPLICATION, name=package)
        tree.applications.append(program)
    frame = TreeNode(role="frame", name=package, states=("showing", "visible", "enabled"), bounds=root.bounds)
    frame.children.append(root)
    program.children.append(frame)
    if root.bounds is not None:
        tree.windows.append(root.bounds)


def _node(given: dict[str, str]) -> TreeNode:
    def on(name: str) -> bool:
        return given.get(name) == "true"

    kind = given.get("class", "").rpartition(".")[2]
    role = PASSWORD if on("password") else ROLES.get(kind, "panel")
    usable = on("clickable") or on("long-clickable") or on("checkable")
    if usable and role in ("panel", "label", "image"):
        role = "push button"  # a row of a list, or whatever an app made itself
    states = ["enabled", "sensitive"] if given.get("enabled", "true") == "true" else []
    states += ["showing", "visible"]
    states += [name for name in ("focused", "checkable", "checked", "selected") if on(name)]
    states += ["focusable"] if on("focusable") or usable else []
    states += ["editable"] if role in ("entry", PASSWORD) else []
    said = given.get("text", "")[:LONGEST]
    if role == PASSWORD:
        said = ""
    name = given.get("content-desc", "")[:LONGEST]
    holds_text = role in ("entry", PASSWORD)
    return TreeNode(
        role=role,
        name=name or given.get("hint", "")[:LONGEST] if holds_text else name or said,
        description=given.get("resource-id", "")[:LONGEST],
        states=tuple(states),
        bounds=_bounds(given.get("bounds", "")),
        text=said if role == "entry" else None,
    )


def _bounds(text: str) -> Bounds | None:
    """None for what has no place; the corner that a dump gives is the first one outside."""
    if (found := BOUNDS.fullmatch(text)) is None:
        return None
    left, top, right, bottom = map(int, found.groups())
    return (left, top, right - left, bottom - top) if right > left and bottom > top else None


def _name(node: TreeNode) -> None:
    """A button that tells nothing of itself, as a row of a list, is called what its parts say."""
    if node.role != "push button" or node.name:
        return
    words: list[str] = []
    left = list(reversed(node.children))
    while left and len(words) < 4:
        part = left.pop()
        if part.name:
            words.append(part.name)
        left += reversed(part.children)
    node.name = ", ".join(words)[:LONGEST]
