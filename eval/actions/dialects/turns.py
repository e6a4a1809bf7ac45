"""What the dialects of published agents share: an answer holds one or several actions, in a frame of its own.

Each of them writes `_read` and `_write`. Reading is strict: what does not fit is a ParseError. With `lenient` the
repairs that a dialect knows are made and named, and nothing else is guessed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from eval.actions import Action, ActionError, ActionType, ImpossibleAction, OutOfRange, ParseError, Unrepresentable
from eval.actions.dialects.base import MAX_ANSWER, AgentTurn, Dialect, Response
from eval.actions.dialects.strict_json import shown
from eval.actions.geometry import Cells, OutOfFrame, Point
from eval.actions.keys import key_name, spelled

MAX_ACTIONS: Final = 100  # of one answer
ENDS: Final = frozenset({ActionType.DONE, ActionType.FAIL})
INFEASIBLE: Final = "[INFEASIBLE]"  # how agents of OSWorld say FAIL in a text that ends their loop
CLICKS: Final = {
    "left_click": ActionType.CLICK,
    "right_click": ActionType.RIGHT_CLICK,
    "middle_click": ActionType.MIDDLE_CLICK,
    "double_click": ActionType.DOUBLE_CLICK,
    "triple_click": ActionType.TRIPLE_CLICK,
}


class Repairs:
    """What a lenient reader repairs; a strict one raises ParseError instead."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.made: list[str] = []

    def make(self, fault: str, refusal: type[ParseError] = ParseError) -> None:
        """Call it before the repair. Raises `refusal` where nothing is to be repaired."""
        if not self.lenient:
            raise refusal(fault)
        if fault not in self.made:
            self.made.append(fault)


@dataclass(frozen=True)
class TurnDialect(Dialect):
    """A dialect whose answer holds one or several actions.

    decimals  places per coordinate, where coordinates are fractions of the screen
    frame     coordinates are cells of it, such as pixels of a screenshot; None: fractions of the screen
    """

    decimals: int = 4
    frame: Cells | None = None

    @abstractmethod
    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        """(thought, actions). Raises ParseError, ActionError and Unrepresentable."""

    @abstractmethod
    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        """The whole answer. Raises Unrepresentable."""

    def in_frame(self, frame: Cells) -> Self:
        return replace(self, frame=frame)

    def parse_turn(self, text: str, *, lenient: bool = False) -> AgentTurn:
        if len(text) > MAX_ANSWER:
            raise ParseError(f"more than {MAX_ANSWER} characters")
        repairs = Repairs(lenient)
        try:
            thought, actions = self._read(text, repairs)
        except OutOfRange as error:
            raise ImpossibleAction(str(error)) from None
        except (ActionError, Unrepresentable) as error:
            raise ParseError(str(error)) from None
        if not actions:
            raise ParseError("no action")
        if len(actions) > MAX_ACTIONS:
            raise ParseError(f"{len(actions)} actions; at most {MAX_ACTIONS} are allowed")
        if any(action.type in ENDS for action in actions[:-1]):
            raise ParseError("an action after the end of the task")
        return AgentTurn(thought, tuple(actions), tuple(repairs.made))

    def format_turn(self, actions: Sequence[Action], thought: str | None = None) -> str:
        """The answer. Raises Unrepresentable where it would not read back: only coordinates may be rounded, and keys
        get their one name."""
        text = self._write(actions, thought)
        try:
            read = self.parse_turn(text)
        except ParseError as error:
            raise Unrepresentable(f"it would not read back: {error}") from None
        if read.thought != thought or list(map(_without_places, read.actions)) != list(map(_without_places, actions)):
            raise Unrepresentable(f"it would read back as another answer: {shown(read)}")
        return text

    def parse(self, text: str) -> Action:
        return self.parse_response(text).action

    def parse_response(self, text: str) -> Response:
        turn = self.parse_turn(text)
        if len(turn.actions) != 1:
            raise ParseError(f"{len(turn.actions)} actions instead of one")
        return Response(turn.thought, turn.actions[0])

    def format(self, action: Action) -> str:
        return self.format_turn([action])

    def format_response(self, action: Action, thought: str | None = None) -> str:
        return self.format_turn([action], thought)

    def _cell(self, point: Point) -> list[float]:
        """A point as the dialect writes it: [x, y]."""
        if self.frame is not None:
            return list(self.frame.from_norm(*point))
        return [round(point[0], self.decimals), round(point[1], self.decimals)]

    def _point(self, x: Any, y: Any, repairs: Repairs) -> Point:
        """The inverse. Raises ParseError for what is no number, ImpossibleAction for a point off the frame."""
        x, y = _number(x, repairs), _number(y, repairs)
        if self.frame is None:
            if not (0 <= x <= 1 and 0 <= y <= 1):
                raise ImpossibleAction(f"x and y must be numbers from 0 to 1, not {shown((x, y))}")
            return float(x), float(y)
        try:
            return self.frame.to_norm(x, y)
        except OutOfFrame:
            fault = f"a point off the frame of {self.frame.width}x{self.frame.height}: {shown((x, y))}"
        if not (-1 <= x <= self.frame.width and -1 <= y <= self.frame.height):
            raise ImpossibleAction(fault)
        # by one cell: models that count from 1, or scale to the size itself
        repairs.make(fault, ImpossibleAction)
        return self.frame.to_norm(min(max(x, 0), self.frame.width - 1), min(max(y, 0), self.frame.height - 1))

    def _pair(self, value: Any, repairs: Repairs) -> Point:
        """A point of a list [x, y]. Raises ParseError."""
        if isinstance(value, str):
            repairs.make("a coordinate that is a text instead of a list")
            value = value[:100].strip().strip("[]()").split(",", 3)
        if not isinstance(value, list) or len(value) != 2:
            raise ParseError(f"a coordinate must be [x, y], not {shown(value)}")
        return self._point(value[0], value[1], repairs)


