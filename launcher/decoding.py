"""JSON and MessagePack into structures, from any thread: the only place of the launcher that gives msgspec a type.

msgspec inspects a class at its first decoding. Two threads that do this at the same time crash the process with a
segmentation fault (msgspec 0.22, Python 3.11), so decoders are made one at a time, and kept.
"""

from __future__ import annotations

from _thread import allocate_lock
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from launcher.errors import BadRecord

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_OF_JSON: Final[dict[Any, Any]] = {}
_OF_MSGPACK: Final[dict[Any, Any]] = {}
_ONE_AT_A_TIME: Final = allocate_lock()


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decodes JSON. Raises msgspec.DecodeError for what is no JSON or of another type, and UnicodeDecodeError."""
    with _ONE_AT_A_TIME:
        if kind not in _OF_JSON:
            _OF_JSON[kind] = msgspec.json.Decoder(kind)
        made: msgspec.json.Decoder[T] = _OF_JSON[kind]
    return made.decode(data)


def decode_record(key: str, body: bytes, kind: type[T]) -> T:
    """Decodes a record of the store. Raises BadRecord, which names the key, for what is no such record."""
    try:
        return decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"{key} is not a valid record: {error}") from None


def named(kind: type[E], text: str, unknown: E) -> E:
    """The member of an enumeration that a stored text names; `unknown` for the text of a newer launcher."""
    return next((member for member in kind if member == text), unknown)


def unpacker(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """The decoder of MessagePack into a type."""
    with _ONE_AT_A_TIME:
        if kind not in _OF_MSGPACK:
            _OF_MSGPACK[kind] = msgspec.msgpack.Decoder(kind)
        made: msgspec.msgpack.Decoder[T] = _OF_MSGPACK[kind]
    return made
