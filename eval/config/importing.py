"""Objects that a configuration names by import path, `package.module:name`: environments, agents, dialects, rewards;
and the import of large libraries."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from eval.config.strict import ConfigError, missing

FORM: Final = "package.module:name"


@contextmanager
def large_imports() -> Iterator[None]:
    """Around imports of torch, transformers, TRL and the like: no garbage collection until they are done, and none that
    looks at their objects afterwards. They make hundreds of thousands that stay, and each collection would look at all
    of them: a fifth of the CPU time of importing peft."""
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()


def is_path(name: str) -> bool:
    """Whether a name in a configuration is an import path; our own names have no colon."""
    return ":" in name


def load_object(path: str, where: str) -> Any:
    """The object at an import path. Modules are looked for in the working folder (`python -m`) and what is installed.

    Raises ConfigError, which begins with `where` (the field and its value): the path is malformed, there is no such
    module, its own code fails, or it has no such name.
    """
    module_name, _, name = path.partition(":")
    if not name or not all(part.isidentifier() for part in [*module_name.split("."), *name.split(".")]):
        raise ConfigError(f"{where}: is not an import path; allowed: {FORM}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{where}: there is no module {error.name} in the working folder or among what is installed"
            ) from None
        said = missing(error) or _said(error)
        raise ConfigError(f"{where}: {module_name} cannot be imported: {said}") from None
    except Exception as error:  # whatever the module's own code raises
        raise ConfigError(f"{where}: {module_name} cannot be imported: {_said(error)}") from None
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise ConfigError(f"{where}: {module_name} has no {name}")
        target = getattr(target, part)
    return target


def call(function: Callable[..., Any], where: str, *arguments: Any, **named: Any) -> Any:
    """Calls a user's function or class. Raises ConfigError where it does not take these arguments, or itself fails."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: cannot be called with {_shown(arguments, named)}: {error}") from None
    try:
        return function(*arguments, **named)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{where}: {_said(error)}") from error


def require_methods(
    target: object, where: str, methods: Mapping[str, Sequence[str]], *, coroutines: bool = False
) -> None:
    """Raises ConfigError unless `target` has the methods, each callable with the named positional arguments.

    coroutines  each must be an `async def`
    """
    for name, arguments in methods.items():
        written = f"{'async def ' if coroutines else ''}{name}({', '.join(arguments)})"
        method = getattr(target, name, None)
        if not callable(method):
            raise ConfigError(f"{where} has no method {name}; needed: {written}")
        if coroutines and not inspect.iscoroutinefunction(method):
            raise ConfigError(f"{where}: {name} is not a coroutine; needed: {written}")
        try:
            inspect.signature(method).bind(*arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {name} does not take these arguments ({error}); needed: {written}") from None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _shown(arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    positional = [type(argument).__name__ for argument in arguments]
    return f"({', '.join([*positional, *(f'{name}=...' for name in named)])})"
