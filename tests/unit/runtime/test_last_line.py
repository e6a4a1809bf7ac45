"""Which line of a command's output is told with its failure."""

from __future__ import annotations

import pytest

from launcher.runtime.uploads.log_stream import inner_code, last_line

LOG = "1128 16:36:59.405000 12087 torch/distributed/elastic/multiprocessing/api.py:1028]"
REPORT = """\
Traceback (most recent call last):
  File ".venv/bin/torchrun", line 10, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
training.rl FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 78 (pid: 12092)
============================================================
"""
CLOSING = f"W{LOG} Sending process 12093 closing signal SIGTERM\n"


def failed(code: int, rank: int) -> str:
    return f"E{LOG} failed (exitcode: {code}) local_rank: {rank} (pid: 12092) of binary: /opt/venv/bin/python\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one\ntwo\n\n", "two"),
        ("x" * 400, "x" * 300),
        ("====\n", "===="),
        (
            f"step 1\nconfig: wrong\n{CLOSING}{failed(78, 0)}{REPORT}",
            "local rank 0 exited with 78: config: wrong",
        ),
        (f"step 1\n{failed(-9, 3)}{REPORT}", "local rank 3 was ended by SIGKILL: step 1"),
        # what the others print when they are told to end
        (f"boom\n{CLOSING}stopped after step 3\n{failed(1, 1)}{REPORT}", "local rank 1 exited with 1: boom"),
        (f"{failed(1, 0)}{REPORT}", "local rank 0 exited with 1"),
        # somebody's table
        (f"step 1\n{failed(1, 0)}total\n=====\nnot found\n", "not found"),
        ("total 3\n=====\n", "====="),
    ],
)
def test_what_is_told(text: str, line: str) -> None:
    assert last_line(text) == line


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", None),
        ("one\n====\n", None),
        (f"config: wrong\n{CLOSING}{failed(78, 0)}{REPORT}", 78),
        (f"step 1\n{failed(-9, 3)}{REPORT}", -9),
        (f"{failed(78, 0)}{REPORT}not its last word\n", None),
    ],
)
def test_how_the_process_of_torchrun_ended(text: str, code: int | None) -> None:
    assert inner_code(text) == code
