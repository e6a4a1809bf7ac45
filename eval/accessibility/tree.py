"""An accessibility tree: the windows of a desktop as its programs describe them. `to_xml` writes it as OSWorld's server
prints it at /accessibility; the text is the element's own, all else are attributes.

The XML leaves out characters that XML cannot hold, and writes an underscore for them in names; the public server fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree

import msgspec

Bounds = tuple[int, int, int, int]  # left, top, width, height; pixels of the screen


class TreeNode(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One object of a program.

    role        AT-SPI's name of what it is, such as `push button`
    name        what the program calls it; `description` says more, where the program does
    states      AT-SPI's names, such as showing, focused, checked; in the order of their numbers
    bounds      where it is, in pixels of the screen; None: it is not shown, or has no place
    text        its text, where it has one; never that of a password field
    value       (value, smallest, largest, step) of a slider, a spin button and the like
    attributes, actions  only in a tree that was read whole; an action is (name, description, keys)
    interfaces  AT-SPI's names of what can be asked of it, such as Text
    """

    role: str
    name: str = ""
    description: str = ""
    states: tuple[str, ...] = ()
    bounds: Bounds | None = None
    text: str | None = None
    value: tuple[float, float, float, float] | None = None
    attributes: dict[str, str] = {}
    actions: tuple[tuple[str, str, str], ...] = ()
    interfaces: tuple[str, ...] = ()
    children: list[TreeNode] = []


class Tree(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the programs of a desktop tell, and what was left out of it.

    applications  a node for each program, in the order in which they came
    cut           a line for each thing that is missing: a limit that was met, a program that did not answer
    screen        width and height in pixels
    windows       the places of the windows on the screen, as they lie above one another, the lowest first
    working       whether some program of the desktop was at work right before: what is missing may come yet. False also
                  where nobody knows
    """

    applications: list[TreeNode] = []
    cut: list[str] = []
    screen: tuple[int, int] = (0, 0)
    windows: list[Bounds] = []
    working: bool = False

    def nodes(self) -> Iterator[TreeNode]:
        """Every node, each before its children, in the order of the tree. The depth of a tree is no limit."""
        left = list(reversed(self.applications))
        while left:
            node = left.pop()
            yield node
            left.extend(reversed(node.children))

    def to_json(self) -> dict[str, Any]:
        """As JSON; fields without a value are left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, data: Any) -> Tree:
        """The inverse. Raises msgspec.ValidationError."""
        return msgspec.convert(data, cls)


def mend_places(tree: Tree) -> None:
    """Moves what LibreOffice puts too high.

    With GTK 3 (seen with 7.4) its root pane fills a panel of GTK, and it forgets the menu bar above that panel: what it
    draws itself is told higher than it is by the height of the menu bar. The widgets of GTK in it have their right
    places: each lies in a panel of LibreOffice of its size.
    """
    for parent in tree.nodes():
        for child in parent.children:
            if child.role == "root pane" and child.bounds and parent.bounds and child.bounds[2:] == parent.bounds[2:]:
                _move(child, parent.bounds[0] - child.bounds[0], parent.bounds[1] - child.bounds[1])


def _move(root: TreeNode, across: int, down: int) -> None:
    left: list[tuple[TreeNode, Bounds | None]] = [(root, None)] if across or down else []
    while left:
        node, above = left.pop()
        told = node.bounds
        if told is not None:
            right = (told[0] - across, told[1] - down)
            if above is not None and right == above[:2] and _alike(told, above):
                continue  # a widget of GTK
            node.bounds = (told[0] + across, told[1] + down, told[2], told[3])
        left += [(child, told) for child in node.children]


def _alike(one: Bounds, other: Bounds) -> bool:
    """The same size, but for a border."""
    return abs(one[2] - other[2]) <= 2 and abs(one[3] - other[3]) <= 2


_BASE: Final = "https://accessibility.ubuntu.example.org/ns/"
NAMESPACES: Final = {
    prefix: _BASE + name
    for prefix, name in (
        ("st", "state"),
        ("attr", "attributes"),
        ("cp", "component"),
        ("txt", "text"),
        ("val", "value"),
        ("act", "action"),
    )
}
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLACEHOLDERS: Final = re.compile("[\ufffc\ufffd]")  # stand for embedded objects; the public server drops them too
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_FLAGS: Final = {"Image": "image", "Selection": "selection"}


def to_xml(tree: Tree) -> str:
    """The whole tree as one document. Read it with `eval.desktops.trees.read_tree(place, whole=True)`."""
    for prefix, address in NAMESPACES.items():
        ElementTree.register_namespace(prefix, address)
    root = ElementTree.Element("desktop-frame")
    left = [(root, node) for node in reversed(tree.applications)]
    while left:
        parent, node = left.pop()
        element = ElementTree.SubElement(parent, node.role.replace(" ", "-"), _attributes(node))
        if text := _PLACEHOLDERS.sub("", _clean(node.text or "")):
            element.text = text
        left.extend((element, child) for child in reversed(node.children))
    return ElementTree.tostring(root, encoding="unicode")


def _attributes(node: TreeNode) -> dict[str, str]:
    out = {"name": _clean(node.name)}
    out.update({_name("st", state): "true" for state in node.states})
    out.update({_name("attr", name): _clean(value) for name, value in node.attributes.items() if name})
    if node.bounds is not None:
        out[_name("cp", "screencoord")] = str(node.bounds[:2])
        out[_name("cp", "size")] = str(node.bounds[2:])
    out.update({name: "true" for interface, name in _FLAGS.items() if interface in node.interfaces})
    if node.value is not None:
        out.update(
            {
                _name("val", name): str(number)
                for name, number in zip(("value", "min", "max", "step"), node.value, strict=True)
            }
        )
    for name, description, keys in node.actions:
        out[_name("act", f"{name.replace(' ', '-')}_desc")] = _clean(description)
        out[_name("act", f"{name.replace(' ', '-')}_kb")] = _clean(keys)
    return out


def _name(prefix: str, name: str) -> str:
    safe = _NOT_NAME.sub("_", name)
    return f"{{{NAMESPACES[prefix]}}}{safe if safe[:1].isalpha() or safe[:1] == '_' else '_' + safe}"


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)
