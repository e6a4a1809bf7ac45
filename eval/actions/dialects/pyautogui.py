"""PyAutoGUI as AgentNet and OpenCUA write it: normalised coordinates, `computer.terminate(status='success')`.

`actions` merges calls into Actions, `PyAutoGui` is the dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from eval.actions import Action, ActionError, ActionType, ImpossibleAction, OutOfRange, ParseError, Unrepresentable
from eval.actions.dialects.base import AgentTurn, Dialect, Response
from eval.actions.dialects.calls import CLICKS, CodeCall, calls, is_number, key_names, shown
from eval.actions.geometry import Cells, OutOfFrame

MAX_ACTIONS: Final = 1000  # of one answer; presses of a key count one by one
FENCES: Final = ("```", "```python", "```code")


def actions(code: str) -> list[Action]:
    """The code as Actions, see `merged`. Raises ParseError, also for code that is not understood, Unrepresentable."""
    return merged(calls(code))


def merged(code: Sequence[CodeCall]) -> list[Action]:
    """Calls as Actions: moveTo + dragTo is a drag, moveTo + scroll a scroll at that point, terminate done or fail.

    Raises ParseError for a call with wrong values, Unrepresentable for what no Action holds: relative coordinates,
    a click without a place, repeated presses as one action, coordinates outside the screen.
    """
    merged_actions: list[Action] = []
    left = list(code)
    while left:
        call = left.pop(0)
        following = left[0] if left else None
        if call.name == "moveTo" and following is not None and following.name == "dragTo":
            merged_actions.append(_drag(call, left.pop(0)))
        elif call.name == "moveTo" and following is not None and following.name in ("scroll", "hscroll"):
            if following.point not in (None, call.point):
                merged_actions += [_action(call), _action(left.pop(0))]
            else:
                merged_actions.append(_scroll(left.pop(0), call.point))
        elif call.name == "press" and len(presses := call.arguments["keys"] * _times(call, "presses")) != 1:
            if not presses:
                raise Unrepresentable("a press of no key")
            merged_actions += [Action(ActionType.KEY, keys=(key,)) for key in presses]
        else:
            merged_actions.append(_action(call))
        if len(merged_actions) > MAX_ACTIONS:
            raise ParseError(f"more than {MAX_ACTIONS} actions")
    return merged_actions


def code_and_thought(text: str) -> tuple[str | None, str]:
    """(thought, code) of an answer with headings (Observation, Thought, Action, Code), Code last, its fence taken off.

    Raises ParseError for text outside of the sections, a heading that comes twice, or no code.
    """
    bodies: dict[str, str] = {}
    for name, body in split_headings(text):
        if not name:
            if body.strip():
                raise ParseError("text before the first heading")
        elif name in bodies:
            raise ParseError(f"a second heading {name}")
        elif "Code" in bodies:
            raise ParseError("text after the code")
        else:
            bodies[name] = body
    if "Code" not in bodies:
        raise ParseError("no heading ## Code")
    code = bodies["Code"].strip()
    if code.startswith("```"):
        first, _, rest = code.partition("\n")
        if first not in FENCES or not rest.endswith("```"):
            raise ParseError("the code fence is not closed, or names another language than python")
        code = rest.removesuffix("```").strip()
    return bodies.get("Thought", "").strip() or None, code


def click_type(call: CodeCall) -> ActionType:
    """What a call of the click family is, its button and count considered. Raises ParseError, Unrepresentable."""
    kind = CLICKS[call.name]
    button, times = call.arguments.get("button", "left"), _times(call, "clicks")
    if kind is not ActionType.CLICK:
        if button != "left":
            raise Unrepresentable(f"{call.name} with button {shown(button)}")
        return kind
    by = {("left", 1): kind, ("left", 2): ActionType.DOUBLE_CLICK, ("left", 3): ActionType.TRIPLE_CLICK}
    by |= {("right", 1): ActionType.RIGHT_CLICK, ("middle", 1): ActionType.MIDDLE_CLICK}
    if not isinstance(button, str) or (button, times) not in by:
        why = f"click with button {shown(button)}, {times} times"
        raise Unrepresentable(why) from (OutOfRange(why) if button in ("left", "middle", "right") else None)
    return by[button, times]


def _times(call: CodeCall, name: str) -> int:
    value = call.arguments.get(name, 1)
    if not isinstance(value, int) or not 1 <= value <= 1000:
        raise ImpossibleAction(f"{name} must be a whole number from 1 to 1000, not {shown(value)}")
    return value


def _make(kind: ActionType, **values: Any) -> Action:
    try:
        return Action(kind, **values)
    except ActionError as error:
        raise Unrepresentable(str(error)) from error


def _need(call: CodeCall) -> tuple[float, float]:
    if call.point is None:
        raise Unrepresentable(f"{call.name} without coordinates")
    return call.point


def _drag(start: CodeCall, end: CodeCall) -> Action:
    (x, y), (x2, y2) = _need(start), _need(end)
    button = end.arguments.get("button")
    return _make(
        ActionType.DRAG,
        x=x,
        y=y,
        x2=x2,
        y2=y2,
        button=None if button == "left" else button,
        duration=end.arguments.get("duration"),
    )


def _scroll(call: CodeCall, point: tuple[float, float] | None) -> Action:
    clicks = call.arguments.get("clicks")
    if not is_number(clicks):
        raise ParseError(f"{call.name} needs a number of clicks")
    if clicks == 0:
        raise Unrepresentable("a scroll of 0 clicks")
    forward, back = ("up", "down") if call.name == "scroll" else ("right", "left")
    where = {} if point is None else {"x": point[0], "y": point[1]}
    return _make(ActionType.SCROLL, direction=forward if clicks > 0 else back, amount=abs(clicks), **where)


def _action(call: CodeCall) -> Action:
    given = call.arguments
    if call.name in CLICKS:
        x, y = _need(call)
        return _make(click_type(call), x=x, y=y)
    if call.name == "moveTo":
        x, y = _need(call)
        return _make(ActionType.HOVER, x=x, y=y)
    if call.name in ("scroll", "hscroll"):
        return _scroll(call, call.point)
    if call.name == "write":
        return _make(ActionType.TYPE, text=given.get("message"))
    if call.name == "press":
        return _make(ActionType.KEY, keys=tuple(given["keys"]))
    if call.name == "hotkey":
        keys = tuple(given["keys"])
        return _make(ActionType.HOTKEY if len(keys) > 1 else ActionType.KEY, keys=keys)
    if call.name in ("keyDown", "keyUp"):
        return _make(
            ActionType.KEY_DOWN if call.name == "keyDown" else ActionType.KEY_UP, keys=key_names([given.get("key")])
        )
    if call.name in ("mouseDown", "mouseUp"):
        where = {} if call.point is None else {"x": call.point[0], "y": call.point[1]}
        kind = ActionType.MOUSE_DOWN if call.name == "mouseDown" else ActionType.MOUSE_UP
        return _make(kind, button=given.get("button"), **where)
    if call.name == "wait":
        return _make(ActionType.WAIT, duration=given.get("seconds"))
    if call.name == "terminate":
        status, answer = given.get("status"), given.get("answer")
        if status not in ("success", "failure"):
            raise ParseError(f"terminate needs status success or failure, not {shown(status)}")
        return _make(ActionType.DONE if status == "success" else ActionType.FAIL, text=answer)
    raise Unrepresentable(f"{call.name} is not an action by itself")


def _nothing(call: CodeCall) -> CodeCall:
    """A call of 0 clicks, 0 presses or no key as what it does: the pointer goes to its point, or nothing happens."""
    given = call.arguments
    keys = call.name in ("press", "hotkey") and (not given["keys"] or given.get("presses") == 0)
    if not keys and (call.name not in ("scroll", "hscroll", "click") or given.get("clicks") != 0):
        return call
    if call.point is None:
        return CodeCall("wait", {"seconds": 0.0})
    return CodeCall("moveTo", {name: given[name] for name in ("x", "y")})


def _normal(call: CodeCall, frame: Cells) -> CodeCall:
    if call.point is None:
        return call
    try:
        x, y = frame.to_norm(call.arguments["x"], call.arguments["y"])
    except OutOfFrame:
        raise ImpossibleAction(f"a point off the frame of {frame.width}x{frame.height}: {shown(call.point)}") from None
    return CodeCall(call.name, {**call.arguments, "x": x, "y": y})


@dataclass(frozen=True)
class PyAutoGui(Dialect):
    """The dialect: one action is one line of code, or two for a drag and for a scroll at a point. A turn holds the code
    of several actions, one after the other.

    decimals  places per coordinate
    frame     x and y are cells of it, such as pixels of a screenshot; None: fractions of the screen
    """

    decimals: int = 4
    frame: Cells | None = None

    @property
    def reasoning(self) -> tuple[str, ...]:
        return ("Observation", "Thought", "Action")

    def format(self, action: Action) -> str:
        """Raises Unrepresentable for what PyAutoGUI code with normalised coordinates does not say."""
        kind, names = action.type, {value: key for key, value in CLICKS.items()}
        if action.element is not None or action.modifiers is not None:
            raise Unrepresentable(f"PyAutoGUI code cannot say {kind} with a mark or with modifiers")
        if action.path is not None or action.distance is not None:
            raise Unrepresentable(f"PyAutoGUI code cannot say {kind} with a path or a distance")
        if kind in (ActionType.KEY, ActionType.HOTKEY) and action.duration is not None:
            raise Unrepresentable(f"PyAutoGUI code cannot say {kind} with a duration")
        if action.button in ("back", "forward") or (kind in names and action.button is not None):
            raise Unrepresentable(f"PyAutoGUI code cannot say {kind} with button {action.button}")
        if action.x is None and (kind in names or kind is ActionType.DRAG):
            raise Unrepresentable(f"{kind} without coordinates")
        at = "" if action.x is None or action.y is None else self._at(action.x, action.y)
        if kind is ActionType.TRIPLE_CLICK:
            return f"computer.triple_click({at})"
        if kind in names:
            return f"pyautogui.{names[kind]}({at})"
        if kind is ActionType.HOVER:
            return f"pyautogui.moveTo({at})"
        if kind is ActionType.DRAG and action.end is not None:
            duration = "" if action.duration is None else f", duration={action.duration!r}"
            to = f"{self._at(*action.end)}{duration}, button={action.button or 'left'!r}"
            return f"pyautogui.moveTo({at})\npyautogui.dragTo({to})"
        if kind is ActionType.SCROLL:
            if action.amount is None:
                raise Unrepresentable("a scroll without an amount")
            amount = action.amount if action.direction in ("up", "right") else -action.amount
            name = "scroll" if action.direction in ("up", "down") else "hscroll"
            clicks = int(amount) if amount.is_integer() else amount
            return (f"pyautogui.moveTo({at})\n" if at else "") + f"pyautogui.{name}({clicks})"
        if kind is ActionType.TYPE:
            return f"pyautogui.write(message={action.text!r})"
        if kind is ActionType.KEY and action.keys:
            return f"pyautogui.press({action.keys[0]!r})"
        if kind is ActionType.HOTKEY and action.keys:
            return f"pyautogui.hotkey({', '.join(map(repr, action.keys))})"
        if kind in (ActionType.KEY_DOWN, ActionType.KEY_UP) and action.keys:
            return f"pyautogui.{'keyDown' if kind is ActionType.KEY_DOWN else 'keyUp'}({action.keys[0]!r})"
        if kind in (ActionType.MOUSE_DOWN, ActionType.MOUSE_UP):
            button = "" if action.button is None else f"button={action.button!r}"
            name = "mouseDown" if kind is ActionType.MOUSE_DOWN else "mouseUp"
            return f"pyautogui.{name}({', '.join(filter(None, (at, button)))})"
        if kind is ActionType.WAIT:
            return "computer.wait()" if action.duration is None else f"time.sleep({action.duration!r})"
        if kind in (ActionType.DONE, ActionType.FAIL):
            status = "success" if kind is ActionType.DONE else "failure"
            answer = "" if action.text is None else f", answer={action.text!r}"
            return f"computer.terminate(status={status!r}{answer})"
        raise Unrepresentable(f"PyAutoGUI has no {kind}")

    def in_frame(self, frame: Cells) -> PyAutoGui:
        return replace(self, frame=frame)

    def _at(self, x: float, y: float) -> str:
        if self.frame is not None:
            column, row = self.frame.from_norm(x, y)
            return f"x={column}, y={row}"
        return f"x={round(x, self.decimals)!r}, y={round(y, self.decimals)!r}"

    def parse(self, text: str) -> Action:
        """Exactly one action. Raises ParseError, also for code that no Action holds."""
        parsed = self._actions(text)
        if len(parsed) != 1:
            raise ParseError(f"{len(parsed)} actions instead of one")
        return parsed[0]

    def _actions(self, code: str) -> list[Action]:
        try:
            return merged([_nothing(call) for call in self._read(code)])
        except Unrepresentable as error:
            refusal = ImpossibleAction if isinstance(error.__cause__, OutOfRange) else ParseError
            raise refusal(str(error)) from None

    def format_response(self, action: Action, thought: str | None = None) -> str:
        """`## Thought` (when there is one) and `## Code`. Raises Unrepresentable for a thought that holds a heading."""
        code = f"## Code:\n{self.format(action)}"
        if thought is None:
            return code
        if not thought or thought != thought.strip() or any(line.startswith("## ") for line in thought.split("\n")):
            raise Unrepresentable("a thought must not be empty, be surrounded by blanks, or hold a heading")
        return f"## Thought:\n{thought}\n\n{code}"

    def parse_response(self, text: str) -> Response:
        """Exactly one action under `## Code`. Raises ParseError."""
        thought, code = code_and_thought(text)
        return Response(thought, self.parse(code))

    def parse_turn(self, text: str, *, lenient: bool = False) -> AgentTurn:
        """All actions of the code; done or fail can only be the last. Raises ParseError."""
        thought, code = code_and_thought(text)
        actions = self._actions(code)
        if any(action.type in (ActionType.DONE, ActionType.FAIL) for action in actions[:-1]):
            raise ParseError("an action after computer.terminate")
        return AgentTurn(thought, tuple(actions))

    def format_turn(self, actions: Sequence[Action], thought: str | None = None) -> str:
        """Raises Unrepresentable, also for actions that would read back as others: a hover and a scroll where the
        pointer is are one scroll at that point."""
        if not actions:
            raise Unrepresentable("an answer needs an action")
        first = self.format_response(actions[0], thought)
        text = "\n".join([first, *map(self.format, actions[1:])])
        alone = [self._actions(self.format(action)) for action in actions]
        try:
            back = self.parse_turn(text).actions
        except ParseError as error:
            raise Unrepresentable(str(error)) from None
        if list(back) != [action for each in alone for action in each] or len(back) != len(actions):
            raise Unrepresentable("these actions would read back as others")
        return text

    def sections(self, text: str) -> dict[str, str]:
        """The sections of an answer with headings but for its code, in their order; {} for any other answer."""
        parts = split_headings(text)
        if parts[-1][0] != "Code":
            return {}
        return {name: body.strip() for name, body in parts[:-1] if name and body.strip()}

    def format_sections(self, action: Action, sections: Mapping[str, str]) -> str:
        if set(sections) <= {"Thought"}:
            return self.format_response(action, sections.get("Thought"))
        head = "".join(f"## {name}:\n{body}\n\n" for name, body in sections.items())
        text = head + self.format_response(action)
        if self.sections(text) != dict(sections):
            raise Unrepresentable("reasoning must not hold a heading of an answer")
        return text

    def calls(self, text: str) -> list[CodeCall]:
        return self._read(code_and_thought(text)[1])

    def _read(self, code: str) -> list[CodeCall]:
        """The calls of the code, their points as fractions of the screen. Raises ParseError for one off the frame."""
        return calls(code) if self.frame is None else [_normal(call, self.frame) for call in calls(code)]

    def instructions(self) -> str:
        """How to answer, for a system prompt."""
        example, where = "x=0.42, y=0.73", "fractions of the screen's width and height"
        if self.frame is not None:
            example = self._at(0.42, 0.73)
            where = f"pixels of the screenshot, which is {self.frame.width} wide and {self.frame.height} high"
        return (
            "Answer with a line '## Code:' and then one action in PyAutoGUI, for example "
            f"pyautogui.click({example}), pyautogui.write(message='text'), pyautogui.press('enter'), "
            "pyautogui.hotkey('ctrl', 'c'), pyautogui.scroll(-3), or computer.terminate(status='success') when done. "
            f"x and y are {where}, from the top left corner."
        )


HEADINGS: Final = ("Observation", "Thought", "Action", "Code")
MARK: Final = "## "


def split_headings(text: str) -> list[tuple[str, str]]:
    """(heading, the text below it) in their order. The first entry has the heading "": the text before all headings.

    A line `## Anything else` is text, not a heading.
    """
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        name = line.removeprefix(MARK).rstrip().rstrip(":")
        if line.startswith(MARK) and name in HEADINGS:
            parts.append((name, []))
        else:
            parts[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in parts]
