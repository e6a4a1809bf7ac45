"""A test of many cases: all of them run, each that fails is named by the line that runs it alone."""

from __future__ import annotations

import re
import shlex

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from tests.support.cases import every_case

@pytest.mark.parametrize("limit", [2])
@every_case(
    ("text", "number"),
    [("one", 1), ("it's two", 2), ("a\\nline", 3), ("a\\nline", 3), ("--no", 1), ("gone", 0)],
)
def test_small(text, number, limit, tmp_path):
    print("looked at", number)
    if not number:
        pytest.skip("nothing to look at")
    assert number < limit, text

@every_case("name", dict, ids=str)
def test_none(name):
    pass

@every_case("name", ["a", "b"])
def test_of_a_missing_tool(name):
    pytest.skip("no such tool")
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\nverbosity_subtests = 1")
    return pytester


def outcome(run: pytest.Pytester, *arguments: str) -> tuple[dict[str, int], str]:
    """(how many of each outcome, what was printed)."""
    done = run.runpytest_inprocess("-ra", "-p", "tests.support.cases", "-p", "no:xdist", *arguments)
    return done.parseoutcomes(), done.stdout.str()


def test_no_case_hides_another_and_each_failed_one_runs_alone_by_its_line(run: pytest.Pytester) -> None:
    counts, said = outcome(run, "test_it.py::test_small")
    assert counts == {"failed": 4, "skipped": 1}  # three cases, and the test
    lines = re.findall(r"^SUBFAILED\[(.*)\] test_it", said, re.MULTILINE)
    cases = [shlex.split(line)[-1] for line in lines]
    assert cases == ["--case=it's two-2", r"--case=a\nline-3", r"--case=a\nline-3 2"]
    for line, number in zip(lines, (2, 3, 3), strict=True):
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/pytest"
        counts, said = outcome(run, *arguments)
        assert counts == {"failed": 1}
        assert re.findall(r"looked at (\d)", said) == [str(number)]
    assert outcome(run, "test_it.py::test_small", "--case=--no-1")[0] == {"passed": 1}
    assert outcome(run, "test_it.py::test_small", "--case=gone-0")[0] == {"skipped": 1}
    counts, said = outcome(run, "test_it.py::test_small", "--case=two")
    assert counts == {"failed": 1}
    assert "no case 'two'; there are: one-1, it's two-2, " in said


def test_no_case_at_all_is_a_failure(run: pytest.Pytester) -> None:
    counts, said = outcome(run, "test_it.py::test_none")
    assert counts == {"failed": 1}
    assert "there is no case" in said


def test_a_test_whose_cases_are_all_skipped_is_skipped(run: pytest.Pytester) -> None:
    assert outcome(run, "test_it.py::test_of_a_missing_tool")[0] == {"skipped": 3}


def test_the_time_of_a_test_ends_it(run: pytest.Pytester) -> None:
    """The limit is the test's: after it nothing would end the next case."""
    run.makepyfile(
        test_slow="""
        import threading
        from tests.support.cases import every_case

        @every_case("seconds", [60, 61])
        def test_slow(seconds):
            threading.Event().wait(seconds)
        """
    )
    counts, said = outcome(run, "test_slow.py", "--timeout=0.2")
    assert counts == {"failed": 1}
    assert "from pytest-timeout" in said
