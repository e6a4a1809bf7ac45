"""OpenAI's computer use, as the `output` of a response: JSON, a list of items.

`computer_use_preview` has one `action` in a `computer_call`, the general tool `computer` a batch, `actions`. Source:
the types of the SDK `openai` 3.54.0. A scroll says pixels of the screenshot. A response without a call ends the task,
and its text is the answer; a text that begins with [INFEASIBLE] says that it cannot be done, as agents of OSWorld are
told to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eval.actions import Action, ActionType, ImpossibleAction, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import read_json, shown, text_of, write_json
from eval.actions.dialects.turns import (
    ENDS,
    Repairs,
    TurnDialect,
    cannot,
    final,
    final_text,
    need,
    no_more,
    nothing,
    number_of,
    only,
    pressed,
    read_keys,
    write_keys,
)
from eval.actions.geometry import Point
from eval.actions.keys import OPENAI

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "click": ("button", "x", "y", "keys"),
    "double_click": ("x", "y", "keys"),
    "drag": ("path", "keys"),
    "keypress": ("keys",),
    "move": ("x", "y", "keys"),
    "screenshot": (),
    "scroll": ("x", "y", "scroll_x", "scroll_y", "keys"),
    "type": ("text",),
    "wait": (),
}
BUTTONS: Final = {
    "left": (ActionType.CLICK, None),
    "right": (ActionType.RIGHT_CLICK, None),
    "wheel": (ActionType.MIDDLE_CLICK, None),
    "back": (ActionType.CLICK, "back"),
    "forward": (ActionType.CLICK, "forward"),
}
AXES: Final = {"down": ("scroll_y", 1), "up": ("scroll_y", -1), "right": ("scroll_x", 1), "left": ("scroll_x", -1)}


@dataclass(frozen=True)
class OpenAi(TurnDialect):
    """The dialect of the general tool; with `batch` False that of computer_use_preview, one action in a call."""

    batch: bool = True

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        output = read_json(text)
        if isinstance(output, dict) and "output" in output:  # the whole response
            if output.get("status") == "incomplete":
                raise ParseError("the answer was cut off")
            output = output["output"]
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise ParseError("not the output of a response: a list of items")
        texts: list[str] = []
        actions: list[Action] = []
        calls = 0
        for item in output:
            kind = item.get("type")
            if kind == "computer_call":
                calls += 1
                for action in self._call(item, repairs):
                    actions += self._actions(action, repairs)
            elif kind == "message":
                texts += _texts(item.get("content"), "output_text")
            elif kind == "reasoning":
                texts += _texts(item.get("summary", []), "summary_text")
            else:
                raise ParseError(f"an item of type {shown(kind)}")
        thought = "\n".join(texts).strip() or None
        return (thought, actions) if calls else final(thought)

    def _call(self, item: dict[str, Any], repairs: Repairs) -> list[Any]:
        if not isinstance(item.get("call_id"), str):
            raise ParseError("a computer_call needs call_id")
        if item.get("status") == "incomplete":
            raise ParseError("the answer was cut off")
        one, many = item.get("action"), item.get("actions")
        if (many is None) == (one is None):
            raise ParseError("a computer_call needs either action or actions")
        if (many is None) == self.batch:
            repairs.make("action in the place of actions" if self.batch else "actions in the place of action")
        actions = [one] if many is None else many
        if not isinstance(actions, list):
            raise ParseError(f"actions must be a list, not {shown(actions)}")
        return actions

    def _actions(self, value: Any, repairs: Repairs) -> list[Action]:
        if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str) or kind not in FIELDS:
            raise ParseError(f"unknown action {shown(value)}")
        given = only(value, ("type", *FIELDS[kind]), kind, repairs)
        if kind == "keypress":
            return [pressed(self._keys(need(given, "keys", kind), kind))]
        held: dict[str, Any] = {"modifiers": self._keys(given["keys"], kind)} if given.get("keys") else {}
        if kind == "drag":
            return [self._drag(given, held, repairs)]
        if kind == "type":
            return [Action(ActionType.TYPE, text=text_of(given, "text", kind))]
        if kind in ("screenshot", "wait"):
            return [Action(ActionType(kind))]
        x, y = self._point(need(given, "x", kind), need(given, "y", kind), repairs)
        if kind == "scroll":
            return self._scrolls(given, {"x": x, "y": y, **held})
        if kind == "move":
            return [Action(ActionType.HOVER, x=x, y=y, **held)]
        if kind == "double_click":
            return [Action(ActionType.DOUBLE_CLICK, x=x, y=y, **held)]
        button = given.get("button")
        if not isinstance(button, str) or button not in BUTTONS:
            raise ParseError(f"click: button must be one of {', '.join(BUTTONS)}, not {shown(button)}")
        type_, name = BUTTONS[button]
        return [Action(type_, x=x, y=y, button=name, **held)]

    def _keys(self, keys: Any, where: str) -> tuple[str, ...]:
        """Letters name the key, in whatever case: Shift is a key of its own."""
        return tuple(key.lower() for key in read_keys(keys, where))

    def _drag(self, given: dict[str, Any], held: dict[str, Any], repairs: Repairs) -> Action:
        path = need(given, "path", "drag")
        if not isinstance(path, list):
            raise ParseError(f"drag: path must be a list of two points or more, not {shown(path)}")
        points: list[Point] = []
        for point in path:
            if not isinstance(point, dict) or set(point) != {"x", "y"}:
                raise ParseError(f"drag: a point must be an object of x and y, not {shown(point)}")
            points.append(self._point(point["x"], point["y"], repairs))
        if len(points) < 2:
            raise ImpossibleAction(f"drag: path must be a list of two points or more, not {shown(path)}")
        (x, y), *between, (x2, y2) = points
        return Action(ActionType.DRAG, x=x, y=y, path=tuple(between) or None, x2=x2, y2=y2, **held)

    def _scrolls(self, given: dict[str, Any], where: dict[str, Any]) -> list[Action]:
        """The scroll up or down, then the one to the side."""
        actions = []
        for name, (forward, backward) in {"scroll_y": ("down", "up"), "scroll_x": ("right", "left")}.items():
            if pixels := number_of(given, name, "scroll", default=0):
                direction = forward if pixels > 0 else backward
                distance = abs(pixels) / self._pixels(direction)
                actions.append(Action(ActionType.SCROLL, direction=direction, distance=distance, **where))
        return actions or [nothing(**where)]

    def _pixels(self, direction: str | None) -> int:
        """What a whole height or width of the screen is in the dialect's numbers."""
        if self.frame is None:
            return 1
        return self.frame.height if direction in ("up", "down") else self.frame.width

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        texts = [] if thought is None else [thought]
        written: list[dict[str, Any]] = []
        for action in actions:
            if action.type in ENDS:
                texts.append(final_text(action))
            else:
                written.append(self._object(action))
        items: list[dict[str, Any]] = [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            for text in texts
            if text
        ]
        calls: list[dict[str, Any]]
        calls = [{"actions": written}] if self.batch and written else [{"action": action} for action in written]
        items += [{"type": "computer_call", "call_id": f"call_{i}", **call} for i, call in enumerate(calls)]
        return write_json(items)

    def _object(self, action: Action) -> dict[str, Any]:
        kind = action.type
        held = {} if action.modifiers is None else {"keys": write_keys(action.modifiers, OPENAI, capitals=True)}
        at = {} if action.point is None else dict(zip(("x", "y"), self._cell(action.point), strict=True))
        if kind in (ActionType.KEY, ActionType.HOTKEY) and action.keys:
            no_more(action, "keys")
            return {"type": "keypress", "keys": write_keys(action.keys, OPENAI, capitals=True)}
        if kind is ActionType.TYPE:
            no_more(action, "text")
            return {"type": "type", "text": action.text}
        if kind in (ActionType.SCREENSHOT, ActionType.WAIT):
            no_more(action)
            return {"type": kind.value}
        if kind in (ActionType.HOVER, ActionType.DOUBLE_CLICK, ActionType.CLICK, ActionType.RIGHT_CLICK):
            pass
        elif kind not in (ActionType.MIDDLE_CLICK, ActionType.DRAG, ActionType.SCROLL):
            raise cannot(action)
        if not at:
            raise Unrepresentable(f"{kind} without a point")
        if kind is ActionType.DRAG and action.end is not None:
            no_more(action, "x", "y", "x2", "y2", "path", "modifiers")
            path = [list(at.values()), *map(self._cell, action.path or ()), self._cell(action.end)]
            return {"type": "drag", "path": [dict(zip(("x", "y"), point, strict=True)) for point in path], **held}
        if kind is ActionType.SCROLL:
            return {"type": "scroll", **at, **self._distance(action), **held}
        if kind in (ActionType.HOVER, ActionType.DOUBLE_CLICK):
            no_more(action, "x", "y", "modifiers")
            return {"type": "move" if kind is ActionType.HOVER else "double_click", **at, **held}
        no_more(action, "x", "y", "modifiers", "button")
        button = next(name for name, meant in BUTTONS.items() if meant == (kind, action.button))
        return {"type": "click", "button": button, **at, **held}

    def _distance(self, action: Action) -> dict[str, float]:
        no_more(action, "x", "y", "direction", "distance", "modifiers")
        if action.distance is None or action.direction is None:
            raise Unrepresentable("a scroll by clicks of the wheel: this dialect says how far")
        axis, sign = AXES[action.direction]
        far = action.distance * self._pixels(action.direction)
        written = round(far, self.decimals) if self.frame is None else round(far)
        return {"scroll_x": 0, "scroll_y": 0} | {axis: sign * written}

    def instructions(self) -> str:
        """How to answer, for a system prompt. The API describes the tool itself."""
        return (
            "Use the tool computer. When the task is done, answer with a text and no call of the tool; when it cannot "
            "be done, begin that text with [INFEASIBLE]."
        )


def _texts(parts: Any, kind: str) -> list[str]:
    """The texts of a message or of a summary. Raises ParseError, also for a refusal."""
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ParseError(f"content must be a list of parts, not {shown(parts)}")
    if any(part.get("type") == "refusal" for part in parts):
        raise ParseError("the model refused")
    if other := next((part.get("type") for part in parts if part.get("type") != kind), None):
        raise ParseError(f"a part of type {shown(other)}")
    return [text_of(part, "text", kind) for part in parts]
