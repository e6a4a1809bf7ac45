"""Compares the packages of this machine with those that a local run is named for, directly before its command: they may
have been changed while it was queued, or between two attempts."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.reasons import Reason
from launcher.runtime.settings import AttemptError
from launcher.spec.environment import IGNORED, PYTHON, is_local, other_packages
from launcher.spec.model import Role


def check_packages(role: Role, environ: Mapping[str, str]) -> None:
    """Raises AttemptError (config_error) where they differ. A role with an image, or of a queue that an older launcher
    filled, is not looked at."""
    wanted, ignored = role.image.environment, environ.get(IGNORED)
    if not is_local(wanted) or ignored is None:
        return
    why = other_packages(wanted, [name for name in ignored.split(",") if name], environ.get(PYTHON, ""))
    if why is not None:
        raise AttemptError(Reason.CONFIG_ERROR, why)
