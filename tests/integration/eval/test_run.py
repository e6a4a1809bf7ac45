from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from eval import run as entry
from tests.unit.eval.doubles import Counting


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(entry.ENVIRONMENTS, "counting", "tests.unit.eval.doubles")
    Counting.started.clear()
    yield
    Counting.open = 0


def test_eval_and_ingest_come_without_torch() -> None:
    code = (
        "import sys, eval.run, eval.agentnetbench, eval.replay, training.data.ingest.agentnet\n"
        "heavy = {'torch', 'transformers', 'numpy', 'launcher'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
