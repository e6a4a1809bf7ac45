"""docs/reference/extending.md names what a new part must have: every method of every contract, with its docstring."""

from __future__ import annotations

import inspect
from pathlib import Path

from tests.support.cases import every_case
from tools.reference.extending import CONTRACTS, load

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/extending.md").read_text(encoding="utf-8")
NAMES = [name for _, names in CONTRACTS.values() for name in names]


@every_case("name", NAMES)
def test_every_part_of_a_contract_is_on_the_page(name: str) -> None:
    item = load(name)
    assert f"### `{name.partition(':')[2] or name}`" in PAGE
    assert inspect.getdoc(item), f"{name} has no docstring"
    for method, function in vars(item).items() if inspect.isclass(item) else ():
        if not method.startswith("_") and inspect.isfunction(function):
            assert f"def {method}(" in PAGE


def test_the_page_shows_no_address_in_memory() -> None:
    assert " at 0x" not in PAGE
    assert "<class" not in PAGE
