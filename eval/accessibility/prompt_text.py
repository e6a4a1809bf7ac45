"""An accessibility tree as the text that a prompt shows, cut to a number of tokens.

A line for each visible element, window by window, the topmost first. Names are cut to 100 characters and texts to 200.
Where the lines are too many, whole lines are left out, always in this order, and a last line tells how many:

1. empty cells of tables, from the lowest window to the topmost, in each from the end;
2. what can only be read (labels, pictures, ...), in the same order;
3. what can be used (buttons, fields, ...), in the same order;
4. the lines of the windows themselves, from the lowest on;
5. the element that has the focus.

So what is visible and can be used stays longest. Elements that only hold others are never told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from eval.accessibility.tree import Tree
from eval.accessibility.visible import HOLDERS, USED, Element, box_of, elements
from eval.actions.geometry import Box, Point

NAME: Final = 100
TEXT: Final = 200
# what is worth telling of an element's state
STATES: Final = ("focused", "selected", "checked", "pressed", "expanded", "editable", "modal")
VALUED: Final = ("slider", "spin button", "scroll bar", "progress bar", "level bar", "dial")
_WORDS: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_|\s+")
LETTERS: Final = 4  # of one token, in a word


def tokens(text: str) -> int:
    """How many tokens a text has, estimated: one for 4 letters of a word (a word of other alphabets: one for each
    2 bytes), one for a digit and one for each other sign. It needs no model, so a prompt is the same everywhere."""
    total = 0
    for piece in _WORDS.findall(text):
        if piece.isspace():
            total += piece.count("\n")
        elif piece.isascii():
            total += -(-len(piece) // LETTERS)
        else:
            total += -(-len(piece.encode()) // 2)
    return total


def tell(tree: Tree, budget: int, point: Callable[[Point], str], marks: Mapping[int, Box] | None = None) -> str:
    """The text, of at most `budget` tokens; each line ends with a line break.

    point  how a place (normalised) is written, as "0.2500, 0.5000"; elements are told with the middle of their box
    marks  numbered boxes: an element with a mark is told with its number in the place of a point
    """
    numbers = {box: number for number, box in (marks or {}).items()}
    lines: list[tuple[tuple[int, int, int], str]] = []
    for order, element in enumerate(elements(tree)):
        line = _line(element, tree.screen, point, None if marks is None else numbers)
        if line is not None:
            lines.append(((_rank(element), element.window, order), line))
    cost = sum(tokens(line) for _, line in lines)
    dropped: set[tuple[int, int, int]] = set()
    for key, line in sorted(lines, reverse=True):
        if cost + (tokens(_rest(len(dropped))) if dropped else 0) <= budget:
            break
        dropped.add(key)
        cost -= tokens(line)
    kept = "".join(line for key, line in lines if key not in dropped)
    return kept + (_rest(len(dropped)) if dropped else "")


def _rest(count: int) -> str:
    return f"({count} more elements are left out)\n"


def _rank(element: Element) -> int:
    if "focused" in element.node.states:
        return 0
    if element.frame:
        return 1
    if element.empty:
        return 4
    return 2 if element.used else 3


def _line(
    element: Element, screen: tuple[int, int], point: Callable[[Point], str], numbers: Mapping[Box, int] | None
) -> str | None:
    """None for an element that tells nothing."""
    node = element.node
    name, text = _quoted(node.name, NAME), _quoted(node.text or "", TEXT)
    said: list[str] = [state for state in STATES if state in node.states]
    if element.frame:
        active = " (active)" if "active" in node.states else ""
        return " ".join([node.role, *([name] if name else [])]) + f"{active}\n"
    if not element.used and (node.role in HOLDERS or not (name or text)):
        return None
    if node.role in USED and element.disabled:
        said.append("disabled")
    left, top, width, height = box_of(element, screen)
    parts = [node.role]
    if name:
        parts.append(name)
    if text and text != name:
        parts.append(f"text {text}")
    if node.value is not None and node.role in VALUED:
        parts.append(f"value {node.value[0]:g}")
    if said:
        parts.append(f"({', '.join(said)})")
    mark = None if numbers is None else numbers.get((left, top, width, height))
    if numbers is None:
        parts.append(f"at ({point((left + width / 2, top + height / 2))})")
    return f"  {'' if mark is None else f'[{mark}] '}{' '.join(parts)}\n"


def _quoted(text: str, limit: int) -> str:
    """The text on one line in quotes; "" for an empty one."""
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if not plain:
        return ""
    return json.dumps(plain if len(plain) <= limit else plain[: limit - 1] + "…", ensure_ascii=False)
