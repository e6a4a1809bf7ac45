"""Set-of-Marks: numbered boxes drawn on a screenshot, and actions that name a box instead of a point.

The frames of episodes stay as the desktop gave them; marks are drawn when a prompt is made, at training and at
evaluation by the code below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from eval.actions import Action, ActionType, ImpossibleAction, Unrepresentable
from eval.actions.geometry import Box, Cells, Point, inside
from eval.episodes.images import AnyImage, ImageRef, check_image, image_size, open_image

if TYPE_CHECKING:
    from PIL import Image

Marks = Mapping[int, Box]
Edges = tuple[int, int, int, int]  # left, top, right, bottom; pixels

# Dark enough for white digits; neighbours in number differ in hue.
COLOURS: Final = ((200, 30, 30), (20, 90, 200), (0, 120, 60), (150, 40, 160), (180, 90, 0), (0, 120, 130))
DIGIT: Final = (6, 7)  # pixels of a digit of Pillow's built-in bitmap font, its blank lines cut off
WIDE: Final = 4  # labels that fit side by side into a wide box
BIG: Final = 900  # pixels of the shorter side per step of enlargement of lines and digits


def draw(image: Image.Image, marks: Marks) -> Image.Image:
    """A copy with a frame around every box and its number in a corner of it or beside it, RGB. The same everywhere.

    The corner is the top left one where nothing speaks against it: see `_place`.
    """

    from PIL import ImageDraw

    drawn = image.convert("RGB").copy()
    scale = 1 + min(drawn.size) // BIG
    canvas = ImageDraw.Draw(drawn)
    frame = Cells(*drawn.size)
    places = []
    for number in sorted(marks):
        left, top, width, height = marks[number]
        x0, y0 = frame.from_norm(_unit(left), _unit(top))
        x1, y1 = frame.from_norm(_unit(left + width), _unit(top + height))
        colour = COLOURS[number % len(COLOURS)]
        canvas.rectangle((x0, y0, max(x0, x1), max(y0, y1)), outline=colour, width=scale)
        places.append((number, (x0, y0, x1, y1), colour))
    taken: list[Edges] = []
    boxes = [edges for _, edges, _ in places]
    for number, edges, colour in places:  # after all the frames, so that none cuts a number
        label = _label(number, colour, scale)
        x, y = _place(edges, boxes, label.size, drawn.size, taken)
        taken.append((x, y, x + label.width, y + label.height))
        drawn.paste(label, (x, y))
    return drawn


def _place(
    edges: Edges, boxes: Sequence[Edges], size: tuple[int, int], screen: tuple[int, int], taken: Sequence[Edges]
) -> tuple[int, int]:
    """Where a number goes: the first of these places at which it covers no other number, else the top left corner.

    A number that is higher than half of its box would hide what stands there: it goes beside the box, on the left or
    above, where it covers no other box; or to the right end of a wide box, which is mostly empty. Any other number goes
    into a corner of its box, the top left one first.
    """
    left, top, right, bottom = edges
    width, height = size
    across, down = max(left, right - width + 1), max(top, bottom - height + 1)
    corners = [
        (min(x, screen[0] - width), min(y, screen[1] - height))
        for x, y in ((left, top), (across, top), (left, down), (across, down))
    ]
    if height * 2 > bottom - top:
        beside, above = (left - width, top), (left, top - height)
        if left >= width and _free(beside, size, (*taken, *boxes)):
            return beside
        if right - left >= WIDE * width and _free(corners[1], size, taken):
            return corners[1]
        if top >= height and _free(above, size, (*taken, *boxes)):
            return above
    return next((corner for corner in corners if _free(corner, size, taken)), corners[0])


def _free(at: tuple[int, int], size: tuple[int, int], others: Sequence[Edges]) -> bool:
    """Whether a label at this place covers none of the others."""
    x, y = at
    return not any(
        x < right and left < x + size[0] and y < bottom and top < y + size[1] for left, top, right, bottom in others
    )


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)  # a box may reach over the edge of the screen


@cache
def _label(number: int, colour: tuple[int, int, int], scale: int) -> Image.Image:
    from PIL import Image, ImageDraw, ImageFont

    text = str(number)
    label = Image.new("RGB", (DIGIT[0] * len(text) + 1, DIGIT[1] + 2), colour)
    ImageDraw.Draw(label).text((1, -1), text, fill=(255, 255, 255), font=ImageFont.load_default_imagefont())
    return label.resize((label.width * scale, label.height * scale), Image.Resampling.NEAREST)


@dataclass(frozen=True)
class Marked:
    """An image with marks drawn on it when it is opened."""

    image: ImageRef
    marks: Marks

    def open(self) -> Image.Image:
        return draw(open_image(self.image), self.marks)

    def check(self) -> None:
        """Raises BadFrame."""
        check_image(self.image)

    def measure(self) -> tuple[int, int]:
        """Width and height. Raises BadFrame."""
        return image_size(self.image)


def marked(image: AnyImage, marks: Marks) -> AnyImage:
    """The image with its marks: drawn at once on a decoded one, when it is opened on any other."""

    from PIL import Image

    if not marks:
        return image
    return draw(image, marks) if isinstance(image, Image.Image) else Marked(image, marks)


def mark_at(point: Point, marks: Marks) -> int | None:
    """The mark whose box holds the point, edges included: the smallest one, the lowest number of equal ones."""
    holding = [(box[2] * box[3], number) for number, box in marks.items() if inside(point, box)]
    return min(holding)[1] if holding else None


def point_of(number: int, marks: Marks) -> Point:
    """Where to click for a mark: the point that `mark_at` gives this mark, as near to the box's middle as there is one.

    A box that smaller ones cover wholly has none; it gets its middle. Raises KeyError for an unknown mark.
    """
    left, top, width, height = marks[number]
    middle = (_unit(left + width / 2), _unit(top + height / 2))
    if mark_at(middle, marks) == number:
        return middle
    columns = _between(left, left + width, [(box[0], box[0] + box[2]) for box in marks.values()])
    rows = _between(top, top + height, [(box[1], box[1] + box[3]) for box in marks.values()])
    free = [(x, y) for x in columns for y in rows if mark_at((x, y), marks) == number]
    return min(free, key=lambda p: ((p[0] - middle[0]) ** 2 + (p[1] - middle[1]) ** 2, p), default=middle)


def _between(low: float, high: float, edges: Sequence[tuple[float, float]]) -> list[float]:
    """The middles between all the edges that lie on one axis of a box."""
    low, high = _unit(low), _unit(high)
    cuts = sorted({low, high, *(edge for pair in edges for edge in pair if low < edge < high)})
    return [(a + b) / 2 for a, b in pairwise(cuts)] or [low]


def to_mark(action: Action, marks: Marks) -> Action:
    """The action with a mark in the place of its point; `click_and_type` becomes `TYPE([n], "text")`.

    Raises Unrepresentable when no box holds the point, and for what has other coordinates (drags, windows).
    """
    if action.element is not None or action.point is None:
        return action  # a drag or a window without a point is refused by the dialect
    if action.end is not None or action.type is ActionType.WINDOW_MOVE:
        raise Unrepresentable(f"{action.type} has no form with marks")
    number = mark_at(action.point, marks)
    if number is None:
        raise Unrepresentable(f"no mark at the point of {action.type}")
    kind = ActionType.TYPE if action.type is ActionType.CLICK_AND_TYPE else action.type
    return dataclasses.replace(action, type=kind, x=None, y=None, element=number)


def to_point(action: Action, marks: Marks) -> Action:
    """The inverse: the action at the middle of its mark. Raises ImpossibleAction for a mark that the screen lacks."""
    if action.element is None:
        return action
    if action.element not in marks:
        raise ImpossibleAction(f"there is no mark [{action.element}] on the screen")
    x, y = point_of(action.element, marks)
    kind = ActionType.CLICK_AND_TYPE if action.type is ActionType.TYPE else action.type
    return dataclasses.replace(action, type=kind, x=x, y=y, element=None)
