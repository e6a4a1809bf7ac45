"""Answers whose actions stand in fences of three backticks, with text before them. Every scan here is linear."""

from __future__ import annotations

from typing import Final, NamedTuple

from eval.actions import ParseError

TICKS: Final = "```"


class Fence(NamedTuple):
    """One fenced text; `language` is the word after the opening backticks, in lower case, or ""."""

    language: str
    body: str


def split_fences(text: str) -> tuple[str, list[Fence], str]:
    """(the text before the first fence, the fences, all text between and after them).

    Raises ParseError for a fence that is not closed. Backticks count at the beginning of a line, alone or, where they
    open a fence, with a word.
    """
    before: list[str] = []
    after: list[str] = []
    fences: list[Fence] = []
    language: str | None = None  # of the open fence
    body: list[str] = []
    for line in text.split("\n"):
        word = line.strip().removeprefix(TICKS).strip() if line.strip().startswith(TICKS) else None
        if language is None and word is not None and (not word or word.isidentifier()):
            language, body = word.lower(), []
        elif language is not None and word == "":
            fences.append(Fence(language, "\n".join(body).strip()))
            language = None
        elif language is not None:
            body.append(line)
        else:
            (after if fences else before).append(line)
    if language is not None:
        raise ParseError("a fence that is not closed")
    return "\n".join(before).strip(), fences, "\n".join(after).strip()
