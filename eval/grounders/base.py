"""What a grounder promises, and a desktop whose screens it marks.

A grounder is part of what is evaluated, as the agent is: an answer of its model that holds no boxes leaves a screen
without marks, and the agent has to live with it. A server that fails is infrastructure.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from eval.accessibility.visible import MOST, marks_of
from eval.actions.dialects.base import MAX_ANSWER
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import Desktop, Observation, WrappedDesktop

Order = Literal["xyxy", "yxyx"]  # left, top, right, bottom; or top, left, bottom, right, as Gemini says boxes
GRID: Final = 1000  # Gemini and Qwen3-VL say places from 0 to 1000, whatever the picture's size
REQUEST: Final = (
    "Find everything on this screenshot that a person can click or write into: buttons, fields, menus, tabs, links, "
    "check boxes, icons, list items. Answer with a JSON list and nothing else."
)


class Grounder(Protocol):
    """Finds what can be pointed at on a screen."""

    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        """Numbers from 1 on, each with a box (normalised). Raises InfraError, and ConfigError for what the
        configuration must mend."""
        ...


class TreeGrounder:
    """The accessibility tree's elements, as `eval.accessibility.visible` chooses them."""

    async def ground(self, observation: Observation) -> Mapping[int, Box]:
        if observation.tree is None:
            raise ConfigError(
                "grounder: kind tree needs an environment that gives accessibility trees, such as desktop"
            )
        return marks_of(observation.tree)


class GroundedDesktop(WrappedDesktop):
    """A desktop whose screens the grounder marks; what its environment marked itself is left out."""

    def __init__(self, desktop: Desktop, grounder: Grounder) -> None:
        super().__init__(desktop)
        self._grounder = grounder

    async def seen(self, observation: Observation) -> Observation:
        if observation.done:
            return observation
        return dataclasses.replace(observation, marks=dict(await self._grounder.ground(observation)))


def boxes(answer: str, key: str, order: Order, size: tuple[float, float]) -> dict[int, Box]:
    """The boxes of a model's answer, numbered as they come; {} for an answer without any.

    Reads the objects of the first JSON list, each with its four numbers under `key`. `size` is the width and height
    that the numbers are of. Of a list that was cut off, the whole objects count. What is no box in the picture is
    passed over; of equal boxes the first counts.
    """
    text = answer[:MAX_ANSWER]
    decoder = json.JSONDecoder()
    place = text.find("[")
    found: dict[Box, None] = {}
    while place >= 0 and len(found) < MOST:
        place = text.find("{", place)
        if place < 0:
            break
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        if (box := _box(value, key, order, size)) is not None:
            found.setdefault(box)
    return dict(enumerate(found, start=1))


def _box(value: Any, key: str, order: Order, size: tuple[float, float]) -> Box | None:
    numbers = value.get(key) if isinstance(value, dict) else None
    if not isinstance(numbers, list) or len(numbers) != 4:
        return None
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) <= 1e6 for n in numbers):
        return None
    first, second, third, fourth = (float(number) for number in numbers)
    if order == "yxyx":
        first, second, third, fourth = second, first, fourth, third
    left, top, right, bottom = first / size[0], second / size[1], third / size[0], fourth / size[1]
    whole = all(math.isfinite(edge) for edge in (left, top, right, bottom))
    if not whole or not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        return None
    return left, top, right - left, bottom - top
