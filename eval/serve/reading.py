"""What a client sends as an answer: an action as JSON, or the text of a model. Either may be no action, which counts as
in an evaluation (docs/explanation/answers.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eval.actions import Action, ActionError, ImpossibleAction, OutOfRange, ParseError
from eval.actions.dialects.base import Response
from eval.actions.dialects.strict_json import read_json, write_json
from eval.actions.geometry import Box, Cells, OutOfFrame
from eval.agents.base import Decision, decide
from eval.prompts import PromptBuilder
from eval.prompts.marks import to_point

PIXELS: Final = (("x", "y"), ("x2", "y2"))


def answer_of(data: Mapping[str, Any], builder: PromptBuilder, marks: Mapping[int, Box]) -> Decision:
    """The decision of `{"answer": TEXT}`, read by the configured dialect, or of an action's JSON (`Action.to_json`)."""
    if isinstance(text := data.get("answer"), str) and len(data) == 1:
        return decide(lambda answer: builder.read_turn(answer, marks), text)
    return action_of(data, marks)


def action_of(
    data: Mapping[str, Any], marks: Mapping[int, Box], frame: Cells | None = None, said: str | None = None
) -> Decision:
    """The decision of an action's JSON.

    frame  in whose cells its coordinates are; None: they are fractions of the screen
    said   the answer as the client gave it, for the record; None: the JSON
    """

    def read(text: str) -> Response:
        given = read_json(text)
        try:
            action = Action.from_json(given if frame is None else _in_fractions(given, frame))
        except (OutOfFrame, OutOfRange) as error:
            raise ImpossibleAction(str(error)) from None
        except ActionError as error:
            raise ParseError(str(error)) from None
        return Response(None, to_point(action, marks))

    decision = decide(read, write_json(dict(data)))
    return decision if said is None else Decision(said, decision.action, None, decision.parse_error, decision.refused)


def _in_fractions(given: Mapping[str, Any], frame: Cells) -> dict[str, Any]:
    """The JSON with its points as fractions of the screen. Raises OutOfFrame, ActionError."""
    out = dict(given)
    for x, y in PIXELS:
        if x in out and y in out:
            for name in (x, y):
                if isinstance(out[name], bool) or not isinstance(out[name], int | float):
                    raise ActionError(f"{name} must be a number of pixels")
            out[x], out[y] = frame.to_norm(out[x], out[y])
    return out
