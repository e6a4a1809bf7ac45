"""References to images that are decoded only when used: files, and objects with an `open()` of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from eval.desktop import BadFrame
from eval.episodes.pictures import as_shown, broken, measured, opened

if TYPE_CHECKING:
    from PIL import Image

PNG_START: Final = b"\x89PNG\r\n\x1a\n"
PNG_END: Final = b"\0\0\0\0IEND\xaeB`\x82"  # the last chunk of every whole PNG file


@runtime_checkable
class Opens(Protocol):
    """An image that is not a file of its own."""

    def open(self) -> Image.Image:
        """Decoded, RGB. Raises BadFrame."""
        ...


ImageRef = Path | Opens
AnyImage: TypeAlias = "Image.Image | ImageRef"


def open_image(image: AnyImage) -> Image.Image:
    """The image as a viewer shows it, RGB. Raises BadFrame."""

    from PIL import Image

    if isinstance(image, Path):
        return opened(image)
    try:
        return as_shown(image if isinstance(image, Image.Image) else image.open())
    except broken() as error:
        raise BadFrame(f"{image}: {error}") from None


def check_image(image: ImageRef) -> None:
    """Looks at a file's header, and at a PNG's end, without decoding it. Raises BadFrame for what cannot be shown.

    A reference that is not a file is checked by its own `check()`, where it has one.
    """
    if not isinstance(image, Path):
        check = getattr(image, "check", None)
        if check is not None:
            check()
        return
    measured(image)
    try:
        whole = _head(image) != PNG_START or _tail(image) == PNG_END
    except OSError as error:
        raise BadFrame(f"{image}: {error.strerror}") from None
    if not whole:
        raise BadFrame(f"{image}: the file is cut off")


def image_size(image: ImageRef) -> tuple[int, int]:
    """Width and height, by a file's header: nothing is decoded where the reference can tell. Raises BadFrame.

    A reference that is not a file tells by its own `measure()`; one without it is opened.
    """
    if isinstance(image, Path):
        return measured(image)
    try:
        measure = getattr(image, "measure", None)
        size: tuple[int, int] = open_image(image).size if measure is None else measure()
        return size
    except broken() as error:
        raise BadFrame(f"{image}: {error}") from None


def same_bytes(first: ImageRef, second: ImageRef) -> bool:
    """Whether two files have the same bytes; nothing is decoded. References that are not files compare by `==`.

    Raises BadFrame for a file that is not there.
    """
    if not isinstance(first, Path) or not isinstance(second, Path):
        return first == second
    try:
        return first.stat().st_size == second.stat().st_size and first.read_bytes() == second.read_bytes()
    except OSError as error:
        raise BadFrame(f"{error.filename}: {error.strerror}") from None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(PNG_START))


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(PNG_END)))
        return file.read()
