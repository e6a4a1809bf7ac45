"""Which turns of a group began in the same state of the screen: GiGPO's anchor states.

Where an observation has an accessibility tree, the state is what the programs tell of everything that is shown: roles,
names, texts, values, places and the states that an action can change. The picture is not looked at, so neither the
pointer nor a blinking caret matters.

Without a tree the state is the picture, cell by cell (32 pixels wide and high). Cells that the pointer touches are left
out of a comparison, if the environment says where the pointer is (`info["pointer"]`) or draws none. All others must be
equal: two states that are taken for one give a wrong advantage, while one state that is taken for two only gives no
advantage of its steps. A blinking caret is such a case. So ask the environment for trees where it has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
from PIL import Image

from eval.accessibility.names import PASSWORD
from eval.accessibility.tree import Tree
from eval.desktop import Observation

CELL: Final = 32  # pixels
POINTER: Final = 32  # pixels around the hot spot in which every common pointer lies
DIGEST: Final = 8  # bytes of a cell's hash
_KEPT: Final = """
checked, collapsed, editable, enabled, expanded, focused, iconified, indeterminate, invalid_entry, modal, pressed,
read_only, selected, sensitive, showing, visible
"""
# AT-SPI's states that an action changes; what is left out (armed, active, ...) flickers while one looks
STATES: Final = frozenset(" ".join(_KEPT.split()).split(", "))


@dataclass(frozen=True)
class ScreenState:
    """What an observation is compared by; small enough to keep for every turn.

    tree    the hash of the accessibility tree, or None
    cells   the hash of each cell of the picture, row by row; empty where the tree tells everything
    hidden  the cells that the pointer may touch
    size    of the picture, in pixels
    """

    tree: str | None
    size: tuple[int, int]
    cells: tuple[bytes, ...] = ()
    hidden: frozenset[int] = frozenset()

    def same(self, other: ScreenState) -> bool:
        """Whether both are the same state, as far as the pointers let it be seen."""
        if (self.tree, self.size) != (other.tree, other.size):
            return False
        unseen = self.hidden | other.hidden
        pairs = enumerate(zip(self.cells, other.cells, strict=True))
        return all(one == two or place in unseen for place, (one, two) in pairs)


def screen_state(observation: Observation) -> ScreenState:
    """The state of the screen in an observation."""
    image, tree = observation.image, observation.tree
    told = None if tree is None else _tree_hash(tree)
    if tree is not None and not any(node.role == PASSWORD for node in tree.nodes()):
        return ScreenState(told, image.size)
    pointer = observation.info.get("pointer")
    hidden = frozenset[int]() if pointer is None else _under(pointer, image.size)
    return ScreenState(told, image.size, _cells(image), hidden)


def state_keys(states: Iterable[ScreenState]) -> list[str]:
    """A key for each state, in their order; the same key for the same state.

    A state gets the key of the first one before it that it equals. Being equal is not transitive where pointers hide
    cells, so the order of the states may matter there; for one order the keys are always the same.
    """
    firsts: list[ScreenState] = []
    keys = []
    for state in states:
        at = next((number for number, first in enumerate(firsts) if first.same(state)), len(firsts))
        if at == len(firsts):
            firsts.append(state)
        keys.append(f"state-{at}")
    return keys


def _tree_hash(tree: Tree) -> str:
    told = hashlib.sha256()
    for node in tree.nodes():
        if "showing" not in node.states and node.bounds is None:
            continue
        states = sorted(STATES.intersection(node.states))
        told.update(msgspec.json.encode((node.role, node.name, node.text, node.value, node.bounds, states)))
    return told.hexdigest()


def _cells(image: Image.Image) -> tuple[bytes, ...]:
    picture = image.convert("RGB")
    width, height = picture.size
    return tuple(
        hashlib.blake2b(
            picture.crop((left, top, min(left + CELL, width), min(top + CELL, height))).tobytes(), digest_size=DIGEST
        ).digest()
        for top in range(0, height, CELL)
        for left in range(0, width, CELL)
    )


def _under(pointer: tuple[int, int], size: tuple[int, int]) -> frozenset[int]:
    """The numbers of the cells that a pointer with this hot spot may touch."""
    columns, rows = -(-size[0] // CELL), -(-size[1] // CELL)
    x, y = pointer
    across = range(max(0, (x - POINTER) // CELL), min(columns, (x + POINTER) // CELL + 1))
    down = range(max(0, (y - POINTER) // CELL), min(rows, (y + POINTER) // CELL + 1))
    return frozenset(row * columns + column for row in down for column in across)
