"""Marks made of an accessibility tree: numbered boxes around what a person would click or write into."""

from __future__ import annotations

from eval.accessibility.tree import Tree
from eval.accessibility.visible import Element, elements
from eval.actions.geometry import Box

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
