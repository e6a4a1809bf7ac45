"""`@every_case` instead of `@pytest.mark.parametrize` where cases are many and cheap: one item of pytest's for all.

    @every_case(("text", "number"), [("0", 0), ("-1", -1)])
    def test_a_number_is_read(text: str, number: int) -> None:
        assert int(text) == number

All cases run. Each that fails or is skipped is reported, with the line that runs it alone. The cases share the fixtures
of their test, so none may change what another sees: give each a folder of its own in `tmp_path`.
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import pytest

Test = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--case", metavar="NAME", help="run this case only, of a test of many (tests/support/cases.py)")


def every_case(
    names: str | tuple[str, ...],
    cases: Iterable[Any] | Callable[[], Iterable[Any]],
    ids: Iterable[str] | Callable[[Any], object] | None = None,
) -> Callable[[Test], Test]:
    """Names, cases and ids as parametrize takes them. A function that gives the cases is called by the test, and not
    while tests are collected."""
    arguments = (names,) if isinstance(names, str) else names

    def decorated(test: Test) -> Test:
        @functools.wraps(test)
        def run(*, request: pytest.FixtureRequest, subtests: pytest.Subtests, **fixtures: Any) -> None:
            __tracebackhide__ = True
            found = _by_name(cases() if callable(cases) else cases, len(arguments), ids)
            assert found, "there is no case"
            only = request.config.getoption("--case")
            assert only is None or only in found, f"no case {only!r}; there are: {', '.join(found)}"
            skipped = 0
            for name, values in found.items():
                try:
                    if only in (None, name):
                        test(**fixtures, **dict(zip(arguments, values, strict=True)))
                except BaseException as error:
                    if only is not None or "from pytest-timeout" in str(error):
                        raise  # after its time nothing would stop the test again
                    skipped += isinstance(error, pytest.skip.Exception)
                    with subtests.test(shlex.join([".venv/bin/pytest", request.node.nodeid, f"--case={name}"])):
                        raise
            if skipped == len(found):
                pytest.skip("every case")

        kept = [one for name, one in inspect.signature(test).parameters.items() if name not in arguments]
        ours = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("request", "subtests")]
        run.__signature__ = inspect.Signature([*kept, *ours])  # type: ignore[attr-defined]
        return run

    return decorated


def _by_name(cases: Iterable[Any], width: int, ids: Any) -> dict[str, tuple[Any, ...]]:
    """The values of each case by its name as a terminal shows and takes it; a name that came before gets a number."""
    given = iter(ids) if ids is not None and not callable(ids) else None
    found: dict[str, tuple[Any, ...]] = {}
    times: dict[str, int] = {}
    for number, case in enumerate(cases):
        values = (case,) if width == 1 else tuple(case)
        name = next(given) if given else "-".join(str((ids or _plain)(value) or number) for value in values)
        name = name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
        times[name] = times.get(name, 0) + 1
        found[name if times[name] == 1 else f"{name} {times[name]}"] = values
    assert len(found) == sum(times.values()), "two cases have one name"
    return found


def _plain(value: object) -> str | None:
    """A value's name, where it has one that is short to type."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str | int | float | None):
        return str(value)
    return getattr(value, "__name__", None)
