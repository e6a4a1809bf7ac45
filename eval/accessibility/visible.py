"""What of a tree a person could see and use: the elements that are on the screen and under no other window, and the
marks made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eval.accessibility.tree import Bounds, Tree, TreeNode
from eval.actions.geometry import Box

_USED: Final = """
push button, toggle button, radio button, check box, combo box, entry, password text, spin button, slider, menu,
menu item, check menu item, radio menu item, tearoff menu item, page tab, link, list item, table cell,
table column header, tree item, icon, desktop icon, terminal, editbar, autocomplete, date editor, dial, switch,
push button menu, color chooser
"""
USED: Final = frozenset(" ".join(_USED.split()).split(", "))
_HOLDERS: Final = """
scroll pane, panel, filler, viewport, frame, dialog, window, layered pane, page tab list, tool bar, menu bar,
status bar, split pane, root pane, internal frame
"""
HOLDERS: Final = frozenset(" ".join(_HOLDERS.split()).split(", "))
LISTS: Final = frozenset({"list", "list box", "table", "tree", "tree table"})  # what they hold is used
SMALLEST: Final = 3  # pixels; a smaller element cannot be pointed at
SIMILAR: Final = 0.6  # of two areas: a program's window has a frame around it, and the tree may count it or not


@dataclass(frozen=True)
class Element:
    """One visible element.

    bounds  the part of it that can be seen, pixels: a box, so of an odd shape only the largest part
    window  0 is the topmost window; `frame` is that window's own element
    """

    node: TreeNode
    bounds: Bounds
    window: int
    frame: bool = False

    @property
    def disabled(self) -> bool:
        """Whether it is there and does nothing. LibreOffice's cells are enabled, and not sensitive."""
        return not {"sensitive", "enabled"} & set(self.node.states)

    @property
    def empty(self) -> bool:
        """Whether it is a cell of a table that holds nothing; of these a sheet has hundreds."""
        return self.node.role == "table cell" and not (self.node.text or self.node.children)

    @property
    def used(self) -> bool:
        """Whether a person would click it or write into it."""
        states = self.node.states
        if self.frame or self.disabled:
            return False
        role = self.node.role
        if role in HOLDERS or (role in LISTS and self.node.children):
            return False
        return role in USED or "focusable" in states or "editable" in states


def elements(tree: Tree) -> list[Element]:
    """The visible elements: window by window, the topmost first; in each by rows, then from the left."""
    width, height = tree.screen
    found: list[tuple[int, list[Element]]] = []
    for application in tree.applications:
        for frame in application.children:
            bounds = _clip(frame.bounds, width, height)
            if bounds is not None and "iconified" not in frame.states:
                level = _level(frame, bounds, tree.windows)
                above = tree.windows[level + 1 :]
                found.append((level, _within(frame, bounds, above, width, height)))
    found.sort(key=lambda pair: -pair[0])
    out = []
    for number, (_, below) in enumerate(found):
        first, *rest = below
        rest.sort(key=lambda element: (element.bounds[1], element.bounds[0]))
        out += [Element(e.node, e.bounds, number, e is first) for e in (first, *rest)]
    return out


def points_at_control(tree: Tree, point: tuple[float, float]) -> bool:
    """Whether a point (fractions of the screen) lies on something that a person would click or write into."""
    x, y = point[0] * tree.screen[0], point[1] * tree.screen[1]
    return any(
        e.used and e.bounds[0] <= x < e.bounds[0] + e.bounds[2] and e.bounds[1] <= y < e.bounds[1] + e.bounds[3]
        for e in elements(tree)
    )


def _level(frame: TreeNode, bounds: Bounds, windows: Sequence[Bounds]) -> int:
    """Where in the stack a frame's window is; above all where it is none of them, as an open menu."""
    likeness = [(_likeness(bounds, box), number) for number, box in enumerate(windows)]
    best = max(likeness, default=(0.0, 0))
    if best[0] >= SIMILAR:
        return best[1]
    return len(windows)


def _likeness(one: Bounds, other: Bounds) -> float:
    left, top = max(one[0], other[0]), max(one[1], other[1])
    right, bottom = min(one[0] + one[2], other[0] + other[2]), min(one[1] + one[3], other[1] + other[3])
    common = max(0, right - left) * max(0, bottom - top)
    return common / (one[2] * one[3] + other[2] * other[3] - common)


def _within(frame: TreeNode, bounds: Bounds, above: Sequence[Bounds], width: int, height: int) -> list[Element]:
    """The frame, then every element in it that no window above covers wholly."""
    out = [Element(frame, bounds, 0)]
    left = list(reversed(frame.children))
    while left:
        node = left.pop()
        if node.role == "menu bar" and node.bounds is None:
            continue  # LibreOffice's own, which GTK's stands for; its menus have places all the same
        left.extend(reversed(node.children))
        place = _clip(node.bounds, width, height)
        for box in above:
            place = None if place is None else _beside(place, box)
        if place is not None and "showing" in node.states:
            out.append(Element(node, place, 0))
    return out


def _beside(place: Bounds, box: Bounds) -> Bounds | None:
    """The largest box of what of `place` does not lie under `box`."""
    left, top, right, bottom = place[0], place[1], place[0] + place[2], place[1] + place[3]
    under = (max(left, box[0]), max(top, box[1]), min(right, box[0] + box[2]), min(bottom, box[1] + box[3]))
    if under[0] >= under[2] or under[1] >= under[3]:
        return place
    parts = [
        (left, top, under[0], bottom),
        (under[2], top, right, bottom),
        (left, top, right, under[1]),
        (left, under[3], right, bottom),
    ]
    sizes = [(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in parts if min(x1 - x0, y1 - y0) >= SMALLEST]
    return max(sizes, key=lambda part: part[2] * part[3], default=None)


def _clip(bounds: Bounds | None, width: int, height: int) -> Bounds | None:
    if bounds is None:
        return None
    left, top = max(0, bounds[0]), max(0, bounds[1])
    right, bottom = min(width, bounds[0] + bounds[2]), min(height, bounds[1] + bounds[3])
    if right - left < SMALLEST or bottom - top < SMALLEST:
        return None
    return left, top, right - left, bottom - top


MOST = 300  # marks of one screen


def box_of(element: Element, screen: tuple[int, int]) -> Box:
    """The element's place, normalised."""
    left, top, width, height = element.bounds
    return left / screen[0], top / screen[1], width / screen[0], height / screen[1]


def marks_of(tree: Tree) -> dict[int, Box]:
    """Numbers from 1 on, in the order of `elements`. Of elements at one place only the first has a mark,
    and an empty cell of a table has none."""
    boxes = dict.fromkeys(
        box_of(element, tree.screen) for element in elements(tree) if element.used and not element.empty
    )
    return dict(enumerate(list(boxes)[:MOST], start=1))
