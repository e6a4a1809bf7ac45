"""What solved a template with one seed does not solve it with another: the oracles of many seeds are compared, without
a desktop. Where it clicks an entry that has a drawn name, the entry's place among the names counts, not the name."""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterator
from typing import Any

from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import Instance

SEEDS = 60
EACH = 0.08  # of two seeds' oracles of a template, the share that may do the same
ALL = 0.01  # on the average, which is what `eval.audit` allows a replay
PLACES = ("table cell", "label", "icon", "list item", "tree item")  # what is clicked where it stands


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.items() if isinstance(value, dict) else value:
            yield from _texts(one)


class Recorder(OracleActions):
    """Writes down what an oracle does, and finds whatever it looks for."""

    def __init__(self, task: Instance) -> None:
        super().__init__(Tree(screen=(1280, 720), applications=[]))
        self.done: list[tuple[Any, ...]] = []
        self._names = sorted({text.casefold() for text in _texts(task.asked())})

    def _node(self, role: str, name: str | None) -> TreeNode:
        return TreeNode(role=role, name=(name or "").removeprefix("="), bounds=(10, 10, 10, 10), states=["showing"])

    def _did(self, *what: Any) -> Work:
        self.done.append(what)
        return
        yield

    def _place(self, role: str, name: str) -> object:
        """The rank of a drawn name among all, of what is clicked where it stands."""
        drawn = name.casefold()
        return self._names.index(drawn) if role in PLACES and drawn in self._names else name

    def seen(self, role: str, name: str | None = None, program: str | None = None) -> TreeNode | None:
        return self._node(role, name)

    def wait(self, role: str, name: str | None = None, program: str | None = None) -> Generator[Any, Tree, TreeNode]:
        return self._node(role, name)
        yield

    def wait_for(self, look: Callable[[], Any], what: str) -> Generator[Any, Tree, Any]:
        return self._node("", what)
        yield

    def soon(self, look: Callable[[], Any]) -> Generator[Any, Tree, Any]:
        return True
        yield

    def in_front(self, name: str) -> Generator[Any, Tree, TreeNode]:
        return self._node("frame", name)
        yield

    def focused(self, role: str) -> Generator[Any, Tree, TreeNode]:
        return self._node(role, None)
        yield

    def wait_gone(self, role: str, name: str | None = None) -> Work:
        return
        yield

    def do(self, action: Action, node: TreeNode | None = None) -> Work:
        return self._did(action.type, action.keys, action.text)

    def click(
        self, role: str, name: str | None = None, kind: ActionType = ActionType.CLICK, program: str | None = None
    ) -> Work:
        return self.click_on(self._node(role, name), kind)

    def click_on(self, node: TreeNode, kind: ActionType = ActionType.CLICK, modifiers: tuple[str, ...] = ()) -> Work:
        return self._did(kind, node.role, self._place(node.role, node.name))

    def click_field_of(self, role: str, name: str) -> Work:
        return self._did("field", role, name)

    def choose_file(self, path: str) -> Work:
        return self._did("file", path)

    def to_window(self, name: str) -> Work:
        return self._did("window")


def _same(template: type[Instance]) -> float:
    """Of two seeds' oracles, the share that do the same."""
    done: collections.Counter[tuple[Any, ...]] = collections.Counter()
    for seed in range(SEEDS):
        task = instance(template.about.name, "test", 1_000_000 + seed)
        hand = Recorder(task)
        for _ in task.oracle(hand):
            pass
        done[tuple(hand.done)] += 1
    return sum(count * (count - 1) for count in done.values()) / (SEEDS * (SEEDS - 1))


def test_no_template_is_solved_by_what_solved_another_seed() -> None:
    shares = {name: _same(each) for name, each in TEMPLATES.items() if not each.about.infeasible}
    often = {name: round(share, 3) for name, share in shares.items() if share > EACH}
    assert not often
    assert sum(shares.values()) / len(shares) <= ALL
