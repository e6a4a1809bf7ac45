"""Anthropic's computer tool, as the content of an assistant's message: JSON, a list of blocks.

The versions 20241022, 20250124 and 20251124 are one tool with `input.action`; the toolset 20260801 has a tool for each
action. Sources: the types of the SDK `anthropic` 2.12.0 and the tool's public reference implementation. A message
without a call ends the task, and its text is the answer; a text that begins with [INFEASIBLE] says that it cannot be
done, as agents of OSWorld are told to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from eval.actions import DIRECTIONS, Action, ActionType, ImpossibleAction, ParseError, Unrepresentable
from eval.actions.dialects.strict_json import read_json, shown, text_of, write_json
from eval.actions.dialects.turns import (
    CLICKS,
    ENDS,
    Repairs,
    TurnDialect,
    cannot,
    final,
    final_text,
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
from eval.actions.keys import XDOTOOL

Version = Literal["20241022", "20250124", "20251124", "20260801"]
VERSIONS: Final = ("20241022", "20250124", "20251124", "20260801")
TOOL: Final = "computer"
BLOCKS: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
STOPPED: Final = {
    "refusal": "the model refused",
    "max_tokens": "the answer was cut off at the limit of tokens",
    "model_context_window_exceeded": "the answer was cut off at the end of the context window",
    "pause_turn": "the model paused its turn",
}
FIRST: Final[dict[str, tuple[str, ...]]] = {  # action -> what its input takes, in the first version
    "key": ("text",),
    "type": ("text",),
    "mouse_move": ("coordinate",),
    "left_click": (),
    "left_click_drag": ("coordinate",),
    "right_click": (),
    "middle_click": (),
    "double_click": (),
    "screenshot": (),
    "cursor_position": (),
}
CLICK: Final = ("coordinate", "text", "key")
SECOND: Final = FIRST | {
    **dict.fromkeys(CLICKS, CLICK),
    "left_click_drag": ("coordinate", "start_coordinate", "text"),
    "hold_key": ("text", "duration"),
    "left_mouse_down": (),
    "left_mouse_up": (),
    "scroll": ("coordinate", "scroll_direction", "scroll_amount", "text"),
    "wait": ("duration",),
}
THIRD: Final = SECOND | {"zoom": ("region",)}
TOOLSET: Final = (
    THIRD | dict.fromkeys(CLICKS, ("coordinate", "text")) | {"key": ("text", "repeat"), "zoom": ("region",)}
)
INPUTS: Final[dict[str, dict[str, tuple[str, ...]]]] = dict(zip(VERSIONS, (FIRST, SECOND, THIRD, TOOLSET), strict=True))
PLACED: Final = frozenset({*CLICKS.values(), ActionType.DRAG})
MAX_REPEAT: Final = 100
PLAIN: Final = {
    "screenshot": ActionType.SCREENSHOT,
    "cursor_position": ActionType.CURSOR_POSITION,
    "left_mouse_down": ActionType.MOUSE_DOWN,
    "left_mouse_up": ActionType.MOUSE_UP,
}


@dataclass(frozen=True)
class Anthropic(TurnDialect):
    """The dialect of one version of the tool."""

    version: Version = "20251124"

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """action -> the fields that its input takes."""
        return INPUTS[self.version]

    @property
    def toolset(self) -> bool:
        return self.version == "20260801"

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        content = read_json(text)
        if isinstance(content, dict) and "content" in content:  # the whole message
            stop = content.get("stop_reason")
            if isinstance(stop, str) and stop in STOPPED:
                raise ParseError(STOPPED[stop])
            content = content["content"]
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise ParseError("not the content of a message: a list of blocks")
        texts, actions, ids, calls = [], [], set(), 0
        for block in content:
            if not isinstance(kind := block.get("type"), str) or kind not in BLOCKS:
                raise ParseError(f"a block of type {shown(block.get('type'))}")
            if kind == "text":
                texts.append(text_of(block, "text", "a text"))
            elif kind == "tool_use":
                name = text_of(block, "id", "tool_use")
                if name in ids:
                    raise ParseError(f"two calls with the id {shown(name)}")
                ids.add(name)
                calls += 1
                actions += self._call(block, repairs)
        thought = "\n".join(texts).strip() or None
        return (thought, self._merged(actions)) if calls else final(thought)

    def _merged(self, actions: list[Action]) -> list[Action]:
        """The first version points by mouse_move alone, so that a click at a point is two calls there."""
        return moved(actions, PLACED) if self.version == "20241022" else actions

    def _call(self, block: dict[str, Any], repairs: Repairs) -> list[Action]:
        name, given = block.get("name"), block.get("input")
        if isinstance(given, str):
            repairs.make("an input that is a text instead of an object")
            given = read_json(given)
        if not isinstance(given, dict) or not isinstance(name, str):
            raise ParseError(f"a call without name or input: {shown(block)}")
        action: Any
        if self.toolset:
            if block.get("toolset_name") != TOOL:
                repairs.make(f"a call without toolset_name {TOOL}")
            action = name
        elif name == TOOL:
            action = given.get("action")
            given = {key: value for key, value in given.items() if key != "action"}
        elif name in self.inputs:
            repairs.make(f"{name} as the name of the tool instead of {TOOL}")
            action, given = name, {key: value for key, value in given.items() if key != "action"}
        else:
            raise ParseError(f"a call of another tool: {shown(name)}")
        if not isinstance(action, str) or action not in self.inputs:
            raise ParseError(f"unknown action {shown(action)}")
        allowed = self.inputs[action]
        if not allowed and "coordinate" in given and action in CLICKS:
            repairs.make(f"{action} does not take 'coordinate'")
            allowed = ("coordinate",)
        return self._actions(action, only(given, allowed, action, repairs), repairs)

    def _actions(self, action: str, given: dict[str, Any], repairs: Repairs) -> list[Action]:
        if action == "key":
            repeat = number_of(given, "repeat", action, default=1)
            if repeat not in range(1, MAX_REPEAT + 1):
                raise ImpossibleAction(
                    f"key: repeat must be a whole number from 1 to {MAX_REPEAT}, not {shown(repeat)}"
                )
            return [pressed(keys) for keys in _combinations(given, action, repairs)] * int(repeat)
        if action == "hold_key":
            need(given, "duration", action)
            duration = number_of(given, "duration", action)
            return [pressed(_keys(text_of(given, "text", action), action), duration=duration)]
        if action == "type":
            return [Action(ActionType.TYPE, text=text_of(given, "text", action))]
        if action == "wait":
            need(given, "duration", action)
            return [Action(ActionType.WAIT, duration=number_of(given, "duration", action))]
        if action == "zoom":
            region = need(given, "region", action)
            if not isinstance(region, list) or len(region) != 4:
                raise ParseError(f"zoom: region must be [x0, y0, x1, y1], not {shown(region)}")
            x, y = self._point(region[0], region[1], repairs)
            x2, y2 = self._point(region[2], region[3], repairs)
            return [Action(ActionType.ZOOM, x=x, y=y, x2=x2, y2=y2)]
        if action in PLAIN:
            return [Action(PLAIN[action])]
        return [self._pointed(action, given, repairs)]

    def _pointed(self, action: str, given: dict[str, Any], repairs: Repairs) -> Action:
        held: dict[str, Any] = {}
        if "text" in given and "key" in given:
            raise ParseError(f"{action} takes text or key")
        if spelling := given.get("text", given.get("key")):
            held = {"modifiers": _keys(spelling, action)}
        point: dict[str, Any] = {}
        if "coordinate" in given:
            point = dict(zip(("x", "y"), self._pair(given["coordinate"], repairs), strict=True))
        if action in CLICKS:
            return Action(CLICKS[action], **point, **held)
        if action == "scroll":
            direction = given.get("scroll_direction")
            if direction not in DIRECTIONS:
                raise ParseError(
                    f"scroll: scroll_direction must be one of {', '.join(DIRECTIONS)}, not {shown(direction)}"
                )
            need(given, "scroll_amount", action)
            amount = number_of(given, "scroll_amount", action)
            if not amount:
                return nothing(**point, **held)
            return Action(ActionType.SCROLL, direction=direction, amount=amount, **point, **held)
        need(given, "coordinate", action)
        if action == "mouse_move":
            return Action(ActionType.HOVER, **point)
        start: dict[str, Any] = {}
        if "start_coordinate" in given:
            start = dict(zip(("x", "y"), self._pair(given["start_coordinate"], repairs), strict=True))
        elif self.toolset:
            repairs.make("left_click_drag needs start_coordinate")
        return Action(ActionType.DRAG, **start, x2=point["x"], y2=point["y"], **held)

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        texts = [] if thought is None else [thought]
        calls: list[dict[str, Any]] = []
        for action in actions:
            if action.type in ENDS:
                texts.append(final_text(action))
            else:
                calls += self._inputs(action)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts if text]
        return write_json(blocks + [self._block(index, call) for index, call in enumerate(calls)])

    def _block(self, index: int, call: dict[str, Any]) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{index}"}
        if not self.toolset:
            return {**block, "name": TOOL, "input": call}
        given = {name: value for name, value in call.items() if name != "action"}
        return {**block, "toolset_name": TOOL, "name": call["action"], "input": given}

    def _inputs(self, action: Action) -> list[dict[str, Any]]:
        calls = self._plain_inputs(action)
        first = self.version == "20241022"
        if first and action.type in PLACED and action.point is not None:
            move = {"action": "mouse_move", "coordinate": self._cell(action.point)}
            call = {name: value for name, value in calls[0].items() if name != "start_coordinate"}
            calls = [move, call if action.type is ActionType.DRAG else {"action": call["action"]}]
            if action.modifiers:
                raise Unrepresentable("this version holds no keys during a click")
        for call in calls:
            name = call["action"]
            if name not in self.inputs or set(call) - {"action", *self.inputs[name]}:
                raise Unrepresentable(f"this version cannot say {name} ({', '.join(list(call)[1:]) or 'alone'})")
            if self.toolset and not isinstance(call.get("duration", 0), int):
                raise Unrepresentable("the toolset counts whole seconds")
        if self.toolset and action.type is ActionType.DRAG and action.point is None:
            raise Unrepresentable("the toolset cannot say a drag from where the pointer is")
        return calls

    def _plain_inputs(self, action: Action) -> list[dict[str, Any]]:
        kind = action.type
        modifiers = None if action.modifiers is None else "+".join(write_keys(action.modifiers, XDOTOOL))
        held = {} if modifiers is None else {"text": modifiers}
        at = {} if action.point is None else {"coordinate": self._cell(action.point)}
        for name, type_ in CLICKS.items():
            if kind is type_:
                no_more(action, "x", "y", "modifiers")
                return [{"action": name, **at, **({} if modifiers is None else {self._holds(): modifiers})}]
        for name, type_ in PLAIN.items():
            if kind is type_:
                no_more(action)
                return [{"action": name}]
        if kind is ActionType.HOVER:
            no_more(action, "x", "y")
            return [{"action": "mouse_move", **at}]
        if kind is ActionType.DRAG and action.end is not None:
            no_more(action, "x", "y", "x2", "y2", "modifiers")
            start = {} if action.point is None else {"start_coordinate": self._cell(action.point)}
            return [{"action": "left_click_drag", **start, "coordinate": self._cell(action.end), **held}]
        if kind is ActionType.SCROLL:
            no_more(action, "x", "y", "direction", "amount", "modifiers")
            if action.amount is None or not action.amount.is_integer():
                raise Unrepresentable("a scroll without a whole number of clicks")
            wheel = {"scroll_direction": action.direction, "scroll_amount": int(action.amount)}
            return [{"action": "scroll", **at, **wheel, **held}]
        if kind is ActionType.ZOOM and action.point is not None and action.end is not None:
            return [{"action": "zoom", "region": self._cell(action.point) + self._cell(action.end)}]
        return [_spoken(action)]

    def _holds(self) -> str:
        """The field that names the keys held during a click."""
        return "key" if self.version == "20250124" else "text"

    def instructions(self) -> str:
        """How to answer, for a system prompt. The API describes the tool itself."""
        return (
            "Use the tool computer. When the task is done, answer with a text and no call of the tool; when it cannot "
            "be done, begin that text with [INFEASIBLE]."
        )


def _spoken(action: Action) -> dict[str, Any]:
    """Actions without a place."""
    kind = action.type
    if kind in (ActionType.KEY, ActionType.HOTKEY) and action.keys:
        no_more(action, "keys", "duration")
        text = "+".join(write_keys(action.keys, XDOTOOL))
        if action.duration is None:
            return {"action": "key", "text": text}
        return {"action": "hold_key", "text": text, "duration": _short(action.duration)}
    if kind is ActionType.TYPE:
        no_more(action, "text")
        return {"action": "type", "text": action.text}
    if kind is ActionType.WAIT and action.duration is not None:
        return {"action": "wait", "duration": _short(action.duration)}
    if kind is ActionType.WAIT:
        raise Unrepresentable("a wait without a duration")
    raise cannot(action)


def _short(value: float) -> float:
    return int(value) if value.is_integer() else value


def _keys(text: Any, where: str) -> tuple[str, ...]:
    """Keys as xdotool writes them: ctrl+shift+Tab. Raises ParseError."""
    if not isinstance(text, str):
        raise ParseError(f"{where}: keys must be a text, not {shown(text)}")
    return read_keys([text] if text == "+" else text.split("+"), where)


def _combinations(given: dict[str, Any], where: str, repairs: Repairs) -> list[tuple[str, ...]]:
    """The keys of `key`: one combination. Some answers hold several, with blanks between them."""
    text = text_of(given, "text", where)
    parts = text.split() if len(text) > 1 else [text]
    if len(parts) > 1 or parts != [text]:
        repairs.make("key with several combinations, or blanks")
    return [_keys(part, where) for part in parts]
