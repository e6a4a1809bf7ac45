"""What counts as a number on the calculator's display: any program may call itself galculator."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eval.accessibility.tree import Tree, TreeNode
from eval.benchmarks.linux_desktop.templates.galculator import display


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5,475", Fraction(5475)),
        (" -0.5 ", Fraction(-1, 2)),
        ("1.2e+10", Fraction(12 * 10**9)),
        ("", None),
        ("Error", None),
        ("1.2.3", None),
        ("1e99999999", None),  # Fraction alone computes on this for many seconds
        ("9" * 100_000, None),
    ],
)
def test_what_is_shown(text: str, number: Fraction | None) -> None:
    node = TreeNode(role="text", text=text)
    tree = Tree(applications=[TreeNode(role="application", name="galculator", children=[node])], screen=(100, 100))
    assert display(tree) == number
