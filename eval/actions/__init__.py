"""What an agent can do (`action`), where on a screen (`geometry`), and the ways to write it (`dialects`)."""

from eval.actions.action import (
    DIRECTIONS,
    FIELDS,
    Action,
    ActionError,
    ActionType,
    ImpossibleAction,
    OutOfRange,
    ParseError,
    Unrepresentable,
)

__all__ = [
    "DIRECTIONS",
    "FIELDS",
    "Action",
    "ActionError",
    "ActionType",
    "ImpossibleAction",
    "OutOfRange",
    "ParseError",
    "Unrepresentable",
]
