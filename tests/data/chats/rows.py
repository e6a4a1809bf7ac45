"""Rows in the forms of others' data, which `loaders.py` gives to their loaders and a test to ours.

The first of each form has the shape of the project's published example: LLaMA-Factory's data/mllm_demo.json, ms-swift's
page on custom datasets, LLaVA's page on custom data (Finetune_Custom_Data), TRL's page on dataset formats.
"""

from __future__ import annotations

from typing import Any


def messages(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def share_gpt(*texts: str) -> list[dict[str, Any]]:
    return [{"from": ("human", "gpt")[n % 2], "value": text} for n, text in enumerate(texts)]


def parts(*content: str | None) -> list[dict[str, Any]]:
    return [{"type": "image"} if part is None else {"type": "text", "text": part} for part in content]


PLACED: dict[str, tuple[list[str], list[str]]] = {
    "published": (["<image>Who are they?", "Kane.", "What are they doing?<image>", "They run."], ["1.png", "2.png"]),
    "turned": (["Who are they?<image>", "Kane.", "<image>What are they doing?", "They run."], ["2.png", "1.png"]),
    "two-in-a-turn": (["First <image> then <image>.", "Both.", "And now?", "None."], ["1.png", "2.png"]),
    "side-by-side": (["<image><image>\nCompare.", "Same."], ["2.png", "1.png"]),
    "later-turn": (["Hello.", "Hi.", "See <image>", "I see."], ["1.png"]),
    "missing": (["<image>Who?", "Kane.", "And here?", "Both."], ["1.png", "2.png"]),
    "extra": (["<image>Who?", "Kane.", "<image>Here?", "Both."], ["1.png"]),
    "no-pictures": (["Who?", "Kane."], []),
}
LLAVA: dict[str, list[str]] = {
    "published": ["<image>\nWrite a prompt.", "a painting "],
    "turned": ["Write a prompt.\n<image>", "a painting"],
    "in-the-middle": ["What is on <image> here?", "a cat", "And its colour?", "black"],
    "later-turn": ["Hello.", "Hi.", "Look: <image>", "a cat"],
}
LLAVA_WRONG: dict[str, list[str]] = {
    "missing": ["Write a prompt.", "a painting"],
    "extra": ["<image>\nWhat?", "a cat", "<image>\nAnd here?", "a dog"],
}
TRL: dict[str, dict[str, Any]] = {
    "published": {
        "messages": [
            {"role": "user", "content": parts(None, "What color is the sky?")},
            {"role": "assistant", "content": parts("It is blue.")},
        ],
        "images": ["1.png"],
    },
    "texts": {"messages": messages("What is it?", "A cat.", "Sure?", "Yes."), "images": ["1.png", "2.png"]},
    "turned": {
        "messages": [
            {"role": "user", "content": parts("What is", None, "and", None, "?")},
            {"role": "assistant", "content": parts("Cats.")},
            {"role": "user", "content": parts("This", None)},
            {"role": "assistant", "content": parts("A dog.")},
        ],
        "images": ["2.png", "1.png", "2.png"],
    },
    "system": {
        "messages": [{"role": "system", "content": "Be brief."}, *messages("What?", "A cat.")],
        "images": ["1.png"],
    },
    "missing": {
        "messages": [{"role": "user", "content": parts(None, "?")}, {"role": "assistant", "content": parts("A cat.")}],
        "images": ["1.png", "2.png"],
    },
    "extra": {
        "messages": [{"role": "user", "content": parts(None, None)}, {"role": "assistant", "content": parts("A cat.")}],
        "images": ["1.png"],
    },
}


def rows() -> dict[str, dict[str, dict[str, Any]]]:
    """form -> name -> row"""
    return {
        "llama-factory": {
            name: {"messages": messages(*texts), "images": images} for name, (texts, images) in PLACED.items()
        },
        "share-gpt": {
            **{
                name: {"conversations": share_gpt(*texts), "images": images} for name, (texts, images) in PLACED.items()
            },
            "system": {
                "conversations": [{"from": "system", "value": "Be brief."}, *share_gpt("<image>Who?", "Kane.")],
                "images": ["1.png"],
            },
        },
        "ms-swift": {
            **{name: {"messages": messages(*texts), "images": images} for name, (texts, images) in PLACED.items()},
            "pairs": {
                "system": "Be brief.",
                "conversation": [
                    {"human": "<image>Who?", "assistant": "Kane."},
                    {"human": "Sure?", "assistant": "Yes."},
                ],
                "images": ["1.png"],
            },
            "from": {"conversations": share_gpt("Who?<image>", "Kane."), "images": ["1.png"]},
        },
        "llava": {
            name: {"id": name, "image": "1.png", "conversations": share_gpt(*texts)}
            for name, texts in {**LLAVA, **LLAVA_WRONG}.items()
        },
        "trl": TRL,
    }
