"""Pictures of others as a viewer shows them: every file and every answer of a server is decoded here.

PIL's own `convert("RGB")` cuts 16-bit grey off at 255, paints transparent pixels in the colour below them, and leaves
the camera's orientation, the colour profile and a PNG's gamma out.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.desktop import BadFrame

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION: Final = 0x0112  # EXIF's tag
PLAIN: Final = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"})
WITH_ALPHA: Final = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
DEEP: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})  # 16-bit grey
EIGHT_BITS: Final = [round(value / 257) for value in range(65536)]  # 65535 / 255 = 257
DISPLAY: Final = 2.2  # the gamma of the screens that a PNG without a profile is shown on
NEAR: Final = 0.05  # by which the product of gammas may differ from 1: nothing is changed then, as libpng has it
SEEN: Final = 250  # a grey that is told from white
MOVING: Final = frozenset({"GIF", "PNG", "WEBP", "AVIF", "TIFF"})  # formats in which several pictures are an animation


def broken() -> tuple[type[Exception], ...]:
    """What PIL raises for a broken picture."""
    from PIL import Image

    return (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def opened(source: Path | bytes, name: str = "", formats: list[str] | None = None) -> Image.Image:
    """The picture of a file, or of a file's bytes, decoded, RGB; its `format` is the file's, say PNG.

    name     for messages
    formats  PIL's names of those that are read; None: every one that PIL knows

    Raises BadFrame.
    """

    from PIL import Image

    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source), formats=formats) as image:
            shown = as_shown(image)
            shown.format = image.format
            return shown
    except broken() as error:
        raise BadFrame(f"{name or _named(source)}: {_said(error)}") from None


def measured(source: Path | bytes, name: str = "") -> tuple[int, int]:
    """Width and height as shown, and whether it can be shown at all, by the header alone. Raises BadFrame."""

    from PIL import Image

    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source)) as image:
            _check(image)
            # PIL's size of a TIFF is that of the turned picture
            turned = image.format != "TIFF" and _orientation(image) >= 5
            return (image.height, image.width) if turned else image.size
    except broken() as error:
        raise BadFrame(f"{name or _named(source)}: {_said(error)}") from None


def as_shown(image: Image.Image) -> Image.Image:
    """The picture as RGB, turned upright, on white where it is transparent, its colours in sRGB.

    An RGB picture in memory that says nothing else of itself is given back as it is. Raises ValueError for what has no
    single meaning as 8-bit RGB.
    """

    from PIL import Image, ImageOps

    if type(image) is Image.Image and image.mode == "RGB" and not image.info:
        return image
    _check(image)
    turned, profile, gamma = _orientation(image) > 1, image.info.get("icc_profile"), _gamma(image)
    if turned:
        image = ImageOps.exif_transpose(image)
    if image.mode in DEEP or image.mode == "I":
        image = _eight_bits(image)
    if image.mode in WITH_ALPHA or "transparency" in image.info:
        image = _on_white(image.convert("RGBA"))
    if profile:
        image = _in_srgb(image, profile)
    shown = image.convert("RGB")
    if abs(gamma * DISPLAY - 1) > NEAR:
        curve = [round(255 * float((value / 255) ** (1 / (gamma * DISPLAY)))) for value in range(256)]
        shown = shown.point(curve * 3)
    shown.info = {}  # what it said is done: a second call changes nothing
    return shown


def _check(image: Image.Image) -> None:
    """Raises ValueError."""
    mode = image.mode
    # of a TIFF, 16-bit grey may count from white, or hold 12 bits; a 32-bit one has no known white
    deep = (mode in DEEP and image.format != "TIFF") or (mode == "I" and image.format in ("PNG", "PPM"))
    if image.format == "TIFF" and mode in DEEP:
        tags: Any = getattr(image, "tag_v2", {})
        deep = tags.get(258) == (16,) and tags.get(262) == 1  # BitsPerSample, PhotometricInterpretation
    if not (deep or mode in PLAIN or mode in WITH_ALPHA):
        raise ValueError(f"pixels of the kind {mode!r} have no agreed black and white; save it with 8 or 16 bits")
    if image.format == "EPS":
        raise ValueError("EPS is a program, not a picture; save it as PNG")
    if mode == "RGB" and "transparency" in image.info and any(";16" in str(tile[3]) for tile in _tiles(image)):
        raise ValueError("one colour of 16 bits is declared transparent, which is read with 8; save it with an alpha")
    if image.format in MOVING and getattr(image, "is_animated", False):
        count = getattr(image, "n_frames", 2)
        raise ValueError(f"{count} pictures in one file; save the one that is meant")


def _tiles(image: Image.Image) -> list[Any]:
    """What is still to be decoded of a file: (decoder, place, offset, arguments)."""
    return getattr(image, "tile", [])


def _gamma(image: Image.Image) -> float:
    """Of a PNG that tells one and has no profile, else that which changes nothing."""
    if image.format != "PNG" or not image.info.get("gamma") or {"icc_profile", "srgb"} & image.info.keys():
        return 1 / DISPLAY
    return float(image.info["gamma"])


def _orientation(image: Image.Image) -> int:
    """EXIF's number, 1 to 8; 5 and more are turned by a quarter. Reads the header alone."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # getexif would decode the whole picture to look behind it
    value = image.getexif().get(ORIENTATION, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey as L, or as LA where one grey is declared transparent."""

    from PIL import Image

    clear = image.info.get("transparency")
    deep = image.convert("I")  # the mode for which PIL has tables of 65,536 entries
    grey = deep.point(EIGHT_BITS, "L")
    grey.info = {}
    if clear is None:
        return grey
    return Image.merge("LA", (grey, deep.point([255 * (value != clear) for value in range(65536)], "L")))


def _on_white(image: Image.Image) -> Image.Image:
    """Raises ValueError for a picture of which nothing is seen on white."""

    from PIL import Image

    shown = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    bands: Any = shown.getextrema()
    if image.getchannel("A").getextrema() != (255, 255) and all(low >= SEEN for low, _ in bands):
        raise ValueError("transparent, and on white nothing of it is seen; save it on the ground that is meant")
    return shown


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """The colours of an ICC profile as those of sRGB, where the profile is another and can be read."""
    from PIL import ImageCms

    plain = image if image.mode in ("L", "CMYK") else image.convert("RGB")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if ImageCms.getProfileDescription(source).startswith("sRGB"):
            return image
        changed = ImageCms.profileToProfile(plain, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):
        return image  # as viewers do: a profile of another kind of pixels, or a broken one
    assert changed is not None
    return changed


def _said(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    return "no picture, or one of a kind that is not read" if isinstance(error, UnidentifiedImageError) else str(error)


def _named(source: Path | bytes) -> str:
    return str(source) if isinstance(source, Path) else "a picture"
