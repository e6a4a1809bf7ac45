"""The checkers written apart (tests/bench/apart) read every instruction of their templates, and tell the start from the
end, without a desktop."""

from __future__ import annotations

import pytest

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.templates.file_tasks import FileTask
from tests.bench.apart.checkers import CHECKERS
from tests.bench.apart.state import State
from tests.support.needs import need

PROGRAMS = {"mousepad", "galculator", "thunar", "xterm", "gpicview", "localc", "lowriter", "chromium"}
BY_FILES = [name for name in CHECKERS if issubclass(TEMPLATES[name], FileTask)]
OFFICE = ("calc-", "writer-")


def test_there_are_many_of_all_programs() -> None:
    assert len(CHECKERS) >= 30
    assert {program for name in CHECKERS for program in TEMPLATES[name].about.programs} == PROGRAMS


@pytest.mark.parametrize("name", BY_FILES)
def test_a_checker_tells_the_start_from_the_end(name: str) -> None:
    if name.startswith(OFFICE):
        need("office")
    seeds = [("test", 1_000_000)] if name.startswith(OFFICE) else [("test", 1_000_001), ("train", 5)]
    for split, seed in seeds:
        drawn = instance(name, split, seed)  # type: ignore[arg-type]
        assert isinstance(drawn, FileTask)
        before, after = State(dict(drawn.before)), State(dict(drawn.after))
        assert CHECKERS[name](drawn.instruction, before, after)
        assert not CHECKERS[name](drawn.instruction, before, State(dict(drawn.before)))
