"""Control tokens in texts of prompts and answers: what others wrote is literal text. docs/explanation/control-tokens.md
says what is done where."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

# A sampled one would stand for an image that does not exist: TRL and the processors fail on it, or drop real images.
VISION_TOKENS: Final = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")
CONTROL: Final = re.compile(r"<\|[^\s|<>]+\|>")  # the form of the control tokens of Qwen, Kimi, Llama, Phi and others

# Of other families what separates turns or marks a picture's place: Gemma 3 and 4, Llama 2, Mistral, DeepSeek,
# InternVL, LLaVA, GLM; and those of OpenCUA in brackets. No name holds another token, and brackets are told first.
BRACKETS: Final = re.compile(
    r"\[(?:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|THINK)|TOOL_CALLS|TOOL_CONTENT|IMG(?:_BREAK|_END)?|"
    r"[BE]OS|EOT|PAD|UNK|[gs]?MASK|(?:start|end)_header_id)\]"
)
ANGLES: Final = re.compile(
    r"<(?:\|[^\s|<>]+\|?|[^\s|<>]+\||\uff5c[^\s<>]+\uff5c|/?(?:s|img)|bos|eos|pad|unk|mask|[se]op|image|video|audio|"
    r"(?:start|end)_of_(?:turn|image)|image_soft_token|IMG_CONTEXT)>"
)

HALF: Final = re.compile("[\ud800-\udfff]")  # a lone surrogate


def quoted(text: str, keep: Collection[str] = (), *, forms: Iterable[re.Pattern[str]] = (BRACKETS, ANGLES)) -> str:
    """The text with a space after the first character of each control token but those of `keep`, so that no tokenizer
    reads it as one, and U+FFFD for half a character, which none can read. Doing it twice changes nothing more.

    forms  of the tokens: all families', because who reads a prompt is not known where it is made
    """
    for form in forms:
        text = form.sub(lambda found: found[0] if found[0] in keep else f"{found[0][0]} {found[0][1:]}", text)
    return text if text.isascii() else HALF.sub("\ufffd", text)


def control_token(text: str, keep: Collection[str] = ()) -> str | None:
    """The first control token that the text spells, of those that are not in `keep`."""
    return next((found[0] for found in CONTROL.finditer(text) if found[0] not in keep), None)


def joined(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A message's parts, neighbouring texts as one: a chat template puts nothing between them, so two can spell a
    control token together."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if found and part.get("type") == found[-1].get("type") == "text":
            found[-1]["text"] += part["text"]
        else:
            found.append(dict(part))
    return found
