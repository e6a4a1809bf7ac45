"""Answers of grounding models: the place of one thing on the screen, as a point or as a box. It is read as a click.

Read are the spellings that these models are known for: `(x, y)`, `[x, y]`, `<point>x y</point>`, JSON with `point_2d`
or `bbox_2d` (Qwen2.5-VL), `<|box_start|>(left,top),(right,bottom)<|box_end|>` (Qwen2-VL, OS-Atlas) and
`[[left, top, right, bottom]]` (InternVL, CogAgent). A box stands for its centre. Text before the place is the thought.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import shown
from eval.actions.dialects.turns import Repairs, TurnDialect, cannot, no_more
from eval.actions.geometry import Cells, Point

GRID: Final = Cells(1000, 1000)  # Qwen2-VL, Qwen3-VL, OS-Atlas, UGround, Aria-UI, InternVL
BLANK: Final = r"\s{0,4}"
NUMBER: Final = r"-?[0-9]{1,9}(?:\.[0-9]{1,17})?"
COMMA: Final = rf"{BLANK},{BLANK}"
PAIR: Final = rf"({NUMBER}){COMMA}({NUMBER})"
PLACE: Final = re.compile(
    rf"\({BLANK}{PAIR}{BLANK}\){COMMA}\({BLANK}{PAIR}{BLANK}\)"
    rf"|<point>{BLANK}({NUMBER})(?:{COMMA}|\s{{1,4}})({NUMBER}){BLANK}</point>"
    rf"|[\[(]{BLANK}{PAIR}(?:{COMMA}{PAIR})?{BLANK}[\])]"
)
# what stands around the place in these spellings, and is no thought
NAMES: Final = ("bbox_2d", "point_2d", "bbox", "point", "coordinate", "coordinates")
BEFORE: Final = ("<|box_start|>", "<box>", "```json", "```", "[", "{", "(", *(f'"{name}":' for name in NAMES))
AFTER: Final = re.compile(
    r"(?:<\|box_end\|>|</box>|<\|im_end\|>|```|[\]}).]|,\s{0,4}\"label\"\s{0,4}:\s{0,4}\"[^\"\\]{0,500}\"|\s)*"
)


@dataclass(frozen=True)
class PlaceDialect(TurnDialect):
    """A place in fractions of the screen, or in cells of a frame."""

    @property
    def control_tokens(self) -> frozenset[str]:
        return frozenset(("<|box_start|>", "<|box_end|>"))

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        found = list(PLACE.finditer(text))
        if not found:
            raise ParseError(f"no place such as {self._written((0.42, 0.73))}")
        if len(found) > 1:
            repairs.make("more than one place")
        x, y = self._centre([number for number in found[0].groups() if number is not None], repairs)
        rest = AFTER.match(text, found[0].end())
        if len(found) == 1 and rest is not None and rest.end() < len(text):
            repairs.make("text after the place")
        thought = text[: _thought_end(text, found[0].start())]
        return thought.strip() or None, [Action(ActionType.CLICK, x=x, y=y)]

    def _centre(self, numbers: Sequence[str], repairs: Repairs) -> Point:
        places = [float(number) if "." in number or self.frame is None else int(number) for number in numbers]
        if len(places) == 2:
            return self._point(places[0], places[1], repairs)
        left, top, right, bottom = places
        if left > right or top > bottom:
            raise ParseError(f"a box must be left, top, right, bottom, not {shown(places)}")
        # an edge is a line between cells, and may be the screen's own
        return self._point((left + right) / 2, (top + bottom) / 2, repairs)

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        if len(actions) != 1:
            raise Unrepresentable(f"an answer of this dialect holds one place, not {len(actions)}")
        (action,) = actions
        if action.type is not ActionType.CLICK or action.point is None:
            raise cannot(action)
        no_more(action, "x", "y")
        written = self._written(action.point)
        return written if thought is None else f"{thought}\n{written}"

    def _written(self, point: Point) -> str:
        x, y = self._cell(point)
        return f"({x}, {y})"

    def instructions(self) -> str:
        where = "fractions of the screenshot's width and height"
        if self.frame is not None:
            where = f"cells of a frame that is {self.frame.width} wide and {self.frame.height} high"
        return (
            "Find what the task tells you to click on the screenshot. Answer with its place and nothing else: (x, y), "
            f"{where}, from the top left corner. For example: {self._written((0.42, 0.73))}"
        )


@dataclass(frozen=True)
class GridPlaceDialect(PlaceDialect):
    """A place in cells of a grid of 1000 by 1000, whatever the size of the screenshot."""

    frame: Cells | None = GRID

    def in_frame(self, frame: Cells) -> Self:
        if frame != GRID:
            raise Unrepresentable("place-1000 has cells of a grid of 1000 by 1000; in pixels it is `place`")
        return self


def _thought_end(text: str, end: int) -> int:
    """Where the text before a place ends, without what belongs to the place's spelling."""
    while end:
        if text[end - 1].isspace():
            end -= 1
        elif token := next((token for token in BEFORE if text.endswith(token, 0, end)), None):
            end -= len(token)
        else:
            break
    return end
