"""Pictures of a display: taken through shared memory, with the pointer drawn in, as PNG, WebP or JPEG."""

from __future__ import annotations

import ctypes
import io
from dataclasses import dataclass
from typing import Any, Final, Literal

import fpng
import xcffib
import xcffib.shm
from PIL import Image

from eval.desktops.display.connection import XConnection

PictureFormat = Literal["png", "webp", "jpeg"]
QUALITY: Final = 85  # of JPEG and WebP
Z_PIXMAP: Final = 2
ALL_PLANES: Final = 0xFFFFFFFF
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
MADV_REMOVE: Final = 9
KEPT: Final = 1 << 20  # bytes of shared memory that stay between two pictures


@dataclass(frozen=True)
class Frame:
    """One picture of the whole screen.

    rgb      rows of pixels, three bytes each, with the pointer drawn in
    size     width and height in pixels
    pointer  where the pointer's hot spot is, in pixels
    cursor   the number of the pointer's shape, as the display counts them
    """

    rgb: bytes
    size: tuple[int, int]
    pointer: tuple[int, int]
    cursor: int = 0

    def image(self) -> Image.Image:
        """The picture, sharing no memory."""
        return Image.frombytes("RGB", self.size, self.rgb)

    def cut(self, left: int, top: int, right: int, bottom: int) -> Frame:
        """A part of the picture; the edges in pixels, right and bottom excluded."""
        part = self.image().crop((left, top, right, bottom))
        return Frame(part.tobytes(), part.size, (self.pointer[0] - left, self.pointer[1] - top))

    def encode(self, form: PictureFormat = "png", quality: int = QUALITY) -> bytes:
        """The picture as a file. PNG is lossless; `quality` (1 to 100) is that of the two others."""
        if form == "png":
            encoded: bytes = fpng.from_bytes(self.rgb, *self.size, 3)
            return encoded
        out = io.BytesIO()
        # method 0: the fastest of WebP; the default takes many times as long for a few per cent of the size
        self.image().save(out, form.upper(), quality=quality, **({"method": 0} if form == "webp" else {}))
        return out.getvalue()