def _number(value: Any, repairs: Repairs) -> float:
    if isinstance(value, str) and len(value) <= 20:
        try:
            number = float(value) if "." in value else int(value, 10)
        except ValueError:
            raise ParseError(f"a coordinate must be a number, not {shown(value)}") from None
        repairs.make("a coordinate that is a text instead of a number")
        return number
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(f"a coordinate must be a number, not {shown(value)}")
    return value


PLACES: Final = ("x", "y", "x2", "y2")


def _without_places(action: Action) -> dict[str, Any]:
    """The action's fields, but of its places only which are set, and keys under their one name."""
    fields = action.to_json()
    for name in PLACES:
        if name in fields:
            fields[name] = None
    if action.path is not None:
        fields["path"] = len(action.path)
    if action.distance is not None:
        fields["distance"] = None
    for name in ("keys", "modifiers"):
        if name in fields:
            fields[name] = [key_name(key) or key for key in fields[name]]
    if fields.get("button") == "left":
        del fields["button"]
    return fields


def only(value: Mapping[str, Any], allowed: Sequence[str], where: str, repairs: Repairs) -> dict[str, Any]:
    """The fields of an object that are not null. Raises ParseError for one that is not allowed; lenient drops it."""
    given = {name: item for name, item in value.items() if item is not None}
    for name in [name for name in given if name not in allowed]:
        repairs.make(f"{where} does not take {shown(name)}")
        del given[name]
    return given


def need(value: Mapping[str, Any], name: str, where: str) -> Any:
    """A field that must be there. Raises ParseError."""
    if value.get(name) is None:
        raise ParseError(f"{where} needs {name}")
    return value[name]


def number_of(value: Mapping[str, Any], name: str, where: str, *, default: float | None = None) -> float:
    """A field that must be a number. Raises ParseError, ImpossibleAction for one that no wheel or clock has."""
    given = value.get(name, default)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ParseError(f"{where}: {name} must be a number, not {shown(given)}")
    if not -1e15 < given < 1e15:
        raise ImpossibleAction(f"{where}: {name} must be between -1e15 and 1e15, not {shown(given)}")
    return given


def read_keys(spellings: Any, where: str) -> tuple[str, ...]:
    """Our names of keys. Raises ParseError for what is no list of names, ImpossibleAction for an unknown one."""
    if not isinstance(spellings, list) or not all(isinstance(key, str) for key in spellings):
        raise ParseError(f"{where}: not a list of key names: {shown(spellings)}")
    names = [key_name(key) for key in spellings]
    if None in names:
        raise ImpossibleAction(f"{where}: unknown key {shown(spellings[names.index(None)])}")
    return tuple(name for name in names if name is not None)


def write_keys(keys: Sequence[str], names: Mapping[str, str], *, capitals: bool = False) -> list[str]:
    """The dialect's names of keys. Raises Unrepresentable for an unknown one."""
    written = [spelled(key, names, capitals=capitals) for key in keys]
    if None in written:
        raise Unrepresentable(f"unknown key {shown(keys[written.index(None)])}")
    return [name for name in written if name is not None]


def nothing(**where: Any) -> Action:
    """What an action comes to that asks for no turn of the wheel, no key, no click: at most the pointer moves."""
    return Action(ActionType.HOVER, **where) if "x" in where else Action(ActionType.WAIT, duration=0.0)


def pressed(keys: tuple[str, ...], **values: Any) -> Action:
    """A key, or several at once; of none, a wait that takes no time."""
    if not keys:
        return nothing()
    return Action(ActionType.KEY if len(keys) == 1 else ActionType.HOTKEY, keys=keys, **values)


def no_more(action: Action, *written: str) -> None:
    """Raises Unrepresentable for a field of the action that the dialect does not write."""
    left = [name for name in action.to_json() if name not in ("type", *written)]
    if action.button == "left" and "button" in left:
        left.remove("button")
    if left:
        raise Unrepresentable(f"this dialect cannot say {action.type} with {' and '.join(left)}")


def cannot(action: Action) -> Unrepresentable:
    return Unrepresentable(f"this dialect has no {action.type}")


def final(thought: str | None) -> tuple[str | None, list[Action]]:
    """What an answer without a call says: the task is done, and the text is its answer; or it cannot be done."""
    text = (thought or "").strip()
    if text.startswith(INFEASIBLE):
        return None, [Action(ActionType.FAIL, text=text.removeprefix(INFEASIBLE).strip() or None)]
    return None, [Action(ActionType.DONE, text=text or None)]


def final_text(action: Action) -> str:
    """The inverse."""
    no_more(action, "text")
    if action.type is ActionType.FAIL:
        return f"{INFEASIBLE} {action.text or ''}".strip()
    return action.text or ""


def moved(actions: Sequence[Action], kinds: frozenset[ActionType]) -> list[Action]:
    """A move of the pointer and then one of these actions where the pointer is: the action at that point."""
    merged: list[Action] = []
    for action in actions:
        before = merged[-1] if merged else None
        placeless = action.point is None and action.element is None and action.type in kinds
        if placeless and before is not None and before.type is ActionType.HOVER and before.modifiers is None:
            merged.pop()
            if before.element is not None and action.type is ActionType.DRAG:
                raise Unrepresentable("a drag that starts at a mark")
            action = replace(action, x=before.x, y=before.y, element=before.element)
        merged.append(action)
    return merged
