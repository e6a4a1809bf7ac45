"""Screenshots from the store, for a browser. What a picture claims to be is read from its first bytes, never decoded
here: one that would need a lot of memory when a browser decodes it is refused."""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from launcher.errors import NotFound, SlipwayError
from launcher.report.replays import picture_kind
from launcher.store.base import Store

LARGEST: Final = 32 * 1024 * 1024  # bytes of a file
MOST_PIXELS: Final = 40_000_000  # 160 MB in the browser; a screen of 7680 x 4320 has 33 million


class NoPicture(SlipwayError):
    """The object is no picture that can be shown."""


def read_picture(store: Store, key: str, sha256: str) -> tuple[bytes, str]:
    """(the bytes, the media type). Raises NoPicture, NotFound, Unreachable."""
    meta = store.head(key)
    if meta is None:
        raise NotFound("the picture is not in the store any more")
    if meta.size > LARGEST:
        raise NoPicture(f"the picture has {meta.size:,} bytes; at most {LARGEST:,} are shown")
    body = store.get(key)
    if hashlib.sha256(body).hexdigest() != sha256:
        raise NoPicture("the picture is damaged: its sha256 is not the manifest's")
    kind = picture_kind(body)
    size = pixels(body, kind) if kind is not None else None
    if kind is None or size is None:
        raise NoPicture("this is not a picture")
    if size[0] * size[1] > MOST_PIXELS:
        raise NoPicture(f"the picture has {size[0]:,} x {size[1]:,} pixels; at most {MOST_PIXELS:,} are shown")
    return body, f"image/{kind}"


def pixels(body: bytes, kind: str) -> tuple[int, int] | None:
    """(width, height) as the header of the file says; None for a header that is none."""
    try:
        if kind == "png":
            return struct.unpack(">II", body[16:24]) if body[12:16] == b"IHDR" else None
        if kind == "gif":
            return struct.unpack("<HH", body[6:10])
        if kind == "webp":
            return _webp(body)
        return _jpeg(body)
    except (struct.error, IndexError):
        return None


def _webp(body: bytes) -> tuple[int, int] | None:
    if body[8:12] != b"WEBP":
        return None
    if body[12:16] == b"VP8X":
        return int.from_bytes(body[24:27], "little") + 1, int.from_bytes(body[27:30], "little") + 1
    if body[12:16] == b"VP8L" and body[20] == 0x2F:
        bits = int.from_bytes(body[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if body[12:16] == b"VP8 " and body[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", body[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(body: bytes) -> tuple[int, int] | None:
    """From the first start of frame (ITU-T T.81, B.1.1.3)."""
    at = 2
    while at + 9 <= len(body) and body[at] == 0xFF:
        marker = body[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", body[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int(struct.unpack(">H", body[at + 2 : at + 4])[0])
    return None
