"""Calls of a desktop with a time limit, and with no other errors than those that an episode knows."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from eval.config import ConfigError
from eval.desktop import ActionRefused, BrokenByAgent, DesktopTimeout, EnvironmentFault, InfraError

T = TypeVar("T")
_faults: set[str] = set()  # places of the environments' code that raised what they must not


async def timed(call: Awaitable[T], seconds: float, name: str) -> T:
    """The result of a desktop's call. Raises DesktopTimeout after `seconds`, and EnvironmentFault for an exception that
    a desktop must not raise: one task with which a scene or a judge does not reckon must not end all the others."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except (InfraError, BrokenByAgent, ActionRefused, ConfigError):
        raise
    except TimeoutError:
        raise DesktopTimeout(f"{name} took longer than {seconds:g} s") from None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        if where not in _faults:  # once in full: the same fault may come with every task
            _faults.add(where)
            traceback.print_exception(error)
        raise EnvironmentFault(f"{name}: {type(error).__name__}: {error} ({where})") from error
