"""What an expert does on a form: it reads the accessibility tree and goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.benchmarks.gtk_forms.forms import GtkForm
from eval.desktop import Expected

DONE: Final = Expected(Action(ActionType.DONE))


def next_action(form: GtkForm, tree: Tree) -> Expected:
    """The expert's next action from the state that the tree shows, however it came to it; FAIL where the tree does not
    show what it needs."""
    try:
        return next(_RULES[form.kind](form, tree), DONE)
    except LookupError as error:
        return Expected(Action(ActionType.FAIL, text=f"not to be seen: {error}"))


Steps = Iterator[Expected]


def _node(tree: Tree, role: str, name: str) -> TreeNode:
    for node in tree.nodes():
        if node.role == role and node.name == name and "showing" in node.states and node.bounds:
            return node
    raise LookupError(f"{role} {name}")


def _click(tree: Tree, role: str, name: str, kind: ActionType = ActionType.CLICK) -> Expected:
    """A click into the middle of what is shown of an element."""
    bounds = _node(tree, role, name).bounds
    assert bounds is not None
    (left, top, wide, high), (width, height) = bounds, tree.screen
    right, bottom = min(width, left + wide), min(height, top + high)
    left, top = max(0, left), max(0, top)
    box = (left / width, top / height, (right - left) / width - 1e-9, (bottom - top) / height - 1e-9)
    return Expected(Action(kind, x=(left + right) / 2 / width, y=(top + bottom) / 2 / height), box)


def _has(tree: Tree, role: str, name: str, state: str) -> bool:
    return state in _node(tree, role, name).states


def _asked(form: GtkForm, kind: str) -> dict[str, Any]:
    """The elements of a kind, with the state that they must have at the end."""
    elements = list(form.shown["elements"] or ())
    for page in form.shown["pages"] or ():
        elements += page["elements"]
    return {element["name"]: form.goal[element["name"]] for element in elements if element["kind"] == kind}


def _told(tree: Tree, name: str) -> bool:
    """Whether the form tells that this was pressed or chosen last."""
    return any(node.role == "label" and node.name == f"{name} done" for node in tree.nodes())


def _pressed(form: GtkForm, tree: Tree) -> Steps:
    for name, times in _asked(form, "button").items():
        if times and not _told(tree, name):
            yield _click(tree, "push button", name)


def _set(kind: str, role: str) -> Callable[[GtkForm, Tree], Steps]:
    def rule(form: GtkForm, tree: Tree) -> Steps:
        for name, value in _asked(form, kind).items():
            if _has(tree, role, name, "checked") != value and (value or kind != "radio"):
                yield _click(tree, role, name)

    return rule


def _written(form: GtkForm, tree: Tree) -> Steps:
    for name, word in _asked(form, "entry").items():
        entry = _node(tree, "text", name)
        if (entry.text or "") == word:
            continue
        if "focused" in entry.states:
            yield Expected(Action(ActionType.TYPE, text=word))
        yield _click(tree, "text", name, ActionType.TRIPLE_CLICK if entry.text else ActionType.CLICK)


def _selected(form: GtkForm, tree: Tree) -> Steps:
    if not _has(tree, "list item", form.goal["rows"], "selected"):
        yield _click(tree, "list item", form.goal["rows"])
    if not _told(tree, "Open"):
        yield _click(tree, "push button", "Open")


def _chosen(form: GtkForm, tree: Tree) -> Steps:
    asked = next(name for name, times in form.goal.items() if times)
    menu, item = asked.split("/")
    if _told(tree, asked):
        return
    if not _has(tree, "menu", menu, "selected"):
        yield _click(tree, "menu", menu)
    yield _click(tree, "menu item", item)


def _counted(form: GtkForm, tree: Tree) -> Steps:
    labels = [node for node in tree.nodes() if node.role == "label" and node.name.isdigit() and node.bounds]
    labels.sort(key=lambda node: node.bounds[1] if node.bounds else 0)  # from top to bottom, as the form was drawn
    asked = _asked(form, "count")
    if len(labels) != len(asked):
        raise LookupError(f"{len(asked)} numbers")
    for now, (name, value) in zip((int(node.name) for node in labels), asked.items(), strict=True):
        if now != value:
            yield _click(tree, "push button", f"{name} {'+' if value > now else '-'}")


def _turned(form: GtkForm, tree: Tree) -> Steps:
    for page in form.shown["pages"]:
        for element in page["elements"]:
            if form.goal[element["name"]]:
                if not _has(tree, "page tab", page["name"], "selected"):
                    yield _click(tree, "page tab", page["name"])
                if not _has(tree, "check box", element["name"], "checked"):
                    yield _click(tree, "check box", element["name"])


_RULES: Final[dict[str, Callable[[GtkForm, Tree], Steps]]] = {
    "press": _pressed,
    "tick": _set("check", "check box"),
    "choose": _set("radio", "radio button"),
    "switch": _set("switch", "toggle button"),
    "write": _written,
    "replace": _written,
    "select": _selected,
    "menu": _chosen,
    "count": _counted,
    "page": _turned,
}
