"""Which packages a job's command needs that this Python lacks: said at the submit, before the run would fail."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from launcher.spec.code.environment import interpreter
from launcher.trees import document

_STARTERS: Final = ("python", "python3", "torchrun", "accelerate")  # found in this Python's folder, first on the PATH
_PICTURES: Final = ("PIL",)
_MODELS: Final = ("PIL", "torch", "transformers")
# Programs of ours -> modules that they import; the longest name that fits decides
_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "eval": _PICTURES,
    "eval.export": (),
    "eval.osworld": (),
    "eval.replay": (),
    "training": _MODELS,
    "training.data": _PICTURES,
    "training.make_episodes": _PICTURES,
    "training.plan": (),
    "training.reference": (),
}


def lacking(command: Sequence[str], env: Mapping[str, str], python: str = "") -> str | None:
    """Why `command` cannot run in this Python, or in the one of the path `python`; None where it can, or is not one of
    our programs. A command with a PATH or PYTHONPATH of its own (`env`) may find another Python or more packages, and
    is left alone. Raises BadInput where `python` cannot be started."""
    if not command or command[0] not in _STARTERS or "-m" not in command[:-1] or {"PATH", "PYTHONPATH"} & set(env):
        return None
    program = command[command.index("-m") + 1]
    fits = [name for name in _NEEDS if program == name or program.startswith(f"{name}.")]
    if not fits:
        return None
    needed = _NEEDS[max(fits, key=len)]
    if python:
        needed = (program.partition(".")[0], *needed)
        there = interpreter(python, needed).packages
        missing = [module for module in needed if module not in there]
    else:
        missing = [module for module in needed if find_spec(module) is None]
    if not missing:
        return None
    return (
        f"`{program}` needs the Python packages {', '.join(missing)}, which {python or sys.executable} lacks: install "
        f"Slipway with its extra `train` there ({document('docs/howto/install.md')}), name another Python "
        "(slipway.yaml, `local: {python: PATH}`), or choose a backend that runs images"
    )
