"""A test that replaces the process of pytest by another program is a failed test, and not the end of all."""

from __future__ import annotations

import os
import sys


def test_a_process_that_a_test_forked_may_be_replaced() -> None:
    pid = os.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-S", "-c", "import os; os._exit(7)"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
