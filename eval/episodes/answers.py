"""What an answer of a model holds besides its actions: tokens, and the calls of tools."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Tokens = Annotated[int, msgspec.Meta(ge=0)]


class TokenUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Tokens of one answer, as its server counts them.

    input_tokens   of the prompt, those from a cache among them
    output_tokens  of the answer, its reasoning among them
    cached_tokens  of the prompt, those that the server read from its cache
    """

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cached_tokens: Tokens = 0


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A call of a tool in an answer, and what the tool gave back.

    id         the model's name for the call
    name       of the tool
    arguments  as the model gave them; {} where they were no JSON object, the raw answer has them then
    result     what was given back, in words; None before the tool ran, and for a tool that was not run
    error      why the tool failed, or why it was not run
    """

    name: str
    id: str = ""
    arguments: dict[str, Any] = {}
    result: str | None = None
    error: str | None = None
