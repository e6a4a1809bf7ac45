"""A Python without the extra `train` refuses a job of ours at the submit; all else is the command's own matter."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from launcher.backends.local import backend


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that has Slipway, and neither torch nor transformers nor PIL."""
    absent = ("torch", "transformers", "PIL")
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name in absent else find_spec(name))


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["python", "-m", "training.sft", "--config", "x"], "PIL, torch, transformers"),
        (["python3", "-u", "-m", "training.rl"], "PIL, torch, transformers"),
        (["torchrun", "--nproc-per-node", "2", "-m", "training.sft"], "PIL, torch, transformers"),
        (["python", "-m", "training.data", "pack"], "PIL"),
        (["python", "-m", "eval.run"], "PIL"),
    ],
)
def test_what_is_missing_is_named(command: list[str], missing: str) -> None:
    said = backend.lacking(command, {})
    assert said is not None
    assert f"needs the Python packages {missing}, which {sys.executable} lacks" in said
    assert "extra `train`" in said


@pytest.mark.parametrize(
    ("command", "env"),
    [
        (["python", "-m", "training.plan"], {}),
        (["python", "-m", "eval.replay"], {}),
        (["python", "-m", "trainings.sft"], {}),  # somebody else's
        (["python", "train.py", "-m"], {}),
        (["bash", "-c", "python -m training.sft"], {}),
        (["/opt/venv/bin/python", "-m", "training.sft"], {}),  # another Python
        (["python", "-m", "training.sft"], {"PATH": "/opt/venv/bin"}),
        ([], {}),
    ],
)
def test_what_this_python_does_not_decide_is_left_alone(command: list[str], env: dict[str, str]) -> None:
    assert backend.lacking(command, env) is None


def test_with_the_packages_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "find_spec", lambda name: find_spec("json"))
    assert backend.lacking(["python", "-m", "training.sft"], {}) is None