class Camera:
    """Takes pictures on an open connection. Works without shared memory too, as in another IPC namespace; slower."""

    def __init__(self, connection: XConnection) -> None:
        self.connection = connection
        depth = connection.screen.root_depth
        if depth not in (24, 32):
            raise ValueError(f"the display has {depth} bits per pixel; start it with 24")
        self._xfixes = connection.xfixes
        self._last: Frame | None = None
        self._below: tuple[bytes, int, int, int] = (b"", 0, 0, 1)  # what the pointer hides of it; left, top, width
        self._address: int | None = None
        self._segment = 0
        self._shm: Any = None
        self._attach()

    def _attach(self) -> None:
        """Shares a segment with the X server. It is marked for removal at once, so nothing stays behind."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
        libc.shmdt.argtypes = [ctypes.c_void_p]
        width, height = self.connection.size
        number = libc.shmget(IPC_PRIVATE, ctypes.c_size_t(width * height * 4), IPC_CREAT | 0o600)
        if number < 0:
            return
        address = libc.shmat(number, None, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            libc.shmctl(number, IPC_RMID, None)
            return
        try:
            shm = self.connection.x(xcffib.shm.key)
            self._segment = self.connection.x.generate_id()
            shm.AttachChecked(self._segment, number, False).check()
        except xcffib.ConnectionException:
            libc.shmdt(address)
            raise
        except xcffib.XcffibException:  # no such extension, or a server that does not see our segment
            libc.shmdt(address)
        else:
            self._shm, self._address = shm, address
        finally:
            libc.shmctl(number, IPC_RMID, None)

    def close(self) -> None:
        """Gives the shared memory back."""
        if self._address is not None:
            ctypes.CDLL(None).shmdt(ctypes.c_void_p(self._address))
            self._address = None

    def take(self) -> Frame:
        """The screen as it is now. Only what was drawn since the last picture is asked of the display."""
        drawn = self.connection.drawn()
        cursor = self._xfixes.GetCursorImage().reply()
        if self._last is not None and drawn is None and _same(cursor, self._last):
            return self._last
        wide, high = self.connection.size
        before = memoryview(bytes(3 * wide * high) if self._last is None else self._last.rgb)
        # only the rows that change are copied twice: a picture of a large screen has megabytes
        first, end = self._rows(drawn, cursor)
        strip = bytearray(before[3 * wide * first : 3 * wide * end])
        part, left, top, width = self._below
        _put(strip, wide, part, left, top - first, width)
        if drawn is not None:
            self._refresh(strip, first, *drawn)
        self._draw_pointer(strip, first, cursor)
        pixels = b"".join((before[: 3 * wide * first], strip, before[3 * wide * end :]))
        self._last = Frame(pixels, self.connection.size, (int(cursor.x), int(cursor.y)), int(cursor.cursor_serial))
        return self._last

    def _rows(self, drawn: tuple[int, int, int, int] | None, cursor: Any) -> tuple[int, int]:
        """The first row and the row after the last of what was drawn, of the pointer, and of what it hid before."""
        part, _, top, width = self._below
        spans = [(int(cursor.y) - int(cursor.yhot), int(cursor.height)), (top, len(part) // (3 * width))]
        if drawn is not None:
            spans.append((drawn[1], drawn[3]))
        high = self.connection.size[1]
        inside = [(max(0, top), min(high, top + height)) for top, height in spans if top < high and top + height > 0]
        return min((top for top, _ in inside), default=0), max((end for _, end in inside), default=0)

    def _refresh(self, strip: bytearray, first: int, left: int, top: int, width: int, height: int) -> None:
        """Takes a part of the screen anew, into the rows of a picture from `first` on."""
        root, size = self.connection.root, width * height * 4
        if self._address is not None:
            self._shm.GetImage(root, left, top, width, height, ALL_PLANES, Z_PIXMAP, self._segment, 0).reply()
            pixels: Any = (ctypes.c_char * size).from_address(self._address)
        else:
            reply = self.connection.x.core.GetImage(Z_PIXMAP, root, left, top, width, height, ALL_PLANES).reply()
            pixels = bytes(reply.data.buf())
        part = Image.frombuffer("RGB", (width, height), pixels, "raw", "BGRX", 0, 1).tobytes()
        _put(strip, self.connection.size[0], part, left, top - first, width)
        if self._address is not None and size > KEPT:  # a picture of all is rare, and keeps no memory until the next
            ctypes.CDLL(None).madvise(ctypes.c_void_p(self._address), ctypes.c_size_t(size), MADV_REMOVE)

    def same_pointer(self, frame: Frame) -> bool:
        """Whether the pointer is where it was in the picture, and looks the same: no damage tells of it."""
        return _same(self._xfixes.GetCursorImage().reply(), frame)

    def _draw_pointer(self, strip: bytearray, first: int, cursor: Any) -> None:
        """Draws the pointer into the rows from `first` on, and keeps what it hides; its colours are multiplied by alpha
        already (XFixes)."""
        wide, high = self.connection.size
        left, top = int(cursor.x) - int(cursor.xhot), int(cursor.y) - int(cursor.yhot)
        shown = (max(0, left), max(0, top), min(wide, left + cursor.width), min(high, top + cursor.height))
        if shown[0] >= shown[2] or shown[1] >= shown[3]:
            self._below = (b"", 0, 0, 1)
            return
        left, top = left - shown[0], top - shown[1]  # of the pointer, in the part below it
        width, height = shown[2] - shown[0], shown[3] - shown[1]
        rows = memoryview(strip)[3 * wide * (shown[1] - first) : 3 * wide * (shown[3] - first)]
        below = b"".join(rows[start : start + 3 * width] for start in range(3 * shown[0], len(rows), 3 * wide))
        part = Image.frombytes("RGB", (width, height), below)
        raw = bytes(cursor.cursor_image.buf())
        picture = Image.frombuffer("RGBa", (cursor.width, cursor.height), raw, "raw", "BGRa", 0, 1).convert("RGBA")
        part.paste(picture, (left, top), picture)
        self._below = (below, shown[0], shown[1], width)
        _put(strip, wide, part.tobytes(), shown[0], shown[1] - first, width)


def _same(cursor: Any, frame: Frame) -> bool:
    return (int(cursor.x), int(cursor.y), int(cursor.cursor_serial)) == (*frame.pointer, frame.cursor)


def _put(pixels: bytearray, row: int, part: bytes, left: int, top: int, width: int) -> None:
    """Puts a part, `width` pixels wide, into a picture whose rows have `row` pixels; three bytes each."""
    if width == row:
        pixels[3 * row * top : 3 * row * top + len(part)] = part
        return
    step = 3 * width
    for number in range(len(part) // step):
        start = 3 * ((top + number) * row + left)
        pixels[start : start + step] = part[number * step : (number + 1) * step]
