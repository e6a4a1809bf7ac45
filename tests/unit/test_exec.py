"""A test that replaces the process of pytest by another program is a failed test, and not the end of all."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("name", ["execv", "execve", "execvp", "execvpe", "execl", "execlp"])
def test_the_process_that_runs_the_tests_is_never_replaced(name: str) -> None:
    environ = [dict(os.environ)] if name.endswith("e") else []
    words = ["true"] if name.startswith("execl") else [["true"]]
    with pytest.raises(pytest.fail.Exception, match="it would replace the process that runs the tests"):
        getattr(os, name)("/bin/true", *words, *environ)
