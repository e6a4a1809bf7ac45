"""Rows of others' chat data as turns with the places of their pictures.

    messages + images        LLaMA-Factory, ms-swift, TRL and our own: a content is a text or parts
    conversations + images   ShareGPT: turns {"from", "value"}; ms-swift's `conversation` of {"human", "assistant"}
    conversations + image    LLaVA: the one <image> of a turn stands before its text
    prompt + completion + images   TRL: the completion alone is learnt

`<image>` in a text is a picture's place. Where nothing names a place, the pictures stand before the first user's text,
as TRL puts them. What carries content and is not understood is refused by name. tests/data/chats holds what the loaders
of these projects make of the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eval.prompts.tokens import joined
from training.data.faults import BadSample

ROLES: Final = {
    "system": "system",
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot"), "assistant"),
}
ORDER: Final = ("system", "user", "assistant")  # of the texts of a pair
TURNS: Final = ("messages", "conversations", "conversation")
PICTURES: Final = frozenset(("images", "image"))
READ: Final = frozenset((*TURNS, *PICTURES, "prompt", "completion", "system"))
# what a row says of itself; any other field may be content
ABOUT: Final = re.compile(
    r"(?:.*_)?(?:id|ids|idx|index|uid|uuid|hash|md5|sha256|sources?|dataset|subset|split|category|categories|domain|type|"
    r"lang|language|license|url|link|path|file|file_name|filename|name|title|tags?|meta|metadata|note|comment|version|"
    r"date|time|created|timestamp|author|generator|width|height|size|sizes|num_tokens|turns|score|scores|ratings?)"
)
# of what names a picture, a film or a sound, only these are no content
SHOWN: Final = re.compile(
    r"(?:.*_)?(?:images?|imgs?|pictures?|pics?|photos?|frames?|screenshots?|media|videos?|clips?|audios?|sounds?)"
    r"_(?!(?:id|ids|idx|index|uid|uuid|hash|md5|sha256|width|height|size|sizes|type|license)$).*"
)
FILE: Final = re.compile(
    r"data:(?:image|video|audio)/.*|.*\.(?:png|jpe?g|gif|webp|bmp|tiff?|avif|heic|mp4|webm|mov|avi|mkv|mp3|wav|flac|ogg)",
    re.IGNORECASE | re.DOTALL,
)
MARK: Final = re.compile(r"<image>|<video>|<audio>")
OTHER_MARK: Final = re.compile(  # with which other projects mark a picture's place
    r"<\|?(?:image|img|picture|vision)[ _-]?(?:pad|start|here|placeholder|token|soft_token|\d+)?\|?>"
    r"|\[(?:image|img)[ _-]?\d*\]|<img>.*?</img>|!\[[^\]\n]*\]\([^)\n]*\)",
    re.IGNORECASE,
)
Turns = list[dict[str, Any]]  # {"role", "content": [{"type": "text", "text"} | {"type": "image"}]}


@dataclass
class ChatRow:
    """Turns, and the pictures of their places in order: names of files, or {"path", "bytes"}.

    answer_only  the last turn alone is learnt
    """

    turns: Turns
    pictures: list[Any] = field(default_factory=list)
    answer_only: bool = False


def read_row(row: Any) -> ChatRow:
    """Raises BadSample."""
    if not isinstance(row, Mapping):
        raise _broken(f"a chat is an object, not {type(row).__name__}")
    given = {name: value for name, value in row.items() if not _empty(value)}
    for name, value in given.items():
        if name not in READ and not _says_of_itself(name, value, shown=bool(given.keys() & PICTURES)):
            read = ", ".join(sorted(READ))
            raise BadSample("unknown_field", f"{name}: not understood, and it may be content; read are {read}")
    held = [name for name in (*TURNS, "prompt") if name in given]
    if len(held) != 1 or ("prompt" in given) != ("completion" in given):
        raise _broken(
            f"a chat has its turns in messages, conversations, or prompt and completion, not in {held or 'none'}"
        )
    answer_only = held == ["prompt"]
    turns = list(_turns(given["prompt"], "prompt") if answer_only else _turns(given[held[0]], held[0]))
    if answer_only:
        answers = list(_turns(given["completion"], "completion"))
        if len(answers) != 1 or answers[0]["role"] != "assistant":
            raise _broken("completion: it is one turn of the assistant")
        turns += answers
    if "system" in given:
        if turns[0]["role"] == "system" or not isinstance(given["system"], str):
            raise _broken("system: a text, and given once")
        turns.insert(0, {"role": "system", "content": [{"type": "text", "text": given["system"]}]})
    if all(name in given for name in PICTURES):
        raise _broken("give either image or images")
    pictures = given.get("images", given.get("image", []))
    pictures = (
        list(pictures) if isinstance(pictures, Sequence) and not isinstance(pictures, str | bytes) else [pictures]
    )
    if "image" in given and held[0] != "messages" and not answer_only:
        _as_llava(turns)
    return ChatRow(turns, _placed(turns, pictures, told_first=held[0] in ("messages", "prompt")), answer_only)


def _says_of_itself(name: str, value: Any, *, shown: bool) -> bool:
    """Whether a field is no content. shown: the row has pictures; else what names a file of one is one."""
    if not ABOUT.fullmatch(name) or SHOWN.fullmatch(name):
        return False
    return shown or not any(FILE.fullmatch(text) for text in _texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, bytes):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _turns(value: Any, name: str) -> Iterator[dict[str, Any]]:
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or not all(isinstance(t, Mapping) for t in value)
    ):
        raise _broken(f"{name}: a list of turns")
    for number, turn in enumerate(value):
        where = f"{name}[{number}]"
        told = {key: inner for key, inner in turn.items() if not _empty(inner) or key in ("content", "value")}
        if (
            told.keys() & {"human", "user"} and len(told) == 2 and set(told) <= set(ROLES)
        ):  # ms-swift: question and answer
            for role, text in sorted(told.items(), key=lambda each: ORDER.index(ROLES[each[0]])):
                yield {"role": ROLES[role], "content": _content(text, f"{where}.{role}")}
            continue
        role, content = ("from", "value") if "from" in told or "value" in told else ("role", "content")
        if further := sorted(told.keys() - {role, content}):
            raise BadSample("unknown_field", f"{where}.{further[0]}: not understood; read are {role} and {content}")
        if not isinstance(told.get(role), str) or told[role] not in ROLES:
            raise BadSample("unknown_role", f"{where}.{role}: {told.get(role)!r}; allowed: {', '.join(ROLES)}")
        yield {"role": ROLES[told[role]], "content": _content(told.get(content), f"{where}.{content}")}


def _content(content: Any, where: str) -> list[dict[str, Any]]:
    """Parts, with `<image>` of texts as parts of their own, and with what a part of a picture names."""
    if isinstance(content, str):
        return _split(content, where)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise _broken(f"{where}: a text or a list of parts")
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        told = {key: inner for key, inner in part.items() if inner is not None} if isinstance(part, Mapping) else {}
        match told.pop("type", None):
            case "text" if isinstance(told.get("text"), str):
                parts += _split(told.pop("text"), f"{where}[{number}]")
            case "image":
                parts.append({"type": "image", **{key: told.pop(key) for key in ("image", "index") if key in told}})
                if told.get("text") == "":
                    del told["text"]
            case kind:
                held = ", ".join(told) or "nothing"
                said = f"{where}[{number}]: {kind!r} with {held}; allowed: text with its text, image"
                raise BadSample("unknown_part", said)
        if told:
            raise BadSample("unknown_field", f"{where}[{number}].{min(told)}: not understood")
    return joined(parts)


def _split(text: str, where: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    start = 0
    for found in MARK.finditer(text):
        if found[0] != "<image>":
            raise BadSample("unknown_part", f"{where}: {found[0]} is the place of what is not read here")
        if found.start() > start:
            parts.append({"type": "text", "text": text[start : found.start()]})
        parts.append({"type": "image", "marked": True})
        start = found.end()
    if start < len(text) or not parts:
        parts.append({"type": "text", "text": text[start:]})
    return parts


def _as_llava(turns: Turns) -> None:
    """A turn's one picture stands before its text, as LLaVA's loader has it, wherever it was written."""
    for turn in turns:
        if sum(part["type"] == "image" for part in turn["content"]) == 1:
            text = "".join(part.get("text", "") for part in turn["content"]).strip()
            turn["content"] = [{"type": "image"}, *([{"type": "text", "text": f"\n{text}"}] if text else [])]


def _placed(turns: Turns, pictures: list[Any], *, told_first: bool) -> list[Any]:
    """The pictures in the order of their places. Raises BadSample where the numbers differ.

    told_first  without any place they stand before the first user's text
    """
    places = [part for turn in turns for part in turn["content"] if part["type"] == "image"]
    if not places and pictures and told_first:
        first = next((turn for turn in turns if turn["role"] == "user"), None)
        if first is None:
            raise _broken("a chat asks at least once")
        for part in (part for turn in turns if turn["role"] == "user" for part in turn["content"]):
            if found := OTHER_MARK.search(part["text"]):
                raise BadSample("unknown_part", f"{found[0]!r} is no place of a picture here; write <image>")
        first["content"][:0] = [{"type": "image"} for _ in pictures]
        return pictures
    if {"marked" in part for part in places} == {True, False}:
        raise _broken("places are either parts or <image> in texts, not both")
    if any("image" in part for part in places):
        if pictures or not all("image" in part for part in places):
            raise _broken("pictures stand either in their parts or in images, not in both")
        placed = [part.pop("image") for part in places]
    elif any("index" in part for part in places):
        order = [part.pop("index", None) for part in places]
        if sorted(order, key=str) != sorted(range(len(pictures)), key=str):
            raise _broken(f"places name the pictures {order} of {len(pictures)}")
        placed = [pictures[number] for number in order]
    elif len(places) != len(pictures):
        raise BadSample("images_do_not_fit", f"{len(places)} places for {len(pictures)} images")
    else:
        placed = pictures
    for part in places:
        part.pop("marked", None)
    return placed


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | bytes | Sequence | Mapping) and not value)


def _broken(why: str) -> BadSample:
    return BadSample("broken_chat", why)
