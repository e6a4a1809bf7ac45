"""Refuses what no value of a job or a profile may hold: secrets, NUL characters, values of Python that no file has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.spec.secrets.tokens import has_token
from launcher.spec.values.source import Route
from launcher.spec.values.types import Context

_DEEPEST: Final = 100  # levels of a value; one that holds itself has no end


def plain(at: Context, value: Any, route: Route = ()) -> Any:
    """A value of Python as a file would give it: a mapping as a dict, a tuple as a list, an Enum's member as its value.
    Adds a problem for what is none, without showing it: it may hold a secret."""
    if len(route) > _DEEPEST:
        at.problem(route, f"is nested deeper than {_DEEPEST} levels, or holds itself", "a shallower value")
        return None
    if isinstance(value, str):  # or an Enum's member that is one
        text = str.__str__(value)
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            at.problem(route, "holds half of a character (a lone surrogate), which no file can", "Unicode texts")
            return None
        return text
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Mapping):
        made = {}
        for key, item in value.items():
            if not isinstance(key, str):
                told = str(key) if key is None or type(key) in (bool, int, float) else f"of type {type(key).__name__}"
                at.problem(route, f"the key {told} is not a text", "texts")
                continue
            if (name := plain(at, key, route)) is not None:
                made[name] = plain(at, item, (*route, name))
        return made
    if isinstance(value, list | tuple):
        return [plain(at, item, (*route, index)) for index, item in enumerate(value)]
    for kind in (int, float):  # an Enum's member, a number of numpy's
        if isinstance(value, kind):
            return kind(value)
    allowed = "texts, numbers, true, false, null, and lists and mappings of them"
    at.problem(route, f"a value of type {type(value).__name__} stands in no file", allowed)
    return None


def refuse_tokens(at: Context, value: Any, route: Route = ()) -> None:
    """Adds a problem for every token in a value, keys included. The problem never shows the token."""
    if type(value) is str:
        if has_token(value):
            at.problem(route, "looks like a secret", "the name of a secret under `secrets`, set by `launcher secrets`")
    elif type(value) is dict:
        for key, item in value.items():
            if has_token(key):
                at.problem((*route, key), "the key looks like a secret", "a name", key=True)
            refuse_tokens(at, item, (*route, key))
    elif type(value) is list:
        for index, item in enumerate(value):
            refuse_tokens(at, item, (*route, index))


def refuse_nul(at: Context, value: Any, route: Route = ()) -> None:
    """Adds a problem for every NUL in a value, keys included. Arguments, environment variables and file names cannot
    hold a NUL, so the command could never start."""
    if type(value) is str:
        if "\0" in value:
            at.problem(route, "holds a NUL (\\0), which no program can be given", "texts without it")
    elif type(value) is dict:
        for key, item in value.items():
            if "\0" in key:
                at.problem((*route, key), "the key holds a NUL (\\0)", "texts without it", key=True)
            refuse_nul(at, item, (*route, key))
    elif type(value) is list:
        for index, item in enumerate(value):
            refuse_nul(at, item, (*route, index))
