"""Pictures of others are decoded to what a viewer shows: expected pixels are computed here, one by one."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from eval.desktop import BadFrame
from eval.episodes.images import check_image, image_size, open_image
from training.data.chat import ChatSamples
from training.data.faults import Faults
from training.data.samples import open_images

SIZE = (5, 3)


def saved(folder: Path, image: Image.Image, suffix: str = "png", **options: object) -> Path:
    path = folder / f"picture.{suffix}"
    image.save(path, **options)
    return path


def grey16() -> np.ndarray:
    return np.linspace(0, 65535, SIZE[0] * SIZE[1]).astype(np.uint16).reshape(SIZE[1], SIZE[0])


@pytest.mark.parametrize("suffix", ["png", "tiff", "ppm"])
def test_16_bit_grey_keeps_its_greys(tmp_path: Path, suffix: str) -> None:
    values = grey16()
    shown = open_image(saved(tmp_path, Image.fromarray(values), suffix))
    for y in range(SIZE[1]):
        for x in range(SIZE[0]):
            assert shown.getpixel((x, y)) == (round(int(values[y, x]) * 255 / 65535),) * 3


def test_a_declared_transparent_grey_of_16_bits_is_white(tmp_path: Path) -> None:
    shown = open_image(saved(tmp_path, Image.fromarray(grey16()), transparency=0))
    assert [shown.getpixel((0, 0)), shown.getpixel((1, 0))] == [(255,) * 3, (round(4681 / 257),) * 3]


def black_on_clear(mode: str) -> tuple[Image.Image, dict[str, object]]:
    """Pixel (1, 1) black, the others transparent, black below."""
    if mode in ("RGBA", "LA"):
        image = Image.new(mode, SIZE, 0)
        image.putpixel((1, 1), (0, 0, 0, 255) if mode == "RGBA" else (0, 255))
        return image, {}
    image = Image.new(mode, SIZE, 1 if mode != "RGB" else (1, 0, 0))
    if mode == "P":
        image.putpalette([0, 0, 0, 0, 0, 0])
    image.putpixel((1, 1), 0 if mode != "RGB" else (0, 0, 0))
    return image, {"transparency": (1, 0, 0) if mode == "RGB" else 1}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparent_pixels_are_white(tmp_path: Path, mode: str) -> None:
    image, options = black_on_clear(mode)
    shown = open_image(saved(tmp_path, image, **options))
    assert shown.mode == "RGB"
    assert [shown.getpixel((1, 1)), shown.getpixel((0, 0))] == [(0, 0, 0), (255, 255, 255)]


def test_half_transparent_is_half_white_also_in_memory() -> None:
    image = Image.new("RGBA", SIZE, (10, 20, 30, 102))
    alpha = 102 / 255
    assert open_image(image).getpixel((0, 0)) == tuple(round(c * alpha + 255 * (1 - alpha)) for c in (10, 20, 30))


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_orientation_of_a_camera(tmp_path: Path, suffix: str) -> None:
    """EXIF: 3 is half a turn; 6 says that the picture's right side is up, so a viewer turns it by 90° clockwise."""
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :8] = (255, 0, 0)  # the corner on top, at the left
    for number, size, corner in ((1, (32, 16), (2, 2)), (3, (32, 16), (30, 14)), (6, (16, 32), (13, 2))):
        exif = Image.Exif()
        exif[0x0112] = number
        path = saved(tmp_path, Image.fromarray(pixels), suffix, exif=exif)
        shown = open_image(path)
        assert image_size(path) == shown.size == size
        red, green, _ = shown.getpixel(corner)
        assert (red > 180, green < 80) == (True, True), number
        assert open_image(shown).tobytes() == shown.tobytes()  # a second look turns nothing


