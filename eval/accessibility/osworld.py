"""An accessibility tree in the form in which OSWorld's server prints it at /accessibility: XML with six namespaces.

States, attributes, place, value and actions are attributes; the text is the element's own. What XML cannot hold is left
out (characters) or replaced by an underscore (in names); the public server fails there.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from eval.accessibility.tree import Tree, TreeNode

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

for _prefix, _address in NAMESPACES.items():
    ElementTree.register_namespace(_prefix, _address)


def to_xml(tree: Tree) -> str:
    """The whole tree as one document. Read it with `eval.desktops.trees.read_tree(place, whole=True)`."""
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
