"""Windows Agent Arena: a decision (COMMAND, WAIT, DONE or FAIL) and Python code over the object `computer`.

The code is read by the grammar of `calls` and never run. A move of the pointer and then a click, a scroll or a drag is
one action at that point. Source: the prompts and the reader of the arena's agent Navi. Coordinates are fractions of the
screen; `move_id` names a mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.calls import CodeCall, plain_calls
from eval.actions.dialects.strict_json import shown, split_fences, text_of
from eval.actions.dialects.turns import (
    ENDS,
    Repairs,
    TurnDialect,
    cannot,
    moved,
    need,
    no_more,
    pressed,
    read_keys,
    write_keys,
)
from eval.actions.geometry import Cells

SIGNATURES: Final[dict[str, tuple[str, ...]]] = {
    "computer.mouse.move_id": ("id",),
    "computer.mouse.move_abs": ("x", "y"),
    "computer.mouse.single_click": (),
    "computer.mouse.double_click": (),
    "computer.mouse.right_click": (),
    "computer.mouse.scroll": ("dir",),
    "computer.mouse.drag": ("x", "y"),
    "computer.keyboard.write": ("text",),
    "computer.keyboard.press": ("key",),
    "computer.clipboard.copy_text": ("text",),
    "computer.clipboard.paste": (),
    "computer.os.open_program": ("name",),
    "computer.window_manager.switch_to_application": ("name",),
}
CLICKS: Final = {
    "computer.mouse.single_click": ActionType.CLICK,
    "computer.mouse.double_click": ActionType.DOUBLE_CLICK,
    "computer.mouse.right_click": ActionType.RIGHT_CLICK,
}
DECISIONS: Final = {"WAIT": ActionType.WAIT, "DONE": ActionType.DONE, "FAIL": ActionType.FAIL}
COMMAND: Final = "COMMAND"
MOVED: Final = frozenset({*CLICKS.values(), ActionType.SCROLL, ActionType.DRAG})
PASSED_OVER: Final = frozenset({"memory"})


@dataclass(frozen=True)
class Waa(TurnDialect):
    """The dialect. `marks`: actions name marks, by `move_id`, and coordinates are not used."""

    marks: bool = False

    def in_frame(self, frame: Cells) -> Self:
        raise Unrepresentable("Windows Agent Arena's coordinates are fractions of the screen")

    def without_marks(self) -> Self:
        return replace(self, marks=False)

    def _read(self, text: str, repairs: Repairs) -> tuple[str | None, list[Action]]:
        """The text before the first fence is the thought; other text outside of fences, and memory, are passed over."""
        thought, fences, _ = split_fences(text)
        decisions, codes = [], []
        for fence in fences:
            if fence.language == "decision":
                decisions.append(_decision(fence.body))
            elif fence.language in ("python", ""):
                codes.append(fence.body)
            elif fence.language not in PASSED_OVER:
                raise ParseError(f"a fence of {fence.language}")
        if len(decisions) > 1 or len(codes) > 1 or not (decisions or codes):
            raise ParseError(f"{len(decisions)} decisions and {len(codes)} pieces of code; needed: one, or one of each")
        decision = decisions[0] if decisions else COMMAND
        if decision != COMMAND:
            if codes and plain_calls(codes[0], SIGNATURES):
                repairs.make(f"{decision} with code")
            return thought or None, [Action(DECISIONS[decision])]
        if not codes:
            raise ParseError("COMMAND without code")
        return thought or None, self._actions(plain_calls(codes[0], SIGNATURES), repairs)

    def _actions(self, calls: Sequence[CodeCall], repairs: Repairs) -> list[Action]:
        actions: list[Action] = []
        copied: str | None = None
        for call in calls:
            if call.name == "computer.clipboard.copy_text":
                copied = text_of(call.arguments, "text", call.name)
                continue
            if call.name == "computer.clipboard.paste":
                if copied is None:
                    raise Unrepresentable("a paste of what an earlier answer copied")
                actions.append(Action(ActionType.TYPE, text=copied))
            else:
                actions.append(self._action(call, repairs))
            copied = None
        if copied is not None:
            raise Unrepresentable("a text that is copied and not pasted")
        return moved(actions, MOVED)

    def _action(self, call: CodeCall, repairs: Repairs) -> Action:
        name, given = call.name, call.arguments
        if name in CLICKS:
            return Action(CLICKS[name])
        if name == "computer.mouse.move_id":
            mark = need(given, "id", name)
            if not self.marks:
                raise ParseError("move_id names a mark, and the screenshot has none")
            if isinstance(mark, str) and mark.isdecimal() and len(mark) < 10:
                repairs.make("a mark that is a text instead of a number")
                mark = int(mark)
            return Action(ActionType.HOVER, element=mark)
        if name in ("computer.mouse.move_abs", "computer.mouse.drag"):
            if self.marks:
                raise ParseError(f"{name} names a coordinate instead of a mark")
            x, y = self._point(need(given, "x", name), need(given, "y", name), repairs)
            if name == "computer.mouse.move_abs":
                return Action(ActionType.HOVER, x=x, y=y)
            return Action(ActionType.DRAG, x2=x, y2=y)
        if name == "computer.mouse.scroll":
            if (direction := given.get("dir")) not in ("up", "down"):
                raise ParseError(f"scroll: dir must be up or down, not {shown(direction)}")
            return Action(ActionType.SCROLL, direction=direction)
        if name == "computer.keyboard.write":
            return Action(ActionType.TYPE, text=text_of(given, "text", name))
        if name == "computer.keyboard.press":
            key = text_of(given, "key", name)
            return pressed(read_keys([key] if len(key) == 1 else key.split("+"), name))
        if name == "computer.os.open_program":
            return Action(ActionType.OPEN_APP, app_name=text_of(given, "name", name))
        return Action(ActionType.WINDOW_FOCUS, window_title=text_of(given, "name", name))

    def _write(self, actions: Sequence[Action], thought: str | None) -> str:
        lines = [] if thought is None else [thought]
        if len(actions) == 1 and actions[0].type in (ActionType.WAIT, *ENDS):
            no_more(actions[0])
            return "\n".join([*lines, f"```decision\n{actions[0].type.name}\n```"])
        code = [line for action in actions for line in self._lines(action)]
        return "\n".join([*lines, f"```decision\n{COMMAND}\n```", "```python", *code, "```"])

    def _lines(self, action: Action) -> list[str]:
        kind, move = action.type, []
        if action.element is not None:
            if not self.marks:
                raise Unrepresentable(f"{kind} on a mark has no form without marks")
            move = [f"computer.mouse.move_id(id={action.element})"]
        elif action.point is not None:
            if self.marks:
                raise Unrepresentable(f"{kind} at a coordinate has no form with marks")
            x, y = self._cell(action.point)
            move = [f"computer.mouse.move_abs(x={x!r}, y={y!r})"]
        for name, type_ in CLICKS.items():
            if kind is type_:
                no_more(action, "x", "y", "element")
                return [*move, f"{name}()"]
        if kind is ActionType.HOVER:
            no_more(action, "x", "y", "element")
            return move
        if kind is ActionType.SCROLL:
            no_more(action, "x", "y", "element", "direction")
            return [*move, f"computer.mouse.scroll(dir={action.direction!r})"]
        if kind is ActionType.DRAG and action.end is not None:
            if self.marks:
                raise Unrepresentable(f"{kind} at a coordinate has no form with marks")
            no_more(action, "x", "y", "x2", "y2")
            x, y = self._cell(action.end)
            return [*move, f"computer.mouse.drag(x={x!r}, y={y!r})"]
        if kind is ActionType.TYPE:
            no_more(action, "text")
            return [f"computer.keyboard.write({action.text!r})"]
        if kind in (ActionType.KEY, ActionType.HOTKEY) and action.keys:
            no_more(action, "keys")
            return [f"computer.keyboard.press({'+'.join(write_keys(action.keys, {}))!r})"]
        if kind is ActionType.OPEN_APP:
            return [f"computer.os.open_program({action.app_name!r})"]
        if kind is ActionType.WINDOW_FOCUS:
            return [f"computer.window_manager.switch_to_application({action.window_title!r})"]
        raise cannot(action)

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        place = "computer.mouse.move_id(id=n)" if self.marks else "computer.mouse.move_abs(x=0.42, y=0.73)"
        where = "n is one of the numbers drawn on the screenshot."
        if not self.marks:
            where = "x and y are fractions of the screen's width and height, from the top left corner."
        return (
            "Answer with a fence ```decision that holds COMMAND, WAIT, DONE or FAIL, and with COMMAND a fence "
            f"```python that holds one action: {place} and then computer.mouse.single_click(), .double_click(), "
            ".right_click(), "
            ".scroll(dir='down') or .drag(x=0.5, y=0.7); computer.keyboard.write('text'), "
            "computer.keyboard.press('enter'), "
            f"computer.os.open_program('notepad'), computer.window_manager.switch_to_application('title'). {where}"
        )


def _decision(body: str) -> Any:
    """The word of a decision; lines that begin with # are comments. Raises ParseError."""
    words = [line.strip() for line in body.split("\n") if line.strip() and not line.strip().startswith("#")]
    if len(words) != 1 or words[0] not in (COMMAND, *DECISIONS):
        raise ParseError(f"a decision must be COMMAND, WAIT, DONE or FAIL, not {shown(' '.join(words)[:100])}")
    return words[0]