def test_colours_of_another_profile_become_srgb(tmp_path: Path) -> None:
    """A profile of linear light: half of the light is 188 in sRGB, by the standard's curve (IEC 61966-2-1)."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    at = profile.index(b"para")  # the tone curve's parameters, s15Fixed16: gamma, a, b, c, d
    one, zero = (1 << 16).to_bytes(4, "big"), bytes(4)
    linear = profile[: at + 12] + one + one + zero + one + zero + profile[at + 32 :]
    linear = linear.replace("sRGB built-in".encode("utf-16-be"), "line built-in".encode("utf-16-be"))
    shown = open_image(saved(tmp_path, Image.new("RGB", SIZE, (128,) * 3), icc_profile=linear))
    light = 128 / 255
    assert shown.getpixel((0, 0)) == pytest.approx((255 * (1.055 * light ** (1 / 2.4) - 0.055),) * 3, abs=1.5)
    same = open_image(saved(tmp_path, Image.new("RGB", SIZE, (128,) * 3), icc_profile=b"broken"))
    assert same.getpixel((0, 0)) == (128,) * 3


def test_what_has_no_single_meaning_is_refused(tmp_path: Path) -> None:
    for image, suffix, options, said in (
        (Image.new("F", SIZE, 0.5), "tiff", {}, "no agreed black and white"),
        (Image.new("I", SIZE, 70000), "tiff", {}, "no agreed black and white"),
        (Image.fromarray(grey16()), "tiff", {"tiffinfo": {262: 0}}, "no agreed black and white"),  # counts from white
        (Image.new("RGB", SIZE), "gif", {"save_all": True, "append_images": [Image.new("RGB", SIZE, "red")]}, "2 pict"),
        (Image.new("RGB", SIZE), "png", {"save_all": True, "append_images": [Image.new("RGB", SIZE, "red")]}, "2 pict"),
    ):
        path = saved(tmp_path, image, suffix, **options)
        for look in (open_image, check_image, image_size):
            with pytest.raises(BadFrame, match=rf"picture\.{suffix}: .*{said}"):
                look(path)
    white = Image.new("RGBA", SIZE, (255, 255, 255, 0))
    for grey in (255, 253):
        white.putpixel((1, 1), (grey, grey, grey, 255))
        with pytest.raises(BadFrame, match="on white nothing of it is seen"):
            open_image(saved(tmp_path, white))


def png(width: int, bits: int, colours: int, row: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of one line with chunks that PIL does not write. colours: PNG's number of the kind, 0 grey, 2 RGB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, colours, 0, 0, 0))
    parts = [head, *(chunk(*each) for each in chunks), chunk(b"IDAT", zlib.compress(b"\0" + row)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_one_colour_of_16_bits_that_is_declared_transparent_is_refused(tmp_path: Path) -> None:
    """PIL reads 8 of the 16 bits, and looks for the colour of 16 among them."""
    path = tmp_path / "picture.png"
    row = struct.pack(">6H", 65535, 0, 32768, 0, 65535, 257)
    path.write_bytes(png(2, 16, 2, row, (b"tRNS", struct.pack(">3H", 65535, 0, 32768))))
    for look in (open_image, check_image):
        with pytest.raises(BadFrame, match=r"picture\.png: one colour of 16 bits is declared transparent"):
            look(path)
    path.write_bytes(png(2, 16, 2, row))
    assert [open_image(path).getpixel((x, 0)) for x in (0, 1)] == [(255, 0, 128), (0, 255, 1)]


def test_a_gamma_is_applied_unless_a_profile_says_more(tmp_path: Path) -> None:
    """gAMA of linear light: half of it is 186 on a screen of gamma 2.2. One of 1 / 2.2 changes nothing."""
    path, row = tmp_path / "picture.png", bytes([128, 128, 0])
    linear, usual = ((b"gAMA", struct.pack(">I", value)) for value in (100000, 45455))
    for chunks, shown in (((linear,), 186), ((usual,), 128), ((linear, (b"sRGB", b"\0")), 128), ((), 128)):
        path.write_bytes(png(1, 8, 2, row, *chunks))
        assert open_image(path).getpixel((0, 0)) == (shown, shown, 0)
        assert open_image(open_image(path)).getpixel((0, 0)) == (shown, shown, 0)


def test_a_program_is_no_picture_and_never_started(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.new("RGB", SIZE), "eps")
    for look in (open_image, check_image, image_size):
        with pytest.raises(BadFrame, match=r"picture\.eps: EPS is a program"):
            look(path)


def test_what_is_no_picture_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"<html>")
    with pytest.raises(BadFrame, match=r"a\.png: no picture, or one of a kind that is not read$"):
        open_image(tmp_path / "a.png")


def test_plain_pictures_stay_as_they_are(tmp_path: Path) -> None:
    noise = Image.effect_noise((32, 20), 60).convert("RGB")
    buffer = io.BytesIO()
    noise.save(buffer, "JPEG")
    (tmp_path / "a.jpg").write_bytes(buffer.getvalue())
    assert open_image(saved(tmp_path, noise)).tobytes() == noise.tobytes()
    assert open_image(tmp_path / "a.jpg").tobytes() == Image.open(buffer).convert("RGB").tobytes()
    assert open_image(noise) is noise


def test_a_chats_pictures_are_opened_so(tmp_path: Path) -> None:
    image, options = black_on_clear("P")
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns, "images": ["picture.png"]}) + "\n")
    saved(tmp_path, image, **options)
    (shown,) = open_images(ChatSamples(tmp_path, Faults())[0])
    assert shown.getpixel((0, 0)) == (255, 255, 255)
