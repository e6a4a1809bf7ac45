"""Dialects by name: ours from a dict, a user's own by import path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eval.actions.dialects.anthropic import Anthropic
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.computer_13 import Computer13
from eval.actions.dialects.dsl import Dsl
from eval.actions.dialects.openai import OpenAi
from eval.actions.dialects.point import GridPlaceDialect, PlaceDialect
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.dialects.qwen import Qwen3, Qwen25
from eval.actions.dialects.ui_tars import UiTars, UiTars15
from eval.actions.dialects.waa import Waa
from eval.config import ConfigError
from eval.config.importing import FORM, call, is_path, load_object, require_methods

# name -> what makes the dialect of (decimals, marks); a dialect without marks ignores `marks`
DIALECTS: Final[dict[str, Callable[[int, bool], Dialect]]] = {
    "dsl": Dsl,
    "pyautogui": lambda decimals, marks: PyAutoGui(decimals),
    "computer_13": lambda decimals, marks: Computer13(decimals),
    "anthropic-20241022": lambda decimals, marks: Anthropic(decimals, version="20241022"),
    "anthropic-20250124": lambda decimals, marks: Anthropic(decimals, version="20250124"),
    "anthropic-20251124": lambda decimals, marks: Anthropic(decimals, version="20251124"),
    "anthropic-20260801": lambda decimals, marks: Anthropic(decimals, version="20260801"),
    "openai-preview": lambda decimals, marks: OpenAi(decimals, batch=False),
    "openai": lambda decimals, marks: OpenAi(decimals),
    "ui-tars": lambda decimals, marks: UiTars(decimals),
    "ui-tars-1.5": lambda decimals, marks: UiTars15(decimals),
    "qwen2.5-vl": lambda decimals, marks: Qwen25(decimals),
    "qwen3-vl": lambda decimals, marks: Qwen3(decimals),
    "waa": lambda decimals, marks: Waa(decimals, marks=marks),
    "place": lambda decimals, marks: PlaceDialect(decimals),
    "place-1000": lambda decimals, marks: GridPlaceDialect(decimals),
}
# the control tokens of their answers, for texts whose dialect is not known
CONTROL_TOKENS: Final = frozenset(token for make in DIALECTS.values() for token in make(4, False).control_tokens)
METHODS: Final = {
    "format": ("action",),
    "parse": ("text",),
    "format_response": ("action", "thought"),
    "parse_response": ("text",),
    "instructions": (),
    "without_marks": (),
    "sections": ("text",),
    "format_sections": ("action", "sections"),
    "calls": ("text",),
}


def make_dialect(name: str, decimals: int, marks: bool) -> Dialect:
    """The dialect of this name, or the user's own at this import path: a class or a function of (decimals, marks).

    Raises ConfigError, also where marks are asked for and the dialect has none.
    """
    if is_path(name):
        factory = load_object(name, f"prompt.dialect: {name}")
        where = f"prompt.dialect: {name}"
        if not callable(factory):
            raise ConfigError(f"{where} is a {type(factory).__name__}; needed: a class or a function")
        dialect: Dialect = call(factory, where, decimals, marks)
        require_methods(dialect, f"{where}: the {type(dialect).__name__} that it gave", METHODS)
    elif name in DIALECTS:
        dialect = DIALECTS[name](decimals, marks)
    else:
        raise ConfigError(
            f"prompt.dialect: {name!r} is unknown; allowed: {', '.join(DIALECTS)}, or one of your own as {FORM}"
        )
    if marks and not dialect.marks:
        raise ConfigError(f"prompt.marks: dialect {name} has no form with marks")
    return dialect
