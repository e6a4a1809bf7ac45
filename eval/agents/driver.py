"""The one computer driver behind the loops of SDKs: what a model's interface says becomes our actions, and back."""

from __future__ import annotations

import json
from typing import Any

from PIL import Image

from eval.actions import Action, ActionType, ParseError
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.turns import INFEASIBLE
from eval.actions.geometry import Cells
from eval.agents.computer import Computer
from eval.agents.wire import png
from eval.episodes import ToolCall


class Driver:
    """Does the calls of a model's interface on the guarded computer.

    dialect  reads the calls; their coordinates are pixels of the screenshots as the model sees them
    longest  the longest side of a screenshot as the model sees it, pixels; a larger one is scaled down. None: as it is
    """

    def __init__(self, computer: Computer, dialect: Dialect, longest: int | None = None) -> None:
        self.computer = computer
        width, height = computer.size
        scale = 1.0 if longest is None else min(1.0, longest / max(width, height))
        self.size = (max(1, round(width * scale)), max(1, round(height * scale)))
        self.dialect = dialect.in_frame(Cells(*self.size))
        self.pointer = (0.0, 0.0)  # normalised; where the last action left it

    async def do(self, answer: Any, call: ToolCall) -> None:
        """Does the actions of `answer`, which is JSON of the dialect, as those of `call`.

        Raises ParseError for a call that says no valid action, ActionRefused for one that the desktop cannot do; the
        step tells both.
        """
        try:
            actions = read_answer(self.dialect.parse_turn, json.dumps(answer)).actions
        except ParseError as error:
            self.computer.note(ToolCall(name=call.name, id=call.id, arguments=call.arguments, error=str(error)))
            raise
        for action in actions:
            await self.computer.act(action, call)
            if (point := action.end or action.point) is not None:
                self.pointer = point

    def screenshot(self) -> str:
        """The present screen as the model sees it: PNG, base64. Raises EpisodeOver."""
        image = self.computer.screenshot()
        return png(image if image.size == self.size else image.resize(self.size, Image.Resampling.LANCZOS))

    def zoomed(self, region: tuple[float, float, float, float]) -> str:
        """A part of the present screen (left, top, right, bottom; normalised) as large as a screenshot."""
        image = self.computer.screenshot()
        left, right = sorted((region[0] * image.width, region[2] * image.width))
        top, bottom = sorted((region[1] * image.height, region[3] * image.height))
        box = (int(left), int(top), max(int(right), int(left) + 1), max(int(bottom), int(top) + 1))
        return png(image.crop(box).resize(self.size, Image.Resampling.LANCZOS))

    async def finish(self, text: str) -> None:
        """The model ended its loop with a text: done, or fail where the text begins with [INFEASIBLE]."""
        kind = ActionType.FAIL if text.strip().startswith(INFEASIBLE) else ActionType.DONE
        told = text.encode(errors="backslashreplace").decode()
        await self.computer.act(Action(kind, text=told or None))
