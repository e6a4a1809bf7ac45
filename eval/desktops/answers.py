"""What programs answer on the accessibility bus, as far as it is of the form that was asked for."""

from __future__ import annotations

from typing import Any, Final

from eval.accessibility.tree import Bounds

FAR: Final = 1 << 16  # pixels; a hidden object has a place of -2^31
Reference = tuple[str, str]  # (name on the bus, path)


def references(found: Any) -> list[Reference]:
    """The references in an answer, without those that stand for nothing."""
    if not isinstance(found, list):
        return []
    pairs = [pair for pair in found if isinstance(pair, tuple) and len(pair) == 2]
    return [
        (name, path)
        for name, path in pairs
        if isinstance(name, str) and isinstance(path, str) and name and not path.endswith("/null")
    ]


def bounds(found: Any) -> Bounds | None:
    if not isinstance(found, tuple) or len(found) != 4 or not all(isinstance(number, int) for number in found):
        return None
    left, top, width, height = found
    if width <= 0 or height <= 0 or max(abs(left), abs(top), width, height) > FAR:
        return None
    return left, top, width, height


def value(found: dict[str, Any]) -> tuple[float, float, float, float] | None:
    names = ("CurrentValue", "MinimumValue", "MaximumValue", "MinimumIncrement")
    numbers = [found.get(name) for name in names]
    if not isinstance(numbers[0], int | float):
        return None
    current, low, high, step = (float(number) if isinstance(number, int | float) else 0.0 for number in numbers)
    return current, low, high, step
