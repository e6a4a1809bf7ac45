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
S = TypeVar("S", bound=msgspec.Struct)

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


class Alike:
    """Of many records read one after the other: what a field of one has in common with the record before it is kept
    once. Ten thousand runs of a matrix, or the tasks of an evaluation, differ in a few fields and take as much less
    memory. Nobody may change what a record holds."""

    def __init__(self) -> None:
        self._before: dict[type, msgspec.Struct] = {}

    def share(self, record: S) -> S:
        before = self._before.get(type(record))
        self._before[type(record)] = record
        for name in record.__struct_fields__ if before is not None else ():
            mine, its = getattr(record, name), getattr(before, name)
            if mine is not its and _equal(mine, its):
                msgspec.structs.force_setattr(record, name, its)
        return record


def _equal(one: object, other: object) -> bool:
    """Equal also in type: 1, 1.0 and True are not, wherever they stand in it."""
    if type(one) is not type(other) or one != other:
        return False
    return isinstance(one, str | float) or msgspec.json.encode(one) == msgspec.json.encode(other)
