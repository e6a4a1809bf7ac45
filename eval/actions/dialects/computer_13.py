"""OSWorld's computer_13: actions as JSON objects, each in a fence, or the words WAIT, DONE and FAIL.

Source: OSWorld's description of the action space (desktop_env/actions.py), its controller, which executes it, and the
reader of its agents. `dy` above 0 scrolls up, `dx` above 0 to the right, as PyAutoGUI does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eval.actions import Action, ActionType, ImpossibleAction, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import read_json, shown, split_fences, text_of, write_json
from eval.actions.dialects.turns import (
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

WORDS: Final = {"WAIT": ActionType.WAIT, "DONE": ActionType.DONE, "FAIL": ActionType.FAIL}
BUTTONS: Final = ("left", "right", "middle")
PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "MOVE_TO": ("x", "y"),
    "CLICK": ("button", "x", "y", "num_clicks"),
    "MOUSE_DOWN": ("button",),
    "MOUSE_UP": ("button",),
    "RIGHT_CLICK": ("x", "y"),
    "DOUBLE_CLICK": ("x", "y"),
    "DRAG_TO": ("x", "y"),
    "SCROLL": ("dx", "dy"),
    "TYPING": ("text",),
    "PRESS": ("key",),
    "KEY_DOWN": ("key",),
    "KEY_UP": ("key",),
    "HOTKEY": ("keys",),
    **dict.fromkeys(WORDS, ()),
}
KEYS: Final = {ActionType.KEY: "PRESS", ActionType.KEY_DOWN: "KEY_DOWN", ActionType.KEY_UP: "KEY_UP"}
COUNTS: Final = {1: ActionType.CLICK, 2: ActionType.DOUBLE_CLICK, 3: ActionType.TRIPLE_CLICK}
MOVED: Final = frozenset({ActionType.DRAG, ActionType.SCROLL})


@dataclass(frozen=True)
class Computer13(TurnDialect):
    """The dialect. A drag from a point and a scroll at a point are two objects: MOVE_TO comes first."""

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        thought, fences, after = split_fences(text)
        if not fences:
            return None, self._bodies([text.strip()], repairs)
        if after:
            repairs.make("text after the action")
        for fence in fences:
            if fence.language not in ("json", ""):
                repairs.make(f"a fence of {fence.language} instead of json")
        return thought or None, self._bodies([fence.body for fence in fences], repairs)

    def _bodies(self, bodies: Sequence[str], repairs: Repairs) -> list[Action]:
        actions: list[Action] = []
        for body in bodies:
            if body in WORDS:
                actions.append(Action(WORDS[body]))
                continue
            value = read_json(body)
            if isinstance(value, list):
                repairs.make("a list of objects instead of one object")
            for item in value if isinstance(value, list) else [value]:
                actions += self._object(item, repairs)
        return moved(actions, MOVED)

    def _object(self, value: Any, repairs: Repairs) -> list[Action]:
        if not isinstance(value, dict) or not isinstance(kind := value.get("action_type"), str):
            raise ParseError(f"not an object with action_type: {shown(value)}")
        if kind not in PARAMETERS and kind.upper() in PARAMETERS:
            repairs.make(f"{kind} in the place of {kind.upper()}")
            kind = kind.upper()
        if kind not in PARAMETERS:
            raise ParseError(f"unknown action {shown(kind)}")
        given = {name: item for name, item in value.items() if name != "action_type"}
        if isinstance(parameters := given.get("parameters"), dict) and len(given) == 1:
            given = parameters
        given = only(given, PARAMETERS[kind], kind, repairs)
        return self._actions(kind, given, repairs)

    def _actions(self, kind: str, given: dict[str, Any], repairs: Repairs) -> list[Action]:
        if kind in WORDS:
            return [Action(WORDS[kind])]
        if kind == "TYPING":
            return [Action(ActionType.TYPE, text=text_of(given, "text", kind))]
        if kind == "HOTKEY":
            return [pressed(read_keys(need(given, "keys", kind), kind))]
        if "key" in PARAMETERS[kind]:
            type_ = {name: type_ for type_, name in KEYS.items()}[kind]
            return [Action(type_, keys=read_keys([need(given, "key", kind)], kind))]
        if kind == "SCROLL":
            return _scrolls(given)
        button = given.get("button", "left")
        if button not in BUTTONS:
            raise ParseError(f"{kind}: button must be one of {', '.join(BUTTONS)}, not {shown(button)}")
        if kind in ("MOUSE_DOWN", "MOUSE_UP"):
            return [Action(ActionType(kind.lower()), button=button)]
        point = self._given_point(kind, given, repairs)
        if kind == "MOVE_TO":
            return [Action(ActionType.HOVER, **point)]
        if kind == "DRAG_TO":
            return [Action(ActionType.DRAG, x2=point["x"], y2=point["y"])]
        if kind in ("RIGHT_CLICK", "DOUBLE_CLICK"):
            return [Action(ActionType(kind.lower()), **point)]
        count = number_of(given, "num_clicks", kind, default=1)
        if count == 0:
            return [nothing(**point)]
        if count not in COUNTS:
            raise ImpossibleAction(f"{kind}: num_clicks must be 1, 2 or 3, not {shown(count)}")
        if count == 1 and button != "left":
            return [Action(ActionType(f"{button}_click"), **point)]
        return [Action(COUNTS[int(count)], **point, button=None if button == "left" else button)]

    def _given_point(self, kind: str, given: dict[str, Any], repairs: Repairs) -> dict[str, Any]:
        if "x" not in given and "y" not in given and kind not in ("MOVE_TO", "DRAG_TO"):
            return {}
        x, y = self._point(need(given, "x", kind), need(given, "y", kind), repairs)
        return {"x": x, "y": y}

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        blocks = [f"```json\n{write_json(item)}\n```" for action in actions for item in self._objects(action)]
        return "\n".join(([] if thought is None else [thought]) + blocks)

    def _objects(self, action: Action) -> list[dict[str, Any]]:
        kind = action.type
        if kind in (ActionType.WAIT, ActionType.DONE, ActionType.FAIL):
            no_more(action)
            return [_item(kind.name)]
        if kind is ActionType.TYPE:
            no_more(action, "text")
            return [_item("TYPING", text=action.text)]
        if kind in KEYS and action.keys:
            no_more(action, "keys")
            return [_item(KEYS[kind], key=write_keys(action.keys, {})[0])]
        if kind is ActionType.HOTKEY and action.keys:
            no_more(action, "keys")
            return [_item("HOTKEY", keys=write_keys(action.keys, {}))]
        if kind in (ActionType.MOUSE_DOWN, ActionType.MOUSE_UP):
            no_more(action, "button")
            return [_item(kind.name, button=_button(action))]
        return self._pointed(action)

    def _pointed(self, action: Action) -> list[dict[str, Any]]:
        kind, at = action.type, {}
        if action.point is not None:
            at = dict(zip(("x", "y"), self._cell(action.point), strict=True))
        move = [_item("MOVE_TO", **at)] if at else []
        if kind is ActionType.HOVER:
            no_more(action, "x", "y")
            return move
        if kind is ActionType.DRAG and action.end is not None:
            no_more(action, "x", "y", "x2", "y2")
            return [*move, _item("DRAG_TO", **dict(zip(("x", "y"), self._cell(action.end), strict=True)))]
        if kind is ActionType.SCROLL:
            no_more(action, "x", "y", "direction", "amount")
            return [*move, _item("SCROLL", **_clicks(action))]
        if kind is ActionType.RIGHT_CLICK:
            no_more(action, "x", "y")
            return [_item("RIGHT_CLICK", **at)]
        no_more(action, "x", "y", "button")
        if kind is ActionType.MIDDLE_CLICK:
            return [_item("CLICK", button="middle", **at)]
        if kind is ActionType.DOUBLE_CLICK and action.button is None:
            return [_item("DOUBLE_CLICK", **at)]
        for count, type_ in COUNTS.items():
            if kind is type_:
                extra = {"num_clicks": count} if count > 1 else {}
                return [_item("CLICK", button=_button(action), **at, **extra)]
        raise cannot(action)

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        x, y = self._cell((0.42, 0.73))
        where = "fractions of the screen's width and height"
        if self.frame is not None:
            where = f"pixels of the screenshot, which is {self.frame.width} wide and {self.frame.height} high"
        return (
            "Answer with one action as a JSON object in a fence of three backticks, for example "
            f'```json\n{{"action_type": "CLICK", "x": {x}, "y": {y}}}\n```. The types are MOVE_TO, CLICK (button, '
            "num_clicks), RIGHT_CLICK, DOUBLE_CLICK, MOUSE_DOWN, MOUSE_UP, DRAG_TO (all with x, y where they need a "
            "place), SCROLL (dx, dy), TYPING (text), PRESS, KEY_DOWN, KEY_UP (key), HOTKEY (keys), WAIT, DONE when the "
            f"task is done, and FAIL when it cannot be done. x and y are {where}, from the top left corner."
        )


def _item(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"action_type": kind, **parameters}


def _button(action: Action) -> str:
    if action.button not in (None, *BUTTONS):
        raise Unrepresentable(f"this dialect has no button {action.button}")
    return action.button or "left"


def _scrolls(given: dict[str, Any]) -> list[Action]:
    """The scroll up or down, then the one to the side."""
    dx, dy = (number_of(given, name, "SCROLL", default=0) for name in ("dx", "dy"))
    both = [("up" if dy > 0 else "down", dy), ("right" if dx > 0 else "left", dx)]
    scrolls = [Action(ActionType.SCROLL, direction=name, amount=abs(value)) for name, value in both if value]
    return scrolls or [nothing()]


def _clicks(action: Action) -> dict[str, float]:
    if action.amount is None:
        raise Unrepresentable("a scroll without an amount")
    amount = int(action.amount) if action.amount.is_integer() else action.amount
    signed = amount if action.direction in ("up", "right") else -amount
    return {"dx": 0, "dy": signed} if action.direction in ("up", "down") else {"dx": signed, "dy": 0}
