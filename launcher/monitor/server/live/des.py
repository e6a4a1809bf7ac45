"""The block cipher DES (FIPS 46-3), which VNC's password asks for (RFC 6143, 7.2.2) and Python has not. It protects
nothing by itself: what uses it here stays on this machine or in a tunnel of the backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# FIPS 46-3: bits are counted from 1, the first is the highest
INITIAL: Final = [column + 8 * row for column in (58, 60, 62, 64, 57, 59, 61, 63) for row in range(0, -8, -1)]
EXPAND: Final = [(4 * row + column - 1) % 32 + 1 for row in range(8) for column in range(6)]
MIX: Final = (
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
)  # fmt: skip
FIRST_CHOICE: Final = (
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
)  # fmt: skip
SECOND_CHOICE: Final = (
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
)  # fmt: skip
ROTATED: Final = (1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1)
# a row of hexadecimal digits for each of the four rows of each box
BOXES: Final = tuple(
    tuple(int(digit, 16) for digit in box)
    for box in (
        "E4D12FB83A6C59070F74E2D1A6CB953841E8D62BFC973A50FC8249175B3EA06D",
        "F18E6B34972DC05A3D47F28EC01A69B50E7BA4D158C6932FD8A13F42B67C05E9",
        "A09E63F51DC7B428D709346A285ECBF1D6498F30B12C5AE71AD069874FE3B52C",
        "7DE3069A1285BC4FD8B56F03472C1AE9A690CB7DF13E52843F06A1D8945BC72E",
        "2C417AB6853FD0E9EB2C47D150FA3986421BAD78F9C5630EB8C71E2D6F09A453",
        "C1AF92680D34E75BAF427C9561DE0B389EF528C3704A1DB6432C95FABE17608D",
        "4B2EF08D3C975A61D0B7491AE35C2F8614BDC37EAF6805926BD814A7950FE23C",
        "D2846FB1A93E50C71FD8A374C56B0E927B419CE206ADF35821E74A8DFC90356B",
    )
)


def encrypted(block: bytes, key: bytes) -> bytes:
    """One block of 8 bytes, with a key of 8 bytes."""
    bits = _chosen(_bits(block), INITIAL)
    left, right = bits[:32], bits[32:]
    for subkey in _subkeys(key):
        mixed = [a ^ b for a, b in zip(_chosen(right, EXPAND), subkey, strict=True)]
        left, right = right, [a ^ b for a, b in zip(left, _substituted(mixed), strict=True)]
    last = right + left
    # the inverse of the first permutation
    out = [0] * 64
    for at, bit in zip(INITIAL, last, strict=True):
        out[at - 1] = bit
    return int("".join(map(str, out)), 2).to_bytes(8, "big")


def _bits(data: bytes) -> list[int]:
    return [byte >> shift & 1 for byte in data for shift in range(7, -1, -1)]


def _chosen(bits: Sequence[int], places: Sequence[int]) -> list[int]:
    return [bits[place - 1] for place in places]


def _subkeys(key: bytes) -> list[list[int]]:
    halves = _chosen(_bits(key), FIRST_CHOICE)
    c, d = halves[:28], halves[28:]
    keys = []
    for count in ROTATED:
        c, d = c[count:] + c[:count], d[count:] + d[:count]
        keys.append(_chosen(c + d, SECOND_CHOICE))
    return keys


def _substituted(mixed: Sequence[int]) -> list[int]:
    found: list[int] = []
    for number, box in enumerate(BOXES):
        a, b, c, d, e, f = mixed[6 * number : 6 * number + 6]
        value = box[16 * (2 * a + f) + (8 * b + 4 * c + 2 * d + e)]
        found += [value >> shift & 1 for shift in (3, 2, 1, 0)]
    return _chosen(found, MIX)
