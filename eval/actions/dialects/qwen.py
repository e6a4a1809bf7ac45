"""Qwen2.5-VL's and Qwen3-VL's tool `computer_use`: JSON within <tool_call>, with text before it.

Source: the tool's description in Qwen's cookbooks (agent_function_call). Qwen2.5-VL says pixels of the resized image,
Qwen3-VL cells of a grid of 1000 by 1000. `pixels` of a scroll counts what the published executors hand to PyAutoGUI,
which are clicks of the wheel: above 0 is up, or to the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import read_json, shown, text_of, write_json
from eval.actions.dialects.turns import (
    CLICKS,
    ENDS,
    Repairs,
    TurnDialect,
    cannot,
    moved,
    need,
    no_more,
    nothing,
    number_of,
    only,
    pressed,
    read_keys,
    write_keys,
)
from eval.actions.geometry import Cells

OPEN, CLOSE = "<tool_call>", "</tool_call>"
GRID: Final = Cells(1000, 1000)
ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "key": ("keys",),
    "type": ("text",),
    "mouse_move": ("coordinate",),
    "left_click_drag": ("coordinate",),
    **dict.fromkeys(CLICKS, ("coordinate",)),
    **dict.fromkeys(("scroll", "hscroll"), ("pixels", "coordinate")),
    "wait": ("time",),
    "terminate": ("status",),
    "answer": ("text",),
}
NEW: Final = frozenset({"triple_click", "hscroll", "answer"})  # with Qwen3-VL
MOVED: Final = frozenset({ActionType.DRAG})


@dataclass(frozen=True)
class Qwen25(TurnDialect):
    """The dialect of Qwen2.5-VL. A drag is two calls: mouse_move, and left_click_drag from there."""

    @property
    def actions(self) -> frozenset[str]:
        return frozenset(ARGUMENTS) - NEW

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        if OPEN not in text and text.strip().startswith("{"):
            repairs.make(f"no {OPEN}")
            text = OPEN + text + CLOSE
        thought, *parts = text.split(OPEN)
        if not parts:
            raise ParseError(f"no {OPEN}")
        bodies = []
        for part in parts:
            body, closed, after = part.partition(CLOSE)
            if not closed:
                repairs.make(f"no {CLOSE}")
            if after.strip():
                repairs.make("text after the call")
            bodies.append(body)
        actions = [self._call(read_json(body.strip()), repairs) for body in bodies]
        return thought.strip() or None, moved(actions, MOVED)

    def _call(self, value: Any, repairs: Repairs) -> Action:
        if not isinstance(value, dict) or set(value) - {"name", "arguments"} or value.get("name") != "computer_use":
            raise ParseError(f"not a call of computer_use: {shown(value)}")
        given = value.get("arguments")
        if isinstance(given, str):
            repairs.make("arguments that are a text instead of an object")
            given = read_json(given)
        if not isinstance(given, dict) or not isinstance(name := given.get("action"), str):
            raise ParseError(f"arguments without action: {shown(given)}")
        if name not in self.actions:
            raise ParseError(f"unknown action {shown(name)}")
        given = only(given, ("action", *ARGUMENTS[name]), name, repairs)
        point: dict[str, Any] = {}
        if "coordinate" in given:
            point = dict(zip(("x", "y"), self._pair(given["coordinate"], repairs), strict=True))
        return self._action(name, given, point, repairs)

    def _action(self, name: str, given: dict[str, Any], point: dict[str, Any], repairs: Repairs) -> Action:
        if name in CLICKS:
            return Action(CLICKS[name], **point)
        if name in ("mouse_move", "left_click_drag"):
            need(given, "coordinate", name)
            if name == "mouse_move":
                return Action(ActionType.HOVER, **point)
            return Action(ActionType.DRAG, x2=point["x"], y2=point["y"])
        if name == "key":
            keys = need(given, "keys", name)
            if isinstance(keys, str):
                repairs.make("keys that are a text instead of a list")
                keys = keys.split("+")
            return pressed(read_keys(keys, name))
        if name == "type":
            return Action(ActionType.TYPE, text=text_of(given, "text", name))
        if name in ("scroll", "hscroll"):
            need(given, "pixels", name)
            pixels = number_of(given, "pixels", name)
            if not pixels:
                return nothing(**point)
            forward, backward = ("up", "down") if name == "scroll" else ("right", "left")
            direction = forward if pixels > 0 else backward
            return Action(ActionType.SCROLL, direction=direction, amount=abs(pixels), **point)
        if name == "wait":
            if "time" not in given:
                repairs.make("wait without time")
                return Action(ActionType.WAIT)
            return Action(ActionType.WAIT, duration=number_of(given, "time", name))
        if name == "answer":
            return Action(ActionType.DONE, text=text_of(given, "text", name))
        status = given.get("status")
        if status not in ("success", "failure"):
            raise ParseError(f"terminate: status must be success or failure, not {shown(status)}")
        return Action(ActionType.DONE if status == "success" else ActionType.FAIL)

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        calls = [
            f"{OPEN}\n{write_json({'name': 'computer_use', 'arguments': arguments})}\n{CLOSE}"
            for action in actions
            for arguments in self._calls(action)
        ]
        return "\n".join(([] if thought is None else [thought]) + calls)

    def _calls(self, action: Action) -> list[dict[str, Any]]:
        calls = self._arguments(action)
        if new := next((call["action"] for call in calls if call["action"] not in self.actions), None):
            raise Unrepresentable(f"this dialect has no {new}")
        return calls

    def _arguments(self, action: Action) -> list[dict[str, Any]]:
        kind = action.type
        at = {} if action.point is None else {"coordinate": self._cell(action.point)}
        for name, type_ in CLICKS.items():
            if kind is type_:
                no_more(action, "x", "y")
                return [{"action": name, **at}]
        if kind is ActionType.HOVER:
            no_more(action, "x", "y")
            return [{"action": "mouse_move", **at}]
        if kind is ActionType.DRAG and action.end is not None:
            no_more(action, "x", "y", "x2", "y2")
            move = [{"action": "mouse_move", **at}] if at else []
            return [*move, {"action": "left_click_drag", "coordinate": self._cell(action.end)}]
        if kind is ActionType.SCROLL:
            return [_scroll(action) | at]
        if kind in (ActionType.KEY, ActionType.HOTKEY) and action.keys:
            no_more(action, "keys")
            return [{"action": "key", "keys": write_keys(action.keys, {})}]
        if kind is ActionType.TYPE:
            no_more(action, "text")
            return [{"action": "type", "text": action.text}]
        if kind is ActionType.WAIT:
            if action.duration is None:
                raise Unrepresentable("a wait without a duration")
            return [{"action": "wait", "time": _short(action.duration)}]
        if kind in ENDS:
            if action.text is not None and kind is ActionType.DONE:
                return [{"action": "answer", "text": action.text}]
            no_more(action)
            return [{"action": "terminate", "status": "success" if kind is ActionType.DONE else "failure"}]
        raise cannot(action)

    def instructions(self) -> str:
        """How to answer, for a system prompt. The tool's own description comes from the chat template."""
        where = "fractions of the screen's width and height"
        if self.frame is not None:
            where = f"cells of a frame that is {self.frame.width} wide and {self.frame.height} high"
        example = self._write([Action(ActionType.CLICK, x=0.42, y=0.73)], None)
        return (
            f"Answer with one call of the tool computer_use, for example\n{example}\nThe actions are "
            f"{', '.join(sorted(self.actions))}; terminate takes the status success or failure. Coordinates are "
            f"{where}, from the top left corner."
        )


@dataclass(frozen=True)
class Qwen3(Qwen25):
    """The dialect of Qwen3-VL: a grid of 1000 by 1000, whatever the size of the screenshot."""

    frame: Cells | None = GRID

    @property
    def actions(self) -> frozenset[str]:
        return frozenset(ARGUMENTS)

    def in_frame(self, frame: Cells) -> Self:
        if frame != GRID:
            raise Unrepresentable("Qwen3-VL's coordinates are cells of a grid of 1000 by 1000")
        return self


def _short(value: float) -> float:
    return int(value) if value.is_integer() else value


def _scroll(action: Action) -> dict[str, Any]:
    no_more(action, "x", "y", "direction", "amount")
    if action.amount is None:
        raise Unrepresentable("a scroll without an amount")
    pixels = _short(action.amount if action.direction in ("up", "right") else -action.amount)
    return {"action": "scroll" if action.direction in ("up", "down") else "hscroll", "pixels": pixels}
