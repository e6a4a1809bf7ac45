"""The examples that bring code: git lists its files."""

from __future__ import annotations

import pytest

from tests.unit.spec.test_schema import EXAMPLES, brings_code, whole_example


@pytest.mark.parametrize("name", [name for name, path in EXAMPLES.items() if brings_code(path)])
def test_examples_load_resolve_and_fit_the_schema(name: str) -> None:
    whole_example(EXAMPLES[name])
