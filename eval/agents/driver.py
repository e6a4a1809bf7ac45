"""The one computer driver behind the loops of SDKs: what a model's interface says becomes our actions, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from PIL import Image

from eval.actions import Action, ActionType, ImpossibleAction, ParseError
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.turns import INFEASIBLE
from eval.actions.geometry import Cells
from eval.agents.base import Decision
from eval.agents.computer import Computer, EpisodeOver
from eval.agents.wire import png
from eval.desktop import ActionRefused
from eval.episodes import ToolCall
from eval.prompts.messages import not_done


class Driver:
    """Does the calls of a model's interface on the guarded computer.

    dialect  reads the calls; their coordinates are pixels of the screenshots as the model sees them
    longest  the longest side of a screenshot as the model sees it, pixels; a larger one is scaled down. None: as it is
    lenient  whether what the dialect knows to repair is repaired
    """

    def __init__(
        self, computer: Computer, dialect: Dialect, longest: int | None = None, *, lenient: bool = False
    ) -> None:
        self.computer = computer
        width, height = computer.size
        scale = 1.0 if longest is None else min(1.0, longest / max(width, height))
        self.size = (max(1, round(width * scale)), max(1, round(height * scale)))
        self.dialect = dialect.in_frame(Cells(*self.size))
        self.lenient = lenient
        self._begun: set[str] = set()  # ids of the calls of the open answer that its loop has not given here yet
        self._left: tuple[float, float] | None = None  # where the last action left the pointer, normalised

    def begin(self, decision: Decision, answer: Any) -> str | None:
        """Records an answer as a new step, read as a whole before anything of it is done: `answer`, JSON of the
        dialect, or None for one without a call of the computer.

        Gives what the model is told where nothing of it is done; None: its calls are to be done. Raises EpisodeOver.
        """
        self.unheard()
        if decision.parse_error is None and answer is not None:
            try:
                self._read(answer)
            except ImpossibleAction as error:
                decision = replace(decision, refused=str(error))
            except ParseError as error:
                decision = replace(decision, parse_error=str(error), refused=None)
        self.computer.begin(decision)
        if self.computer.ended.is_set():
            raise EpisodeOver
        if self.computer.undone is None:
            self._begun = {str(item["id"]) for item in answer or () if item.get("type") == "tool_use"}
        return None if self.computer.undone is None else not_done(self.computer.undone)

    def unheard(self) -> None:
        """A call that the loop refused by itself, as an SDK that takes fewer values, could not be done."""
        if self._begun and self.computer.steps:
            self.computer.refuse("the SDK does not take the call")
        self._begun = set()

    def heard(self, identity: str) -> None:
        """The loop gives a call of the open answer to be done."""
        self._begun.discard(identity)

    def _read(self, answer: Any) -> tuple[Action, ...]:
        return read_answer(partial(self.dialect.parse_turn, lenient=self.lenient), json.dumps(answer)).actions

    async def do(self, answer: Any, call: ToolCall) -> str | None:
        """Does the actions of `answer`, which is JSON of the dialect, as those of `call`.

        Gives what the model is told where one of them was not done; the step tells it, too.
        """
        try:
            for action in self._read(answer):
                await self.computer.act(action, call)
                if action.type is not ActionType.ZOOM:  # it only shows
                    self._left = action.end or action.point or self._left
        except (ParseError, ActionRefused) as error:
            self.computer.refuse(str(error))
            return not_done(str(error))
        return None

    def pointer(self) -> tuple[int, int] | None:
        """Where the pointer is, in pixels of the screenshots as the model sees them: what the desktop says, else where
        the last action left it; None where nobody knows."""
        seen, at = self.computer.observation, self._left
        if (told := seen.info.get("pointer")) is not None:
            at = Cells(*seen.screen).to_norm(*told)
        return None if at is None else Cells(*self.size).from_norm(*at)

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
